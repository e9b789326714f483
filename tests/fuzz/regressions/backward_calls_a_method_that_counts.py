# eager: a backward pass runs fuzz_world.Fn.backward, which nobody watches there
import torch
class C: n = 0
class Helper:
    def bump(self): C.n += 1
h = Helper()
class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 1
    @staticmethod
    def backward(ctx, g):
        h.bump()
        return g
w = torch.ones(2, requires_grad=True)
def f(t):
    y = Fn.apply(t * w)
    y.sum().backward()
    return y, C.n
target = f
def steps(f):
    for i in range(4): yield attempt(f, torch.ones(2) * i), C.n
