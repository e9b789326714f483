import torch, functools
@functools.lru_cache(maxsize=2)
def table(n):
    return torch.arange(n) * 2
def f(x):
    return x + table(3)
target = f
def steps(f):
    x = torch.ones(3)
    for i in range(3):
        yield f(x)
    for i in range(3):
        table(4), table(5), table(6)
        yield f(x)
        table(3).add_(1)
        yield f(x)
        yield f(x)
