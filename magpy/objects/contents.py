"""What objects hold, asked in C: nothing of the program's runs.

Owns how one looks into an object, its class and what C code holds, where Python's own ways would
run a property `__dict__`, a metaclass's `__getattribute__`, a module's `__getattr__`, or load a
lazy module.  Does not own how far anybody walks (magpy/unwatched/changes.py,
magpy/unwatched/reachability.py, magpy/unwatched/listeners.py, which call this).
"""

from __future__ import annotations

import collections
import contextvars
import gc
import itertools
import sys
import threading
import types
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from magpy import _interp
from magpy.objects.types import isinstance, module_name

#: Modules whose functions change nothing of the program's that is not given to them.
FOREIGN = {"torch", "numpy", "builtins", *sys.stdlib_module_names}
# By address: to look a class up asks its metaclass, which may be the program's.
_LEAVES = frozenset(
    map(
        id,
        (
            *(type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device),
            *(types.CodeType, types.FrameType, types.TracebackType),
        ),
    )
)
CONTAINERS: tuple[Any, ...] = (dict, list, tuple, set, frozenset, collections.deque)
HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class made by a class statement
_ELEMENTS = 100  # so many elements of an array are looked at

#: The classes that a class has attributes of, in order; a type's `__mro__`.
mro: Any = vars(type)["__mro__"].__get__
#: A class's own attributes; a type's `__dict__`.
space: Any = vars(type)["__dict__"].__get__
#: A module's globals; a module's `__dict__`.
module_dict: Any = vars(types.ModuleType)["__dict__"].__get__
own_dict = _interp.own_dict
_flat: Any = np.ndarray.flat.__get__
_dtype: Any = np.ndarray.dtype.__get__
_flags: Any = vars(type)["__flags__"].__get__


def leaf(v: Any) -> bool:
    """Whether an object holds nothing; of a subclass it may have attributes and methods."""
    return id(type(v)) in _LEAVES


def made_by_statement(cls: type) -> bool:
    """Whether a class is one of Python's, not of C."""
    return bool(_flags(cls) & HEAP)


def of_library(module: Any) -> bool:
    """Whether a module's name is that of one of Python's own, or of one of torch's or numpy's."""
    return package(module) in FOREIGN


def package(module: Any) -> str:
    """The first part of a module's name; "" for what is no text."""
    return module.partition(".")[0] if type(module) is str else ""


def foreign_module(module: types.ModuleType) -> bool:
    """Whether a module is one of Python's own, or of torch's or numpy's."""
    return package(module_name(module)) in FOREIGN


def foreign_class(cls: type) -> bool:
    """Whether a class is one of Python's own, or of torch's or numpy's."""
    return not made_by_statement(cls) or of_library(space(cls).get("__module__"))


def elements(v: Any) -> Iterator[Any]:
    """What is in a container, with the keys of a dict, as C code takes it."""
    if isinstance(v, dict):
        return itertools.chain.from_iterable(dict.items(v))
    base: Any = next((c for c in CONTAINERS if isinstance(v, c)), None)
    return iter(()) if base is None else base.__iter__(v)


def inside(v: Any) -> list[Any]:
    """What an object holds that is no container, beside attributes: by the C part of its class."""
    if isinstance(v, (weakref.ReferenceType, *weakref.ProxyTypes)):
        return [_interp.referent(v)]
    if isinstance(v, contextvars.ContextVar):
        return [v.get(None)]
    if isinstance(v, threading.local):
        # Of a class of the program's it may have to be made here.
        plain = _interp.type_lookup(type(v), "__init__") is object.__init__
        return [threading.local.__getattribute__(v, "__dict__")] if plain else []
    if isinstance(v, np.ndarray):
        return list(itertools.islice(_flat(v), _ELEMENTS)) if _dtype(v).hasobject else []
    if isinstance(v, (torch.Tensor, types.ModuleType, type, *CONTAINERS)):
        return []
    if _interp.c_base(type(v)) is object:
        return []
    own = own_dict(v)
    return [x for x in gc.get_referents(v) if x is not own and x is not type(v)]


def slots(v: Any) -> dict[str, Any]:
    """What an object of a class of Python's has in slots, by name; ABSENT where nothing is."""
    found: dict[str, Any] = {}
    for c in mro(type(v)) if made_by_statement(type(v)) else ():
        own = space(c)
        # A class that has any says so, if in vain.
        for n, x in own.items() if "__slots__" in own and made_by_statement(c) else ():
            if isinstance(x, types.MemberDescriptorType) and n not in found:
                try:
                    found[n] = x.__get__(v)
                except (AttributeError, TypeError):
                    found[n] = _interp.ABSENT
    return found


def held_by_library(v: Any) -> list[Any]:
    """The containers of an object of a library's class, whose methods give of what is in them."""
    own = None if type(v) is dict or not foreign_class(type(v)) else own_dict(v)
    return [x for x in own.values() if isinstance(x, CONTAINERS)] if own else []


__all__ = [
    "CONTAINERS",
    "FOREIGN",
    "HEAP",
    "elements",
    "foreign_class",
    "foreign_module",
    "held_by_library",
    "inside",
    "leaf",
    "made_by_statement",
    "module_dict",
    "mro",
    "of_library",
    "own_dict",
    "package",
    "slots",
    "space",
]
