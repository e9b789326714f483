"""What is compiled belongs to an object that is an argument, too, in one call and not in another."""

from __future__ import annotations

import functools

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
