import torch
class S(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})
s = torch.tensor([1.0, 2.0]).as_subclass(S)
def f(t):
    if (s * t).sum() > 3: r = s.max().item()
    else: r = float(s[0])
    k = s[s > 1]
    n = (s * t).nonzero()
    return r, k, n, k.shape[0], s.tolist(), [x for x in s], len(n)
target = f
def steps(f):
    for i in (1, 1, 3, 0, 3, 1): yield attempt(f, torch.ones(2) * i)
