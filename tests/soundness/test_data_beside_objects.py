"""A value of data goes into a function together with an object from outside, of any kind.

A table: kinds of objects, where the value comes from, what is done with both. Between the calls the
value, the object and what it holds change. numpy's arrays of objects run code of the program.
"""

from __future__ import annotations

import array
import collections
import decimal
import fractions
import functools
import io
import math
import warnings
from contextlib import redirect_stdout

import numpy as np
import pytest
import torch

import magpy

Pair = collections.namedtuple("Pair", "a b")


class Number:
    """What a program may write for itself; numpy computes with it."""

    def __init__(self, v):
        self.v = v

    def _of(self, o):
        return o.v if type(o) is Number else o

    def __add__(self, o):
        return self.v + self._of(o)

    def __radd__(self, o):
        return o + self.v

    def __rsub__(self, o):
        return o - self.v

    def __mul__(self, o):
        return self.v * self._of(o)

    __rmul__ = __mul__

    def __lt__(self, o):
        return self.v < self._of(o)

    def __gt__(self, o):
        return self.v > self._of(o)

    def __le__(self, o):
        return self.v <= self._of(o)

    def __ge__(self, o):
        return self.v >= self._of(o)

    def __eq__(self, o):
        return self.v == self._of(o)

    def __hash__(self):
        return 3

    def __float__(self):
        return float(self.v)

    def __repr__(self):
        return f"Number({self.v})"


def objects(*values):
    made = np.empty(len(values), object)
    for i, v in enumerate(values):
        made[i] = v
    return made


KINDS = {
    "array": lambda v: np.array([v, 3.0]),
    "scalar": np.float64,
    "array without dimensions": np.array,
    "strided": lambda v: np.array([v, 3.0, v])[::2],
    "list": lambda v: [v, 2.0],
    "nested": lambda v: [[v, 2.0], [1.0, 2.0]],
    "tuple of arrays": lambda v: (np.array([v]), np.array([2.0])),
    "tuple of lists": lambda v: ([v], [2.0]),
    "named": lambda v: Pair(v, 2.0),
    "array.array": lambda v: array.array("d", [v, 2.0]),
    "bytearray": lambda v: bytearray([int(v), 2]),
    "decimal": decimal.Decimal,
    "fraction": fractions.Fraction,
    "own": Number,
    "dict": lambda v: {"a": np.array([v]), "b": v},
    "tensor": lambda v: torch.tensor([v, 2.0]),
    "tensor without dimensions": torch.tensor,
    "objects": lambda v: objects(Number(v), Number(2)),
    "arrays": lambda v: objects(np.array([v]), np.array([2.0])),
    "lists": lambda v: objects([v], [2.0]),
    "integers": lambda v: objects(int(v), 3),
}
USES = {
    "maximum": np.maximum,
    "maximum of": lambda x, n: np.maximum(n, x),
    "+": lambda x, n: x + n,
    "r-": lambda x, n: n - x,
    "<": lambda x, n: x < n,
    "clip": lambda x, n: np.clip(x, n, 10),
    "clip of": lambda x, n: x.clip(n, 10),
    "array": lambda x, n: np.array([n, x]),
    "objects": lambda x, n: np.array([x, n], dtype=object),
    "objects, table": lambda x, n: np.array([[x, n], [n, None]], dtype=object),
    "filled": lambda x, n: objects([n], x, x),
    "isin": np.isin,
    "roll": lambda x, n: np.roll(x, int(n)),
    "item": lambda x, n: x[int(n) - 1],
    "in": lambda x, n: n in x,
    "text": lambda x, n: f"{x} {n}",
    "%": lambda x, n: "%s %s" % (x, n),  # noqa: UP031
    "format": lambda x, n: "{} {}".format(x, n),  # noqa: UP032
    "format of": lambda x, n: "{0[0]} {1}".format(x, n),  # noqa: UP030, UP032
    "repeat": lambda x, n: np.repeat(x, int(n)),
    "power": np.power,
    "sum": lambda x, n: sum(x, n),
    "sum with": lambda x, n: sum([x, n]),
    "sum of": lambda x, n: sum([n, x]),
    "prod": lambda x, n: math.prod(x, start=n),
    "initial": lambda x, n: np.sum(x, initial=n),
    "hypot": math.hypot,
    "isclose": math.isclose,
    "linspace": lambda x, n: np.linspace(x, n, 3),
    "put": lambda x, n: np.copyto(np.zeros(2), x) or n,
    "each": lambda x, n: np.frompyfunc(lambda q: (q, n), 1, 1)(x),
    "store": lambda x, n: x.__setitem__(0, n),
    "print": lambda x, n: print(str(x), n),
}
VALUES = {
    "item": lambda t: t.item(),
    "numpy": lambda t: t.numpy(),
    "numbers": lambda t: t.reshape(1).tolist()[0],
}


