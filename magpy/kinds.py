"""What magpy asks of the program's objects without running code of theirs.

Owns `isinstance`, by their type alone: Python's own asks an object for its `__class__`, too, which
may be code of the program, or a lie (proxies, mocks); whether a class is one of named tuples; and
the name of a module, whose class may have a `__getattr__`. What the program itself asks is asked
by Python's. Imported by the modules that look at the program's objects.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from magpy import _interp

if TYPE_CHECKING:
    from builtins import isinstance  # noqa: UP029 - type checkers know it by that name
else:
    from magpy._interp import is_instance as isinstance

_dict_of: Any = vars(types.ModuleType)["__dict__"].__get__


def is_named_tuple(cls: type) -> bool:
    """Whether a class is one that `collections.namedtuple` has made, or derives from one."""
    return issubclass(cls, tuple) and _interp.type_lookup(cls, "_fields") is not _interp.ABSENT


def module_name(module: types.ModuleType) -> str:
    """The name of a module as it stands in its dict; "" for one that is still being made."""
    name = _dict_of(module).get("__name__")
    return name if isinstance(name, str) else ""


__all__ = ["is_named_tuple", "isinstance", "module_name"]
