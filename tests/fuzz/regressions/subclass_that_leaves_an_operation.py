# eager: no __torch_function__ takes the operation
import torch
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))
class Double(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.add:
            return NotImplemented
        if func in (torch.Tensor.add, torch.Tensor.__add__):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs) * 2
        with torch._C.DisableTorchFunctionSubclass():
            r = func(*args, **kwargs)
        return r.as_subclass(cls) if type(r) is torch.Tensor else r
d = torch.tensor([2.0, 1.0]).as_subclass(Double)
def f(n):
    try:
        a = torch.add(d, 1)
    except TypeError as e:
        a = "typeerror"
    return a, d + 1, d * n, d.sum(), d.shape, d.T, d[0]
target = f
def steps(f):
    for i in (1, 1, 2, 2, 3):
        yield attempt(f, i)
