import numpy as np
import torch
table = np.array([1.0, 2.0], dtype=np.float32)
raw = bytearray(b"abcd")
def f(which, a):
    if which == 2:
        return torch.from_numpy(table),
    if which == 3:
        return torch.as_tensor(table), torch.asarray(table)
    if which == 10:
        return torch.from_numpy(np.asarray(table)),
target = f
def steps(f):
    for which in [2, 3, 10]:
        for i in range(4):
            a = np.array([1.0, 2.0])
            r = attempt(f, which, a)
            yield r, a
            for t in r:
                if isinstance(t, torch.Tensor):
                    t.add_(1)
            yield r, a
            if i == 1:
                table[:] = [1.0, 2.0]
                raw[:] = b"abcd"
