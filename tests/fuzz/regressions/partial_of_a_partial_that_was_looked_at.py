import functools
def base(q, n=1): pass
part = functools.partial(base)
kept = []
def f():
    return functools.partial(part, n=2).func is base
target = f
def steps(f):
    for j in range(6):
        if j == 3: kept.append(vars(part))
        yield attempt(f)
