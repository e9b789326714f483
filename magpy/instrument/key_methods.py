"""Whether somebody may notice that the `__hash__` and `__eq__` of a key are called.

Owns which ones are known to compute alone (those in C, of Python's own library and torch), and the
refusal of a dict or a set for others.  Does not own whether a key runs code of the program at all
(magpy/objects/hashing.py).  Called where a replay fills containers that the call makes or changes
(magpy/capture/end_state.py, magpy/capture/rebuild.py).
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

from magpy import _interp
from magpy.errors import Refusal, an
from magpy.objects.contents import of_library
from magpy.objects.types import isinstance


def refuse_if_it_shows(keys: Iterable[Any]) -> None:
    """Refuses a dict or a set whose keys would be hashed and compared another number of times.

    Raises:
        Refusal: a key's class has a `__hash__` or `__eq__` of its own in Python.
    """
    for key in keys:
        name = shows(key)
        if name is not None:
            kind = an(type(key).__name__)
            raise Refusal(
                f"a dict or a set is made or changed whose key is {kind}, and its {name} may do "
                "more than compute",
                "",
                "Use what the object holds as the key: a tuple of numbers and text",
            )


def shows(key: Any) -> str | None:
    """Which of `__hash__` and `__eq__` somebody may notice being called, or None."""
    t = type(key)
    if t is tuple or t is frozenset:
        return next((name for name in map(shows, key) if name is not None), None)
    for name in ("__hash__", "__eq__"):
        f = _interp.type_lookup(t, name)
        if isinstance(f, types.FunctionType) and not of_library(f.__globals__.get("__name__")):
            return name
    return None
