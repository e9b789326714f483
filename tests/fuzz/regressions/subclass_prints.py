import torch
class Logged(torch.Tensor):
    seen = []
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        print("log", func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})
logged = torch.tensor([2.0]).as_subclass(Logged)
def f(n):
    print("a")
    y = logged * 2
    print("b")
    return y.shape[0]
target = f
def steps(f):
    yield attempt(f, 1)
    yield attempt(f, 1)
    yield attempt(f, 1)
