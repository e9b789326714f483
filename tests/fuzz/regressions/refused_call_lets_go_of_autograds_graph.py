# eager: a numpy array from outside is changed
import numpy as np
import torch

counts = np.zeros(1)
w = torch.nn.Parameter(torch.zeros(0))
other = torch.arange(3.0)


def f():
    counts[0] += 1
    g = torch.autograd.grad(w.sum(), w)
    w.data = other
    return g


target = f


def steps(f):
    for _ in range(3):
        yield attempt(f)
