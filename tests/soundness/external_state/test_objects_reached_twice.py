"""An object that a call reaches in two ways: in some calls it is one, in others it is two alike.

A table: the ways (through arguments and from outside), what is done with both, the order of calls.
"""

from __future__ import annotations

import collections
import contextvars
import dataclasses
import functools
import itertools
import types
import weakref

import pytest
import torch

import magpy


class Listed(list):
    """Can be a key, and be referred to weakly."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other


class Thing:
    def method(self):
        return self.v


class Slotted:
    __slots__ = ("v",)


class Property:
    @property
    def v(self):
        return self.own


class Asked:
    def __getattr__(self, name):
        if name == "v":
            return self.__dict__["own"]
        raise AttributeError(name)


class Held:
    v = None


@dataclasses.dataclass
class Record:
    v: object


Named = collections.namedtuple("Named", "v")
VAR = contextvars.ContextVar("two_ways")


def _with(holder, x, name="v"):
    setattr(holder, name, x)
    return holder


# What holds the object and is an argument, and how the object is reached through it.
GIVEN = {
    "itself": (lambda x: x, lambda a: a),
    "a list": (lambda x: [x], lambda a: a[0]),
    "a tuple": (lambda x: (x,), lambda a: a[0]),
    "a dict": (lambda x: {"k": x}, lambda a: a["k"]),
    "an attribute": (lambda x: _with(Thing(), x), lambda a: a.v),
    "a slot": (lambda x: _with(Slotted(), x), lambda a: a.v),
    "a record": (Record, lambda a: a.v),
    "a named tuple": (Named, lambda a: a.v),
    "a deque": (lambda x: collections.deque([x]), lambda a: a[0]),
    "a namespace": (lambda x: types.SimpleNamespace(v=x), lambda a: a.v),
    "a property": (lambda x: _with(Property(), x, "own"), lambda a: a.v),
    "getattr": (lambda x: _with(Asked(), x, "own"), lambda a: a.v),
    "a method": (lambda x: _with(Thing(), x), lambda a: a.method()),
    "a bound method": (lambda x: _with(Thing(), x).method, lambda a: a()),
    "a partial": (lambda x: functools.partial(lambda q: q, x), lambda a: a()),
    "a weak reference": (weakref.ref, lambda a: a()),
    "an ordered dict": (lambda x: collections.OrderedDict(k=x), lambda a: a["k"]),
    "a default dict": (lambda x: collections.defaultdict(list, k=x), lambda a: a["k"]),
    "a proxy": (lambda x: types.MappingProxyType({"k": x}), lambda a: a["k"]),
    "an exception": (ValueError, lambda a: a.args[0]),
    "a slice": (slice, lambda a: a.stop),
    "values": (lambda x: {"k": x}, lambda a: next(iter(a.values()))),
    "a key": (lambda x: {x: 1}, lambda a: next(iter(a))),
    "a set": (lambda x: {x}, lambda a: next(iter(a))),
    "a frozen set": (lambda x: frozenset([x]), lambda a: next(iter(a))),
    "an iterator": (lambda x: iter([x]), lambda a: next(a)),
    "a loop": (lambda x: [x], lambda a: [q for q in a][0]),  # noqa: C416, RUF015 - a loop
    "a star": (lambda x: [x], lambda a: (lambda q: q)(*a)),
    "keywords": (lambda x: {"q": x}, lambda a: (lambda q: q)(**a)),
    "a class": (lambda x: _with(types.new_class("Made"), x), lambda a: a.v),
    "a module": (lambda x: _with(torch.nn.Module(), x), lambda a: a.v),
    "a closure": (lambda x: lambda: x, lambda a: a()),
    "a default": (lambda x: lambda q=x: q, lambda a: a()),
    "a cell": (types.CellType, lambda a: a.cell_contents),
}
# Refused, or told from any other by what it is.
NEVER_SERVED = {"an iterator", "a frozen set"}
_WORLD = {}
_THING, _LIST = Thing(), []


# How it is put somewhere outside, and reached there.
OUTSIDE = {
    "an item": (lambda x: _WORLD.update(v=x), lambda _: _WORLD["v"]),
    "a class": (lambda x: _with(Held, x), lambda _: Held.v),
    "a variable": (VAR.set, lambda _: VAR.get()),
    "an attribute": (lambda x: _with(_THING, x), lambda _: _THING.v),
    "an element": (lambda x: _LIST.__setitem__(slice(None), [x]), lambda _: _LIST[0]),
    "a partial": (
        lambda x: _WORLD.update(p=functools.partial(lambda q: q, x)),
        lambda _: _WORLD["p"](),
    ),
    "a method of C": (lambda x: _WORLD.update(a=x.append), lambda _: _WORLD["a"].__self__),
}
USES = (
    lambda a, b: (a.append(1), len(b)),
    lambda a, b: (a is b,),
    lambda a, b: (b.append(1), len(a), a.append(2), len(b)),
    lambda a, b: (a, b),
)


def _ways():
    return (*GIVEN.values(), *OUTSIDE.values())


@pytest.mark.parametrize("way", GIVEN)
def test_one_object_and_two_are_told_apart(way):
    programs = itertools.product(_ways(), USES, ("ssdsd", "ddsds"))
    hold, first = GIVEN[way]
    hits = 0
    # A step that shares no factor with their number comes by every way, use and order.
    for (also_hold, second), use, order in itertools.islice(programs, None, None, 3):

        def program(t, a, b, use=use, second=second):
            return use(first(a), second(b))

        def outcomes(f, also_hold=also_hold, order=order):
            x, y, found = Listed([1]), Listed([1]), []
            holder = hold(x)
            for letter in order:
                x[:] = y[:] = [1]
                holder = hold(x) if way == "an iterator" else holder
                result = f(torch.ones(1), holder, also_hold(x if letter == "s" else y))
                names = ["x" if v is x else "y" if v is y else v for v in result]
                found.append((names, list(x), list(y)))
            return found

        compiled = magpy.compile(program, backend="eager")
        assert outcomes(compiled) == outcomes(program)
        hits += magpy.stats(compiled).hits
    assert bool(hits) is (way not in NEVER_SERVED)
