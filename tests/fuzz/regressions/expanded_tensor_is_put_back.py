import torch

one = torch.zeros(1)
wide = one.expand(3)


def f(t):
    wide[0].add_(1)
    if wide.sum() + t.sum() > 4:
        return t + wide
    return t - one


target = f


def steps(f):
    for i in range(12):
        yield attempt(f, torch.full((3,), -9.0 * (i % 4)))
