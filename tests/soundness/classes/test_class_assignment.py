"""Objects that are given another class between calls, and modules that have one of their own.

Owns programs in which `object.__class__ = other` happens between calls, of every kind of object
that allows it (modules and classes among them), with everything that asks the class; and what
modules find in a class that derives from `types.ModuleType`.  Does not own classes assigned within
a call (tests/soundness/effects/test_ways_to_write.py), nor to compiled modules
(tests/test_module_classes.py).
"""

from __future__ import annotations

import enum
import sys
import types

import pytest
import torch
from torch import nn

import magpy
from tests.soundness.worlds import assert_served, run


def named(base, **more):
    """A class that answers everything in another way than those that say nothing."""
    answers = {
        "__bool__": lambda s: False,
        "__len__": lambda s: 4,
        "__getitem__": lambda s, k: 7,
        "__contains__": lambda s, k: True,
        "__eq__": lambda s, o: "equal",
        "__hash__": lambda s: 3,
        "__str__": lambda s: "text",
        "__iter__": lambda s: iter([5, 6]),
        "__enter__": lambda s: 9,
        "__exit__": lambda s, *a: None,
        "__add__": lambda s, o: o + 1,
        "__call__": lambda s: 20,
        "number": property(lambda s: 11),
        "method": lambda s: 12,
    }
    return type("Second", (base,), {**answers, **more})


def first(base, **more):
    return type("First", (base,), more)


class Colour(enum.Enum):
    RED = 1


class Shape(enum.Enum):
    ROUND = 1

    def __bool__(self):
        return False

    def __call__(self):
        return 20

    def method(self):
        return 12


Tensors = type(
    "Second", (torch.Tensor,), {"number": property(lambda s: 11), "method": lambda s: 12}
)
KINDS = {
    "module": lambda: (types.ModuleType("found"), named(types.ModuleType)),
    "module of a class": lambda: (first(types.ModuleType)("found"), named(types.ModuleType)),
    "class": lambda: (first(type)("C", (), {}), named(type, __instancecheck__=lambda c, o: True)),
    "object": lambda: (first(object)(), named(object)),
    "slots": lambda: (first(object, __slots__=("a",))(), named(object, __slots__=("a",))),
    "nn.Module": lambda: (first(nn.Module)(), named(nn.Module)),
    "list": lambda: (first(list)([1]), named(list)),
    "dict": lambda: (first(dict)(a=1), named(dict)),
    "exception": lambda: (first(Exception)("a"), named(Exception)),
    "enum": lambda: (Colour.RED, Shape),
    "tensor": lambda: (torch.ones(1).as_subclass(first(torch.Tensor)), Tensors),
}


def entered(o):
    with o as value:
        return value


LOOKS = {
    "attribute": lambda o: getattr(o, "number", 1),
    "hasattr": lambda o: hasattr(o, "number"),
    "method": lambda o: o.method() if hasattr(o, "method") else 0,
    "bool": lambda o: 1 if o else 2,
    "call": lambda o: type(o()).__name__ if callable(o) else 3,
    "item": lambda o: o[0],
    "len": len,
    "in": lambda o: 3 in o,
    "equal": lambda o: str(1 == o),
    "hash": lambda o: hash(o) == 3,
    "text": lambda o: f"{o}" == "text",
    "iteration": lambda o: [v for v in o],
    "with": entered,
    "type": lambda o: type(o).__name__,
    "class": lambda o: o.__class__.__name__,
    "isinstance": lambda o: isinstance(3, o) if isinstance(o, type) else type(o),
    "add": lambda o: o + 1,
    "dir": lambda o: len(dir(o)),
    "key": lambda o: {3: 1}.get(o),
    "filter": lambda o: len(list(filter(None, [o]))),
}


def attempted(f, *args):
    try:
        result = f(*args)
    except Exception as e:
        return type(e).__name__, str(e)
    # Classes of two worlds are no one's equals.
    return [v.__name__ if isinstance(v, type) else v for v in result]


def program(kind, look, is_argument):
    def assigned(compile):
        o, second = KINDS[kind]()
        before = type(o)
        f = compile(lambda t, *a: (t + 1, look(a[0] if a else o)))
        arguments = (o,) if is_argument else ()
        try:
            for i in range(6):
                if i in (2, 4):
                    o.__class__ = second if i == 2 else before
                yield attempted(f, torch.ones(2), *arguments)
        finally:
            o.__class__ = before

    return assigned


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_class_of_an_object_counts(kind, look):
    for is_argument in (False, True):
        run(program(kind, LOOKS[look], is_argument), "dir" if look == "dir" else None)


def test_objects_that_keep_their_class_are_served():
    for kind in KINDS:

        def same(compile, kind=kind):
            o, _ = KINDS[kind]()
            f = compile(lambda t: (t + 1, LOOKS["attribute"](o)))
            for _ in range(4):
                yield f(torch.ones(2))

        assert_served(same, captures=1)


