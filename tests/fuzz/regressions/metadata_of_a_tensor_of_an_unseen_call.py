# eager: fills its lru_cache
import functools
import torch
a0 = torch.tensor([])

@functools.lru_cache
def table(n):
    return None

def f(p0):
    p0 = torch.nn.Parameter(table(len))
    return {k: q for k, q in torch.vmap(torch)(p0)}
target = f

def steps(f):
    yield attempt(f, a0)
    table.cache_clear()
    yield attempt(f, torch.ones(3))
