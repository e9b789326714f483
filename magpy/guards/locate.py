"""Where a value is that a call differs in: the object that holds it, and under which key.

Owns following the registers of a guard program to the objects of one call, and which objects that
all calls share hold others now.  Does not own which
check failed (`_interp.Guard.explain`), nor what is done about it.  Called by
magpy/runtime/misses.py.

No code of the user's classes runs.
"""

from __future__ import annotations

import collections
import types
from dataclasses import dataclass
from typing import Any

import torch

from magpy.guards.names import Program
from magpy.guards.program import ANCHOR_TYPES
from magpy.guards.world import key_of_place
from magpy.objects.types import isinstance


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value is.

    Attributes:
        holder: a dict, list, tuple, cell or object; None for an argument itself.
        key: the key, index or name; None for a cell, and for anything in the holder.
        argument: which argument it is reached from, by position (keyword arguments follow the
            positional ones); None where it is reached from what all calls share.
    """

    holder: Any
    key: Any
    argument: int | None


_OF_ONE = frozenset(
    ["type", "len", "leaf", "is", "small_int", "dict_keys", "set", "func", "tensor"]
)
_CONTAINERS = (list, dict, set, collections.deque)
_LOADS = frozenset(["dict_get", "inst_dict", "attr", "item", "item_at", "cell", "gradient"])


class _Unknown(Exception):
    """The way to a value is of a kind that is not followed."""


def place_of(program: Program, failure: tuple[Any, str], given: list[Any]) -> Place | None:
    """Where the value is that does not fit, in a call.

    Args:
        program: the guard program.
        failure: what `_interp.Guard.explain` gave.
        given: the arguments of the call, the keyword arguments in the program's order.

    Returns:
        None where that is not known.
    """
    where, _ = failure
    if not isinstance(where, int):
        return _anchored(program, where)
    loads = {check[1]: check for check in program.checks if check[0] in _LOADS}
    check = program.checks[where]

    way = _Way(loads, given)
    try:
        if check[0] in _LOADS or check[0] in ("dict_absent", "attr_absent"):
            absent = check[0] in ("dict_absent", "attr_absent")
            operand, key = check[1:3] if absent else (check[2], way.key(check))
            return Place(way.value(operand), key, way.origin(operand))
        if check[0] == "py" and check[2]:
            origin = way.origin(check[2][0])
            if origin is not None:
                return Place(None, None, origin)
            return _held(way.value(check[2][0]))
        if check[0] not in _OF_ONE:
            return None
        operand = check[1]
        if not isinstance(operand, int):
            return _held(way.value(operand))
        if operand < len(given):
            return Place(None, None, operand)
        load = loads.get(operand)
        if load is None or load[0] == "inst_dict":
            return None
        return Place(way.value(load[2]), way.key(load), way.origin(load[2]))
    except (_Unknown, LookupError, AttributeError, ValueError, TypeError):
        return None


def _held(container: Any) -> Place | None:
    """The place of anything in a container."""
    return Place(container, None, None) if isinstance(container, _CONTAINERS) else None


@dataclass(frozen=True, slots=True)
class _Way:
    """The way to what registers hold: what loads them, and the arguments.

    No functions within `place_of`: those would keep the arguments in a cycle.
    """

    loads: dict[int, tuple[Any, ...]]
    given: list[Any]

    def value(self, operand: Any) -> Any:
        """What an operand is."""
        if not isinstance(operand, int):
            return operand[1]
        if operand < len(self.given):
            return self.given[operand]
        if operand not in self.loads:
            raise _Unknown
        kind, dst, holder, *_ = load = self.loads[operand]
        if kind == "item_at":
            load = ("item", dst, holder, self.key(load))
        return _loaded(load, self.value(holder))

    def key(self, load: tuple[Any, ...]) -> Any:
        """Where a load reads in what holds the value; None of a cell."""
        kind, _, _, *key = load
        return self.value(key[0]) if kind == "item_at" else (*key, None)[0]

    def origin(self, operand: Any) -> int | None:
        """The argument that an operand is reached from."""
        while isinstance(operand, int):
            if operand < len(self.given):
                return operand
            operand = self.loads[operand][2] if operand in self.loads else None
        return None


def _loaded(check: tuple[Any, ...], holder: Any) -> Any:
    kind, _, _, *rest = check
    if kind == "dict_get" and isinstance(holder, dict):
        return dict.__getitem__(holder, rest[0])
    if kind == "inst_dict":
        return object.__getattribute__(holder, "__dict__")
    if kind == "attr":
        return object.__getattribute__(holder, rest[0])
    if kind == "item" and isinstance(holder, (list, tuple)):
        base: Any = list if isinstance(holder, list) else tuple
        return base.__getitem__(holder, rest[0])
    if kind == "cell" and type(holder) is types.CellType:
        return holder.cell_contents
    raise _Unknown


def _anchored(program: Program, where: tuple[str, int, int]) -> Place | None:
    section, i, j = where
    if section not in program.anchors or section in ("state", "types", "supers"):
        return None
    record = program.anchors[section][i]
    if section == "redo":
        _, args, *_ = record
        return next(filter(None, map(_held, args)), None)
    if section == "dicts":
        key = record[1][j][0]
        # Where keys come and go, what counts is which there are.
        return Place(record[0], key if dict.__contains__(record[0], key) else None, None)
    if section == "attrs":
        return Place(record[0], record[1], None)
    if section == "cells":
        return Place(record[0], None, None)
    if section == "lists":
        return Place(record[0], j if j >= 0 else None, None)
    return Place(record[0], None, None)


def renewed(program: Program) -> dict[tuple[int, Any], tuple[Any, Any]]:
    """The places, of those whose very object is guarded, that have another of its class now.

    Returns:
        The object and the other one, by the addresses of dicts, with keys, by those of closure
        cells, with None, and, of modules, by those of lists, with places.
    """
    found: dict[tuple[int, Any], tuple[Any, Any]] = {}
    for holder, entries in program.anchors.get("dicts", ()):
        for key, value, mode in entries:
            place = key_of_place(key)
            now = value if place is None else dict.get(holder, key, value)
            if mode == "is" and _is_renewed(value, now):
                found[id(holder), place] = value, now
    for cell, value, mode in program.anchors.get("cells", ()):
        now = getattr(cell, "cell_contents", value)
        if mode == "is" and _is_renewed(value, now):
            found[id(cell), None] = value, now
    for held, items in program.anchors.get("lists", ()):
        for i, (value, now) in enumerate(zip(items, held, strict=False)):
            if isinstance(now, torch.nn.Module) and _is_renewed(value, now):
                found[id(held), i] = value, now
    return found


def _is_renewed(value: Any, now: Any) -> bool:
    """A model that a server has replaced is one, too (`Capture.instances_vary`)."""
    if now is value or type(now) is not type(value):
        return False
    return isinstance(now, torch.nn.Module) or not isinstance(now, ANCHOR_TYPES)


__all__ = ["Place", "place_of", "renewed"]
