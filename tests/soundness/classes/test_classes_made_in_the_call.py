"""Classes that the call makes, which is refused, and namespaces: what they hold is its own."""

from __future__ import annotations

import textwrap

import pytest

from tests.fuzz import worlds

PRELUDE = r"""
import abc, collections, dataclasses, enum, functools, types
import torch
from torch import nn

class Base:
    scale = 2
    def go(self, x):
        return x * self.scale * self.k
    def __init_subclass__(cls, **kw):
        cls.extra = len(kw) + Base.scale

class Meta(type):
    made = 0
    def __new__(m, name, bases, space):
        Meta.made += 1
        cls = super().__new__(m, name, bases, space)
        cls.index = Meta.made
        return cls
    def __call__(cls, *args):
        o = super().__call__(*args)
        o.t = cls.index
        return o

class Descriptor:
    def __init__(self, v):
        self.v, self.n = v, 0
    def __get__(self, o, t):
        self.n += 1
        return self.v + self.n
    def __set_name__(self, t, name):
        self.name = name

def template(y):
    global n
    n += 1
    seen.append(n)
    return y * n
def nested():
    c, found = 0, []
    def inner(y):
        nonlocal c
        c += 1
        found.append(c)
        return y * c
    return inner
inner = nested()
TEXT = "def g(y):\n    global n\n    n += 1\n    seen.append(n)\n    return y * n"
module = types.ModuleType("module")
module.n = 3
names, classes, kept = [], [], []
holder = Base()
class Named:
    def __init_subclass__(cls):
        names.append(cls.__name__)
class Listed:
    def __init_subclass__(cls):
        classes.append(cls)
"""

STEPS = """
target = f
def steps(f):
    for k in (1, 1, 2, 2, 3, 3):
        yield attempt(f, torch.ones(2) * k, k)
    Base.scale = 5
    yield attempt(f, torch.ones(2), 3)
    yield attempt(f, torch.ones(2), 3)
    Base.go = lambda self, x: x - 1
    yield attempt(f, torch.ones(2), 3)
    Meta.made = 100
    yield attempt(f, torch.ones(2), 3)
    Descriptor.__get__ = lambda self, o, t: 7
    yield attempt(f, torch.ones(2), 3)
    yield attempt(f, torch.ones(2), 3)
"""

