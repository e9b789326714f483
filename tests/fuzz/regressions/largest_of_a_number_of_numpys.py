import numpy as np
import torch

gn = np.array(2.0)
shared = torch.from_numpy(gn)


def f():
    scalar = max([gn.flat[0]], key=abs)
    shared.add_(1)
    return scalar


target = f


def steps(f):
    for _ in range(3):
        yield attempt(f), gn
