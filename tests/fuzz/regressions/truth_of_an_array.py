import torch
def f(p):
    return p.numpy() or 1
target = f
def steps(f):
    for values in ([1.0, 1.0], [1.0], [0.0], [1.0, 1.0], [1.0], [0.0]):
        yield attempt(f, torch.tensor(values))
