import torch
a = [1] * 3000
a[::2] = [a] * 1500
def f(p):
    return len(tuple(a)), p + 1
target = f
def steps(f):
    for j in range(3):
        yield attempt(f, torch.ones(2))
