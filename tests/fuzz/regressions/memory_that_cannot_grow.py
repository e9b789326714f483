import torch
a0 = torch.tensor([2.0])
flat = torch.arange(6.0)

def f(p0):
    torch.add(1, flat, out=p0)
target = f

def steps(f):
    r = attempt(f, a0.view(-1))
    yield r
    r = attempt(f, a0)
    yield r
    b = torch.tensor([2.0])
    b.numpy()
    r = attempt(f, b)
    yield r
    r = attempt(f, torch.tensor([1.0]))
    yield r
