import torch
import torch.nn.functional as F

class O:
    pass
o = O()

def f(x):
    o.t += 0.1
    y = F.dropout(x, o.t, True)
    return y + 1, torch.full((1,), o.t)
target = f

def steps(f):
    for v in (0.2, 0.3, 0.4, -0.1, 2.0, 0.1, 0.2, 2.0, 0.3, -5.0, 0.1):
        o.t = v
        yield attempt(f, torch.ones(3)), o.t
