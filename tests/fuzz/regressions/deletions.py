class Slotted:
    __slots__ = ('a', 'b')
    c = 1
slotted = Slotted()

def f(p):
    slotted.a = p
    del slotted.a
    if p:
        del Slotted.c
    if p > 1:
        del slotted.b
target = f

def steps(f):
    yield attempt(f, 0)
    yield attempt(f, 0)
    slotted.b = 1
    yield attempt(f, 1)
    yield attempt(f, 1)
    Slotted.c = 2
    yield attempt(f, 2)
    Slotted.c = 2
    yield attempt(f, 2)
