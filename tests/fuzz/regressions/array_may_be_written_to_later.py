import numpy as np
import torch
an = np.ones(3)
an.flags.writeable = False

def f(p):
    try:
        an[0] = 1
    except ValueError:
        return p * 2
    return p * 3
target = f

def steps(f):
    for i in range(5):
        yield attempt(f, torch.ones(2)), an.copy()
        yield attempt(f, torch.ones(2)), an.copy()
        an.flags.writeable = bool(i % 2)
