import torch
from torch import nn
norm = nn.BatchNorm1d(3)
def f(t):
    print(t.shape, t)
    return norm(t)
target = f
def steps(f):
    for i in range(4):
        yield attempt(f, torch.full((2, 3), float(i // 2)))
