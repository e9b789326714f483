class A:
    v = 1

class B:
    v = 2

class C(A):
    pass

def f(what):
    if what == "fails":
        try:
            C.__name__ = 3
        except TypeError as e:
            return str(e)
    C.__qualname__ = "X"
    C.__name__ = "Y"
    C.__bases__ = (B,)
    return C.v, C.__name__
target = f

def steps(f):
    for name in ("N", "M", "O"):
        yield attempt(f, "set"), C.__name__, C.__qualname__, C.__bases__, C.v
        C.__name__, C.__qualname__, C.__bases__ = name, name, (A,)
    for name in ("N", "N", "M", "M"):
        C.__name__ = name
        yield attempt(f, "fails"), C.__name__
        yield attempt(f, "fails"), C.__name__
