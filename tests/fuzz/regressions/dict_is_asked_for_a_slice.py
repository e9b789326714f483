d = {"a": 1}
def f(k):
    try:
        d[::1]
    except (TypeError, KeyError):
        pass
    try:
        d.get((1, slice(2)))
    except (TypeError, KeyError):
        pass
    return k
target = f
def steps(f):
    for i in range(3):
        yield attempt(f, 1)
