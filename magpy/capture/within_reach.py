"""What Python functions have within reach: by the names in their code, from what they are given.

Owns the walk, which is coarse and short: it is part of guards, and asks no object anything.  Does
not own which functions these are (magpy/capture/hearers.py), nor the comparison of what was there
before and after in the call that is watched (magpy/capture/below.py).  Called by
magpy/capture/recorder.py and by guards (magpy/refgraph/checks.py).
"""

from __future__ import annotations

import array
import collections
import functools
import itertools
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from magpy.capture import below
from magpy.kinds import isinstance, module_name

_OBJECTS, _ELEMENTS, _ROUNDS = 500, 100, 4
TEXTS = ("__str__", "__repr__", "__format__")
"""The methods that make texts of objects, which no code names."""


@dataclass(slots=True)
class Reach:
    """What functions can look at and change.

    Attributes:
        wholes: addresses of containers, tensors and cells.
        named: addresses of the dicts of objects and modules, of objects with slots and of classes.
        names: the names in the code of the functions, which may be put into the latter.
    """

    wholes: set[int] = field(default_factory=set)
    named: set[int] = field(default_factory=set)
    names: set[str] = field(default_factory=set)

    def of(self, holder: int, key: Any) -> bool:
        """Whether a place is within reach: a name or a key of a holder, or None for all of it."""
        if holder in self.wholes:
            return True
        return holder in self.named and (key is None or key in self.names)


def within_reach(functions: Iterable[Any], given: Iterable[Any]) -> Reach:
    """What functions can reach, with those that they name, and so on."""
    reach, known = Reach(), {}
    roots = list(given)
    reach.wholes.update(map(id, roots))
    new = list(functions)
    if not new:
        return reach  # C code, which looks no further
    for _ in range(_ROUNDS):
        for f in new:
            known[id(f)] = f
            reach.names.update(below.names_in(f.__code__), TEXTS)
            cells = [c for c in f.__closure__ or () if c != types.CellType()]
            reach.wholes.update(map(id, cells))
            roots += [c.cell_contents for c in cells]
            roots += [*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()]
        spaces = {id(f.__globals__): f.__globals__ for f in known.values()}
        reach.named.update(spaces)
        of_spaces = [s[n] for s in spaces.values() for n in reach.names if n in s]
        found = _Walk(reach).over([*roots, *of_spaces])
        new = [f for f in found if id(f) not in known and not below.foreign(f)]
        if not new:
            break
    return reach


class _Walk:
    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        self.functions: list[types.FunctionType] = []
        self.near: collections.deque[Any] = collections.deque()
        # What is in containers comes last: they may grow from call to call.
        self.far: collections.deque[Any] = collections.deque()

    def over(self, roots: list[Any]) -> list[types.FunctionType]:
        """Walks, and gives the functions that were met."""
        self.near.extend(roots)
        seen: dict[int, Any] = {}
        while (self.near or self.far) and len(seen) < _OBJECTS:
            v = (self.near or self.far).popleft()
            if id(v) not in seen and not isinstance(v, below.LEAVES):
                seen[id(v)] = v
                self._into(v)
        return self.functions

    def _into(self, v: Any) -> None:
        if isinstance(v, (torch.Tensor, np.ndarray, bytearray, array.array)):
            self.reach.wholes.add(id(v))
        elif isinstance(v, types.FunctionType):
            self.functions.append(v)
            self._named(v.__dict__)
        elif isinstance(v, (types.MethodType, types.BuiltinFunctionType)):
            self.near += [v.__func__] if isinstance(v, types.MethodType) else []
            self.near += [] if isinstance(v.__self__, types.ModuleType) else [v.__self__]
        elif isinstance(v, (staticmethod, classmethod)):
            self.near.append(v.__func__)
        elif isinstance(v, property):
            self.near.append(v.fget)
        elif isinstance(v, functools.partial):
            self.near += [v.func, *v.args, *v.keywords.values()]
        elif isinstance(v, types.ModuleType):
            if module_name(v).partition(".")[0] not in below.FOREIGN:
                self._named(vars(v))
        elif isinstance(v, types.CellType):
            self.reach.wholes.add(id(v))
            self.near += [] if v == types.CellType() else [v.cell_contents]
        else:
            self._object(v)

    def _named(self, space: dict[str, Any]) -> None:
        self.reach.named.add(id(space))
        self.near += [space[n] for n in self.reach.names if n in space]

    def _object(self, v: Any) -> None:
        if isinstance(v, _CONTAINERS):
            self.reach.wholes.add(id(v))
            self.far += itertools.islice(elements(v), _ELEMENTS)
        if isinstance(v, type):
            self._classes(v, None)
            return
        try:
            own = object.__getattribute__(v, "__dict__")
        except AttributeError:
            own = None
        if type(own) is dict:
            self._named(own)
            if not self.reach.names.isdisjoint(below.COMPUTED):
                self.reach.wholes.add(id(own))
                self.far += itertools.islice(own.values(), _ELEMENTS)
        self.reach.named.add(id(v))
        self._classes(type(v), v)

    def _classes(self, cls: type, v: Any) -> None:
        for c in cls.__mro__:
            if not c.__flags__ & below.HEAP:
                continue
            space = vars(c)
            # A library's objects come and go in containers: a list of what was warned of is empty
            # in one call, and not in the next.  No function has their classes from its names.
            if v is None or not below.of_library(space.get("__module__")):
                self.reach.named.add(id(c))
            if not self.reach.names.isdisjoint(below.COMPUTED):
                self.near += [x for x in space.values() if isinstance(x, _METHODS)]
            for n in self.reach.names & space.keys():
                x = space[n]
                if isinstance(x, types.MemberDescriptorType) and v is not None:
                    try:
                        x = x.__get__(v)
                    except (AttributeError, TypeError):
                        continue
                self.near.append(x)


_METHODS = (types.FunctionType, types.MethodType, staticmethod, classmethod, property)
_CONTAINERS: tuple[Any, ...] = (dict, list, tuple, set, frozenset, collections.deque)


def elements(v: Any) -> Iterator[Any]:
    """What is in a container, as C code takes it: no method of the program's runs."""
    if isinstance(v, dict):
        return iter(dict.values(v))
    base: Any = next((c for c in _CONTAINERS if isinstance(v, c)), None)
    return iter(()) if base is None else base.__iter__(v)
