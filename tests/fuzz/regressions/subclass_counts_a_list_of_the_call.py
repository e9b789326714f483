import torch
L = [1]
class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, (args[0], len(L)), kwargs or {})
logged = torch.tensor([2.0]).as_subclass(Logged)
def f(n):
    L.append(n)
    z = logged.add(1)
    L.pop()
    return z
target = f
def steps(f):
    yield attempt(f, 1)
    yield attempt(f, 1)
    yield attempt(f, 2)
    yield attempt(f, 2)
