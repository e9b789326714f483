import torch
class Tagged(torch.Tensor):
    tag = 1
class P:
    tag = 1
tagged = torch.tensor([2.0]).as_subclass(Tagged)
pl = P()
def f(p0):
    r = pl.tag
    pl.tag = p0
    return r
def g(p0):
    r = tagged.tag
    tagged.tag = p0
    return r
def target(p): return [f,g][p](0)

def steps(h):
    for i in (0,0,1,1):
        yield attempt(h, i)
    for i in (0, 1):
        yield attempt(h, i)
