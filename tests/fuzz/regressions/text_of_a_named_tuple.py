import collections
import torch
Point = collections.namedtuple("Point", "x y")
p = Point([1], 2)

def f(t):
    p.x.append(1)
    r = str(p)
    p.x.pop()
    return t + 1, r
target = f

def steps(f):
    for n in range(3):
        yield attempt(f, torch.ones(2))
    p.x.append("w")
    yield attempt(f, torch.ones(2))
