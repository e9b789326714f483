"""What the matrices of numbers are made of: their objects, and how an expression is evaluated.

Owns: expressions as functions that are called several times, eagerly or compiled, with numbers `n`
and `m` that differ from call to call, and the form in which results are compared. Does not own the
expressions. Used by numbers/test_varying_numbers.py and unwatched/test_values_given_to_c.py.

PYTEST_DONT_REWRITE: the programs must be what they look like.
"""

# ruff: noqa: F401 - the expressions use them all

import array
import bisect
import collections
import contextlib
import copy
import csv
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import heapq
import io
import itertools
import json
import math
import operator
import random
import re
import statistics
import string
import struct
import textwrap
import types
import weakref

import numpy as np
import pytest
import torch

import magpy


class Meta(type):
    def __instancecheck__(cls, o):
        return o.v > 7


class Large(metaclass=Meta):
    pass


@functools.total_ordering
class Box:
    def __init__(self, v):
        self.v = v

    def __repr__(self):
        return f"Box({self.v})"

    def __eq__(self, o):
        return isinstance(o, Box) and self.v == o.v

    def __lt__(self, o):
        return self.v < o.v

    def __hash__(self):
        return hash(self.v)

    def __bool__(self):
        return self.v > 7

    def __int__(self):
        return int(self.v)

    def __float__(self):
        return self.v

    def __floor__(self):
        return self.v

    def __round__(self):
        return self.v

    def __abs__(self):
        return self.v

    def __index__(self):
        return int(self.v) % 13

    def __len__(self):
        return int(self.v)

    def __iter__(self):
        yield self.v
        yield 1.0

    def __getitem__(self, i):
        return self.v

    def __contains__(self, x):
        return x == self.v

    def __getattr__(self, name):
        if name == "dyn":
            return self.v
        raise AttributeError(name)

    def __add__(self, o):
        return Box(self.v + (o.v if isinstance(o, Box) else o))

    def items2(self):
        yield ("a", self.v)

    @property
    def prop(self):
        return self.v

    @prop.setter
    def prop(self, x):
        self.v = x

    @classmethod
    def make(cls, v):
        return cls(v)


class Slot:
    __slots__ = ("v",)

    def __init__(self, v):
        self.v = v

    def __str__(self):
        return str(self.v)


NOTHING = object()


def gen(a=NOTHING, b=NOTHING, c=NOTHING):
    """A generator that does not look at what it yields."""
    if a is not NOTHING:
        yield a
    if b is not NOTHING:
        yield b
    if c is not NOTHING:
        yield c


class Items:
    """An iterator in Python."""

    def __init__(self, *a):
        self.a = a
        self.i = 0

    def __iter__(self):
        return self

    def __next__(self):
        i = self.i
        self.i = i + 1
        try:
            return self.a[i]
        except IndexError:
            raise StopIteration from None


class Sequence:
    """What is iterated by asking for its items, and is a mapping too."""

    def __init__(self, *a):
        self.a = a

    def __getitem__(self, i):
        return self.a[i]

    def keys(self):
        return gen(0, 1)


class Keys:
    """A mapping whose keys are numbers or texts."""

    def __init__(self, *a):
        self.a = a

    def keys(self):
        return gen(*self.a)

    def __getitem__(self, key):
        return 1


class Answer(type):
    def __instancecheck__(cls, o):
        return o.v - 6.0


class Answers(metaclass=Answer):
    pass


class Text:
    def __init__(self, v):
        self.v = v

    def __repr__(self):
        return str(self.v)


class Truth:
    """Its comparisons answer numbers."""

    def __init__(self, v):
        self.v = v

    def __eq__(self, o):
        return self.v - 6.0

    def __lt__(self, o):
        return self.v - 6.0

    def __gt__(self, o):
        return self.v - 6.0

    __hash__ = None


class Mapped(map):
    pass


class Listed(list):
    pass


class Unique(set):
    pass


class Table(dict):
    pass


class Real(float):
    pass


class Words(str):
    pass


class Listing:
    def __init__(self, v):
        self.v = v

    def __dir__(self):
        return [str(self.v), "7"]

    def __len__(self):
        return 2

    def __getitem__(self, i):
        if i > 1:
            raise IndexError
        return self.v + i


class Arrayed:
    def __init__(self, v):
        self.v = v

    def __array__(self, *a, **k):
        return np.array([self.v])


def pairs(a, b):
    yield a, "x"
    yield b, "y"


@dataclasses.dataclass
class Numbers:
    """Where numbers come from: a program's parameters, its first line, and its calls."""

    parameters: str
    line: str
    calls: list

    def __str__(self):
        return self.line or self.parameters


DATA = [(torch.tensor(v),) for v in ([1, 2, 3.0], [2, 4, 5.0], [1, 2, 3.0], [0, 0, 3.0])]
SIZES = [(6, 14), (11, 45), (6, 14), (3, 9), (7, 20)]
FROM_DATA = Numbers("t", "n = t.sum().item(); m = (t * t).sum().item()", DATA)
FROM_COUNTERS = Numbers("t", "S.n += 1.0; S.m += 2.0; n = S.n; m = S.m", DATA)
FROM_SIZES = Numbers("t", "n, m = t.shape", [(torch.zeros(shape),) for shape in SIZES])
INTEGERS = Numbers("t, n, m", "", [(torch.zeros(1), *pair) for pair in SIZES])
FLOATS = Numbers("t, n, m", "", [(torch.zeros(1), *map(float, pair)) for pair in SIZES])


def describe(v):
    """What is compared: types, values and structure."""
    if isinstance(v, torch.Tensor):
        return "tensor", v.dtype, tuple(v.shape), v.tolist()
    if isinstance(v, np.ndarray):
        return "array", v.dtype, v.tolist()
    if isinstance(v, (list, tuple, collections.deque)):
        return type(v).__name__, [describe(x) for x in v]
    if isinstance(v, dict):
        return type(v).__name__, [(describe(k), describe(x)) for k, x in v.items()]
    if isinstance(v, (set, frozenset)):
        return type(v).__name__, sorted(map(repr, v))
    return type(v).__name__, repr(v)


def results(numbers, line, compile, calls=None):
    """What each call of an expression gives and prints."""
    world = {**globals(), "S": types.SimpleNamespace(n=5.0, m=12.0)}
    exec(f"def f({numbers.parameters}):\n    {numbers.line}\n    return {line}", world)
    f = compile(world["f"])
    seen = []
    for args in calls or numbers.calls:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                result = f(*args)
            except NameError:
                raise  # the line is not about that
            except Exception as error:
                result = error
        seen.append((describe(result), printed.getvalue()))
    return seen


def check_all(lines):
    """The parametrized test of expressions."""

    @pytest.mark.sampled(2)
    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize(
        "numbers", [FROM_DATA, FROM_COUNTERS, FROM_SIZES, INTEGERS, FLOATS], ids=str
    )
    @pytest.mark.parametrize("part", range(10))
    def test(numbers, part):
        wrong = []
        for line in lines[part::10]:
            want = results(numbers, line, lambda f: f)
            error = want[0][0][0].endswith("Error")
            assert not error or numbers not in (FROM_DATA, FROM_COUNTERS), f"not a test: {line}"
            got = results(numbers, line, lambda f: magpy.compile(f, backend="eager"))
            if got != want:
                wrong.append((line, want, got))
        assert not wrong, wrong[0]

    return test
