import torch
class Tagged(torch.Tensor):
    pass
class Heard(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})
s = torch.tensor([1.0, 2.0]).as_subclass(Heard)

def f(t):
    n = t.nonzero().as_subclass(Tagged)
    k = (s * t).nonzero()
    return len(n), n.shape[0], len(k), k.shape[0], k
target = f

def steps(f):
    for t in ([1.0, 2.0], [1.0, 2.0], [0.0, 0.0], [3.0, 0.0], [0.0, 0.0], [1.0, 2.0]):
        yield attempt(f, torch.tensor(t))
