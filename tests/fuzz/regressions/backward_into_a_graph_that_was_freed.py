# eager: a backward pass goes on to what was computed before the call
import torch
a1 = torch.arange(6.0)[2]
gdi = {}
base = torch.arange(6.0).view(2, 3)
def f(p0, p3):
    p0.add_(p3)
    gdi["n"] = gdi.get("n", 0) + 1
    p0.sum().backward(retain_graph=True)
    gdi.popitem()
    return p0
target = f
def steps(f):
    yield attempt(f, base, a1.requires_grad_())
    r = attempt(f, base, a1)
    yield r
    backward(r)
    yield attempt(f, base, a1)
