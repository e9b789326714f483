import torch
tagged = type("Tagged", (torch.Tensor,), {})
t0 = torch.tensor([2.0]).as_subclass(tagged)
def f(n):
    with torch._C.DisableTorchFunctionSubclass():
        z = t0 + n
    y = t0 * 2
    return z, type(z) is torch.Tensor, y, z.as_subclass(tagged)
target = f
def steps(f):
    yield attempt(f, 1)
    yield attempt(f, 1)
    yield attempt(f, 2)
