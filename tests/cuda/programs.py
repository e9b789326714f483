"""Runs a function eagerly and compiled, and compares all but the values of CUDA tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import magpy

CALLS = 5


def look(value: Any) -> Any:
    """What is compared of a result: devices, dtypes and shapes of tensors, and other values."""
    if isinstance(value, torch.Tensor):
        return value.device, value.dtype, tuple(value.shape), value.requires_grad
    if isinstance(value, (tuple, list)):
        return [look(v) for v in value]
    if isinstance(value, torch.cuda.Event):
        return type(value)
    return value


def offsets() -> list[int]:
    """How far each device's default generator is."""
    return [g.get_offset() for g in torch.cuda.default_generators]


def run(
    f: Callable[..., Any], make: Callable[[], tuple[Any, ...]], counts: Callable[[], Any] | None
) -> list[Any]:
    """What each of some calls gives, counts, and draws, and the state that it leaves.

    Args:
        f: the function, compiled or not.
        make: makes the arguments of a call.
        counts: what is counted so far, or None.
    """
    seen = []
    for _ in range(CALLS):
        args = make()
        at, drawn = counts() if counts else (), offsets()
        result = f(*args)
        counted = [y - x for x, y in zip(at, counts() if counts else (), strict=True)]
        draws = [y - x for x, y in zip(drawn, offsets(), strict=True)]
        stream = torch.cuda.current_stream()
        seen.append((look(result), counted, draws, torch.cuda.current_device(), stream.stream_id))
    return seen


def same(
    f: Callable[..., Any],
    make: Callable[[], tuple[Any, ...]],
    counts: Callable[[], Any] | None = None,
    *,
    captured: bool = True,
) -> Any:
    """Asserts that a compiled function does as the function itself; gives its figures."""
    compiled = magpy.compile(f, backend="eager")
    eager = run(f, make, counts)
    torch.cuda.synchronize()
    assert run(compiled, make, counts) == eager
    stats = magpy.stats(compiled)
    if captured:
        assert (stats.eager_calls, stats.captures) == (0, 1), stats.reasons
        assert stats.hits == CALLS - 1
    else:
        assert stats.hits == 0
        assert stats.reasons
    return stats
