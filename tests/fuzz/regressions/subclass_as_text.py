import torch
class Logged(torch.Tensor):
    seen = []
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})
logged = torch.tensor([2.0]).as_subclass(Logged)
L = []
def f(n):
    L.append(str(logged))
    y = logged.shape[0]
    L.append(f"{logged}")
    z = logged + 1
    repr(z)
    return y
target = f
def steps(f):
    yield attempt(f, 1)
    yield attempt(f, 1)
    yield attempt(f, 1)
