import torch
a0 = torch.tensor(0.5)

def f(p0, p1):
    p1 += p0.numpy().flat[0]
target = f

def steps(f):
    for _ in range(3):
        yield attempt(f, a0, a0[()])
    yield attempt(f, a0, a0[()].clone())
    yield attempt(f, a0, a0[()].clone())
