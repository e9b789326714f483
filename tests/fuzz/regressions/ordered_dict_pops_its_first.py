import collections

god = collections.OrderedDict(b=0)


def f():
    god.popitem(last=False)
    god.update(a=int, b=2)


target = f


def steps(f):
    for _ in range(6):
        yield attempt(f)
