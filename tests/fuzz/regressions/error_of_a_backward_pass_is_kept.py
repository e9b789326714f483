import torch
from torch import nn

a0 = torch.tensor([2.0, 0.5])
gp = nn.Parameter()


def f(p0):
    gp.data = p0
    gp.sum().backward()


target = f


def steps(f):
    r = attempt(f, a0[1])
    r = attempt(f, a0)
    yield r, attempt(f, a0[1])
    gp.grad = None
    for _ in range(4):
        yield attempt(f, a0)
