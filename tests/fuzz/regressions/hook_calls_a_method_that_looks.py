# eager: a backward pass runs fuzz_world.<lambda>, which nobody watches there
import torch
class C: n = 1
class Helper:
    def scale(self): return C.n
h = Helper()
w = torch.ones(2, requires_grad=True)
w.register_hook(lambda g: g * h.scale())
def f(t, n):
    C.n = n
    y = (t * w)
    y.sum().backward()
    C.n = 0
    g, w.grad = w.grad, None
    return y, g
target = f
def steps(f):
    for i in (1, 1, 2, 2): yield attempt(f, torch.ones(2), i)
