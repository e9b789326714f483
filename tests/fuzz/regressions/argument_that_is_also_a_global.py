import torch
gt = torch.ones(3)
glist = [1]

def f(t, x):
    x.append(2)
    return (t + gt, glist)
target = f

def steps(f):
    yield attempt(f, gt, glist)
    yield attempt(f, gt * 2, [1])
    yield attempt(f, gt * 3, glist)
    yield attempt(f, gt, [1])
    yield attempt(f, gt, [1])