def seen(v, known, depth=0):
    """What is compared: types, values, form and which of the objects from outside it is."""
    which = known.get(id(v))
    if depth > 4:
        return which
    if isinstance(v, torch.Tensor):
        return "tensor", str(v.dtype), v.tolist(), which
    if isinstance(v, np.ndarray):
        inner = v.ravel() if v.ndim else [v.item()]
        form = str(v.dtype), v.shape, v.strides, v.flags.writeable
        return (*form, which, [seen(x, known, depth + 1) for x in inner])
    if isinstance(v, (tuple, list)):
        return type(v), which, [seen(x, known, depth + 1) for x in v]
    if type(v) is dict:
        return {k: seen(x, known, depth + 1) for k, x in v.items()}
    return type(v), which if type(v) is Number else None, str(v)


def change(x):
    """Something else is in it from here on."""
    if isinstance(x, (list, array.array)) or (isinstance(x, np.ndarray) and x.ndim):
        x[0] = x[1]
    elif type(x) is tuple:
        x[0][0] = 9
    elif isinstance(x, torch.Tensor):
        x.fill_(7)
    elif type(x) is Number:
        x.v = 6


def run(f, kind):
    out = []
    x = kind(1.0)
    for value, given in [
        (1.0, x),
        (2.0, kind(1.0)),
        (1.0, kind(2.0)),
        (2.0, kind(2.0)),
        (2.0, kind(4.0)),
        (1.0, x),
        (None, x),
        (1.0, x),
        (2.0, x),
    ]:
        if value is None:
            change(given)
            continue
        known = {id(given): "x"}
        holds = type(given) is list or (isinstance(given, np.ndarray) and given.ndim > 0)
        for i, v in enumerate(given if holds else ()):
            if not isinstance(v, (int, float, str)):
                known.setdefault(id(v), i)
        printed = io.StringIO()
        with redirect_stdout(printed):
            try:
                result = seen(f(torch.tensor(value), given), known)
            except Exception as e:  # noqa: BLE001 - compared
                result = type(e), str(e)
        out.append((result, printed.getvalue(), seen(given, known)))
    return out


@pytest.mark.parametrize("where", VALUES)
@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_of_a_value_of_data_and_an_object_is_eagers(kind, where):
    of = VALUES[where]

    def called(use, t, x):
        return use(x, of(t))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, use in USES.items():
            f = functools.partial(called, use)
            compiled = magpy.compile(lambda t, x, use=use: called(use, t, x), backend="eager")
            assert run(compiled, KINDS[kind]) == run(f, KINDS[kind]), name


@pytest.mark.parametrize("use", USES)
def test_containers_that_hold_themselves(use):
    def kind(v):
        x = [v, 2.0]
        x += [x, x]
        return x

    def shown(f):
        """What it gives or raises, as text."""
        found = []
        x = kind(1.0)
        for value, given in [(1.0, x), (2.0, x), (1.0, kind(3.0)), (3.0, kind(3.0))]:
            try:
                found.append(str(f(torch.tensor(value), given)))
            except Exception as e:  # noqa: BLE001 - compared
                found.append(repr(e))
        return found

    def f(t, x):
        return USES[use](x, t.item())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert shown(magpy.compile(f, backend="eager")) == shown(f)


def test_a_sum_of_tensors_and_numbers_of_data_is_in_the_graph():
    def f(t, x):
        return sum([x, x * 2], t.item()), math.prod([t.item(), x])

    c = magpy.compile(f, backend="eager")
    x = torch.full((2,), 3.0)
    for v in (1.0, 2.0, 5.0, -0.0):
        for a, b in zip(c(torch.tensor(v), x), f(torch.tensor(v), x), strict=True):
            assert torch.equal(a, b)
    assert magpy.stats(c).captures == 1
