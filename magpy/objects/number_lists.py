"""Lists of plain numbers, nested or not: what tensors are made of.

Owns how they are told from other lists, and their sizes.  Called before a capture
(magpy/shapes/speculation.py), in it (magpy/capture/tensors/lists.py) and by mock code.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_NUMBERS = {int, float, bool}
#: How deep lists are nested at most.
_DEEPEST = 4


def form_of(v: Any, deep: int = _DEEPEST) -> tuple[int, ...] | None:
    """The sizes of a list of plain numbers, or of lists that are alike; None of anything else.

    What is no plain number may run code of the program when a tensor asks for its value.
    """
    if type(v) is not list or not deep:
        return None
    if {*map(type, v)} <= _NUMBERS:
        return (len(v),)
    found = {form_of(x, deep - 1) for x in v}
    inner = found.pop() if len(found) == 1 else None
    return None if inner is None else (len(v), *inner)


def depth_of(v: Any) -> int:
    """How deep the lists of plain numbers are nested; 0 if it is anything else."""
    return len(form_of(v) or ())


def numbers_of(v: list[Any]) -> Iterator[Any]:
    """The numbers of a list, nested or not."""
    for x in v:
        if type(x) is list:
            yield from numbers_of(x)
        else:
            yield x


__all__ = ["depth_of", "form_of", "numbers_of"]
