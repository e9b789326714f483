"""The reference graph: the outside objects of a run, and the reads that reached them.

Owns the walk over a log, a pure function of it and of what a `Run` and a `World` say: which objects
are anchored (the guard is on the object itself), which are relative (reached from an argument in
every call), and the guard's checks on both, in order.  Does not own what a single read lowers to
(magpy/guards/edges.py), what else a capture's guard has to check (magpy/guards/analysis.py), nor
the log (csrc/interp/session_state.cpp).  Called by magpy/guards/analysis.py.

The edges are a list, since their order is that of the checks; magpy/guards/draw.py makes a networkx
graph of them for people, which a capture need not wait for.
"""

from __future__ import annotations

import collections
import types
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from magpy.errors import Refusal
from magpy.guards.checks import ABSENT, c_leaf, device_equal, holds, scalar_equal
from magpy.guards.edges import (
    Argument,
    Attribute,
    Called,
    Capacity,
    DictKey,
    Gradient,
    Item,
    class_of_event,
)
from magpy.guards.program import ANCHOR_TYPES, INSTANCES, Edge, Program
from magpy.guards.world import Run, World
from magpy.objects import c_state
from magpy.objects.types import isinstance

# What stands in a class for functions, which no call of these shows.
_HELD_BY: dict[Any, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
}
_HOLDERS = tuple(_HELD_BY)
# Of these none can be assigned a class, and they hold their class and name alone.
_HOLD_NOTHING = frozenset(
    [
        types.WrapperDescriptorType,
        types.MethodDescriptorType,
        types.ClassMethodDescriptorType,
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
    ]
)


