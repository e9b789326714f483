"""What is compiled, or read elsewhere, belongs to an argument, in one call and not in another."""

from __future__ import annotations

import builtins
import functools
import operator
import types

import pytest
import torch

import magpy


class Thing:
    def __init__(self, v):
        self.v = v

    def run(self, x, other):
        return self, x * self.v

    def told(self, x, other):
        return x * self.v, other is self

    def changed(self, x, other):
        self.v = 4.0
        return other.v

    def __call__(self, x, other):
        return self, x * other.v


def _given_a_list(held, x, other):
    held.append(1)
    return held, len(other)


_first, _second = [1, 2], [5]

CASES = {
    "a method that gives its object": lambda a, b: (a.run, a, b),
    "a method that tells": lambda a, b: (a.told, a, b),
    "a method that changes its object": lambda a, b: (a.changed, a, b),
    "a callable object": lambda a, b: (a, a, b),
    "a partial of a function": lambda a, b: (functools.partial(Thing.run, a), a, b),
    "a partial of a list": lambda a, b: (functools.partial(_given_a_list, _first), _first, _second),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("order", ["aabab", "babba", "bbaab"])
def test_the_two_are_told_apart(case, order):
    def outcomes(wrap):
        a, b = Thing(2.0), Thing(3.0)
        _first[:], _second[:] = [1, 2], [5]
        f, own, other = CASES[case](a, b)
        f = wrap(f)
        names = {id(a): "a", id(b): "b", id(own): "own", id(other): "other"}
        found = []
        for letter in order:
            result = f(torch.ones(1), own if letter == "a" else other)
            result = result if isinstance(result, tuple) else (result,)
            found.append([names.get(id(x), str(x)) for x in result])
            found.append([a.v, b.v, *_first, *_second])
        return found

    wanted = outcomes(lambda f: f)
    assert outcomes(lambda f: magpy.compile(f, backend="eager")) == wanted


# ---------------------------------------------------------------- parts of what is read elsewhere


class World:
    """Objects outside of the programs; `g` is also the namespace of functions that they call."""

    def __init__(self):
        self.thing = Thing(1)
        self.given = Thing(2)
        self.list = [1]
        self.append = self.list.append
        self.joined = operator.methodcaller("__add__", self.list)
        self.space = types.SimpleNamespace(v=1)
        self.module = types.ModuleType("given_and_read")
        self.module.v = 1
        self.g = {"v": 1, "__builtins__": builtins}
        exec("def read():\n    return v\ndef write(n):\n    global v\n    v = n", self.g)
        self.default = self.kept([1])
        self.hold, self.get = self.cells()

    @staticmethod
    def kept(default):
        def f(*, z=default):
            return z

        return f

    @staticmethod
    def cells():
        v = 0

        def hold(n):
            nonlocal v
            v = n

        def get():
            return v

        return hold, get


def _set(holder, name, value):
    setattr(holder, name, value)


# What a program does with the world and the argument, and the argument that is a part of the world.
PARTS = {
    "an object's dict, read": (lambda w, d: (w.thing.v, d.get("v")), lambda w: vars(w.thing)),
    "an object's dict, changed": (
        lambda w, d: (_set(w.thing, "n", 5), d.get("n")),
        lambda w: vars(w.thing),
    ),
    "changed, an object's dict": (
        lambda w, d: (d.update(v=7), w.thing.v),
        lambda w: vars(w.thing),
    ),
    "a namespace's dict": (lambda w, d: (d.update(v=7), w.space.v), lambda w: vars(w.space)),
    "a module's dict": (lambda w, d: (d.update(v=7), w.module.v), lambda w: vars(w.module)),
    "the globals": (lambda w, d: (d.update(v=7), w.g["read"]()), lambda w: w.g),
    "the globals, changed": (lambda w, d: (w.g["write"](8), d.get("v")), lambda w: w.g),
    "keyword defaults": (
        lambda w, d: (d.update(z=7), w.default()),
        lambda w: w.default.__kwdefaults__,
    ),
    "a default": (lambda w, d: (d.append(7), len(w.default())), lambda w: w.default()),
    "what a method of C changes": (lambda w, d: (w.append(7), len(d)), lambda w: w.list),
    "what a C object holds": (lambda w, d: (d.append(7), len(w.joined([]))), lambda w: w.list),
    "a cell": (lambda w, c: (w.hold(5), c.cell_contents), lambda w: w.hold.__closure__[0]),
    "a cell, read": (
        lambda w, c: (_set(c, "cell_contents", 5), w.get()),
        lambda w: w.get.__closure__[0],
    ),
}
_OTHERS = {dict: lambda: {"v": 3, "z": 4}, list: lambda: [1, 2, 3]}


@pytest.mark.parametrize("order", ["ppooppo", "opopoop", "oopppop"])
@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_told_from_another(part, order):
    program, of = PARTS[part]

    def outcomes(wrap):
        w = World()
        f = wrap(lambda x, given: (x * 2, program(w, given)))
        found = []
        for letter in order:
            own = of(w)
            make = _OTHERS.get(type(own), lambda: types.CellType(9))
            found.append(str(f(torch.ones(1), own if letter == "p" else make())[1]))
        return found

    wanted = outcomes(lambda f: f)
    assert outcomes(lambda f: magpy.compile(f, backend="eager")) == wanted


def test_the_dict_of_an_argument_is_told_from_another():
    def program(x, thing, d):
        thing.n = 5
        return x * 2, d.get("n")

    def outcomes(wrap):
        f = wrap(program)
        found = []
        for own in (True, False, True, False, False):
            thing = Thing(1)
            found.append(f(torch.ones(1), thing, vars(thing) if own else {"v": 1})[1])
        return found

    wanted = outcomes(lambda f: f)
    assert wanted == [5, None, 5, None, None]
    f = magpy.compile(program, backend="eager")
    assert outcomes(lambda _: f) == wanted
    assert magpy.stats(f).hits == 3
