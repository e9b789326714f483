"""magpy asks the program's objects nothing that the program can hear."""

from __future__ import annotations

import abc
import collections
import types
import unittest.mock

import pytest
import torch
import torch.fx

import magpy


def _raise(self):
    raise RuntimeError("no class")


CLASSES = {
    "function": lambda self: types.FunctionType,
    "tensor": lambda self: torch.Tensor,
    "dict": lambda self: dict,
    "list": lambda self: list,
    "tuple": lambda self: tuple,
    "type": lambda self: type,
    "raises": _raise,
}


@pytest.mark.parametrize("told", CLASSES.values(), ids=CLASSES)
def test_an_object_may_say_that_it_has_another_class(told):
    class Proxy:
        __class__ = property(told)

    proxy, kept = Proxy(), {}
    proxy.v = 2

    def program(x):
        kept["last"] = proxy
        made = Proxy()
        made.z = x
        return x * proxy.v, made

    f = magpy.compile(program, backend="eager")
    for _ in range(3):
        x = torch.ones(2)
        y, made = f(x)
        assert y.tolist() == [2, 2]
        assert made.z is x
        assert kept["last"] is proxy
    assert magpy.stats(f).hits == 2


def _attributes(heard):
    class Thing:
        def __getattribute__(self, name):
            heard.append(name)
            return object.__getattribute__(self, name)

        def __getitem__(self, i):
            return i

    thing = Thing()
    thing.v = 2
    return lambda x: (x * thing.v, thing[1])


def _class(heard):
    class Thing:
        @property
        def __class__(self):
            heard.append("__class__")
            return int

        def __repr__(self):
            return "Thing"

    thing, kept = Thing(), {}

    def f(x):
        kept["last"] = thing
        return x * 2, kept["last"]

    return f


def _names(heard):
    class Thing:
        def __getattribute__(self, name):
            if name == "__dict__":
                heard.append(name)
                return {"heard": len(heard)}
            return object.__getattribute__(self, name)

    thing = Thing()
    return lambda x: (x * 2, str(vars(thing)))


def _hash_of_what_is_called(heard):
    class Thing:
        def __call__(self, x):
            return x * 2

        def __hash__(self):
            heard.append("hash")
            return 5

    thing = Thing()
    return lambda x: thing(x)


def _hash_of_what_cannot(heard):
    class Thing:
        def __call__(self, x):
            return x * 2

        def __hash__(self):
            heard.append("hash")
            raise RuntimeError

    thing = Thing()
    return lambda x: thing(x)


def _lengths(heard):
    class List(list):
        def __len__(self):
            heard.append("list")
            return list.__len__(self)

    class Dict(dict):
        def __len__(self):
            heard.append("dict")
            return dict.__len__(self)

    values, names = List([1, 2]), Dict(a=1)

    def f(x):
        names["b"] = 3
        if x.dim() > 1:
            list.append(values, 5)
        return x * values[0], names["a"]

    return f


def _keys_of_what_is_made(heard):
    class Key:
        def __hash__(self):
            heard.append("hash")
            return 5

        def __repr__(self):
            return "Key"

    return lambda x: (x * 2, {Key(): 1}, {Key()}, frozenset([Key()]))


def _keys_of_what_is_made_first(heard):
    class Key:
        def __hash__(self):
            heard.append("hash")
            return 5

    def f(x):
        heard.append("start")
        return list({Key(): x + 1}.values()), len({Key(): x})

    return f


def _values_of_classes_of_the_programs(heard):
    def made(base, value):
        class Value(base):
            def __new__(cls, value):
                heard.append(base.__name__)
                new = base.__new__(cls, value)
                new.tag = len(heard)
                return new

            def __iter__(self):
                heard.append("iter")
                return base.__iter__(self)

        return lambda: Value(value)

    values = ((int, 3), (float, 2.5), (str, "a"), (bytes, b"b"), (frozenset, (1,)), (tuple, (1,)))
    makers = [made(base, value) for base, value in values]

    def f(x):
        found = [make() for make in makers]
        return x * 2, found, [v.tag for v in found]

    return f


def _ways_to_iterate(heard):
    def kind(base):
        class Own(base):
            def __iter__(self):
                heard.append(base.__name__)
                return base.__iter__(self)

        return Own

    values = [kind(base)([8, 0]) for base in (set, list, collections.deque, frozenset)]
    return lambda x: (x * 2, [8 in v for v in values], [len(v) for v in values])


def _mocks(heard):
    mock = unittest.mock.MagicMock(return_value=3, side_effect=heard.append)
    return lambda x: (x * 2, mock(1), len(mock.mock_calls), sorted(mock._mock_children))


def _modules(heard):
    class Own(types.ModuleType):
        def __init__(self, name):
            super().__init__(name)
            self.tag = name

        def __getattr__(self, name):
            heard.append(name)
            raise AttributeError(name)

    there = Own("there")

    def f(x):
        Own("made")
        return x * 2, there.tag, there.__dir__() == [], there.__repr__()[:5]

    return f


def _proxies(heard):
    class Tracer(torch.fx.Tracer):
        def create_proxy(self, kind, target, *args, **kwargs):
            heard.append((kind, str(target)))
            return super().create_proxy(kind, target, *args, **kwargs)

    tracer = Tracer()
    tracer.graph = torch.fx.Graph()
    proxy = tracer.create_proxy("placeholder", "x", (), {})

    def f(x):
        return x * 2, str(proxy.sin() + proxy.cos())[:3]

    return f


def _answer_of_an_abstract_class(heard):
    class Base(abc.ABC):
        @classmethod
        def __subclasshook__(cls, other):
            heard.append(other.__name__)
            return NotImplemented

    thing = type("Thing", (), {})()
    return lambda x: x + isinstance(thing, Base)


PROGRAMS = [
    *(
        _modules,
        _proxies,
        _ways_to_iterate,
        _mocks,
        _values_of_classes_of_the_programs,
        _answer_of_an_abstract_class,
    ),
    *(_attributes, _class, _names, _hash_of_what_is_called, _hash_of_what_cannot, _lengths),
    *(_keys_of_what_is_made, _keys_of_what_is_made_first),
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_they_hear_what_they_hear_in_eager(program):
    def outcomes(wrap):
        heard = []
        f = wrap(program(heard))
        found = []
        for shape in ((2,), (2,), (2, 2), (2,), (2,)):
            heard.clear()
            result = f(torch.ones(shape))
            found.append((list(heard), str(result)))
        return found

    assert outcomes(lambda f: magpy.compile(f, backend="eager")) == outcomes(lambda f: f)
