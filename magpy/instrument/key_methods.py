"""Whether the `__hash__` and `__eq__` of a key can do anything else than compute.

Owns finding that out from their instructions, and the refusal of a dict or a set for it.  Does not
own whether a key runs code of the program at all (magpy/objects/hashing.py).  Called where a replay
fills containers that the call makes or changes (magpy/capture/end_state.py,
magpy/capture/rebuild.py).
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable
from typing import Any

from magpy import _interp
from magpy.errors import Refusal, an
from magpy.instrument.code_accesses import Touches, accesses
from magpy.objects.types import isinstance


def refuse_if_it_shows(keys: Iterable[Any]) -> None:
    """Refuses a dict or a set whose keys would be hashed and compared another number of times.

    Raises:
        Refusal: a key's class has a `__hash__` or `__eq__` that may do more than compute.
    """
    for key in keys:
        name = shows(key)
        if name is not None:
            kind = an(type(key).__name__)
            raise Refusal(
                f"a dict or a set is made or changed whose key is {kind}, and its {name} may do "
                "more than compute",
                "",
                "Let it only compare and hash what the object holds",
            )


def shows(key: Any) -> str | None:
    """Which of `__hash__` and `__eq__` somebody may notice being called, or None."""
    t = type(key)
    if t is tuple or t is frozenset:
        return next((name for name in map(shows, key) if name is not None), None)
    if any(c.__module__ == "torch" and c.__name__ == "Tensor" for c in t.__mro__):
        return None  # torch's own
    for name in ("__hash__", "__eq__"):
        f = _interp.type_lookup(t, name)
        if isinstance(f, types.FunctionType) and not _computes(f.__code__):
            return name
    return None


# What such a method may call: the like of `hash((self.a, self.b))` and `isinstance(other, Point)`.
_CALLS = frozenset(
    (
        *("hash", "isinstance", "issubclass", "type", "id", "len", "tuple", "list", "set"),
        *("frozenset", "str", "repr", "int", "float", "bool", "sorted", "getattr", "hasattr"),
        *("all", "any", "zip", "map", "sum", "min", "max", "super", "range", "abs", "round"),
        *("vars", "dict", "object", "bytes", "__hash__", "__eq__", "__ne__", "lower", "upper"),
        *("casefold", "strip", "split", "join", "format", "get", "items", "keys", "values"),
        *("startswith", "endswith", "as_tuple"),
    )
)
_CHANGES = (
    Touches.STORES_ATTRIBUTE
    | Touches.DELETES_ATTRIBUTE
    | Touches.STORES_ITEM
    | Touches.DELETES_ITEM
    | Touches.STORES_GLOBAL
    | Touches.DELETES_GLOBAL
    | Touches.STORES_NAME
    | Touches.DELETES_NAME
    | Touches.IMPORTS
)
_CELLS = Touches.STORES_CELL | Touches.DELETES_CELL


@functools.lru_cache(maxsize=512)
def _computes(code: types.CodeType) -> bool:
    """Whether the code, as far as its instructions tell, changes nothing that others see."""
    for touches, name, _, calls in accesses(code):
        if touches & _CHANGES or (touches & _CELLS and name in code.co_freevars):
            return False
        if calls and name not in _CALLS:
            return False
    return all(_computes(c) for c in code.co_consts if isinstance(c, types.CodeType))
