"""What code and classes are like, as a hash that is equal in another process.

Owns what counts of a code object and of the body of a class.  Does not own which functions and
classes are compared (magpy/saving/places.py).
"""

from __future__ import annotations

import hashlib
import sys
import types
from typing import Any

#: Roots of packages whose classes the versions in a file tell of.
_BY_VERSION = frozenset(["torch", "magpy", "numpy", "builtins"]) | sys.stdlib_module_names
# What the interpreter writes into classes, and what says nothing of what they do.
_SILENT = frozenset(
    (
        *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__"),
        *("__annotate__", "__firstlineno__", "__static_attributes__", "__parameters__"),
        *("__orig_bases__", "__abstractmethods__", "_abc_impl"),
    )
)


def _constant(v: Any) -> str:
    if isinstance(v, types.CodeType):
        return code(v)
    if isinstance(v, tuple):
        return f"({','.join(map(_constant, v))})"
    if isinstance(v, frozenset):
        return f"{{{','.join(sorted(map(_constant, v)))}}}"
    return f"{type(v).__name__} {v!r}"


def code(v: types.CodeType) -> str:
    """What a function does: all of its code but where it stands."""
    parts = (
        v.co_code.hex(),
        v.co_exceptiontable.hex(),
        v.co_name,
        *(str(n) for n in (v.co_argcount, v.co_posonlyargcount, v.co_kwonlyargcount, v.co_flags)),
        *map(repr, (v.co_names, v.co_varnames, v.co_cellvars, v.co_freevars)),
        *map(_constant, v.co_consts),
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _attribute(v: Any) -> str:
    if isinstance(v, types.FunctionType):
        return code(v.__code__)
    if isinstance(v, (staticmethod, classmethod)):
        return f"{type(v).__name__} {_attribute(v.__func__)}"
    if isinstance(v, property):
        return f"property {_attribute(v.fget)} {_attribute(v.fset)} {_attribute(v.fdel)}"
    return type(v).__name__


def is_of_a_version(module: str) -> bool:
    """Whether the versions in a file tell what a module holds."""
    return module.partition(".")[0] in _BY_VERSION


def body(cls: type) -> str:
    """What the functions of a class do, and which other names it has of what types."""
    found = [
        f"{name} {_attribute(v)}"
        for name, v in sorted(type.__getattribute__(cls, "__dict__").items())
        if name not in _SILENT
    ]
    return hashlib.sha256("\n".join(found).encode()).hexdigest()


__all__ = ["body", "code", "is_of_a_version"]
