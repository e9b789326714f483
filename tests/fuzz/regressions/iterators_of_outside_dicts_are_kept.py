# eager: is kept
import collections
d, o = {"a": 1}, collections.OrderedDict(a=1)
def f(k):
    if k == 0:
        return iter(d)
    if k == 1:
        return zip(o)
    i = iter({"a": k, "b": k})
    next(i)
    return i
target = f
def steps(f):
    for i in range(9):
        yield attempt(f, i % 3)