class Found:
    """A descriptor that comes before what a module holds."""

    def __get__(self, o, cls=None):
        return 21

    def __set__(self, o, value):
        pass


def module_of_a_class(numbers):
    class Lazy(types.ModuleType):
        value = 3

        @property
        def scaled(self):
            return self.value + numbers[0]

        @scaled.setter
        def scaled(self, value):
            self.__dict__["kept"] = value

        def method(self):
            return self.value * 10

        def __call__(self, t):
            return t + self.value

        def __len__(self):
            return 2

        def __getattr__(self, name):
            if name == "lazy":
                return 8
            raise AttributeError(name)

        def __getitem__(self, key):
            return self.__dict__.get(key, 0)

    module = Lazy("found_lazily")
    module.own = 5
    return Lazy, module


CHANGES = {
    "value of the class": lambda c, m, n: setattr(c, "value", 4),
    "value of the module": lambda c, m, n: vars(m).update(value=6),
    "property": lambda c, m, n: setattr(c, "scaled", property(lambda s: 77)),
    "what a property reads": lambda c, m, n: n.__setitem__(0, 5),
    "method": lambda c, m, n: setattr(c, "method", lambda s: 1),
    "call": lambda c, m, n: setattr(c, "__call__", lambda s, t: t * 9),
    "length": lambda c, m, n: setattr(c, "__len__", lambda s: 0),
    "getattr of the class": lambda c, m, n: setattr(c, "__getattr__", lambda s, name: 99),
    "getattr is gone": lambda c, m, n: delattr(c, "__getattr__"),
    "getattr of the module": lambda c, m, n: vars(m).update(__getattr__=lambda name: 55),
    "getattribute": lambda c, m, n: setattr(c, "__getattribute__", lambda s, name: 98),
    "own": lambda c, m, n: setattr(m, "own", 12),
    "own is gone": lambda c, m, n: delattr(m, "own"),
    "descriptor": lambda c, m, n: setattr(c, "own", Found()),
    "lazy in the module": lambda c, m, n: vars(m).update(lazy=1),
    "lazy in the class": lambda c, m, n: setattr(c, "lazy", 2),
    "bases": lambda c, m, n: setattr(
        c, "__bases__", (type("Other", (types.ModuleType,), {"other": 1}),)
    ),
    "item": lambda c, m, n: setattr(c, "__getitem__", lambda s, k: 70),
    "setattr": lambda c, m, n: setattr(c, "__setattr__", lambda s, name, value: None),
}


def imported(m):
    from found_lazily import lazy, own, value

    return own, value, lazy


def stored(m):
    m.own = getattr(m, "own", 0) + 1
    m.scaled = m.value
    return sorted(v for v in vars(m).values() if type(v) is int)


OF_MODULES = {
    "value": lambda m: m.value,
    "scaled": lambda m: m.scaled,
    "own": lambda m: m.own,
    "lazy": lambda m: m.lazy,
    "method": lambda m: m.method(),
    "call": lambda m: m(torch.ones(2)),
    "len": lambda m: (len(m), bool(m)),
    "item": lambda m: m["own"],
    "other": lambda m: getattr(m, "other", 0),
    "hasattr": lambda m: (hasattr(m, "own"), hasattr(m, "lazy"), hasattr(m, "nothing")),
    "dir": lambda m: [k for k in dir(m) if not k.startswith("__")],
    "imported": imported,
    "stored": stored,
}


@pytest.mark.parametrize("look", OF_MODULES)
@pytest.mark.parametrize("change", CHANGES)
def test_what_modules_find_in_their_class(change, look):
    def looked_at(compile):
        numbers = [1]
        cls, module = module_of_a_class(numbers)
        f = compile(lambda t: (t + 1, OF_MODULES[look](module)))
        for i in range(5):
            if i == 3:
                CHANGES[change](cls, module, numbers)
            sys.modules["found_lazily"] = module
            seen = attempted(f, torch.ones(2))
            del sys.modules["found_lazily"]
            yield seen

    run(looked_at, "dir" if look == "dir" else None)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x * 2,
        lambda x: x[:1],
        lambda x: x.detach(),
        lambda x: nn.Parameter(x.clone()),
        lambda x: x.as_subclass(Tensors),
    ],
    ids=["computed", "view", "detached", "parameter", "of_a_class"],
)
@pytest.mark.filterwarnings("ignore")
def test_a_class_is_assigned_to_a_tensor_of_the_call(make):
    class Other(torch.Tensor):
        pass

    def f(x):
        t = make(x)
        t.__class__ = Other
        return t, x + 1

    c = magpy.compile(f, backend="eager")
    for _ in range(3):
        assert [type(t) for t in c(torch.ones(2))] == [Other, torch.Tensor]
    assert "a class is assigned" in magpy.stats(c).reasons[0]
