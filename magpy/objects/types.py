"""What magpy asks of the program's objects without running code of theirs.

Owns `isinstance`, by their type alone: Python's own asks an object for its `__class__`, too, which
may be code of the program, or a lie (proxies, mocks); whether a class is one of named tuples, made
while the program runs, or decides which attributes its objects have, and whether these may be given
another class; attributes of callables; and the name of a module, whose class may have a
`__getattr__`. What the program itself asks is asked by Python's. Imported by the modules that look
at the program's objects.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from magpy import _interp

if TYPE_CHECKING:
    from builtins import isinstance  # noqa: UP029 - type checkers know it by that name
else:
    from magpy._interp import is_instance as isinstance

_flags_of: Any = vars(type)["__flags__"].__get__
_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8  # Py_TPFLAGS_HEAPTYPE, Py_TPFLAGS_IMMUTABLETYPE
_dict_of: Any = vars(types.ModuleType)["__dict__"].__get__


def is_named_tuple(cls: type) -> bool:
    """Whether a class is one that `collections.namedtuple` has made, or derives from one."""
    return issubclass(cls, tuple) and _interp.type_lookup(cls, "_fields") is not _interp.ABSENT


def is_heap(cls: type) -> bool:
    """Whether a class was made while the program ran, as those of class statements are."""
    return bool(_flags_of(cls) & _HEAP_TYPE)


def may_be_assigned(cls: type) -> bool:
    """Whether its objects may be given another class (`obj.__class__ = other`).

    CPython allows that among classes that may be changed themselves, and for modules.
    """
    mutable = _flags_of(cls) & (_HEAP_TYPE | _IMMUTABLE_TYPE) == _HEAP_TYPE
    return mutable or cls is types.ModuleType


def answers_itself(cls: type) -> bool:
    """Whether a class decides which attributes its objects have: to ask them may run its code."""
    if not is_heap(cls):
        return False
    if _interp.type_lookup(cls, "__getattr__") is not _interp.ABSENT:
        return True
    found = _interp.type_lookup(cls, "__getattribute__")
    return not any(found is vars(c)["__getattribute__"] for c in (object, type, types.ModuleType))


def attribute(obj: Any, name: str) -> Any:
    """An attribute of a callable; None if it has none, or if its class decides what it has."""
    return None if answers_itself(type(obj)) else getattr(obj, name, None)


def module_name(module: types.ModuleType) -> str:
    """The name of a module as it stands in its dict; "" for one that is still being made."""
    name = _dict_of(module).get("__name__")
    return name if isinstance(name, str) else ""


__all__ = [
    "answers_itself",
    "attribute",
    "is_heap",
    "is_named_tuple",
    "isinstance",
    "may_be_assigned",
    "module_name",
]
