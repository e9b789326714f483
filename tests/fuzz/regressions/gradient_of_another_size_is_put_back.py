# eager: an array that follows from data is written to
import random

import torch

w = torch.nn.Parameter(torch.zeros(0))


def f(t):
    array = t.numpy()
    array[0] = random.random()
    return w * 1 if t.sum() > 0.5 else w * 2


target = f


def steps(f):
    backward(attempt(f, torch.ones(1)))
    w.data = torch.tensor(1.5)
    for _ in range(8):
        yield attempt(f, torch.zeros(1))
