# eager: grad raises a RuntimeError
import torch
base = torch.ones(3)
with torch.no_grad():
    view = base.view(3)
base.requires_grad_()
one = torch.tensor([2.0], requires_grad=True)
log = []

def f(t):
    log.append(len(log))
    with torch.enable_grad():
        try:
            g = torch.autograd.grad(one.sum(), [t], allow_unused=True)[0]
        except Exception as error:
            g = type(error).__name__
        try:
            torch.autograd.backward([one.sum(), t])
        except Exception as error:
            g = g, type(error).__name__
    return g, one.grad
target = f

def steps(f):
    b = torch.ones(3, requires_grad=True) * 2
    with torch.no_grad():
        v = b.view(3)
    b.mul_(2)
    for t in (v, one, b, v):
        yield attempt(f, t)
