class B:
    base = 1
class C(B): pass
def f():
    del C.base
    return C.base
target = f
def steps(f):
    for j in range(8):
        if j in (0, 1, 2, 5, 6): C.base = 2
        if j == 3: B.base = 2
        yield attempt(f)
