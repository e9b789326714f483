import functools
import torch

class Thing:
    k = 1
    @functools.lru_cache(None)
    def scaled(self, n, *, m=0):
        return n * self.k + m

class Key:
    def __init__(self, v):
        self.v = v
    def __hash__(self):
        return 1
    def __eq__(self, other):
        return self.v == other.v

fast = True
one, two = Thing(), Thing()
two.k = 7
keys = [Key(1), Key(1), Key(2)]

@functools.lru_cache(None)
def enabled(op, device="cpu"):
    return fast

@functools.lru_cache(None, typed=True)
def typed(op, n):
    return fast

@functools.lru_cache
def bounded(n, *, s=1):
    return n + s + fast

@functools.lru_cache(None)
def of_key(key):
    return key.v

def f(x, n, thing, key):
    if enabled("b", device="cuda"):
        x = x + 1
    x = x + typed("b", n) * bounded(2, s=2) * bounded(n=2)
    return x * thing.scaled(2) + thing.scaled(2, m=3) * of_key(key)
target = f

def steps(f):
    global fast
    enabled("a", device="cuda")
    for n in (1, 1, 1, 1.0, 1.0, True, 1, 1):
        yield attempt(f, torch.ones(2), n, one, keys[0])
    for thing in (two, two, one, two):
        yield attempt(f, torch.ones(2), 1, thing, keys[0])
    for key in (*keys, *keys):
        yield attempt(f, torch.ones(2), 1, one, key)
    fast = False
    enabled.cache_clear()
    enabled("a", device="cuda")
    typed("b", 1.0)
    for _ in range(4):
        yield attempt(f, torch.ones(2), 1, one, keys[0])
    Thing.scaled.cache_clear()
    one.k, keys[0].v = 9, 5
    bounded.cache_clear()
    of_key.cache_clear()
    for thing in (one, one, one, two, two):
        yield attempt(f, torch.ones(2), 1, thing, keys[0])
