"""`_tensor.Observer`: kinds of operators are seen wherever they run.

Owns: the flags.  Does not own: what a capture makes of them (`magpy/capture/recorder`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from magpy import _tensor
from magpy._tensor import DATA_DEPENDENT, DYNAMIC_SHAPE, LOOKS, MUTATES, RANDOM, STATISTICS


@pytest.fixture
def observer() -> Iterator[_tensor.Observer]:
    o = _tensor.Observer()
    o.start()
    yield o
    o.stop()


X = torch.rand(3, 3) + 1
LABELS = torch.arange(3)
G = torch.rand(3, 3, requires_grad=True)

OPERATORS: dict[str, tuple[Callable[[], Any], int]] = {
    "add": (lambda: X + 1, 0),
    "matmul": (lambda: X @ X, 0),
    "linear": (lambda: F.linear(X, X), 0),
    "item": (lambda: X[0, 0].item(), DATA_DEPENDENT),
    "item with grad": (lambda: G[0, 0].item(), DATA_DEPENDENT),
    "bool": (lambda: bool(X.sum() > 0), DATA_DEPENDENT),
    "int": (lambda: int(X[0, 0]), DATA_DEPENDENT),
    "equal": (lambda: torch.equal(X, X), DATA_DEPENDENT),
    "allclose": (lambda: torch.allclose(X, X), DATA_DEPENDENT),
    "nonzero": (lambda: X.nonzero(), DYNAMIC_SHAPE),
    "mask": (lambda: X[X > 1], DYNAMIC_SHAPE),
    "mask with grad": (lambda: G[G > 0], DYNAMIC_SHAPE),
    "one_hot": (lambda: F.one_hot(LABELS), DATA_DEPENDENT),
    "unique": (lambda: torch.unique(X), DYNAMIC_SHAPE),
    "masked_select": (lambda: torch.masked_select(X, X > 1), DYNAMIC_SHAPE),
    "dropout": (lambda: F.dropout(X), RANDOM),
    "dropout with grad": (lambda: F.dropout(G), RANDOM),
    "randn": (lambda: torch.randn(2), RANDOM),
    "add_": (lambda: X.clone().add_(1), MUTATES),
    "add_ with grad": (lambda: G.clone().add_(1), MUTATES),
    "out": (lambda: torch.add(X, 1, out=torch.empty(3, 3)), MUTATES),
    "batch_norm": (lambda: F.batch_norm(X, X[0].clone(), X[1].clone(), training=True), STATISTICS),
    "instance_norm": (
        lambda: F.instance_norm(X.expand(2, 3, 3), X[0].clone(), X[1].clone()),
        STATISTICS,
    ),
    "layer_norm": (lambda: F.layer_norm(X, (3,)), 0),
    "setitem": (lambda: X.clone().__setitem__(0, 1), MUTATES),
}


@pytest.mark.parametrize(("run", "flags"), OPERATORS.values(), ids=OPERATORS)
def test_operator_gives_its_flags(
    observer: _tensor.Observer, run: Callable[[], Any], flags: int
) -> None:
    observer.take()
    run()
    seen = observer.take()
    assert seen & flags == flags
    wrong = {
        0: MUTATES | RANDOM | DYNAMIC_SHAPE | DATA_DEPENDENT | STATISTICS,
        MUTATES: RANDOM | DYNAMIC_SHAPE | DATA_DEPENDENT,
    }
    assert not seen & wrong.get(flags, RANDOM & ~flags)


class Asks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * g.max().item()


@pytest.mark.parametrize("run", [lambda: Asks.apply(G), lambda: Asks.apply(G).sum().backward()])
@pytest.mark.parametrize("name", ["item", "bool", "int", "equal", "allclose"])
def test_what_python_asks_for_is_told_from_what_operators_do(
    observer: _tensor.Observer, name: str, run: Callable[[], Any]
) -> None:
    for asks in (OPERATORS[name][0], run):
        observer.take()
        asks()
        assert observer.take() & LOOKS
    for computes in ("one_hot", "mask", "setitem", "add", "batch_norm"):
        observer.take()
        OPERATORS[computes][0]()
        assert not observer.take() & LOOKS
    observer.take()
    X.clone()[X > 1] = 2.0  # which takes the number out of a tensor
    assert not observer.take() & LOOKS


def test_operators_inside_backward_are_seen(observer: _tensor.Observer) -> None:
    class Draws(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g * torch.rand(())

    y = Draws.apply(G).sum()
    observer.take()
    y.backward()
    assert observer.take() & RANDOM


def test_take_forgets(observer: _tensor.Observer) -> None:
    torch.randn(1)
    assert observer.take() & RANDOM
    assert observer.take() == 0


def test_nothing_is_seen_before_start_and_after_stop() -> None:
    o = _tensor.Observer()
    torch.randn(1)
    assert o.take() == 0
    o.start()
    o.start()
    o.stop()
    o.stop()
    torch.randn(1)
    assert o.take() == 0


def test_nested_observers_both_see() -> None:
    outer, inner = _tensor.Observer(), _tensor.Observer()
    outer.start()
    inner.start()
    torch.randn(1)
    outer.stop()  # the one that started the callback goes first
    X[0, 0].item()
    inner.stop()
    X.nonzero()
    assert outer.take() & (RANDOM | DATA_DEPENDENT) == RANDOM
    assert inner.take() & (RANDOM | DATA_DEPENDENT | DYNAMIC_SHAPE) == RANDOM | DATA_DEPENDENT


def test_only_the_own_thread_is_seen(observer: _tensor.Observer) -> None:
    thread = threading.Thread(target=lambda: torch.randn(1))
    thread.start()
    thread.join()
    assert observer.take() == 0


def test_record_function_ranges_are_no_operators(observer: _tensor.Observer) -> None:
    for name in ("aten::randn", "x" * 40):
        with torch.profiler.record_function(name):
            pass
    assert not observer.take() & RANDOM


def test_custom_operator_flags_follow_its_schema(observer: _tensor.Observer) -> None:
    with torch.library._scoped_library("magpy_observer_test", "DEF") as library:
        library.define("draw(Tensor x) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
        library.impl("draw", lambda x: x.clone(), "CPU")
        observer.take()
        torch.ops.magpy_observer_test.draw(X)
        assert observer.take() & RANDOM


def test_dropping_a_started_observer_is_safe() -> None:
    o = _tensor.Observer()
    o.start()
    del o
    torch.randn(1)
