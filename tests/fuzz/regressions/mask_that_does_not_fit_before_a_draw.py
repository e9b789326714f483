# eager: __getitem__ raises an IndexError
import torch
a0 = torch.arange(3.0)

def f(p0, p1):
    t2 = p1[p0 > 0]
    t2.normal_()
    return t2
target = f

def steps(f):
    for j in (0, 1, 2, 3, 4, 5, 3, 3):
        r = attempt(f, a0, torch.ones(j))
        yield r
