# eager: settings are changed in a function that is transformed
import torch
class S(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        log.append(getattr(func, "__name__", "?"))
        return super().__torch_function__(func, types, args, kwargs or {})
log = []
s = torch.tensor([1.0, 2.0]).as_subclass(S)
def f(t):
    a = torch.vmap(lambda x: x * s)(t)
    return a
target = f
def steps(f):
    for i in range(3): yield attempt(f, torch.ones(3, 2) * i)
