import numpy as np
import torch
kept = []
level = np.float32(-0.0)
def f(t, s, same):
    kept.append(s)
    return t + float(s), s, level, s == same, 1 / s if s == 0 else 0
target = f
def steps(f):
    global level
    for value in [2.0, 2.0, 0.0, -0.0, 0.0, -0.0, float("nan"), float("nan"), float("nan")]:
        s = np.float32(value)
        yield attempt(f, torch.ones(2), s, s)
        yield attempt(f, torch.ones(2), np.float32(value), s)
    level = np.float32(0.0)
    for flag in [np.True_, np.False_, np.bool_(True)]:
        yield attempt(f, torch.ones(2), flag, flag)
        yield attempt(f, torch.ones(2), flag, np.True_)
    yield attempt(f, torch.ones(2), level, level)
    yield attempt(f, torch.ones(2), level, level)
