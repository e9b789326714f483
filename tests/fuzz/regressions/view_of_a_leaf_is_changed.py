import torch

a = torch.tensor([1.0, 2.0, 0.5], requires_grad=True)


def f(p):
    p.t_()
    return p * 2


target = f


def steps(f):
    b = a.clone()
    for v in (b.T, b.T, a.T, a.T, b.detach().T, b.T):
        yield attempt(f, v)
    for x in (a, b):
        parts = x.split(1)
        with torch.no_grad():
            inner = x[1:]
        yield attempt(f, parts[0]), attempt(f, x[:1]), attempt(f, x[1:]), attempt(f, inner)
        yield attempt(f, parts[1]), attempt(f, x[:1]), attempt(f, x[1:]), attempt(f, inner)
