class Slotted:
    __slots__ = ("a", "b")
slotted = Slotted()
slotted.a, slotted.b = None, 1

def f(p):
    slotted.a = None
    slotted.b = 1
    return p
target = f

def steps(f):
    for i in range(8):
        yield attempt(f, 1), slotted.a, slotted.b
        if i > 3:
            slotted.a, slotted.b = i, i
