"""Numbers from outside that become inputs of the entry: counters, and those in optimizers' tuples.

Owns what the program reads in their place, and that they are put back.  Does not own which numbers
vary (magpy/shapes/speculation.py), nor what is computed from them
(magpy/capture/python/tracked.py).  Asked by csrc/interp through magpy/capture/python/callbacks.py,
and by magpy/capture/session.py before the run.
"""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable, Container
from typing import Any

from magpy import _interp
from magpy.capture.python.run import Run
from magpy.ir.ops import (
    Bind,
    CheckValue,
    OutsideRef,
    Part,
    class_holding,
    class_number,
    item_held,
    part_held,
    slot_held,
)
from magpy.objects.types import isinstance


class VaryingNumbers:
    """The numbers from outside that are inputs of one run.

    Args:
        run: the state of the run.
    """

    def __init__(self, run: Run) -> None:
        """None yet."""
        self._run = run
        # Where the numbers are that are followed, by the holder's address and the key.
        self._followed: set[tuple[int, Any]] = set()
        # Lists and deques, with places, what stands there during the run, and what did before.
        self._items: list[tuple[Any, int, Any, Any]] = []

    def counter(self, holder: Any, key: Any, value: Any) -> Any:
        """A counter is read: the number becomes an input.  Returns an equal one to use instead."""
        recorder = self._run.recorder
        if self._run.refusals.first is not None:
            return _interp.fresh(value)
        read: Callable[..., Any]
        if type(holder) is types.CellType:
            read, where = getattr, "cell_contents"
        elif isinstance(holder, type):
            read, where = class_number, key
        elif not isinstance(holder, (dict, list, collections.deque)):
            read, where = slot_held, key
        else:
            exact = type(holder) in (dict, list, collections.deque)
            read, where = operator.getitem if exact else item_held, key
        if recorder.depth:
            # An operation reads it, of which nobody knows what depends on it.
            self._run.again(read, (holder, where))
            return _interp.fresh(value)
        recorder.below.counted(holder, key)
        own = recorder.track(read, (OutsideRef(holder), where), {}, value)
        recorder.originals[id(own)] = value  # the session holds what is tracked
        if not isinstance(holder, type):
            recorder.counted(holder, key, own, value, (id(holder), key) in self._followed)
            recorder.record.held_numbers[id(own)] = own, read, holder, where
        return own

    def is_outside_value(self, value: Any) -> bool:
        """Whether a tracked integer or text is one from outside, which the guard can read, too."""
        recorder = self._run.recorder
        record = recorder.record
        if recorder.depth or self._run.refusals.first is not None:
            return False
        return id(value) in record.numbers or id(value) in record.held_numbers

    def vary(self, holder: Any, key: Any, follow: bool = False) -> None:
        """A number in a container, class or cell is an input where the run reads it.

        Args:
            holder: what it is in.
            key: where; None for a cell.
            follow: what sizes and places in tensors depend on it is followed.
        """
        self._run.session.vary(holder, key)
        if follow:
            self._followed.add((id(holder), key))
        if isinstance(holder, (list, collections.deque)):
            # Nothing tells of the reads of one item: it becomes an input at once.
            first = item_held(holder, key)
            own = self.counter(holder, key, first)
            self._items.append((holder, key, own, first))
            _put(holder, key, own)

    def vary_parts(self, holder: Any, key: Any, at: Container[int]) -> None:
        """Numbers in a tuple are inputs: for the run, an equal tuple takes its place.

        Args:
            holder: the dict or list that it is in.
            key: where.
            at: which of the integers; floats are inputs together, as they follow no size.
        """
        self._run.session.vary(holder, key)
        first = item_held(holder, key)
        recorder, place = self._run.recorder, OutsideRef(holder)
        recorder.below.counted(holder, key)
        var = recorder.tensors.new()
        recorder.note(item_held, (place, key), {}, Bind, type(first), result=var)
        numbers = []
        for i, value in enumerate(first):
            own, given = value, (place, key, i, len(first), type(first))
            if i in at or type(value) is float:
                own = recorder.track(part_held, given, {}, value)
                recorder.originals[id(own)] = value
                recorder.counted(holder, Part(key, i), own, value, type(value) is int)
            else:
                recorder.note(part_held, given, {}, CheckValue, value)
            numbers.append(own)
        made = type(first)(numbers)
        self._run.parts[id(holder), key] = holder, made, first, var
        _put(holder, key, made)

    def argument(self, first: Any, at: Container[int]) -> Any:
        """Numbers in a tuple among the arguments are inputs.

        Args:
            first: the tuple.
            at: which of the numbers.

        Returns:
            An equal tuple to use instead.
        """
        made = type(first)([_interp.fresh(v) if i in at else v for i, v in enumerate(first)])
        var = self._run.recorder.tuple_argument(made, first, at)
        self._run.parts[id(made), None] = None, made, first, var
        return made

    def put_back(self) -> None:
        """The numbers and tuples that were there before the run are there again."""
        for holder, key, own, first in reversed(self._items):
            if _held(holder, key) is own:
                _put(holder, key, first)
        self._items.clear()
        for (_, key), (holder, made, first, _) in self._run.parts.items():
            if holder is not None and _held(holder, key) is made:
                _put(holder, key, first)
        self._run.parts.clear()

    def inherits(self, cls: type, name: str) -> None:
        """A number that is an input is found through a class."""
        self._run.again(class_holding, (cls, name))

    def same_number(self, a: Any, b: Any) -> bool:
        """Whether two numbers, of which copies are tracked, are one object."""
        originals = self._run.recorder.originals
        same = originals.get(id(a), a) is originals.get(id(b), b)
        if same:
            self._run.refuse(
                "whether two numbers (or texts) are one object is asked", "Compare them with =="
            )
        return same


def _held(holder: Any, key: Any) -> Any:
    """What a dict, list or deque has at a key, or None."""
    try:
        return item_held(holder, key)
    except LookupError:
        return None


def _put(holder: Any, key: Any, value: Any) -> None:
    base: Any = next(c for c in (dict, list, collections.deque) if isinstance(holder, c))
    base.__setitem__(holder, key, value)


__all__ = ["VaryingNumbers"]
