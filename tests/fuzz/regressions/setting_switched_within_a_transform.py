# eager: the call raised TypeError: 'int' object is not callable
import torch
class Logged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=1, kwargs=None):
        return super().__torch_function__(func, types, args)
tagged = torch.tensor(2.0)
logged = torch.tensor([]).as_subclass(Logged)
def f():
    tagged.add_(1)
    return {k: q for k, q in torch.func.grad(1)(logged + 1)}
target = f
def steps(f):
    for _ in range(3):
        yield attempt(f), tagged
