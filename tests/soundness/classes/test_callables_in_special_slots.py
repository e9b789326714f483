"""Callables of every kind in the places of a class that the interpreter calls by itself.

Where such a callable is no Python function no frame tells what it reads. Whatever it reads, the
calls are those of the eager world: recorded with a guard, or run eagerly with a reason.
"""

from __future__ import annotations

import functools

import pytest
import torch

import magpy
from tests.fuzz import worlds

PRELUDE = """
import functools, operator
import torch

class State:
    def __init__(self, n):
        self.n = n
    def get(self, *args):
        return self.n
    def __call__(self, *args):
        return self.n

S = State(2)
D = {"n": 2}
L = [0, 0]

def function(*args):
    return S.n

def read(name, *args):
    return D[name] + len(args)

@functools.lru_cache(None)
def kept(*args):
    return S.n

class Class(int):
    def __new__(cls, *args):
        return int.__new__(cls, S.n)
"""

KINDS = {
    "function": "function",
    "partial": "functools.partial(read, 'n')",
    "partial_of_c": "functools.partial(getattr, S, 'n')",
    "cache": "kept",
    "bound": "S.get",
    "object": "S",
    "bound_c": "L.__len__",
    "item": "functools.partial(operator.getitem, D)",
    "static": "staticmethod(function)",
    "static_bound_c": "staticmethod(L.__len__)",
    "static_cache": "staticmethod(kept)",
    "class_": "classmethod(function)",
    "class_partial": "classmethod(functools.partial(read, 'n'))",
    "class_itself": "Class",
    "method_of_c": "functools.partialmethod(getattr, 'state')",
    "getter": "property(lambda o: function)",
    "getter_getter": "property(operator.attrgetter('bound'))",
    "getter_cache": "property(functools.lru_cache(None)(lambda o: kept))",
}

# The body of a class with FUNCTION in it, and what is done with an object `o` of it.
USES = {
    "len": ("__len__ = FUNCTION", "len(o)"),
    "index": ("__index__ = FUNCTION", "operator.index(o)"),
    "item": ("__getitem__ = FUNCTION", "o['n']"),
    "slice": ("__getitem__ = FUNCTION", "o[1:2]"),
    "call": ("__call__ = FUNCTION", "o()"),
    "call_with": ("__call__ = FUNCTION", "o('n')"),
    "contains": ("__contains__ = FUNCTION", "int(3 in o)"),
    "missing_name": ("__getattr__ = FUNCTION", "o.other"),
    "equal": ("__eq__ = FUNCTION", "(o == 3)"),
    "add": ("__add__ = FUNCTION", "(o + 3)"),
    "radd": ("__radd__ = FUNCTION", "(3 + o)"),
    "neg": ("__neg__ = FUNCTION", "(-o)"),
    "hash": ("__hash__ = FUNCTION", "hash(o)"),
    "with_": ("__enter__ = FUNCTION; __exit__ = lambda *a: None", "use_with(o)"),
    "class_item": ("__class_getitem__ = FUNCTION", "type(o)[1]"),
    "method": ("go = FUNCTION", "o.go('n')"),
    "attribute": ("go = FUNCTION", "(o.go is None) + 1"),
    "property_": ("go = property(FUNCTION)", "o.go"),
    "setter": (
        "go = property(None, FUNCTION)",
        "(setattr(o, 'go', 3), 1)[1]",
    ),
    "cached": ("go = functools.cached_property(FUNCTION)", "o.go"),
    "of_metaclass": ("", "type(o).go"),
    "call_of_class": ("", "type(o)()"),
    "super_": ("go = property(FUNCTION)", "below(o).up()"),
}

# What these read is known, unless the class is looked at after it has called them.
KNOWN = {"partial", "bound", "object", "class_", "class_partial", "class_itself"}
LATE = {"missing_name", "neg", "super_"}

