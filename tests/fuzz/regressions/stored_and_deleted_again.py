class Slotted:
    __slots__ = ("a",)

class Plain:
    pass
slotted = Slotted()

def cells():
    x = 1
    del x

    def f():
        nonlocal x
        x = 1
        del x

    def put(v):
        nonlocal x
        x = v

    def get():
        return x
    return f, put, get
through_a_cell, put, get = cells()

def f(plain=False):
    slotted.a = len
    del slotted.a
    if plain:
        Plain.a = len
        del Plain.a
    through_a_cell()
target = f

def steps(f):
    yield attempt(f)
    yield attempt(f, True)
    for value in (1.5, 2):
        slotted.a = value
        Plain.a = value
        put(value)
        yield attempt(f), hasattr(slotted, "a"), hasattr(Plain, "a"), attempt(get)
        yield attempt(f, True), hasattr(slotted, "a"), hasattr(Plain, "a"), attempt(get)