class ReferenceGraph(Program):
    """The graph: its nodes are the objects that the program knows, its edges the reads."""

    # ------------------------------------------------------------- the walk

    def build(self) -> ReferenceGraph:
        """Walks the log.

        Raises:
            Refusal: something was read for which there is no guard.
        """
        run = self.run
        for key, v in (*enumerate(run.args), *run.kwargs.items()):
            self.read(Argument(run, key, v))
        self.read(Called(run, None, run.f))  # an argument may be what it is a method of
        for event, source, key, value in run.log:
            kind = class_of_event(event)
            if kind.is_read:
                if self._gradients:
                    self._of_gradient(source)
                self.read(kind(source, key, value))
        for tensor, gradient in run.gradients:
            self.gradient(tensor, gradient)
        return self

    def read(self, edge: Edge) -> None:
        """Adds an edge, and to the guard what must hold for it."""
        if not self._trace:
            edge.lower(self)
            return
        outer, self._open = self._open, []
        self.edges.append((edge, self._open))
        edge.lower(self)
        outer += self._open
        self._open = outer

    def link(self, edge: Edge) -> None:
        """Adds an edge that the guard of the source covers."""
        if self._trace:
            self.edges.append((edge, []))

    # ------------------------------------------------------------- objects

    def bind(self, v: Any, reg: int, expr: str) -> None:
        """Guards what is in a register as far as that is done without looking inside."""
        if id(v) in self.run.numbers:
            self.reach(v, reg, expr)
            self.check(("small_int", reg) if type(v) is int else ("type", reg, type(v)))
            return
        if c_leaf(v):
            self.check(("leaf", reg, v))
            return
        t = self.class_of(v)
        varies = self.run.instances_vary and isinstance(v, INSTANCES)
        if isinstance(v, ANCHOR_TYPES) and not varies:
            self.check(("is", reg, v))
            self.class_assigned(v)
            return
        if t is torch.device or t is torch.Size:
            self.check(("py", device_equal(v), (reg,)))
            return
        known = self.relative.get(id(v))
        if known is not None:
            self.check(("same", reg, known.register))
            return
        self.reach(v, reg, expr)
        if isinstance(v, np.generic):
            self.check(("py", scalar_equal(v), (reg,)))
        elif isinstance(v, torch.Tensor):
            self.check(("tensor", reg, self._meta_of(v)))
            self.tensors.append(v)
        elif t is types.MethodType:
            func, owner = self.register(), self.register()
            self.check(("method", func, owner, reg))
            for name, register in (("__func__", func), ("__self__", owner)):
                part = Attribute(v, name, getattr(v, name))
                self.link(part)
                self.bind(part.value, register, part.expression(expr, self.name))
        else:
            self._bind_object(v, t, reg)

    def _meta_of(self, tensor: Any) -> Any:
        """What a tensor is compared with: sizes that nobody has asked for are not."""
        run = self.run
        if run.noted is not None and id(tensor) not in run.noted:
            return self.world.meta(tensor, sizes=False)
        meta = run.metas.get(id(tensor))
        return self.world.meta(tensor) if meta is None else meta

    def _bind_object(self, v: Any, t: Any, reg: int) -> None:
        self.check(("type", reg, t))
        if t is types.FunctionType:
            self._bind_function(v, reg)
            return
        if c_state.settled(t):
            value = self.world.state(v)
            self.check(
                ("is", reg, v) if value is None else ("py", c_state.unchanged(value), (reg,))
            )
        if isinstance(v, tuple):
            self.check(("len", reg, tuple.__len__(v)))
            for i in range(tuple.__len__(v)):
                self.read(Item(v, i, tuple.__getitem__(v, i)))
        elif isinstance(v, frozenset) and not all(c_leaf(x) for x in v):
            raise Refusal("a frozenset of objects is among the arguments")

    def _bind_function(self, v: Any, reg: int) -> None:
        """A function made of the same code, whatever it closes over and has for defaults."""
        for name in ("__code__", "__globals__", "__builtins__"):
            dst = self.register()
            self.check(("attr", dst, reg, name))
            self.check(("is", dst, getattr(v, name)))
        for name in ("__closure__", "__defaults__", "__kwdefaults__"):
            self.read(Attribute(v, name, getattr(v, name)))
        defaults = v.__kwdefaults__
        if defaults:
            self.check(("dict_keys", self.operand(defaults), tuple(defaults)))
            for key, value in defaults.items():
                self.read(DictKey(defaults, key, value))

    def anchor(self, v: Any, held: bool = True) -> None:
        """An anchored place holds this very object: relative ones must stay it, or stay others.

        Args:
            v: what the place holds.
            held: the guard may keep it alive, as the place does.
        """
        place = id(v)
        if place in self._held:
            return
        known = place in self.anchored
        if not known and (v is ABSENT or c_leaf(v)):
            return
        if type(v) in _HOLD_NOTHING:
            self.anchored[place] = v
            return
        if held:
            self._held.add(place)
            self.class_assigned(v)
        if known:
            return
        self.anchored[place] = v
        t = self.class_of(v)
        if id(t) in self._holds_nothing:
            return
        if isinstance(v, (tuple, frozenset)):
            items = tuple.__iter__(v) if isinstance(v, tuple) else frozenset.__iter__(v)
            self._anchor_parts(Item, v, enumerate(items))
        elif type(v) is types.MethodType:
            self._anchor_parts(Attribute, v, (("__self__", v.__self__), ("__func__", v.__func__)))
        elif isinstance(v, _HOLDERS):
            self._anchor_functions(v)
        elif isinstance(v, (types.BuiltinFunctionType, types.MethodWrapperType)):
            self._anchor_parts(Attribute, v, (("__self__", v.__self__),))
        elif isinstance(v, weakref.ref):
            # It has the hash of that, and is equal to others of it.
            self.anchor(self.world.referent(v), held=False)
        elif c_state.settled(t):
            for x in self.world.held(v):
                self.anchor(x)
        elif t is type(v):
            self._holds_nothing[id(t)] = t

    def _anchor_parts(self, kind: type[Edge], v: Any, parts: Iterable[tuple[Any, Any]]) -> None:
        """What an object holds for good needs no guard but that on the object."""
        for key, x in parts:
            if not c_leaf(x):
                self.link(kind(v, key, x))
            self.anchor(x)

    def _anchor_functions(self, v: Any) -> None:
        kind = next(c for c in _HELD_BY if isinstance(v, c))
        for name in _HELD_BY[kind]:
            read = vars(kind)[name].__get__
            if type(v) is kind:
                self.read(Attribute(v, name, read(v)))  # `__init__` may give it others
            else:
                self.check(("py", holds(read, read(v)), (("a", v),)))
                self.anchor(read(v))

    # ------------------------------------------------------------- reads of which no event tells

    def factory(self, d: Any) -> None:
        """What a defaultdict puts under a key that is missing."""
        if isinstance(d, collections.defaultdict) and self.first("default_factory", d):
            before = self._factories.get(id(d), ABSENT)
            made = self.world.default_factory(d) if before is ABSENT else before
            self.read(Attribute(d, "default_factory", made))

    def capacity(self, d: Any) -> None:
        """How many elements a relative deque takes."""
        if id(d) in self.relative and self.first(Capacity, d):
            self.read(Capacity(d, None, self.world.maxlen(d)))

    def gradient(self, tensor: Any, value: Any) -> None:
        """The gradient that a tensor had when the call began was read or added to."""
        if self.first(Gradient, tensor):
            self._of_gradient(tensor)
            self.read(Gradient(tensor, None, value))

    def _of_gradient(self, obj: Any) -> None:
        """What is looked at may be a gradient, which is another one in every call."""
        tensor = self._gradients.get(id(obj))
        # If another place holds it, too, the tensor itself may not have been reached yet.
        if tensor is not None and id(obj) not in self.relative and id(obj) not in self.anchored:
            self.gradient(tensor, obj)


def build(run: Run, world: World | None = None, trace: bool = True) -> ReferenceGraph:
    """The reference graph of a run.

    Args:
        run: what was recorded.
        world: answers what is asked of live objects; None: of those that are there now.
        trace: the edges are kept, each with its checks (a guard needs the checks alone).

    Raises:
        Refusal: something was read for which there is no guard.
        ValueError: the log has an event that has no class in magpy/guards/edges.py.
    """
    return ReferenceGraph(run, world if world is not None else World(), trace).build()


__all__ = ["ReferenceGraph", "build"]
