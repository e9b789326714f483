# eager: a buffer from outside is changed before an operation reads it

import numpy as np
import torch

gn = np.array(1.0)
shared = torch.from_numpy(gn)


def f():
    global gn, scalar
    gn += gn - 1.5
    scalar = shared.sum()
    gn += gn


target = f


def steps(f):
    for _ in range(4):
        yield attempt(f), scalar  # noqa: F821
