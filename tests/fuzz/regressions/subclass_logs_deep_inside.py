import torch
class S: pass
s = S()
s.log = []
class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        s.log.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})
logged = torch.tensor([2.0]).as_subclass(Logged)
def f(n):
    s.log.append("a")
    z = logged + 1
    return z, len(s.log)
target = f
def steps(f):
    for n in (1, 1, 2):
        yield attempt(f, n)
        s.log.clear()
