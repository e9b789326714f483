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
import operator
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
    "store by a function": lambda x, n: operator.setitem(x, 0, n),
    "append by a function": lambda x, n: operator.iadd(x, [n]) is x,
    "repeat by a function": lambda x, n: operator.imul(x, int(n)) is x,
    "delete by a function": lambda x, n: operator.delitem(x, int(n) - 1),
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
        if len(x) > 1:
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
        alive = list(given) if holds else []
        for i, v in enumerate(alive):
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


@pytest.mark.sampled(2)
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


class Derived(np.ndarray):
    """A class of arrays of the program's."""


def _records():
    return np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")])


ARRAYS = {
    "plain": lambda: np.arange(4.0),
    "strided": lambda: np.arange(12.0).reshape(3, 4)[:, ::2],
    "broadcast": lambda: np.broadcast_to(np.array([1.0, 2.0]), (3, 2)),
    "backwards": lambda: np.arange(5.0)[::-1],
    "records": lambda: _records().view(np.recarray),
    "derived": lambda: np.arange(4.0).view(Derived),
    "masked": lambda: np.ma.array([1.0, 2.0, 3.0], mask=[0, 1, 0]),
    "durations": lambda: np.array([1, 2], "m8[h]"),
}
VIEWS = {
    "expanded": lambda a, n: np.expand_dims(a, n[0] - 1),
    "reshaped": lambda a, n: a.reshape(n[0], -1),
    "broadcast": lambda a, n: np.broadcast_to(a, (n[0], *a.shape)),
    "swapped": lambda a, n: a.swapaxes(0, n[0] - 1),
    "sliced": lambda a, n: a[n[0] - 1 :],
    "split": lambda a, n: np.array_split(a, n[0]),
    "or not": lambda a, n: a[:] if n[0] > 1 else a,
    "times": lambda a, n: a * n[1],
    "where": lambda a, n: np.where(a > a[0], a, n[1]),
    "product": lambda a, n: np.dot(a, n[1]),
    "by a function": lambda a, n: np.frompyfunc(lambda p, q: p + q, 2, 1)(a, n[1]),
    "swapped bytes": lambda a, n: a.byteswap(n[2] > 1),
    "cast": lambda a, n: a.astype(a.dtype, copy=n[2] > 1),
    "broadcast arrays": lambda a, n: np.broadcast_arrays(a, n[1]),
    "sorted": lambda a, n: np.argpartition(a, n[0] - 1),
    "permuted": lambda a, n: (np.random.seed(0), np.random.permutation(a), n[1]),
    "noise": lambda a, n: (np.random.seed(0), np.random.normal(a, n[1])),
    "record": lambda a, n: a[0].__setitem__("a", n[0]),
    "field": lambda a, n: a[0].setfield(n[0], "i4", 0),
}


def form(v, given):
    """How arrays in a result lie, and whether they are, or have the memory of, one from outside."""
    if isinstance(v, (tuple, list)):
        return type(v), [form(x, given) for x in v]
    if not isinstance(v, np.ndarray):
        return type(v), str(v)
    shares = v is given, bool(np.shares_memory(v, given)) if v.dtype != object else None
    return type(v), str(v.dtype), v.shape, v.strides, v.flags.num & 0x400, shares, str(v.tolist())


@pytest.mark.parametrize("kind", ARRAYS)
def test_memory_and_form_of_what_numpy_makes_are_eagers(kind):
    def run(f):
        out = []
        for v in (1.0, 1.0, 2.0, 2.0, 1.0, 3.0):
            given = ARRAYS[kind]()
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                try:
                    result = form(f(torch.tensor([v]), given), given)
                except Exception as e:  # noqa: BLE001 - compared
                    result = type(e), str(e)
            warned = [str(w.message) for w in told if w.category is not magpy.MagpyWarning]
            out.append((result, warned, str(given.tolist())))
        return out

    for name, use in VIEWS.items():

        def f(t, a, use=use):
            return use(a, (int(t), t.item(), t.numpy()))

        assert run(magpy.compile(f, backend="eager")) == run(f), name


def test_a_function_behind_a_ufunc_runs_in_every_call():
    said, k = [], 10

    def told(p, q):
        said.append((p, q))
        return p + q + k

    ufunc = np.frompyfunc(told, 2, 1)

    def f(t):
        return ufunc(np.arange(2), t.item())

    c = magpy.compile(f, backend="eager")
    for v in (1.0, 2.0, 1.0, 2.0):
        said.clear()
        assert list(c(torch.tensor(v))) == [v + k, 1 + v + k]
        assert said == [(0, v), (1, v)]
        k += 1


@pytest.mark.parametrize("choice", [min, max])
def test_which_of_two_lists_is_chosen_is_asked_again(choice):
    def f(t):
        return choice([int(t)], [1])

    c = magpy.compile(f, backend="eager")
    for v in (1.0, 2.0, 1.0, 0.0, 3.0):
        assert c(torch.tensor(v)) == f(torch.tensor(v))


def test_an_element_of_an_array_of_objects_changes_and_stays_the_element():
    held = objects(Number(1), Number(2))

    def f(t):
        return (held + t.item()).tolist()

    c = magpy.compile(f, backend="eager")
    for i in range(6):
        held[i % 2].v = i
        assert c(torch.tensor(1.0)) == f(torch.tensor(1.0))
