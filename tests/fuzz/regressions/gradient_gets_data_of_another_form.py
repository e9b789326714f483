# eager: gives a gradient another form
import torch
from torch import nn
gs = 'b'
weight = nn.Parameter()
bias = torch.tensor(0.25)
opt = torch.optim.SGD([bias])
plan = torch.optim.lr_scheduler.StepLR(opt, 2)

def f(p0, p1):
    del weight.grad
    plan.step()
    weight.sum().backward()
    t2 = bias
    weight.grad.data = t2
target = f

def steps(f):
    r = in_thread(f, gs, 1)
    r = attempt(f, gs, 1)
    r = attempt(f, gs, 1)
    yield r
