import torch
from torch import nn
p = nn.Parameter(torch.ones(2))
def f():
    if p.grad is not None: p.grad = None
    return p
target = f
def steps(f):
    r = attempt(f); yield
    (p*1).sum().backward()
    yield
    r = attempt(f)
    yield r
    r = attempt(f)
    yield r
