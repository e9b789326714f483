import torch
class Logged(torch.Tensor):
    seen = []
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})
logged = torch.tensor([0.0, 2.0, 1.0]).as_subclass(Logged)
def f():
    if (logged * 2).sum() > 10:
        return 1
    return 2
target = f
def steps(f):
    for i in range(3):
        yield attempt(f)
    logged.add_(10)
    for i in range(3):
        yield attempt(f)
