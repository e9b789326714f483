import functools
import torch
gt = torch.tensor([3])

def f(p):
    p.tag = functools.partial(max, 1)
    gt[0] = 1
    return p.tag
target = f

def steps(f):
    yield attempt(f, gt)
    yield attempt(f, gt)
