import torch
import torch.nn.functional as F

class O:
    pass
o = O()

def f(x, p):
    o.t = p * 0.5
    o.t *= 2
    y = F.dropout(x, o.t, True)
    y.add_(1)
    return y, x
target = f

def steps(f):
    for p in (0.5, 0.3, 0.0, 0.2, 0.4, 0.0, 0.6):
        x = torch.arange(1.0, 3.0)
        yield attempt(f, x, p), x
