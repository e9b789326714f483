# eager: an array that follows from data is written to
import numpy as np
import torch
gn = np.array([1.0, 3.0, 2.0], dtype=np.float32)
shared = torch.from_numpy(gn)
def f(x):
    view = shared.numpy()
    view += 1
    view[0] = 5
    return float(gn.sum()), x.sum() + shared
target = f
def steps(f):
    for i in range(4):
        yield attempt(f, torch.ones(2))
