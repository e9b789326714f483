"""Lists of numbers from outside, of which tensors are made: inputs, where they differ.

`torch.tensor(ids)` reads all of a list.  A guard on what there is in it would mean an entry for
each list; the step that makes the tensor reads it in every call in place of that.

Owns which lists are inputs of a run, and what is checked of them.  Does not own which lists differ
from call to call (magpy/shapes/speculation.py), nor the step (magpy/capture/tensors/recorder.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from magpy.objects.number_lists import depth_of, form_of

#: The builtins that give a number of a list of numbers, by what a step calls in their place.
_OF_LIST: dict[Any, Any] = {len: list.__len__, sum: sum, min: min, max: max}


def number_of(func: Any) -> Any:
    """What gives a number of a list of plain numbers as a builtin does; None if that does not."""
    return _OF_LIST.get(func) if inspect.isbuiltin(func) else None


class InputLists:
    """The lists that are inputs of one run.

    Args:
        session: knows what the run has changed.
    """

    def __init__(self, session: Any) -> None:
        """None yet."""
        self._session = session
        self._lists: dict[int, tuple[list[Any], bool]] = {}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._lists)

    def add(self, found: Iterable[tuple[list[Any], bool]]) -> None:
        """Adds lists, each with whether its sizes differ from call to call."""
        for v, resized in found:
            self._lists[id(v)] = v, resized
            self._session.input(v)

    def check(self, v: Any) -> tuple[Any, Any, bool] | None:
        """What is to be checked of a list that a step reads; None if it is no input.

        Returns:
            The function, what it gives, and whether the sizes may be others.
        """
        found, resized = self._lists.get(id(v), (None, False))
        if found is None or self._is_changed(v):
            return None
        ask: Any = depth_of if resized else form_of
        form = ask(v)
        return (ask, form, resized) if form else None

    def _is_changed(self, v: list[Any]) -> bool:
        """Whether the run has changed it, or a list in it.

        The next run finds it as it was in the beginning.
        """
        if any(type(x) is list and self._is_changed(x) for x in v):
            return True
        for container, before, *_ in self._session.containers():
            if container is v:
                now = list(v)
                same = len(now) == len(before)
                return not same or any(a is not b for a, b in zip(now, before, strict=True))
        return False


__all__ = ["InputLists", "number_of"]
