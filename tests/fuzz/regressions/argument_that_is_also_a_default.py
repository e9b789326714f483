import torch
a0 = torch.tensor(1.0)

def f(p, q=a0):
    return q
target = f

def steps(f):
    global a0
    yield attempt(f, a0)
    a0 = a0.clone()
    yield attempt(f, a0)
    yield attempt(f, a0)
