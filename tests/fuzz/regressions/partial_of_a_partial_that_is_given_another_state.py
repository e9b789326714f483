import functools
def base(q, n=1): pass
def other(q, n=1): pass
part = functools.partial(base)
def f():
    return functools.partial(part, n=2).func is base
target = f
def steps(f):
    for j in range(6):
        if j == 3: part.__setstate__((other, (), {}, {}))
        yield attempt(f)