USED = {
    "an object that its metaclass's hook gives it": """
        class A:
            def __init_subclass__(c, **kw):
                c.kw = kw
        class B(A, z=k):
            pass
        return B.kw, x * k
    """,
    "a list": """
        class A:
            items = []
        A.items.append(k)
        A.z = x * 2
        return A.items, A.z
    """,
    "a counter": """
        class A:
            count = 0
            def bump(self):
                A.count += 1
                type(self).count += 1
        for i in range(k):
            A().bump()
        return x * A.count, A.count
    """,
    "a base from outside": """
        class A(Base, q=1):
            def __init__(self):
                self.k = k
            def go(self, x):
                return super().go(x) + self.extra
        return A().go(x), A.scale, isinstance(A(), Base), hasattr(A, "foo")
    """,
    "a metaclass": """
        class A(metaclass=Meta):
            pass
        return x * A().t, A.index
    """,
    "a descriptor": """
        class A:
            d = Descriptor(k)
            e = property(lambda self: self.d * 10)
        a = A()
        return x * a.d + a.d, a.e, A.__dict__["d"].n, A.__dict__["d"].name
    """,
    "a namedtuple": """
        P = collections.namedtuple("P", "a b")
        q = P(x, k)._replace(b=k + 1)
        return q.a * q.b, q._asdict()
    """,
    "a dataclass": """
        @dataclasses.dataclass
        class D:
            a: int
            b: list = dataclasses.field(default_factory=list)
        d = D(k)
        d.b.append(x)
        return d.b[0] * d.a, repr(D(k + 1))[-12:], d.b
    """,
    "an enum": """
        class E(enum.Enum):
            A = 1
            B = k + 3
        return x * E.B.value, E.A.name, [e.value for e in E], E(1) is E.A
    """,
    "an exception": """
        class Err(ValueError):
            pass
        try:
            if k > 1:
                raise Err(k)
            return x * 2
        except Err as e:
            return x * e.args[0]
    """,
    "a module": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.k = k
                self.register_buffer("b", torch.ones(2) * k)
            def forward(self, x):
                return x * self.k + self.b
        return Net()(x)
    """,
    "type()": """
        T = type("T", (), {"v": k, "go": lambda s, y: y * s.v, "items": [k]})
        T.items.append(len(T.items))
        return T().go(x), T.items, T.__name__
    """,
    "printed": """
        class A:
            def __repr__(self):
                return f"A{k}"
        print(A(), A.__name__)
        return f"{A()}", x * k
    """,
    "single dispatch": """
        class A:
            pass
        @functools.singledispatch
        def g(v):
            return 1
        @g.register(A)
        def _(v):
            return 2
        return x * g(A()) * g(3)
    """,
    "abc": """
        class A(abc.ABC):
            @abc.abstractmethod
            def go(self): ...
        class B(A):
            def go(self):
                return k
        return x * B().go(), isinstance(B(), A)
    """,
    "slots": """
        class S:
            __slots__ = ("a", "b")
            def __init__(self):
                self.a = k
                self.b = [k]
        s = S()
        s.b.append(s.a)
        return x * s.a, s.b, S.a.__get__(s)
    """,
    "a function of it": """
        class A:
            def go(self, y=k):
                return y * x
        return A.go
    """,
    "a class of tensors": """
        class T(torch.Tensor):
            pass
        y = x.as_subclass(T) * k
        return y.as_subclass(torch.Tensor), type(y).__name__
    """,
    "code in a dict": """
        space = {"n": k, "seen": []}
        exec(TEXT, space)
        return space["g"](space["g"](x)), space["n"], space["seen"]
    """,
    "a function with a dict": """
        space = {"n": k, "seen": []}
        g = types.FunctionType(template.__code__, globals=space)
        return g(g(x)), space["n"], space["seen"]
    """,
    "a function with cells": """
        cells = types.CellType(k), types.CellType([])
        g = types.FunctionType(inner.__code__, globals(), "g", None, cells)
        return g(g(x)), [c.cell_contents for c in cells]
    """,
    "a function of a function": """
        g = types.FunctionType(Base.go.__code__, globals(), "go", (x,))
        g.tag = k
        return g(types.SimpleNamespace(scale=Base.scale, k=k)), g.tag
    """,
    "an expression": """
        space = {"Base": Base, "x": x, "k": k}
        return eval("[(lambda: Base.scale * k)(), x * k]", space), eval("n", vars(module))
    """,
    "a name of it outside": """
        class A(Named):
            pass
        return x * k, names[-1]
    """,
}

KEPT = {
    "an object returned": "class A: pass\n        return A(), x * k",
    "returned": "class A: pass\n        return A, x * k",
    "an object stored": "class A: pass\n        kept.append(A())\n        return x * k",
    "stored": "class A: pass\n        holder.cls = A\n        return x * k",
    "in a list of a base": "class A(Listed): pass\n        return x * k",
    "a bound method": "class A:\n            def go(self): pass\n        return A().go, x * k",
    "a named tuple": "return collections.namedtuple('P', 'a b')(x, k)",
    "raised": "class Err(Exception): pass\n        raise Err(k)",
    "a tensor": "class T(torch.Tensor): pass\n        return x.as_subclass(T) * k",
    "a module": "class N(nn.Module): pass\n        kept.append(N())\n        return x * k",
}


def _run(body):
    source = f"{PRELUDE}\ndef f(x, k):{textwrap.indent(textwrap.dedent(body), '    ')}\n{STEPS}"
    return worlds.run(source)


# Programs that make neither a class nor a dict for code.
TAKEN = "a function with cells", "a function of a function"
# What a call is refused for.
MADE = "a class is made", "code runs in a dict that the call makes"


@pytest.mark.parametrize("name", USED)
def test_a_class_is_made_and_used(name):
    report = _run(USED[name])
    assert report.finding is None
    if name in TAKEN:
        assert report.hits >= 3, report.reasons
    else:
        assert not report.hits
        assert any(why in r for r in report.reasons for why in MADE), report.reasons


@pytest.mark.parametrize("name", KEPT)
def test_a_class_is_made_and_kept(name):
    """Its identity, and that of what it holds, is another one in each call."""
    report = _run(f"\n        {KEPT[name]}\n")
    assert report.finding is None
    assert not report.hits
    assert any(why in r for r in report.reasons for why in MADE), report.reasons


@pytest.mark.parametrize(
    "text",
    [
        "exec(TEXT, space)\n        return space['g'], x * k",
        "return types.FunctionType(template.__code__, space), x * k",
    ],
)
def test_a_function_is_kept_that_runs_in_a_dict_that_the_call_makes(text):
    report = _run(f"""
        space = {{"n": k, "seen": []}}
        {text}
    """)
    assert report.finding is None
    assert not report.hits
    assert any(MADE[1] in r for r in report.reasons), report.reasons


def test_code_runs_in_a_dict_from_outside():
    """Which the program may come by without a name."""
    report = _run("""
        exec("n = n + 1", module.__dict__)
        exec("k = 3", vars(holder))
        return x * k * module.n, eval("(lambda: k)()", vars(holder))
    """)
    assert report.finding is None


def test_a_class_that_was_there_is_kept():
    """Though nothing was read of it."""
    report = _run("""
        return x * k, Base, Named, collections.OrderedDict(a=k)
    """)
    assert report.finding is None
    assert report.hits >= 3, report.reasons


REACHED = {
    "a frame": "sys._getframe().f_globals",
    "a function": "function.__globals__",
    "a partial": "partial.keywords",
    "an iterator": "next(d for d in spaces)",
    "a call in C": "sorted(spaces, key=len)[0]",
    "a fold": "functools.reduce(lambda a, b: b, spaces)",
}


@pytest.mark.parametrize("way", REACHED)
def test_a_dict_from_outside_is_reached_and_code_runs_in_it(way):
    """It is none that the call has made, by whatever way it comes."""
    report = worlds.run(f"""
import functools, sys
import torch
n = 1
def function(): pass
partial = functools.partial(print, n=1)
spaces = [{{"n": 1}}]
def f(x):
    return x * eval("(lambda: n)()", {REACHED[way]}) * 2
target = f
def steps(f):
    global n
    for v in (1, 1, 5, 5, 7):
        n = partial.keywords["n"] = spaces[0]["n"] = v
        yield attempt(f, torch.ones(2))
""")
    assert report.finding is None
    assert report.captures, report.reasons


MADE_OF = """
import types
import torch
heard = []
def hears(name, value=None):
    def f(*args, **kwargs):
        heard.append(name)
        return value
    return f
class Meta(type):
    pass
class Base(metaclass=Meta):
    def m(self):
        return 1
class Held:
    pass
class Stands:
    pass
held, stands = Held(), Stands()
class Gives(type):
    def __call__(cls):
        return types.SimpleNamespace(m=lambda: 8)
"""
SAID_LATER = {
    "init_subclass": "Base.__init_subclass__ = classmethod(hears('init_subclass'))",
    "set_name": "Held.__set_name__ = hears('set_name')",
    "mro_entries": "Stands.__mro_entries__ = lambda self, bases: (Base,)",
    "prepare": "Meta.__prepare__ = classmethod(lambda c, *a, **k: {'p': hears('prepare')()})",
    "new": "Meta.__new__ = lambda c, *a: (hears('new')(), type.__new__(c, *a))[1]",
    "init": "Meta.__init__ = hears('init')",
    "call": "Meta.__call__ = lambda cls, *a: types.SimpleNamespace(m=lambda: 9)",
    "mro": "Meta.mro = lambda cls: (hears('mro')(), type.mro(cls))[1]",
    "method": "Base.m = lambda self: 5",
    "abstract": "Base.__abstractmethods__ = frozenset('m')",
    "metaclass": "Base.__class__ = Gives",
}
MAKE = {
    "statement": "class S(Base): x = held",
    "type.__new__": "S = type.__new__(Meta, 'S', (Base,), {'x': held})",
    "new_class": "S = types.new_class('S', (Base,))",
    "nothing": "S = Base",
}


@pytest.mark.parametrize("said", SAID_LATER)
@pytest.mark.parametrize("make", MAKE)
def test_what_a_class_is_made_of_says_something_later(make, said):
    report = worlds.run(f"""{MADE_OF}
def f(x):
    {MAKE[make]}
    return x * S().m(), len(S.__mro__)
target = f
def steps(f):
    for i in range(6):
        if i == 3:
            {SAID_LATER[said]}
        yield attempt(f, torch.ones(2)), list(heard)
""")
    assert report.finding is None
    refused = "a class is made" in str(report.reasons)
    assert refused or report.captures or "the call raised" in str(report.reasons), report.reasons


def test_text_of_a_function_has_its_name():
    report = worlds.run("""
import torch
def named():
    pass
def f(x):
    return x * 2, repr(named).split(" at ")[0], f"{named}".split(" at ")[0], str([named])[:15]
target = f
def steps(f):
    for i in range(6):
        if i == 3:
            named.__qualname__ = "other"
        yield f(torch.ones(2))
""")
    assert report.finding is None
    assert report.captures == 2, report.reasons


@pytest.mark.parametrize(
    "made",
    [
        "operator.call(type, 'T', (), {})",
        "operator.call(operator.call, type, 'T', (), {})",
        "type.__call__(type, 'T', (), {})",
        "operator.call(Meta, 'T', (), {})",
        "list(map(type, 'T', [()], [{}]))[0]",
    ],
)
def test_a_class_made_through_a_function_of_c_is_another_one_in_each_call(made):
    report = worlds.run(f"""{PRELUDE}
import operator
def f(x):
    return x * 2, {made}
target = f
def steps(f):
    made = [f(torch.ones(2))[1] for _ in range(4)]
    yield len(set(map(id, made)))
""")
    assert report.finding is None
    assert not report.hits
    assert any("a class is made" in reason for reason in report.reasons), report.reasons
