"""Which objects Python functions can change: what hooks of the program have in their reach.

Owns the walk from functions to the objects that they, and what they call, may change.  Does not own
how one looks into an object (magpy/objects/contents.py) nor what is done about it.  Called by
magpy/runtime/hearing.py, for hooks that run while an entry does.  Nothing of the program runs here.
Tensors are left out: where their operations run in the order of the program, each finds in them
what it finds in eager.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable
from typing import Any

import torch

from magpy import _interp
from magpy.instrument.code_accesses import Touches, accesses
from magpy.objects import contents
from magpy.objects.types import isinstance
from magpy.unwatched.changes import foreign, names_in

#: So many objects are looked at.
_MANY = 2000
_WRITES_GLOBALS = Touches.STORES_GLOBAL | Touches.DELETES_GLOBAL
_WRITES_CELLS = Touches.STORES_CELL | Touches.DELETES_CELL
_WRITES_ATTRIBUTES = Touches.STORES_ATTRIBUTE | Touches.DELETES_ATTRIBUTE
#: With these a function may change what it does not name.
_UNKNOWN = frozenset(
    ["globals", "locals", "vars", "exec", "eval", "compile", "setattr", "delattr", "__import__"]
    + ["import_module", "modules", "gc", "ctypes", "inspect", "_getframe", "__globals__"]
    + ["__closure__", "__code__", "cell_contents", "__subclasses__", "__builtins__"]
)


def is_torchs_hook(pack: Any) -> bool:
    """Whether a hook of saved tensors is C's or torch's function (`save_on_cpu`, checkpoints)."""
    if type(pack) is types.FunctionType:
        return foreign(pack)
    return isinstance(pack, (types.BuiltinFunctionType, types.MethodDescriptorType))


def reachable(functions: Iterable[Any]) -> set[int] | None:
    """The addresses of the objects that functions may change.

    Returns:
        None if nobody can tell, or if they are too many.
    """
    found: set[int] = set()
    seen: set[int] = set()
    todo = list(functions)
    while todo:
        v = todo.pop()
        if id(v) in seen or contents.leaf(v) or isinstance(v, torch.Tensor):
            continue
        seen.add(id(v))
        if len(seen) > _MANY:
            return None
        if isinstance(v, types.FunctionType):
            inner = _of_function(v, found)
            if inner is None:
                return None
            todo += inner
        elif isinstance(v, types.ModuleType):
            if not contents.foreign_module(v):
                found |= {id(v), id(contents.module_dict(v))}
        elif isinstance(v, type):
            if not contents.foreign_class(v):
                found.add(id(v))
                todo += (*contents.space(v).values(), *contents.mro(v)[1:])
        else:
            found.add(id(v))
            todo += _of_object(v, found)
    return found


def _of_object(v: Any, found: set[int]) -> list[Any]:
    """What an object holds, with its class: methods of it may be called."""
    if isinstance(v, types.MethodType):
        return [v.__func__, v.__self__]
    if isinstance(v, types.BuiltinFunctionType):
        owner = v.__self__
        return [] if owner is None or isinstance(owner, types.ModuleType) else [owner]
    if isinstance(v, functools.partial):
        return [v.func, *v.args, *v.keywords.values()]
    own = contents.own_dict(v)
    if own is not None:
        found.add(id(own))
    slots = (x for x in contents.slots(v).values() if x is not _interp.ABSENT)
    inner = (*(own or {}).values(), *slots, *contents.elements(v), *contents.inside(v))
    return [*inner, type(v)]


def _of_function(function: types.FunctionType, found: set[int]) -> list[Any] | None:
    """What a function holds and names; None if it may change what it does not name."""
    code, space, cells = function.__code__, function.__globals__, function.__closure__ or ()
    held: list[Any] = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    held += (c.cell_contents for c in cells if c != types.CellType())
    if foreign(function):  # of torch's or Python's: around something of the program's, if anything
        return held
    names, (touched, stored) = set(names_in(code)), _written_by(code)
    if not names.isdisjoint(_UNKNOWN):
        return None
    found.add(id(function))
    found.update(id(c) for n, c in zip(code.co_freevars, cells, strict=True) if n in stored)
    if touched & _WRITES_GLOBALS:
        found.add(id(space))
    named = [space[n] for n in names if n in space]
    for m in [v for v in (*named, *held) if isinstance(v, types.ModuleType)]:
        if not contents.foreign_module(m):  # what is named may be an attribute of it
            inner = contents.module_dict(m)
            held += (inner[n] for n in names if n in inner)
    if not touched & _WRITES_ATTRIBUTES:
        named = [v for v in named if not isinstance(v, types.ModuleType)]
    return held + named


def _written_by(code: types.CodeType) -> tuple[Touches, set[str]]:
    """What a piece of code and that within it touches, and the names of cells that they write."""
    touched, cells = Touches.NOTHING, set()
    for what, name, *_ in accesses(code):
        touched |= what
        if what & _WRITES_CELLS:
            cells.add(name)
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            more = _written_by(c)
            touched |= more[0]
            cells |= more[1]
    return touched, cells


__all__ = ["is_torchs_hook", "reachable"]
