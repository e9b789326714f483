# eager: an iterator or generator from outside is consumed
import torch
a = [1, 2]
it = iter(a)
def f(p, k):
    r = [next(it, None)]
    a.append(k)
    return r, p + 1
target = f
def steps(f):
    for k in (1, 2, 2, 3, 3):
        r = attempt(f, torch.ones(2), k)
        yield r
