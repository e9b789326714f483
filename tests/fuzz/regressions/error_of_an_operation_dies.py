# eager: relu_ raises a RuntimeError
import torch
from torch import nn

gp = nn.Parameter()


def f(p0):
    try:
        gp.relu_()
    except Exception as error:
        pass
    for t4 in gp:
        pass
    gp.data = min([p0], key=lambda q: 1)
    return gp


target = f


def steps(f):
    for j in range(6, 18):
        r = attempt(f, torch.ones(j // 3))
    backward(r)
    yield r
