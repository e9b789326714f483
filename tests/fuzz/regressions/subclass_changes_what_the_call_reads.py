import torch
class Logged(torch.Tensor):
    seen = []
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})
logged = torch.tensor([0.0, 2.0, 1.0]).as_subclass(Logged)
def f(n):
    Logged.seen.clear()
    return torch.relu(logged), n
target = f
def steps(f):
    yield attempt(f, 3)
    for j in (3, 1, 0, 3, 7, 8):
        yield attempt(f, j)
