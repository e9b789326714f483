import functools, random, torch
a0 = torch.arange(6.0)
@functools.lru_cache
def table(n):
    return torch.arange(n)
def f(p1):
    i2 = random.randint(0, 3)
    return table(i2) , p1 + 1
target = f
def steps(f):
    for i in range(8): yield attempt(f, a0)
