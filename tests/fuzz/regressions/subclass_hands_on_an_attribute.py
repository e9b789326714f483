import torch
class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        r = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(r, Logged): r.tag = args[0].tag + 1
        return r
logged = torch.tensor([2.0]).as_subclass(Logged)
logged.tag = 1
def f(n):
    logged.tag = n
    z = logged + 1
    return z
target = f
def steps(f):
    yield attempt(f, 1)
    yield attempt(f, 1)
    logged.tag = 4
    yield attempt(f, 2)
