# eager: add writes to an array that follows from data
import numpy as np
import torch
an, kept = np.array([2.0]), torch.arange(6.0)
def f(p0):
    np.add(p0.numpy()[:1], 1, out=an)
    return float(an[0])
target = f
def steps(f):
    yield attempt(f, kept)
    for j in range(6):
        yield attempt(f, torch.ones(j))
    for j in range(3):
        yield attempt(f, torch.ones(3)), attempt(f, kept)
