# eager: two tensors share memory with an array of the call
import numpy as np
import torch
def f(which, x):
    if which == 0:
        b = np.zeros(2, dtype=np.float32)
        v = torch.from_numpy(b)
        v.add_(x)
        return float(b.sum()), b
    if which == 1:
        b = np.zeros(2)
        t = torch.from_numpy(b)
        b[0] = 5
        return t
    if which == 2:
        b = np.zeros(2, dtype=np.float32)
        c = b[1:]
        v = torch.from_numpy(b)
        del b
        v.add_(x)
        return c
    b = np.zeros(2, dtype=np.float32)
    u = torch.from_numpy(b)
    v = torch.from_numpy(b)
    v.add_(x)
    return u
target = f
def steps(f):
    for which in [3]:
        for i in range(4):
            r = attempt(f, which, torch.full((2,), float(i)))
            yield r
            poke(r)
