"""Iterators that are taken forward.

Owns how one is brought to where the captured call left it.  Does not own which iterators a call
may share with the outside (magpy/capture).  Called by the capture, which writes the calls down, and
by mock code.
"""

from __future__ import annotations

from typing import Any


def used_up(iterator: type) -> Any:
    """An iterator that is at its end, and not one that has nothing to go over."""
    made = iterator()
    next(made, None)
    return made


def advance(iterator: Any, steps: int, exhausted: bool) -> None:
    """Takes as many elements from an iterator as the captured call took."""
    for _ in range(steps):
        next(iterator)
    if exhausted:
        next(iterator, None)
