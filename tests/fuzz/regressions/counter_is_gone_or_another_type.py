import torch
class Thing:
    n = 1
thing = Thing()
total = torch.zeros(3)
hits = 0
def make():
    k = 0
    def f(p1):
        nonlocal k
        global hits
        k += 1
        hits += 1
        thing.n += 1
        total.add_(1)
        t = torch.from_numpy(p1.numpy() * 2)
        return t + 1
    def change(v):
        nonlocal k
        k = v
    return f, change
target, change = make()
def steps(f):
    global hits
    for i in range(4):
        yield attempt(f, torch.ones(2)), total
    del thing.n
    for i in range(2):
        yield attempt(f, torch.ones(2)), total
    thing.n = 1.5
    yield attempt(f, torch.ones(2)), total
    change(2.5)
    yield attempt(f, torch.ones(2)), total
    change(3)
    hits = 0.5
    yield attempt(f, torch.ones(2)), total
    del hits
    yield attempt(f, torch.ones(2)), total
