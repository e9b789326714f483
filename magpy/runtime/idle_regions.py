"""Which regions of a driver hold no tensor operation, so that a capture of them is of no use.

Owns what is known of that before a region is captured: by its code, and by all that its code can
reach.  Does not own what becomes of such a region, nor what captures of it have shown
(magpy/runtime/compiled.py, which calls this).

A region that this misses is captured, and then left to Python if that capture has no operation.
"""

from __future__ import annotations

import builtins
import types
from typing import Any

from magpy.errors import NO_TENSORS
from magpy.instrument.code_accesses import looked_up, may_compute
from magpy.objects.plain_values import PLAIN_TYPES
from magpy.objects.types import isinstance

#: Of what is one of these, no item is computed with a tensor.
_WITHOUT_WORK = (int, float, str, bytes, bool, type(None), list, tuple, dict, set, slice, range)
_CONTAINERS = (list, tuple, set, frozenset, dict)
#: So many items of a container are looked at, and so deep.
_MOST_ITEMS, _MOST_DEPTH = 64, 2
#: Modules of the standard library whose objects refer to nothing of the program's but plain values.
_PLAIN_OBJECTS = frozenset(
    ["_io", "io", "datetime", "_hashlib", "zlib", "re", "random", "decimal", "uuid", "pathlib"]
)


def is_idle(function: types.FunctionType, given: tuple[Any, ...]) -> bool:
    """Whether a call of a function surely computes with no tensor.

    Args:
        function: a region's.
        given: its arguments.
    """
    plain = all(type(v) in _WITHOUT_WORK for v in given)
    return not may_compute(function.__code__, plain) or _reaches_no_tensor(function, given)


def _reaches_no_tensor(function: types.FunctionType, given: tuple[Any, ...]) -> bool:
    """Whether all that the code can reach are plain values and Python's standard library."""
    if not all(map(_is_plain, given)):
        return False
    cells = [*(function.__closure__ or ())]
    try:
        if not all(_is_plain(cell.cell_contents) for cell in cells):
            return False
    except ValueError:  # a cell that is empty so far
        return False
    known = function.__globals__
    names = looked_up(function.__code__)
    return names is not None and all(
        _is_plain(known.get(name, getattr(builtins, name, is_idle))) for name in names
    )


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Whether nothing that is done with a value and others like it comes to a tensor."""
    t = type(value)
    if t in PLAIN_TYPES or t in (slice, range, bytearray):
        return True
    if t in _CONTAINERS:
        items = [*value.keys(), *value.values()] if t is dict else list(value)
        return (
            depth < _MOST_DEPTH
            and len(items) <= _MOST_ITEMS
            and all(_is_plain(v, depth + 1) for v in items)
        )
    if t is types.BuiltinFunctionType:
        owner = value.__self__
        # A method of a container does no more with its items than to keep them and give them.
        return (
            type(owner) in _CONTAINERS
            or (owner is None and _is_of(value.__module__, NO_TENSORS))
            or (owner is not None and _is_plain(owner))
        )
    if isinstance(value, types.ModuleType):
        return _is_of(value.__name__, NO_TENSORS)
    if isinstance(value, type) or t is types.FunctionType:
        return _is_of(value.__module__, NO_TENSORS)
    if t is types.MethodType:
        return _is_plain(value.__func__) and _is_plain(value.__self__)
    return _is_of(t.__module__, _PLAIN_OBJECTS)


def _is_of(module: Any, packages: frozenset[str]) -> bool:
    return isinstance(module, str) and module.partition(".")[0] in packages


__all__ = ["is_idle"]
