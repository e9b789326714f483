"""Recipes: how a value of the run is made again, and what an outside object must become.

Owns the data types only.  Does not own the walk from a live object to its recipe
(magpy/capture/rebuild.py) nor the code made of one (magpy/replay/object_code.py).  Called by both,
and by every pass that asks which variables are needed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from magpy.ir.ops import Var
from magpy.objects.types import isinstance


@dataclass(slots=True)
class Const:
    """An immutable value, or an object that is the same in every call."""

    value: Any


@dataclass(slots=True)
class Outside:
    """An object that existed before the call."""

    obj: Any


@dataclass(slots=True)
class Value:
    """A value of the run: a tensor or the result of a host step."""

    var: Var


@dataclass(slots=True)
class New:
    """An object that the program made.

    Attributes:
        kind: which statement makes it (see magpy/replay/object_code.py).
        cls: its class or another fixed object that the statement needs.
        parts: specs that must exist before it.
        fill: specs put into it afterwards, which may refer to it.
    """

    kind: str
    cls: Any
    parts: list[Any] = field(default_factory=list)
    fill: list[Any] = field(default_factory=list)


Spec = Const | Outside | Value | New


def spec_vars(spec: Any, out: set[Var], seen: set[int]) -> None:
    """Collects the variables in a spec tree."""
    if isinstance(spec, Value):
        out.add(spec.var)
    elif isinstance(spec, New):
        if id(spec) in seen:
            return
        seen.add(id(spec))
        spec_vars(spec.parts, out, seen)
        spec_vars(spec.fill, out, seen)
    elif isinstance(spec, (list, tuple)):
        for x in spec:
            spec_vars(x, out, seen)


@dataclass(slots=True)
class ContainerEffect:
    """What an outside container must become.

    Attributes:
        kind: "dict", "list", "set", "deque", "bytearray".
        stores: (key, spec) pairs of a dict, or (place, spec) pairs of a list, in order; deletes:
            keys, or elements of a set, taken out first; replaced: the keys of stores that were
            there, and stay in their places.
        orders: OrderedDict: all its keys, in the order of the dict that it is made of, which C code
            sees, and in its own; empty if these follow from the stores.
        content: specs of the whole new content when `rebuild`, or of the appended tail.
    """

    obj: Any
    kind: str
    stores: list[tuple[Any, Spec]] = field(default_factory=list)
    deletes: list[Any] = field(default_factory=list)
    replaced: list[Any] = field(default_factory=list)
    orders: list[list[Spec]] = field(default_factory=list)
    content: list[Any] | None = None
    rebuild: bool = False


@dataclass(slots=True)
class AttrEffect:
    """An attribute of an outside object (a slot, a class), or a cell's content, after the run."""

    obj: Any
    name: str | None
    spec: Spec | None
