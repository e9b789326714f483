import torch
a0 = torch.tensor([1.0, -1.0, 2.0])
kept = []
empty = torch.tensor([], requires_grad=True)

def changed(x):
    t = x[x > 0]
    parts = t.split(1)
    t.mul_(2)
    return parts

def aliased(x):
    t = x[x > 0]
    return t, t.split(1), t.unbind(0), t.chunk(2)

def of_nothing(x):
    t = empty[empty > 0]
    kept.append(t.split(1))
    t.unsqueeze_(0)
    return x

def f(what, x):
    return what(x)
target = f

def steps(f):
    for i in range(3):
        yield attempt(f, changed, a0 * (i + 1))
        yield attempt(f, of_nothing, a0), len(kept[-1])
        t, *views = f(aliased, a0 * (i + 1))
        t.add_(1)
        yield t, views
