# eager: is given a tensor, takes its data
import numpy as np
import torch
arr = np.array([1.0, 2.0], dtype=np.float32)
fs = [
    lambda t: t + arr, lambda t: arr[t.long() % 2], lambda t: np.shape(t), lambda t: np.nonzero(t),
    lambda t: (np.concatenate([t, arr]), torch.rand(2) + arr), lambda t: np.asarray(t.sum()) > 1,
    lambda t: np.add(t, arr, out=arr),
]
def f(t, i):
    return fs[i](t)
target = f
def steps(f):
    for i in range(len(fs)):
        for values in ([1.0, 2.0], [-3.0, 5.0], [0.5, 0.25], [-3.0, 5.0]):
            yield attempt(f, torch.tensor(values), i)
