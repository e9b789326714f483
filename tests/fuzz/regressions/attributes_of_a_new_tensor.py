import torch

def f(k):
    t = torch.rand(3)
    t.tag = [k]
    t.self = t
    return t
target = f

def steps(f):
    yield attempt(f, 1)
    yield attempt(f, 1)
    yield attempt(f, 2)
