# eager: memory that is read as an ndarray from outside is changed through a tensor
import numpy as np
import torch
gn = np.array([1.0, 3.0, 2.0], dtype=np.float32)
shared = torch.from_numpy(gn)
def f(before, x):
    first = float(gn.sum()) if before else 0
    shared.add_(x)
    second = float(gn.sum())
    if before:
        shared.sub_(x)
    return first, second
target = f
def steps(f):
    for i in range(4):
        yield attempt(f, False, torch.ones(3))
    for i in range(4):
        yield attempt(f, True, torch.full((3,), float(i)))
