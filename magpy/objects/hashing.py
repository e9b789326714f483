"""Keys of dicts and elements of sets: what runs where they are hashed and compared.

Owns the question whether that is code of the program (`__hash__` and `__eq__` of its classes),
which the program may notice.  Does not own whether that code can do anything else than compute
(magpy/instrument/key_methods.py).  Called where magpy itself looks into containers
(magpy/capture/end_state.py, magpy/models/callables.py, magpy/guards/analysis.py); the native parts
have tests of their own (`runs_code` and `by_identity` in csrc/interp/leaf.cpp).
"""

from __future__ import annotations

import collections
from typing import Any

from magpy import _interp
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
