import enum

class Kind(enum.Enum):
    A = 1

class Slotted:
    __slots__ = ("a",)

class Plain:
    pass

def named(n=1):
    return n
box = [Slotted()]

def names(p):
    try:
        named.__name__ = 3
    except TypeError:
        pass
    try:
        named.__defaults__ = p
    except TypeError:
        return named()

def members(p):
    try:
        Kind.A = 2
    except AttributeError as e:
        return str(e)

def classes(p):
    try:
        box[0].__class__ = Plain
    except TypeError:
        return "no"
    return type(box[0])

def of_an_argument(p):
    p.__class__ = type

def f(what, p=None):
    return what(p)
target = f

def steps(f):
    for i, p in enumerate((3, (3,), (4,), None, 3, 3, (3,))):
        yield attempt(f, names, p), named.__name__, named.__defaults__
        named.__name__, named.__defaults__ = f"other{i}", (7,)
    for made in (Slotted, Plain, Slotted, Slotted):
        box[0] = made()
        yield attempt(f, classes), type(box[0])
    for _ in range(3):
        yield attempt(f, of_an_argument, {})
        yield attempt(f, members), Kind.A
