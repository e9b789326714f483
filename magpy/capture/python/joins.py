"""`sum`, `min` and `max` of what a generator of the program's gives.

Owns how their code in C is done one step after another, so that numbers that follow from data keep
being known: `sum(p.grad.norm().item() ** 2 for p in parameters)`.  Does not own what they compute
from a list (magpy/capture/python/arrays.py).  Asked by csrc/interp through
magpy/capture/python/callbacks.py.
"""

from __future__ import annotations

import operator
import types
from typing import Any

from magpy import _interp
from magpy.capture.python.run import frames_hidden

_END: Any = object()
# What C code adds up as numbers of its own, one after another, is an integer of so many bits.
_BITS = 63


class Joins:
    """Performs such calls for the program."""

    @frames_hidden
    def joined_call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`f` of a generator, and of the number with which a sum begins."""
        generator: types.GeneratorType[Any, Any, Any] = args[0]
        numbers: list[Any] = []
        while _is_number(value := _next(generator)):
            numbers.append(value)
        if value is _END:
            return _interp.call(f, (numbers, *args[1:]), kwargs)
        # From the first on that is no number, each is joined before the next one is made.
        step = operator.add if f is sum else f
        joined: Any = _END
        if numbers or f is sum:
            joined = _interp.call(f, (numbers, *args[1:]), {})
        while value is not _END:
            joined = value if joined is _END else _interp.call(step, (joined, value), {})
            value = None  # it dies before the generator goes on
            value = _next(generator)
        return joined


def _is_number(v: Any) -> bool:
    t = type(v)  # whose own class may say what it is equal to
    return t is float or t is bool or (t is int and v.bit_length() <= _BITS)


def _next(generator: types.GeneratorType[Any, Any, Any]) -> Any:
    return _interp.call(next, (generator, _END), {})


__all__ = ["Joins"]
