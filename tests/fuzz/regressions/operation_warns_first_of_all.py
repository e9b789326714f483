# eager: warn is called: tests.fuzz.worlds._shown_in.<locals>.warned runs in it, Python of the
import warnings
import torch
import torch.nn.functional as F
a0 = torch.arange(6.0)
gi = 5
gp = torch.tensor(1.0)

def f(p0):
    global gi
    gi = gi * 2 % 7
    lt2 = F.mse_loss(p0, gp)
    warnings.warn(f'{gi}', Notice)
target = f

def steps(f):
    for i in range(8):
        yield attempt(f, a0)
