# eager: gives a tensor with gradients another form
import torch
from torch import nn
gp = nn.Parameter(torch.tensor([2.0]))

def f(p):
    for _ in range(3):
        (gp * p).backward()
        gp.data = p
target = f

def steps(f):
    for i in range(4):
        yield attempt(f, torch.tensor(float(i)))
        gp.data = torch.tensor([2.0])
        gp.grad = None
