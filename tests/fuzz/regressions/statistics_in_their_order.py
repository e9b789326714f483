import torch
from torch import nn
norm = nn.BatchNorm1d(3).requires_grad_(False)
def f(t):
    a = norm(t)
    return a, f'{norm(torch.ones(2, 3) * 0)}'
target = f
def steps(f):
    for i in range(4):
        yield attempt(f, torch.full((2, 3), float(i)))
