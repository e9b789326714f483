import numpy as np
import torch
table = np.array([1.0, 2.0], dtype=np.float32)
raw = bytearray(b"abcd")
def f(which, a):
    if which == 0:
        return torch.from_numpy(np.zeros(2)),
    if which == 1:
        return torch.as_tensor(np.zeros(2)), torch.asarray(np.ones(2))
    if which == 5:
        return torch.frombuffer(bytearray(b"abc"), dtype=torch.uint8),
    if which == 8:
        t = torch.from_numpy(np.zeros(2))
        t.add_(1)
        return t,
target = f
def steps(f):
    for which in [0, 1, 5, 8]:
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
