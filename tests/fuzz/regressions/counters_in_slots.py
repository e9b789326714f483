import torch

class S:
    __slots__ = ("n", "t", "k")

    def __init__(self, n):
        self.n, self.t, self.k = n, 1.5, torch.zeros(16, 2)

class Holder:
    pass
s, h = S(0), Holder()
h.s = S(0)

def counts(o, x):
    o.n += 1
    o.t *= 0.5
    return x * o.n + o.t

def held(o, x):
    h.s.n += 1
    return x * h.s.n

def places(o, x):
    s.k[s.n % 16] = x
    s.n += 1
    return s.k[: s.n].sum(0)

def reads(o, x):
    return x * s.n

def raises(o, x):
    s.n += 1
    if s.n % 3 == 0:
        raise ValueError(s.n)
    s.n += 1
    return x

def f(what, o, x):
    return what(o, x)
target = f

def steps(f):
    x = torch.ones(2)
    for i in range(3):
        o = S(i)
        yield attempt(f, counts, o, x), attempt(f, counts, o, x), o.n, o.t
    for i in range(4):
        yield attempt(f, held, s, x), h.s.n
        if i == 2:
            h.s = S(20)
    s.n = 0
    for i in range(5):
        yield attempt(f, places, s, x * i), s.n, s.k
    for value in (0, 5, 5.5, True, -3, 2**60, 1, "a", None, 3, 4):
        s.n = value
        yield attempt(f, counts, s, x), s.n, s.t
        yield attempt(f, reads, s, x), s.n
    s.n = 0
    for i in range(6):
        yield attempt(f, raises, s, x), s.n
    del s.n
    yield attempt(f, counts, s, x), hasattr(s, "n")
    s.n = 4
    yield attempt(f, counts, s, x), s.n
