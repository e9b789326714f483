# eager: the call has changed an object from outside before it calls a function that magpy records
import torch
class C: n = 1
class Helper:
    def scale(self): return C.n
h = Helper()
class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 1
    @staticmethod
    def backward(ctx, g):
        return g * h.scale()
w = torch.ones(2, requires_grad=True)
def f(t, n):
    C.n = n
    y = Fn.apply(t * w)
    y.sum().backward()
    C.n = 0
    g, w.grad = w.grad, None
    return y, g
target = f
def steps(f):
    for i in (1, 1, 2, 2): yield attempt(f, torch.ones(2), i)
