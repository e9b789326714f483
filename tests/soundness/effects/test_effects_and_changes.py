"""What a call shows (prints, logs, gives to a function for its effect) and changes before or after.

A table: objects from outside and what changes them, the effects, and the order of both. Effects are
redone after the call's operations: what they show is what eager shows.
"""

from __future__ import annotations

import array
import collections
import io
import logging
import sys
import types
import warnings
from contextlib import redirect_stdout

import numpy as np
import pytest
import torch

import magpy


class Own:
    """Says what it holds."""

    def __init__(self):
        self.v = 1

    def __repr__(self):
        return f"Own({self.v})"


def _linear():
    layer = torch.nn.Linear(2, 1, bias=False).requires_grad_(False)
    layer.weight.fill_(1)
    return layer


KINDS = {
    "array": (lambda: np.zeros(3), lambda a, x: a.__setitem__(0, 7)),
    "view of an array": (lambda: np.zeros(3)[1:], lambda a, x: a.fill(7)),
    "array, data": (lambda: np.zeros(3), lambda a, x: a.__setitem__(0, x.sum().item())),
    "bytearray": (lambda: bytearray(b"abc"), lambda a, x: a.__setitem__(0, 100)),
    "memory": (lambda: bytearray(b"abc"), lambda a, x: memoryview(a).__setitem__(0, 100)),
    "list": (lambda: [1, [2]], lambda a, x: a[1].append(3)),
    "deque": (lambda: collections.deque([1, 2]), lambda a, x: a.append(3)),
    "dict": (lambda: {"a": {"b": 1}}, lambda a, x: a["a"].update(c=2)),
    "ordered": (
        lambda: collections.OrderedDict(a=1, b=2),
        lambda a, x: a.move_to_end("a"),
    ),
    "counter": (lambda: collections.Counter("ab"), lambda a, x: a.update("a")),
    "set": (lambda: {1}, lambda a, x: a.add(2)),
    "own": (Own, lambda a, x: setattr(a, "v", a.v + 1)),
    "own in a list": (lambda: [Own()], lambda a, x: setattr(a[0], "v", a[0].v + 1)),
    "namespace": (lambda: types.SimpleNamespace(v=1), lambda a, x: setattr(a, "v", 5)),
    "array.array": (lambda: array.array("i", [1, 2]), lambda a, x: a.append(3)),
    "array in a list": (lambda: [np.zeros(2)], lambda a, x: a[0].fill(7)),
    "objects": (lambda: np.array([1, None], dtype=object), lambda a, x: a.__setitem__(0, 7)),
    "memory of both": (
        lambda: np.zeros(3, dtype="f4"),
        lambda a, x: torch.from_numpy(a).add_(1),
    ),
    "tensor by numpy": (lambda: torch.zeros(2), lambda a, x: a.numpy().fill(2)),
    "tensor by an item": (
        lambda: torch.zeros(2),
        lambda a, x: np.asarray(a).__setitem__(0, 7),
    ),
    "tensor": (lambda: torch.zeros(2), lambda a, x: a.mul_(2).add_(1)),
    "tensor, other data": (
        lambda: torch.zeros(2),
        lambda a, x: setattr(a, "data", torch.ones(2)),
    ),
    "tensor that learns": (lambda: torch.zeros(2), lambda a, x: a.requires_grad_()),
    "tensor in a list": (lambda: [torch.zeros(2)], lambda a, x: a[0].add_(1)),
    "another in a list": (lambda: [torch.zeros(2)], lambda a, x: a.__setitem__(0, x)),
    "module": (_linear, lambda a, x: a.weight.add_(1)),
}


@magpy.effect
def note(*shown):
    """A user's function for its effect."""
    print("note", *map(str, shown))


EFFECTS = {
    "print": print,
    "print in a list": lambda a: print([a], 1),
    "log": lambda a: logging.getLogger("shown").warning("%s", a),
    "note": note,
    "view": lambda a: print(a[1:]) if type(a) in (np.ndarray, torch.Tensor, list) else print(a),
    "numpy": lambda a: print(a.numpy()[1:]) if type(a) is torch.Tensor else print(a),
}


class _Handler(logging.Handler):
    def emit(self, record):
        print("log", record.getMessage())


@pytest.fixture(autouse=True)
def logged():
    logger, handler = logging.getLogger("shown"), _Handler()
    logger.addHandler(handler)
    logger.propagate = False
    yield
    logger.removeHandler(handler)


def run(f, make):
    shared, said = make(), []
    for j in range(5):
        out = io.StringIO()
        with redirect_stdout(out):
            try:
                f(torch.full((2,), float(j)), make() if j % 2 else shared)
            except Exception as e:  # noqa: BLE001 - compared
                print(repr(e), file=sys.stdout)
        said.append(out.getvalue())
    return said


@pytest.mark.parametrize("kind", KINDS)
def test_effects_show_what_eager_shows(kind):
    make, change = KINDS[kind]
    for name, effect in EFFECTS.items():
        for order in ("ec", "cec", "ece"):

            def f(x, a, effect=effect, order=order):
                for what in order:
                    if what == "e":
                        effect(a)
                    else:
                        change(a, x)
                return x * 2

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = run(magpy.compile(f, backend="eager"), make)
            assert found == run(f, make), (name, order)


# How a tensor is shown that has the memory of another one.
SHOWN_AS = {
    "a tensor of its array": lambda t: torch.from_numpy(t.numpy()),
    "a tensor of an array of a part": lambda t: torch.from_numpy(t[1:].numpy()),
    "a tensor of a part of its array": lambda t: torch.from_numpy(t.numpy()[1:]),
    "as_tensor": lambda t: torch.as_tensor(t.numpy()),
    "there and back twice": lambda t: torch.from_numpy(torch.from_numpy(t.numpy()).numpy()),
    "its array": lambda t: t.numpy(),
    "a part": lambda t: t[1:],
    "a copy": lambda t: torch.from_numpy(t.numpy().copy()),
}


@pytest.mark.parametrize("back", [False, True], ids=["it is changed", "the other is changed"])
@pytest.mark.parametrize("of_array", [False, True], ids=["a tensor", "a tensor of an array"])
@pytest.mark.parametrize("shown_as", SHOWN_AS)
def test_a_tensor_is_shown_in_another_way_and_changed(shown_as, of_array, back):
    def outcomes(wrap):
        held = torch.from_numpy(np.arange(4.0)) if of_array else torch.arange(4.0)

        def program():
            other = SHOWN_AS[shown_as](held)
            print(held if back else other)
            if back:
                other += 2
            else:
                held.add_(2)

        f = wrap(program)
        with redirect_stdout(io.StringIO()) as out:
            for _ in range(4):
                f()
        return out.getvalue(), held.tolist()

    wanted = outcomes(lambda f: f)
    assert outcomes(lambda f: magpy.compile(f, backend="eager")) == wanted
