# eager: a backward pass runs fuzz_world.Fn.backward, which nobody watches there
import torch
class C: n = 0
class S(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        C.n += 1
        return super().__torch_function__(func, types, args, kwargs or {})
s = torch.tensor([1.0, 2.0]).as_subclass(S)
class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 1
    @staticmethod
    def backward(ctx, g): return g * s
w = torch.ones(2, requires_grad=True)
def f(t):
    y = Fn.apply(t * w)
    y.sum().backward()
    return y, C.n
target = f
def steps(f):
    for i in range(4): yield attempt(f, torch.ones(2) * i), C.n
