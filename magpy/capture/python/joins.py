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
_NUMBERS = (int, float)


class Joins:
    """Performs such calls for the program."""

    @frames_hidden
    def joined_call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`f` of a generator, and of the number with which a sum begins."""
        generator: types.GeneratorType[Any, Any, Any] = args[0]
        numbers: list[Any] = []
        while type(value := _next(generator)) in _NUMBERS:
            numbers.append(value)
        if value is _END:
            return _interp.call(f, (numbers, *args[1:]), kwargs)
        # From the first on that is no number, each is joined before the next one is made.
        if f is sum:
            joined = _interp.call(sum, (numbers, *args[1:]), {})
            while value is not _END:
                joined = _interp.call(operator.add, (joined, value), {})
                value = _next(generator)
            return joined
        joined = _interp.call(f, (numbers,), {}) if numbers else value
        value = value if numbers else _next(generator)
        while value is not _END:
            joined = _interp.call(f, (joined, value), {})
            value = _next(generator)
        return joined


def _next(generator: types.GeneratorType[Any, Any, Any]) -> Any:
    return _interp.call(next, (generator, _END), {})


__all__ = ["Joins"]
