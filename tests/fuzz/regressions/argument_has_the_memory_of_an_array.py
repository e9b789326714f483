import numpy as np
import torch

array = np.array([1.0, 1.5, 2.0], dtype=np.float32)
raw = bytearray(array.tobytes())


def f(p, other, how):
    p += 0.5
    if how == "written":
        np.add(3.0, 1, out=array)
    elif how == "read":
        return p, float(array.sum())
    elif how == "bytes":
        return p, raw[3]
    elif how == "both":
        other[0] = 7.0
        kept = float(array[0])
        other[0] = 1.0
        return p, kept
    return p


target = f


def steps(f):
    a = torch.ones(3)
    array[0] = 1.0
    for how in ("written", "read", "bytes", "both"):
        for _ in range(3):
            yield attempt(f, a, np.ones(3, dtype=np.float32), how)
        yield attempt(f, torch.from_numpy(array), np.ones(3, dtype=np.float32), how), array.copy()
        yield attempt(f, torch.frombuffer(raw, dtype=torch.float32), array, how), bytes(raw)
        array[0] = 1.0
        yield attempt(f, torch.ones(3), array, how), array.copy()
        yield attempt(f, torch.ones(3), array, how), array.copy()
