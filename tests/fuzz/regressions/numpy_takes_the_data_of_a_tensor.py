import numpy as np
import torch
arr = np.array([1.0, 2.0], dtype=np.float32)
def write(t):
    a = np.asarray(t)
    a[0] = 5
    return t * 2, a
def copied(t):
    a = np.array(t)
    a[0] = 5
    return t * 2, a
fs = [
    lambda t: np.sin(t), lambda t: np.array(t), lambda t: np.array([t[0], t[1]]),
    lambda t: np.where(t > 0, t, 0), lambda t: np.float32(t.sum()), lambda t: np.dot(t, arr),
    lambda t: torch.tensor(np.array(t)) * 2, write, copied,
]
def f(t, i):
    return fs[i](t)
target = f
def steps(f):
    for i in range(len(fs)):
        for values in ([1.0, 2.0], [-3.0, 5.0], [0.5, 0.25], [-3.0, 5.0]):
            yield attempt(f, torch.tensor(values), i)
