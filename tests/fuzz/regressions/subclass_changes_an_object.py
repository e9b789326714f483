import torch
class C: pass
c = C()
c.n = 0
out = []
class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        c.n += 1
        return super().__torch_function__(func, types, args, kwargs or {})
logged = torch.tensor([2.0]).as_subclass(Logged)
def f(n):
    z = logged + 1
    return z, c.n
target = f
def steps(f):
    yield attempt(f, 1)
    yield attempt(f, 1)
    yield attempt(f, 2)
