# eager: a backward pass is made: fuzz_world.Helper.scale runs in it, and looks at 'n' that the call has changed
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
