"""What Python functions have within reach: by the names in their code, from what they are given.

Owns the walk, which is coarse and short: it is part of guards, and asks no object anything.  Does
not own how one looks into an object (magpy/objects/contents.py), which functions these are
(magpy/unwatched/listeners.py), nor the comparison of what was there before and after in the call
that is watched (magpy/unwatched/changes.py).  Called by magpy/capture/tensors/recorder.py and by
guards (magpy/guards/checks.py).
"""

from __future__ import annotations

import array
import collections
import itertools
import types
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from magpy.objects import contents
from magpy.objects.types import isinstance
from magpy.unwatched import changes

_OBJECTS, _ELEMENTS = 500, 100
TEXTS = frozenset(("__str__", "__repr__", "__format__"))
"""The methods that make texts of objects, which no code names."""
# Special attributes of a class that no operation on its objects runs.
_NOT_RUN = frozenset(
    (
        *("__module__", "__dict__", "__weakref__", "__doc__", "__qualname__", "__annotations__"),
        *("__init_subclass__", "__class_getitem__", "__set_name__", "__slots__", "__match_args__"),
        *("__abstractmethods__", "__orig_bases__", "__parameters__", "__classcell__"),
        *("__dataclass_fields__", "__dataclass_params__", "__firstlineno__"),
        *("__static_attributes__", "__annotate__", "__type_params__"),
    )
)
_MAKES = frozenset(("__init__", "__new__"))  # they run where a class is called


@dataclass(slots=True)
class Reach:
    """What functions can look at and change.

    Attributes:
        wholes: addresses of containers, tensors and cells.
        named: addresses of the dicts of objects and modules, of objects with slots and of classes.
        names: the names in the code of the functions, which may be put into the latter.
        codes: the code of the functions, and of those that they can call, by address.
        own: what they can reach without their arguments, if these were told apart: what of the
            call's they got hold of is more than what they are given.
    """

    wholes: set[int] = field(default_factory=set)
    named: set[int] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    codes: dict[int, types.CodeType] = field(default_factory=dict)
    own: Reach | None = None

    def of(self, holder: int, key: Any) -> bool:
        """Whether a place is within reach: a name or a key of a holder, or None for all of it."""
        if holder in self.wholes:
            return True
        return holder in self.named and (key is None or key in self.names)


def within_reach(
    functions: Iterable[Any], given: Iterable[Any], arguments: Iterable[Any] = ()
) -> Reach:
    """What functions can reach, with those that they name, and so on.

    Args:
        functions: the functions.
        given: objects that they are methods of, or are given.
        arguments: other objects that they are given, where what they reach by these is told apart.
    """
    reach = Reach()
    roots = list(given)
    reach.wholes.update(map(id, roots))
    new = list(functions)
    if new:  # else C code, which looks no further
        walk = _Walk(reach)
        walk.near.extend(new)
        walk.near.extend(roots)
        walk.go()
        if arguments:
            reach.own = Reach(set(reach.wholes), set(reach.named), set(reach.names))
            walk.near.extend(arguments)
            walk.go()
    return reach


