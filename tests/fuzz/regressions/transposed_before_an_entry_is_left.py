import torch

a = torch.tensor([[0.0, 4.0]])


def f(p, way):
    p.t_()
    if way == 2:
        p.unsqueeze_(0)
    p.normal_()
    s = f"{p.tolist()}"
    return s


target = f


def steps(f):
    for way in (1, 2):
        for _ in range(4):
            p = a.double()
            yield attempt(f, p, way), p, p.shape
            yield attempt(f, a, 1), a, a.shape
            yield attempt(f, a, 1), a, a.shape
