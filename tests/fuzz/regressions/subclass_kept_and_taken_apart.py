import torch
class Logged(torch.Tensor):
    seen = []
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})
class Deaf(Logged):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.__name__)
logged = torch.tensor([0.0, 2.0, 1.0]).as_subclass(Logged)
deaf = torch.tensor([0.0, 2.0, 1.0]).as_subclass(Deaf)
def f(p):
    if p == 0:
        return logged, deaf
    if p == 1:
        return [t for t in logged]
    if p == 2:
        logged.add_(1)
        return logged.sum().item() > 0
    if p == 3:
        return logged[logged > 0], logged.shape
    return deaf.shape, len(logged)
target = f
def steps(f):
    for p in range(5):
        for i in range(3):
            yield attempt(f, p)