class _Walk:
    """A walk that sees each object once; names that are found later are looked up where it was."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.near: collections.deque[Any] = collections.deque()
        # What is in containers comes last: they may grow from call to call.
        self.far: collections.deque[Any] = collections.deque()
        self.seen: dict[int, Any] = {}
        # Where names are looked up, and those that have not been.
        self.spaces: list[Any] = []
        self.fresh: set[str] = set(TEXTS)
        # The dicts of objects, and the classes, for code that computes names.
        self.own: list[dict[str, Any]] = []
        self.classes: dict[tuple[int, bool], type] = {}
        self.computed = False

    def go(self) -> None:
        """Walks from what is near."""
        while len(self.seen) < _OBJECTS:
            if self.near:
                v = self.near.popleft()
            elif self.fresh:
                self._look_up()
                continue
            elif self.far:
                v = self.far.popleft()
            else:
                break
            if not contents.leaf(v) and id(v) not in self.seen:
                self.seen[id(v)] = v
                self._into(v)
        self.reach.names |= self.fresh

    def _into(self, v: Any) -> None:
        if isinstance(v, (torch.Tensor, np.ndarray, bytearray, array.array)):
            self.reach.wholes.add(id(v))
            self.far += contents.inside(v)
        elif isinstance(v, types.FunctionType):
            self._function(v)
        elif isinstance(v, types.BuiltinFunctionType):
            self.near += [] if isinstance(v.__self__, types.ModuleType) else [v.__self__]
        elif isinstance(v, types.ModuleType):
            if not contents.foreign_module(v):
                self._space(contents.module_dict(v))
        elif isinstance(v, types.CellType):
            self.reach.wholes.add(id(v))
            self.near += [] if v == types.CellType() else [v.cell_contents]
        else:
            self._object(v)

    def _function(self, f: types.FunctionType) -> None:
        self.near += f.__closure__ or ()
        self.near += f.__defaults__ or ()
        self.near += (f.__kwdefaults__ or {}).values()
        self._space(f.__dict__)
        if changes.foreign(f):
            return
        code = f.__code__
        self.reach.codes[id(code)] = code
        names = changes.names_of(code)
        self.fresh |= names - self.reach.names
        self.near += contents.imported(names)
        if id(f.__globals__) not in self.seen:
            self.seen[id(f.__globals__)] = f.__globals__
            self._space(f.__globals__)

    def _object(self, v: Any) -> None:
        if isinstance(v, contents.CONTAINERS):
            self.reach.wholes.add(id(v))
            self.far += itertools.islice(contents.elements(v), _ELEMENTS)
        if isinstance(v, type):
            self._class(v, made=True)
            return
        self.near += contents.inside(v)
        self.far += contents.held_by_library(v)
        own = contents.own_dict(v)
        if own is not None:
            self._space(own)
            self.own.append(own)
            if self.computed:
                self._all_of(own)
        self.reach.named.add(id(v))
        if contents.made_by_statement(type(v)):
            self._class(type(v), made=False)
            self.near += contents.slots(v).values()

    def _class(self, cls: type, *, made: bool) -> None:
        """Goes into a class: of an object, or one that is in reach itself, and may be called."""
        for c in contents.mro(cls):
            if (id(c), made) in self.classes or not contents.made_by_statement(c):
                continue
            self.classes[id(c), made] = c
            space = contents.space(c)
            library = contents.foreign_class(c)
            # A library's objects come and go in containers: a list of what was warned of is empty
            # in one call, and not in the next.  No function has their classes from its names.
            if made or not library:
                self.reach.named.add(id(c))
            if (id(c), not made) not in self.classes:
                self._space(space, named=False)
            if self.computed:
                self._methods_of(space)
            if not library:
                for n, x in space.items():
                    if type(n) is str and n[:2] == "__" and n not in _NOT_RUN:
                        self.near += [x] if made or n not in _MAKES else []

    def _space(self, space: Any, *, named: bool = True) -> None:
        if named:
            self.reach.named.add(id(space))
        self.spaces.append(space)
        self.near += map(space.__getitem__, self.reach.names & space.keys())

    def _look_up(self) -> None:
        """Looks names that are new up where the walk has been."""
        fresh, self.fresh = self.fresh, set()
        self.reach.names |= fresh
        for space in self.spaces:
            self.near += map(space.__getitem__, fresh & space.keys())
        if not self.computed and not fresh.isdisjoint(changes.COMPUTED):
            self.computed = True
            for own in self.own:
                self._all_of(own)
            for c in self.classes.values():
                self._methods_of(contents.space(c))

    def _all_of(self, own: dict[str, Any]) -> None:
        self.reach.wholes.add(id(own))
        self.far += itertools.islice(own.values(), _ELEMENTS)

    def _methods_of(self, space: Any) -> None:
        self.near += [x for x in space.values() if isinstance(x, _METHODS)]


_METHODS = (types.FunctionType, types.MethodType, staticmethod, classmethod, property)

__all__ = ["TEXTS", "Reach", "within_reach"]
