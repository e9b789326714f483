import functools, torch
@functools.lru_cache
def table(n):
    return torch.arange(1)
@functools.lru_cache(maxsize=None)
def plain(n): return n*2
def f(): return table(sum), plain(3)
target=f
def steps(f):
    for i in range(3): yield attempt(f)
    table.cache_clear(); yield attempt(f); yield attempt(f)
    plain.cache_clear(); plain(7); yield attempt(f); yield attempt(f)