PROGRAM = """
class Meta(type):
    META

class A(metaclass=Meta):
    state = 4
    bound = S.get
    def __init__(self, k):
        self.k = k
    BODY
    def __repr__(self):
        return "an A"

class Below(A):
    def up(self):
        return super().go

def below(o):
    return Below.__new__(Below)

def use_with(o):
    with o as n:
        return n

o = A.__new__(A)
o.k = 1

def f(x):
    return x * USE

target = f

def steps(f):
    x = torch.arange(4.0)
    for _ in range(3):
        yield attempt(f, x)
    S.n = 5
    yield attempt(f, x)
    yield attempt(f, x)
    D["n"] = 7
    L.append(1)
    yield attempt(f, x)
    A.bound = State(9).get
    A.state = 11
    kept.cache_clear()
    yield attempt(f, x)
    yield attempt(f, x)
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("use", USES)
def test_callable_in_a_class_is_as_eager(use, kind):
    body, expression = USES[use]
    body = body.replace("FUNCTION", KINDS[kind]) or "pass"
    meta = {
        "of_metaclass": f"go = property({KINDS[kind]})",
        "call_of_class": f"__call__ = {KINDS[kind]}",
    }.get(use, "pass")
    program = PROGRAM.replace("BODY", body).replace("META", meta).replace("USE", expression)
    report = worlds.run(PRELUDE + program)
    assert report.finding is None
    if kind == "function" or (kind in KNOWN and use not in LATE):
        raised = all("the call raised" in r or " raises a" in r for r in report.reasons)
        assert report.hits or (report.reasons and raised), report.reasons


def test_what_one_static_method_holds_says_nothing_of_others():
    def run(wrap):
        state = {"n": 1}

        @functools.lru_cache(None)
        def kept():
            return state["n"]

        kept()  # a call that finds it there runs no frame
        plain, cached = staticmethod(lambda: state["n"]), staticmethod(kept)
        relu = staticmethod(torch.nn.functional.relu)
        f = wrap(lambda t: relu(t))
        found = [f(torch.ones(1)).item(), f(torch.ones(1)).item()]
        for held in (plain, cached):
            f = wrap(lambda t, held=held: t * held())
            for i in range(6):
                if i == 3:
                    state["n"] += 4
                    kept.cache_clear()
                    kept()
                found.append(f(torch.ones(1)).item())
        return found

    assert run(lambda f: magpy.compile(f, backend="eager")) == run(lambda f: f)


METHODS_OF_C = {
    list: ["__len__", "copy", "__iter__", "__repr__", "pop", "clear", "count", "index", "append"],
    dict: ["__len__", "copy", "keys", "__repr__", "popitem", "clear", "get", "__contains__", "pop"],
    set: ["__len__", "copy", "__iter__", "__repr__", "pop", "clear", "__contains__", "add"],
}
USES_OF_C = {
    "__call__": lambda o: o(),
    "__bool__": lambda o: 1 if o else 2,
    "__len__": len,
    "__iter__": lambda o: [v for v in o],
    "__str__": lambda o: str(o).count(","),
    "__index__": lambda o: list(range(20))[o],
    "__neg__": lambda o: -o,
    "__invert__": lambda o: ~o,
    "__abs__": abs,
    "__dir__": dir,
    "__enter__": lambda o: o.__enter__(),
    "__getattr__": lambda o: o.a,
    "__contains__": lambda o: "a" in o,
    "__add__": lambda o: o + "a",
    "__mod__": lambda o: o % "a",
    "__getitem__": lambda o: o["a"],
    "__eq__": lambda o: str(o == "a"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("special", USES_OF_C)
@pytest.mark.parametrize("base", METHODS_OF_C)
def test_a_method_of_c_stands_for_another_special_method(base, special):
    def run(wrap, name):
        cls = type("C", (base,), {special: getattr(base, name)})
        o = cls({"a": 1} if base is dict else ["a"])
        f, found = wrap(lambda t: (t + 1, USES_OF_C[special](o))), []
        for i in range(5):
            if i == 2 and base is dict:
                dict.update(o, b=2, a=3)
            elif i == 2:
                getattr(base, "append" if base is list else "add")(o, "b")
            try:
                seen = f(torch.ones(1))[1]
            except Exception as e:
                seen = type(e)
            seen = list(seen) if hasattr(seen, "__next__") else seen
            listed = sorted(seen, key=str) if isinstance(seen, (set, type({}.keys()))) else seen
            found.append((str(listed), base.__repr__(o) if base is not set else base.__len__(o)))
        return found

    for name in METHODS_OF_C[base]:
        want = run(lambda f: f, name)
        assert run(lambda f: magpy.compile(f, backend="eager"), name) == want, name
