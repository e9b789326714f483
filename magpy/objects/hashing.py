"""Keys of dicts and elements of sets: what runs where they are hashed and compared.

Owns the question whether that is code of the program (`__hash__` and `__eq__` of its classes),
which the program may notice, and whether that code can do anything else than compute.  Called
where magpy itself looks into containers (magpy/capture/end_state.py, magpy/models/callables.py,
magpy/guards/analysis.py); the native parts have a test of their own (`runs_code` in
csrc/interp/leaf.cpp).
"""

from __future__ import annotations

import collections
import dis
import functools
import types
from collections.abc import Iterable
from typing import Any

from magpy import _interp
from magpy.errors import Refusal
from magpy.objects.types import is_heap, isinstance


def hashes_quietly(key: Any) -> bool:
    """Whether hashing and comparing it runs no code of the program."""
    t = type(key)
    if t is tuple:
        return all(hashes_quietly(x) for x in key)
    if t is frozenset:
        return False
    own = vars(object)
    return not is_heap(t) or all(
        _interp.type_lookup(t, name) is own[name] for name in ("__hash__", "__eq__")
    )


def pairs_of(obj: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """What a dict holds, in its order, without hashing its keys as `OrderedDict.items` does."""
    if not isinstance(obj, collections.OrderedDict):
        return list(dict.items(obj))
    values = {id(k): v for k, v in dict.items(obj)}
    return [(k, values[id(k)]) for k in collections.OrderedDict.__iter__(obj)]


def refuse_if_it_shows(keys: Iterable[Any]) -> None:
    """Refuses a dict or a set whose keys would be hashed and compared another number of times.

    Raises:
        Refusal: a key's class has a `__hash__` or `__eq__` that may do more than compute.
    """
    for key in keys:
        name = shows(key)
        if name is not None:
            raise Refusal(
                f"a dict or a set is made or changed whose key is a {type(key).__name__}, and its "
                f"{name} may do more than compute",
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
_CHANGES = ("STORE_ATTR", "STORE_SUBSCR", "STORE_GLOBAL", "STORE_NAME", "DELETE_", "IMPORT_")


@functools.lru_cache(maxsize=512)
def _computes(code: types.CodeType) -> bool:
    """Whether the code, as far as its instructions tell, changes nothing that others see."""
    for i in dis.get_instructions(code):
        if i.opname.startswith(_CHANGES) or (
            i.opname == "STORE_DEREF" and i.argval in code.co_freevars
        ):
            return False
        called = i.opname == "LOAD_METHOD" or i.argrepr.startswith(("NULL + ", "NULL|self + "))
        if i.opname == "PUSH_NULL" or (called and i.argval not in _CALLS):
            return False
    return all(_computes(c) for c in code.co_consts if isinstance(c, types.CodeType))
