import torch

class Logged(torch.Tensor):
    seen = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})
logged = torch.tensor([2.0]).as_subclass(Logged)
kept = []

def f(n):
    print(logged)
    kept.append(logged)
    o = {"a": logged}
    return o, logged.shape[0] + n
target = f

def steps(f):
    global logged
    yield attempt(f, 1)
    yield attempt(f, 1)
    yield attempt(f, 2)
    logged = torch.tensor([3.0, 1.0]).as_subclass(Logged)
    yield attempt(f, 2)
