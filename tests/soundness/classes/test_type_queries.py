"""What the interpreter asks of classes and builtins where no attribute is read."""

from __future__ import annotations

import abc
import collections.abc

import pytest
import torch

import magpy
from tests.fuzz import worlds

CHANGES = {}


def change(make):
    CHANGES[make.__name__] = make
    return make


@change
def registered_as_a_sequence():
    class Pair:
        def __len__(self):
            return 2

        def __getitem__(self, i):
            return [3, 4][i]

    pair = Pair()

    def f(x):
        match pair:
            case [a, b]:
                return x + a * b
            case _:
                return x - 1

    return f, lambda: collections.abc.Sequence.register(Pair), None


@change
def registered_as_a_mapping():
    class Names:
        def __len__(self):
            return 1

        def keys(self):
            return ["k"]

        def __getitem__(self, key):
            return 3

        def get(self, key, default=None):
            return 3

    names = Names()

    def f(x):
        match names:
            case {"k": v}:
                return x + v
            case _:
                return x - 1

    return f, lambda: collections.abc.Mapping.register(Names), None


def _abstract():
    class Base(abc.ABC):
        @abc.abstractmethod
        def m(self):
            return 4

    return Base


def _made(cls):
    def f(x):
        try:
            return x + cls().m()
        except TypeError as error:
            return str(error)

    return f


@change
def no_more_abstract():
    cls = _abstract()

    def set_to(names):
        cls.__abstractmethods__ = frozenset(names)

    return _made(cls), lambda: set_to([]), lambda: set_to(["m"])


@change
def abstract_by_now():
    cls = type("Made", (_abstract(),), {"m": lambda self: 1})

    def set_to(names):
        cls.__abstractmethods__ = frozenset(names)

    return _made(cls), lambda: set_to(["m"]), lambda: set_to([])


@pytest.mark.parametrize("make", CHANGES.values(), ids=CHANGES)
def test_classes_are_what_they_are_by_now(make):
    def outcomes(wrap):
        program, change, back = make()
        f = wrap(program)
        found = [str(f(torch.ones(2))) for _ in range(3)]
        change()
        try:
            found += [str(f(torch.ones(2))) for _ in range(2)]
        finally:
            if back is not None:
                back()
        return [*found, str(f(torch.ones(2)))]

    made = []

    def compiled(f):
        made.append(magpy.compile(f, backend="eager"))
        return made[-1]

    assert outcomes(compiled) == outcomes(lambda f: f)
    assert magpy.stats(made[0]).hits >= 2


def test_an_object_that_answers_anything_is_called():
    class Lazy:
        def __getattr__(self, name):
            value = len(self.__dict__)
            self.__dict__[name] = value
            return value

        def __call__(self, x):
            return x + 1

    class Strict:
        def __getattr__(self, name):
            raise RuntimeError(name)

        def __call__(self, x):
            return x + 1

    for cls in (Lazy, Strict):
        eager, ours = cls(), cls()

        def program(x, thing):
            return thing(x) * 2

        f = magpy.compile(program, backend="eager")
        for _ in range(3):
            assert f(torch.ones(2), ours).tolist() == program(torch.ones(2), eager).tolist()
        assert vars(ours) == vars(eager) == {}
        assert magpy.stats(f).hits == 2


def test_a_callable_that_is_equal_to_a_function_is_not_that_function():
    class Proxy:
        def __init__(self, wrapped, k):
            self.wrapped, self.k = wrapped, k

        def __hash__(self):
            return hash(self.wrapped)

        def __eq__(self, other):
            return self.wrapped == other

        def __call__(self, x):
            return x * self.k

    proxy = Proxy(print, 2)
    f = magpy.compile(lambda x: proxy(x), backend="eager")
    assert f(torch.ones(1)).tolist() == f(torch.ones(1)).tolist() == [2]
    proxy.k = 3
    assert f(torch.ones(1)).tolist() == [3]


def test_functions_that_are_made_have_the_builtins_of_their_globals():
    report = worlds.run("""
import torch
space = {}
exec("def outer(x):\\n    def inner():\\n        return len([1])\\n    return x * inner()", space)
outer = space["outer"]
def f(x):
    return outer(x)
target = f
def steps(f):
    yield f(torch.ones(2))
    yield f(torch.ones(2))
    space["__builtins__"] = {"len": lambda v: 100}
    yield f(torch.ones(2))
    yield f(torch.ones(2))
""")
    assert report.finding is None
    assert report.captures == 2, report.reasons


@pytest.mark.parametrize("way", ["base.__subclasses__()", "type.__subclasses__(base)"])
def test_a_class_is_asked_for_its_subclasses_again(way):
    report = worlds.run(f"""
import torch
class base:
    weight = 1
class first(base):
    weight = 3
def f(x):
    return x * sum(c.weight for c in {way}), [c.__name__ for c in base.mro()]
target = f
def steps(f):
    for i in range(8):
        if i == 2:
            second = type("second", (base,), {{"weight": 5}})
        if i == 4:
            third = type("third", (second,), {{}})
        yield f(torch.ones(2))
""")
    assert report.finding is None
    assert "__subclasses__ is called" in str(report.reasons)


def test_what_stands_for_a_function_in_a_class_may_be_given_another():
    report = worlds.run("""
import torch
class C:
    p = property(lambda self: 1)
    q = type("Property", (property,), {})(lambda self: 4)
    @staticmethod
    def s():
        return 2
    @classmethod
    def c(cls):
        return 3
o = C()
def f(x):
    return x * o.p, o.q, o.s(), C.s(), o.c(), C.c(), getattr(o, "p")
target = f
def steps(f):
    yield f(torch.ones(2))
    yield f(torch.ones(2))
    vars(C)["p"].__init__(lambda self: 5)
    yield f(torch.ones(2))
    vars(C)["q"].__init__(lambda self: 8)
    yield f(torch.ones(2))
    vars(C)["s"].__init__(lambda: 6)
    yield f(torch.ones(2))
    vars(C)["c"].__init__(lambda cls: 7)
    yield f(torch.ones(2))
    yield f(torch.ones(2))
""")
    assert report.finding is None
    assert report.captures == 5, report.reasons
