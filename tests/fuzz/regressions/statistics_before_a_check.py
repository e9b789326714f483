import torch
from torch import nn
norm = nn.BatchNorm1d(3)
single = nn.InstanceNorm1d(3, affine=True, track_running_stats=True)
def f(t):
    a = norm(t).relu().sum() + single(t.unsqueeze(-1).expand(-1, -1, 2) * t.sum()).relu().sum()
    if a > 3.5:
        return a + 1
    return a * 2
target = f
def steps(f):
    for i in range(8):
        yield attempt(f, torch.arange(12.0).reshape(4, 3).mul(i * i).sin())
