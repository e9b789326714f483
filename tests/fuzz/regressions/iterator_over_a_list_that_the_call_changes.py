# eager: an iterator from outside is consumed, and the list that it goes over is changed
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
