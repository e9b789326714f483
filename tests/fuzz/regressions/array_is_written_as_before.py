# eager: ndarray.fill writes to an array that follows from data
import numpy as np
import torch

array = np.array([2.0])


def f(a):
    t = torch.from_numpy(a)
    t[0] = 1
    a.fill(0)
    return t


target = f


def steps(f):
    for _ in range(4):
        yield attempt(f, array)
