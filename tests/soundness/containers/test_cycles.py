"""What a call makes, keeps, and what holds itself: functions that name themselves, tuples in their list."""

# ruff: noqa: E501

from __future__ import annotations

import functools
import types

import pytest
import torch

import magpy


class Node:
    pass


def _tuple():
    held = []
    made = (held,)
    held.append(made)
    return made, lambda r: r[0][0] is r


def _function():
    def f():
        return f

    return f, lambda r: r() is r


def _functions():
    def f():
        return g

    def g():
        return f

    return [f, g], lambda r: r[0]() is r[1] and r[1]() is r[0]


def _assigned():
    def inner():
        return outer

    outer = inner
    return outer, lambda r: r() is r


def _object():
    n = Node()
    n.me, n.pair = n, (n, [n])
    n.f = lambda: n
    return n, lambda r: r.me is r.pair[0] is r.pair[1][0] is r.f() is r


def _loop():
    held = {}
    held["me"] = held
    found = []
    for i in range(2):

        def f(i=i):
            return found, held, f

        found.append(f)
    return found, lambda r: r[0]()[0] is r and r[0]()[2] is r[1] and r[1]()[1]["me"] is r[0]()[1]


def _generator():
    def gen():
        yield made

    made = gen()
    return made, lambda r: next(r) is r


def _partial():
    def f(a):
        return made

    made = functools.partial(f, 1)
    return made, lambda r: r() is r


def _method():
    def f(self):
        return made

    made = types.MethodType(f, [1])
    return made, lambda r: r() is r


def _decorated():
    def decorate(f):
        @functools.wraps(f)
        def around():
            return around, f

        return around

    @decorate
    def f():
        return f

    return f, lambda r: r()[0] is r and r()[1]() is r


@pytest.mark.parametrize(
    "make",
    [
        _tuple,
        _function,
        _functions,
        _assigned,
        _object,
        _loop,
        _generator,
        _partial,
        _method,
        _decorated,
    ],
)
@pytest.mark.parametrize("changes", [False, True])
def test_cycles_are_cycles(make, changes):
    state = torch.ones(2)

    def f(x):
        made = make()
        if changes:
            state.mul_(2)
        return made[0], x + state

    c = magpy.compile(f, backend="eager")
    same = make()[1]
    for i in range(3):
        made, total = c(torch.ones(2))
        assert same(made)
        assert total[0].item() == 1 + (2 ** (i + 1) if changes else 1)
    if make is _generator:
        assert "a generator is kept" in magpy.stats(c).reasons[0]
    else:
        assert magpy.stats(c).hits == 2
