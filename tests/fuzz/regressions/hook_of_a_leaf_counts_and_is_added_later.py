import torch
w = torch.ones(2, requires_grad=True)
st = {'n': 0}
hs = []
def tcount(g):
    st['n'] += 1
    return g
def f(p):
    st['n'] += 1
    (w * p).sum().backward()
    return st['n'], p + 1
target = f
def steps(f):
    for j in range(8):
        if j == 3: hs.append(w.register_hook(tcount))
        if j == 6: hs.pop().remove()
        r = attempt(f, torch.ones(2))
        yield r, st, w.grad
