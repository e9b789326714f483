import numpy as np
import torch
table = np.array([1.0, 2.0], dtype=np.float32)
raw = bytearray(b"abcd")
def f(which, a):
    if which == 6:
        return torch.from_numpy(a),
    if which == 7:
        return torch.tensor(table), torch.Tensor(table), torch.from_numpy(table) + 1
    if which == 4:
        return torch.frombuffer(raw, dtype=torch.uint8),
target = f
def steps(f):
    for which in [6, 7, 4]:
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
