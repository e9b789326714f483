import torch
import torch.nn.functional as F
class Logged(torch.Tensor):
    seen = []
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})
logged = torch.tensor([2.0, 1.0], requires_grad=True).as_subclass(Logged)
w = torch.ones(2, requires_grad=True)
def f(n):
    y = F.softmax(logged * w, 0)
    y = F.linear(y, torch.eye(2))
    z = torch.stack([y, y]).sum()
    logged.n = 3
    return z, y[0], len(y), y.tolist(), y > 1, 2 * y
target = f
def steps(f):
    for i in range(3):
        r = attempt(f, 1)
        backward(r)
        yield r, w.grad
