import functools

import torch


@functools.lru_cache(None)
def doubled(n):
    return n * 2


kept = staticmethod(doubled)


def f(x, n):
    return x * kept(n)


target = f


def steps(f):
    for _ in range(3):
        yield attempt(f, torch.ones(2), 1)
    doubled.cache_clear()
    yield attempt(f, torch.ones(2), 1)
