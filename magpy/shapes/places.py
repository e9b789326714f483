"""What is at a place that an earlier call reached, in a call for which no guard has held.

Owns the reading of the expressions of relative objects (magpy/guards/analysis.py) without running
code of the program: this call's objects may be of other classes, whose attributes are properties
and whose dicts make what is missing.  Called by magpy/shapes/speculation.py.
"""

from __future__ import annotations

import ast
import collections
import functools
import types
from typing import Any

from magpy.objects.types import isinstance

_SEQUENCES = (list, tuple, collections.deque)
_OF_C = (types.MemberDescriptorType, types.GetSetDescriptorType)


def evaluated(expr: str, space: dict[str, Any], given: dict[str, Any]) -> Any:
    """What is at a place in this call, or None.

    Args:
        expr: an expression of an analysis.
        space: the objects that it names.
        given: the arguments by their names in it.
    """
    try:
        return _at(_parsed(expr), space, given)
    except (LookupError, AttributeError, TypeError, ValueError):
        return None  # this call's objects are of another shape


@functools.lru_cache(maxsize=4096)
def _parsed(expr: str) -> ast.expr:
    return ast.parse(expr, mode="eval").body


def _at(node: ast.expr, space: dict[str, Any], given: dict[str, Any]) -> Any:
    match node:
        case ast.Name(name):
            return given[name] if name in given else space[name]
        case ast.Attribute(value, name):
            return _attribute(_at(value, space, given), name)
        case ast.Subscript(value, key):
            return _item(_at(value, space, given), _at(key, space, given))
        case ast.Call(ast.Attribute(_, "__getitem__"), [value, key]):
            return _item(_at(value, space, given), _at(key, space, given))
    return ast.literal_eval(node)


def _attribute(obj: Any, name: str) -> Any:
    """An attribute that C reads."""
    for cls in type(obj).__mro__:
        if name in cls.__dict__:
            descriptor = cls.__dict__[name]
            if isinstance(descriptor, _OF_C):
                return descriptor.__get__(obj)
            break
    raise AttributeError(name)


def _item(holder: Any, key: Any) -> Any:
    if isinstance(holder, dict):
        return dict.get(holder, key)
    base: Any
    for base in _SEQUENCES:
        if isinstance(holder, base):
            return base.__getitem__(holder, key)
    raise TypeError(holder)


__all__ = ["evaluated"]
