"""Objects of classes derived from C's callables do what their classes say, not what C would do."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch

import magpy


def _same(f: Any, *, hits: bool = True) -> None:
    compiled = magpy.compile(f, backend="eager")
    for i in range(4):
        x = torch.ones(2) + i
        assert torch.equal(compiled(x), f(x))
    assert (magpy.stats(compiled).hits > 0) is hits, magpy.stats(compiled).reasons


def _scale(k: Any, x: Any) -> Any:
    return x * k


class _HidesFunc(functools.partial):  # type: ignore[type-arg]
    __slots__ = "func"

    def __init__(self, func: Any) -> None:
        self.func = func


class _HidesArgs(functools.partial):  # type: ignore[type-arg]
    args = (5.0,)  # type: ignore[assignment]


class _CallsOtherwise(functools.partial):  # type: ignore[type-arg]
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs) + 1


class _Counts(weakref.ref):  # type: ignore[type-arg]
    calls = 0

    def __call__(self) -> Any:
        type(self).calls += 1
        return super().__call__()


def test_a_partial_whose_class_hides_what_it_calls() -> None:
    for cls in (_HidesFunc, _HidesArgs):
        p = cls(functools.partial(_scale, 2.0))
        _same(lambda x, p=p: p(x), hits=False)


def test_a_partial_whose_class_is_called_otherwise() -> None:
    p = _CallsOtherwise(_scale, 2.0)
    _same(lambda x: p(x))


def test_a_weak_reference_whose_class_counts() -> None:
    holder = torch.nn.Linear(2, 2)
    made = _Counts(holder)

    def f(x: Any) -> Any:
        return x * made().weight.detach().sum()

    compiled = magpy.compile(f, backend="eager")
    for i in range(4):
        before = _Counts.calls
        compiled(torch.ones(2) + i)
        assert _Counts.calls == before + 1
