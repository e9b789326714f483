import torch

base = torch.tensor([1.0, 0.0, 2.0])


def f(t):
    t.data = base.detach()
    t.add_(t)
    text = f"{t.expand(2, 3).tolist()}"
    t.add_(t)
    return t * 1, text


target = f


def steps(f):
    for _ in range(5):
        yield attempt(f, torch.ones(2, 3))
    base.fill_(1)
    for _ in range(2):
        base.fill_(1)
        yield attempt(f, torch.ones(2, 3))
