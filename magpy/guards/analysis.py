"""The reference graph: where every outside object came from, and what must hold for reuse.

Owns the analysis of a log, a pure function: which objects are anchored (the guard is on the object
itself), which are relative (reached from an argument in every call), and the list of checks.  Does
not own the log (csrc/interp/session_state.cpp) nor how a check is run (csrc/interp/guards.cpp).
Called by magpy/runtime/entry.py.
"""

from __future__ import annotations

import collections
import enum
import operator
import types
import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from magpy import _interp, _tensor
from magpy.errors import Refusal
from magpy.guards.checks import (
    ABSENT,
    addresses,
    answers,
    array_unchanged,
    attribute_equals,
    bytearray_equal,
    c_leaf,
    class_holds,
    deque_equal,
    device_equal,
    holds,
    item_is_number,
    iterator_like,
    lie_as_before,
    maxlen_equal,
    maxlen_of,
    mode_of,
    placed_as,
    runs_below,
    scalar_equal,
    spec_of,
    still_remembers,
)
from magpy.ir.capture import Capture
from magpy.ir.ops import (
    Bind,
    HostStep,
    OpStep,
    OutsideRef,
    class_number,
    item_held,
    part_held,
    slot_held,
)
from magpy.ir.recipes import Const, ContainerEffect
from magpy.models import callables
from magpy.models.torch_ops import looked_up
from magpy.objects import c_state
from magpy.objects.types import isinstance, may_be_assigned
from magpy.shapes.conditions import Conditions

_ANCHOR_TYPES = (
    torch.nn.Module,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    type,
    enum.Enum,
    torch.dtype,
    torch.layout,
    torch.memory_format,
    torch.Generator,
    property,
    staticmethod,
    classmethod,
    types.MethodDescriptorType,
    types.GetSetDescriptorType,
    _interp.Compiled,
)

# What stands in a class for functions, which no call of these shows.
_HELD_BY: dict[Any, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
}


def _same(a: Any, b: Any) -> bool:
    """Whether two structures of tuples hold the same objects, or equal leaves."""
    if type(a) is type(b) is tuple:
        return len(a) == len(b) and all(map(_same, a, b))
    return a is b or (c_leaf(a) and c_leaf(b) and _interp.leaf_equal(a, b))


@dataclass(slots=True)
class Relative:
    """A relative object: its register in the guard and its expression in the mock function."""

    obj: Any
    register: int
    expr: str


@dataclass(slots=True)
class Analysis:
    """What a log means.

    Attributes:
        checks, anchors, nregs: the arguments of `_interp.Guard`.
        relative: relative objects by id.
        kwnames: keyword names in the caller's order.
        constants: names that the expressions of relative objects use.
        sharing: pairs of tensors, the first of which the call changes, that share memory.
        conditions: on the sizes and numbers that vary, to be filled when all graphs are compiled.
    """

    npos: int
    kwnames: tuple[str, ...]
    nregs: int
    checks: list[tuple[Any, ...]]
    anchors: dict[str, Any]
    relative: dict[int, Relative]
    constants: dict[str, Any] = field(default_factory=dict)
    sharing: list[tuple[Any, Any]] = field(default_factory=list)
    conditions: Conditions | None = None

    def guard(self) -> Any:
        """The guard program."""
        return _interp.Guard(self.npos, self.kwnames, self.nregs, self.checks, self.anchors)


class Analyzer:
    """Turns a capture's log into an `Analysis`."""

    def __init__(self, capture: Capture) -> None:
        """Prepares the tables; `run` does the work."""
        self.capture = capture
        self.checks: list[tuple[Any, ...]] = []
        self.relative: dict[int, Relative] = {}
        self.nregs = 0
        self.dicts: dict[int, tuple[Any, list[Any]]] = {}
        self.types: dict[int, tuple[Any, list[Any]]] = {}
        self.anchors: dict[str, list[Any]] = collections.defaultdict(list)
        self.tensors: list[Any] = []
        self.sharing: list[tuple[Any, Any]] = []
        self.constants: dict[str, Any] = {}
        self.anchored: dict[int, Any] = {}
        self.classed: dict[int, Any] = {}
        self.overwritten = _overwritten(capture)
        self.limited: set[int] = set()
        self.snapped: set[int] = set()
        # The tensors whose gradients were read or added to, by the gradients that they began with.
        self.gradients = {id(g): t for t, g in capture.record.gradients if g is not None}
        self.differentiated: set[int] = set()  # those of them whose gradients are guarded
        self.factories: set[int] = set()
        # Containers that were looked at as a whole, at some time, and what they held.
        self.wholes = {id(obj): pre for kind, obj, _, pre in capture.log if kind == "snap"}
        self.rearranged = {
            id(e.obj)
            for e in capture.effects
            if isinstance(e, ContainerEffect) and e.kind in ("list", "deque")
        }
        # The registers of numbers that are read from outside and followed, by identity.
        self.registers: dict[int, int] = {}
        # The places in lists and deques of numbers that are inputs.
        self.numbered = {
            (id(step.args[0].obj), step.args[1])
            for step in capture.record.steps
            if isinstance(step, HostStep)
            and step.func in (operator.getitem, item_held)
            and isinstance(step.args[0], OutsideRef)
            and isinstance(step.args[0].obj, (list, collections.deque))
        }
        # Tuples of dicts, of which numbers are inputs.
        self.parts = {
            (id(step.args[0].obj), step.args[1])
            for step in capture.record.steps
            if isinstance(step, HostStep) and step.func is part_held
        }
        self.classes = {
            id(obj): before
            for kind, obj, key, before in capture.log
            if kind == "write_attr" and key == "__class__"
        }

    def class_of(self, obj: Any) -> Any:
        """The class that an object had before the run."""
        return self.classes.get(id(obj), type(obj))

    def register(self) -> int:
        """A new register."""
        self.nregs += 1
        return self.nregs - 1

    def run(self) -> Analysis:
        """Analyses the log.

        Raises:
            Refusal: something was read for which there is no guard.
        """
        c = self.capture
        names = [f"_a{i}" for i in range(len(c.args))] + [f"_k{i}" for i in range(len(c.kwargs))]
        self.nregs = len(names)
        for i, v in enumerate((*c.args, *c.kwargs.values())):
            self.bind(v, i, names[i])
        self.anchor(c.f)  # an argument may be what it is a method of
        for kind, obj, key, value in c.log:
            handler = _EVENTS.get(kind)
            if handler is not None:
                self._of_gradient(obj)
                handler(self, obj, key, value)
        for tensor, gradient in c.record.gradients:
            self.gradient(tensor, gradient)
        for step in c.record.steps:
            if isinstance(step, Bind) and step.args:
                self._counter(step)
        for e in c.effects:
            if isinstance(e, ContainerEffect) and e.kind == "deque":
                self._most(e.obj)
        for *_, answer in (*c.redo, *c.memos):
            self.anchor(answer)
        self._tensors()
        symbols = c.record.symbols
        conditions = None
        outside = [s for s in symbols.sources if s.outside is not None] if symbols else []
        if outside:
            conditions = Conditions()
            by_id = {id(s.outside): s.outside for s in outside}
            keys = conditions.over(outside, lambda s: id(s.outside))
            places = [(self.registers.get(k), by_id[k]) for k in keys]
            given = [self.operand(v) if place is None else place for place, v in places]
            self.checks.append(("py", conditions, tuple(given)))
        self._operations()
        self._asked_again()
        self._unwatched()
        for array, before in c.arrays:
            self.checks.append(("py", array_unchanged(before), (self.operand(array),)))
        for obj, before in c.opaque:
            self.checks.append(("py", c_state.unchanged(before), (self.operand(obj),)))
        for iterator, taken, length, exhausted in c.iterators:
            self.checks.append(
                (
                    "py",
                    iterator_like(taken, length if exhausted else None),
                    (self.operand(iterator),),
                )
            )
        anchors: dict[str, Any] = dict(self.anchors)
        anchors["dicts"] = list(self.dicts.values())
        anchors["types"] = list(self.types.values())
        anchors["state"] = c.state
        return Analysis(
            len(c.args),
            tuple(c.kwargs),
            self.nregs,
            self.checks,
            anchors,
            self.relative,
            self.constants,
            self.sharing,
            conditions,
        )

    def _operations(self) -> None:
        """What is called in a graph is found there by its name, which others may give away.

        The program may have kept the function that it calls (`from torch import relu`).
        """
        known: set[Any] = set()
        for step in self.capture.record.steps:
            if not isinstance(step, OpStep):
                continue
            for owner, name in looked_up(step.func):
                if (owner, name) in known:
                    continue
                known.add((owner, name))
                if isinstance(owner, type):
                    self.type_attr(owner, name, _interp.type_lookup(owner, name))
                elif isinstance(owner, types.ModuleType):
                    held = vars(owner)
                    self.dict_key(held, name, held.get(name, ABSENT))

    def _asked_again(self) -> None:
        """What the world answered to the run's questions."""
        c = self.capture
        for f, args, value in c.redo:
            if self._asked_of_relative(f, args, value):
                continue
            last = self.anchors["redo"][-1:]
            # The same question again, with the same answer.
            if not (last and last[0][0] is f and _same(last[0][1:3], (args, value))):
                self.anchors["redo"].append((f, args, value, mode_of(value)))
        for memo, key, value, result in c.memos:
            if id(memo) in self.relative:
                raise Refusal("an lru_cache is called that is reached through the arguments")
            self.checks.append(("py", still_remembers(key, value, result), (("a", memo),)))

    def _unwatched(self) -> None:
        """What runs unwatched below steps must be the same, and reach the same."""
        record = self.capture.record
        looks = [
            *record.looks,
            *((obj, None) for obj, _ in (*self.capture.opaque, *self.capture.arrays)),
        ]
        fixed: dict[int, set[Any]] = collections.defaultdict(set)
        for v, key in looks:
            if id(v) not in self.relative:
                fixed[id(v)].add(key)
        varying = [(v, key) for v, key in looks if id(v) in self.relative]
        for unwatched in record.unwatched:
            check = runs_below(unwatched, fixed, varying)
            given = (*unwatched.of, *(v for v, _ in varying))
            self.checks.append(("py", check, tuple(map(self.operand, given))))

    def _asked_of_relative(self, f: Any, args: tuple[Any, ...], value: Any) -> bool:
        """A question about an object that is another one in every call is asked of that."""
        parts: list[Any] = []
        places: list[tuple[int, Any]] = []
        for i, v in enumerate((f, *args)):
            owner = getattr(v, "__self__", None) if callable(v) else None
            if owner is not None and id(owner) in self.relative:
                places.append((i, self.operand(owner)))
                v = callables.unbound(v)
            elif id(v) in self.relative:
                places.append((i, self.operand(v)))
                v = None
            parts.append(v)
        if not places:
            return False
        check = answers(tuple(parts), tuple(i for i, _ in places), value)
        self.checks.append(("py", check, tuple(place for _, place in places)))
        return True

    def _counter(self, step: Bind) -> None:
        """A number in a dict, cell or class that is an input: it must be there, and of its type."""
        holder = step.args[0].obj if isinstance(step.args[0], OutsideRef) else None
        if isinstance(holder, type) and step.func is class_number:
            check = class_holds(step.args[1], step.expected)
            self.checks.append(("py", check, (self.operand(holder),)))
            return
        if type(holder) is types.CellType:
            dst = self.register()
            self.checks.append(("cell", dst, self.operand(holder)))
        elif isinstance(holder, collections.deque):
            check = item_is_number(step.args[1], step.expected)
            self.checks.append(("py", check, (self.operand(holder),)))
            return
        elif isinstance(holder, list):
            dst = self.register()
            self.checks.append(("item", dst, self.operand(holder), step.args[1]))
        elif step.func is part_held:
            held, dst = self.register(), self.register()
            _, key, index, length = step.args
            self.checks += [
                ("dict_get", held, self.operand(holder), key),
                ("type", held, tuple),
                ("len", held, length),
                ("item", dst, held, index),
            ]
        elif isinstance(holder, dict):
            dst = self.register()
            self.checks.append(("dict_get", dst, self.operand(holder), step.args[1]))
        elif step.func is slot_held:
            dst = self.register()
            self.checks.append(("attr", dst, self.operand(holder), step.args[1]))
        else:
            return
        symbols = self.capture.record.symbols
        if symbols is not None and step.result in symbols.outside:
            self.registers[id(symbols.outside[step.result])] = dst
        # Arithmetic with small integers is certain to succeed (magpy/replay/passes/totality.py).
        self.checks.append(
            ("small_int", dst) if step.expected is int else ("type", dst, step.expected)
        )

    def operand(self, obj: Any) -> Any:
        """How a check names an object: a register, or the object itself."""
        rel = self.relative.get(id(obj))
        return rel.register if rel is not None else ("a", obj)

    def bind(self, v: Any, reg: int, expr: str) -> None:
        """Guards what is in a register as far as that is done without looking inside."""
        checks = self.checks
        if id(v) in self.capture.record.numbers:
            self.relative[id(v)] = Relative(v, reg, expr)
            checks.append(("small_int", reg) if type(v) is int else ("type", reg, type(v)))
            return
        if c_leaf(v):
            checks.append(("leaf", reg, v))
            return
        t = self.class_of(v)
        if isinstance(v, _ANCHOR_TYPES):
            checks.append(("is", reg, v))
            self._class_assigned(v)
            return
        if t is torch.device or t is torch.Size:
            checks.append(("py", device_equal(v), (reg,)))
            return
        known = self.relative.get(id(v))
        if known is not None:
            checks.append(("same", reg, known.register))
            return
        self.relative[id(v)] = Relative(v, reg, expr)
        if isinstance(v, np.generic):
            checks.append(("py", scalar_equal(v), (reg,)))
            return
        if isinstance(v, torch.Tensor):
            meta = self.capture.metas.get(id(v))
            checks.append(("tensor", reg, meta if meta is not None else _tensor.TensorMeta(v)))
            self.tensors.append(v)
            return
        if t is types.MethodType:
            func, owner = self.register(), self.register()
            checks.append(("method", func, owner, reg))
            self.bind(v.__func__, func, f"{expr}.__func__")
            self.bind(v.__self__, owner, f"{expr}.__self__")
            return
        checks.append(("type", reg, t))
        if c_state.settled(t):
            value = c_state.picture(v)
            checks.append(
                ("is", reg, v) if value is None else ("py", c_state.unchanged(value), (reg,))
            )
        if isinstance(v, tuple):
            checks.append(("len", reg, tuple.__len__(v)))
            for i in range(tuple.__len__(v)):
                self._item(
                    reg,
                    i,
                    tuple.__getitem__(v, i),
                    f"{expr}[{i}]" if t is tuple else f"tuple.__getitem__({expr}, {i})",
                )
        elif isinstance(v, frozenset) and not all(c_leaf(x) for x in v):
            raise Refusal("a frozenset of objects is among the arguments")

    def _class_assigned(self, v: Any) -> None:
        """The very object that is expected may be given another class."""
        t = self.class_of(v)
        if may_be_assigned(t) and id(v) not in self.classed:
            self.classed[id(v)] = v
            self.anchors["objtypes"].append((v, t))

    def anchor(self, v: Any, held: bool = True) -> None:
        """An anchored place holds this very object: relative ones must stay it, or stay others.

        Args:
            v: what the place holds.
            held: the guard may keep it alive, as the place does.
        """
        if v is ABSENT or c_leaf(v):
            return
        if held:
            self._class_assigned(v)
        if id(v) in self.anchored:
            return
        self.anchored[id(v)] = v
        if isinstance(v, (tuple, frozenset)):
            for x in tuple.__iter__(v) if isinstance(v, tuple) else frozenset.__iter__(v):
                self.anchor(x)
        elif type(v) is types.MethodType:
            self.anchor(v.__self__)
            self.anchor(v.__func__)
        elif isinstance(v, tuple(_HELD_BY)):
            kind = next(c for c in _HELD_BY if isinstance(v, c))
            for name in _HELD_BY[kind]:
                read = vars(kind)[name].__get__
                if type(v) is kind:
                    self.attr_c(v, name, read(v))  # `__init__` may give it others
                else:
                    self.checks.append(("py", holds(read, read(v)), (("a", v),)))
                    self.anchor(read(v))
        elif isinstance(v, (types.BuiltinFunctionType, types.MethodWrapperType)):
            self.anchor(v.__self__)
        elif isinstance(v, weakref.ref):
            # It has the hash of that, and is equal to others of it.
            self.anchor(weakref.ref.__call__(v), held=False)
        elif c_state.settled(self.class_of(v)):
            for x in c_state.held(v):
                self.anchor(x)

    def factory(self, d: Any) -> None:
        """What a defaultdict puts under a key that is missing, of which no event tells."""
        if not isinstance(d, collections.defaultdict) or id(d) in self.factories:
            return
        self.factories.add(id(d))
        made = _factory_of(d)
        for kind, obj, key, before in self.capture.log:
            if kind == "write_attr" and obj is d and key == "default_factory":
                made = before
        rel = self.relative.get(id(d))
        if rel is None:
            self.anchors["attrs"].append((d, "default_factory", made, mode_of(made)))
            self.anchor(made)
            return
        dst = self.register()
        self.checks.append(("attr", dst, rel.register, "default_factory"))
        self.bind(made, dst, f"{rel.expr}.default_factory")

    def _item(self, reg: int, i: int, v: Any, expr: str) -> None:
        dst = self.register()
        self.checks.append(("item", dst, reg, i))
        self.bind(v, dst, expr)

    # ------------------------------------------------------------- events

    def dict_key(self, d: Any, key: Any, value: Any) -> None:
        """A key of a dict was read."""
        self.factory(d)
        self.anchor(key)
        if type(key) in (str, int) and (id(d), key) in self.parts:
            return  # see `_counter`
        rel = self.relative.get(id(d))
        if rel is None:
            own = type(key) in (str, int) and (id(d), key) in self.overwritten
            if own and self._state(value):
                # The run put another object there, as it will in every call: what counts is what
                # the object is like.
                name = f"_d{len(self.constants)}"
                self.constants[name] = d
                dst = self.register()
                self.checks.append(("dict_get", dst, ("a", d), key))
                self.bind(value, dst, f"dict.__getitem__({name}, {key!r})")
                return
            entry = self.dicts.setdefault(id(d), (d, []))
            entry[1].append((key, value, mode_of(value)))
            self.anchor(value)
            return
        if value is ABSENT:
            self.checks.append(("dict_absent", rel.register, key))
            return
        dst = self.register()
        self.checks.append(("dict_get", dst, rel.register, key))
        self.bind(value, dst, self.key_expr(rel, key))

    def dict_has(self, d: Any, key: Any, _: Any) -> None:
        """A key is there, whatever it has."""
        rel = self.relative.get(id(d))
        place = ("a", d) if rel is None else rel.register
        self.checks.append(("dict_get", self.register(), place, key))

    def _state(self, value: Any) -> bool:
        return (
            value is not ABSENT
            and not c_leaf(value)
            and not isinstance(value, _ANCHOR_TYPES)
            and id(value) not in self.anchored
        )

    def key_expr(self, rel: Relative, key: Any) -> str:
        """The expression of dict[key]."""
        large = type(key) is int and key.bit_length() > 64  # which Python may not write down
        if type(key) in (int, str, bool, bytes, type(None)) and not large:
            text = repr(key)
        else:
            text = f"_d{len(self.constants)}"
            self.constants[text] = key
        return (
            f"{rel.expr}[{text}]"
            if type(rel.obj) is dict
            else f"dict.__getitem__({rel.expr}, {text})"
        )

    def link_dict(self, obj: Any, key: Any, d: Any) -> None:
        """An object's instance dict was reached."""
        rel = self.relative.get(id(obj))
        if rel is None:
            self._class_assigned(obj)
            if isinstance(obj, types.ModuleType):
                self.anchor(d)  # it has one for good
                return
            if not isinstance(obj, types.FunctionType):
                if object.__getattribute__(obj, "__dict__") is not d:
                    raise Refusal(f"the __dict__ of a {type(obj).__name__} is replaced")
                self.anchors["inst_dicts"].append((obj, d))
            self.anchor(d)
            return
        dst = self.register()
        self.checks.append(("inst_dict", dst, rel.register))
        known = self.relative.get(id(d))
        if known is not None:
            self.checks.append(("same", dst, known.register))
            return
        self.relative[id(d)] = Relative(d, dst, f"{rel.expr}.__dict__")

    def obj_type(self, obj: Any, key: Any, t: Any) -> None:
        """The class of an object was looked at."""
        self._class_assigned(t)
        if id(obj) not in self.relative:
            self._class_assigned(obj)

    def type_attr(self, t: Any, name: Any, value: Any) -> None:
        """A class attribute was looked up along the MRO."""
        self._class_assigned(t)
        self.types.setdefault(id(t), (t, []))[1].append((name, value))
        self.anchor(value)

    def type_itself(self, t: Any, name: Any, _: Any) -> None:
        """A class has an attribute itself."""
        self.anchors["redo"].append((c_state.has_itself, (t, name), True, "leaf"))

    def protocols(self, t: Any, key: Any, pairs: Any) -> None:
        """A class was asked for its special methods."""
        self._class_assigned(t)
        self.types.setdefault(id(t), (t, []))[1].extend(pairs)
        for _, value in pairs:
            self.anchor(value)

    def super_attr(self, t: Any, key: Any, value: Any) -> None:
        """An attribute was looked up after a class in the MRO."""
        self.anchors["supers"].append((t, key[0], key[1], value))
        self.anchor(value)

    def attr_c(self, obj: Any, name: Any, value: Any) -> None:
        """A slot or another C descriptor was read."""
        rel = self.relative.get(id(obj))
        if rel is None:
            if isinstance(obj, (types.FunctionType, types.MethodType)) and name in (
                "__globals__",
                "__closure__",
            ):
                return
            if type(value) is torch.device:  # which is made anew for each who asks
                self.anchors["redo"].append((attribute_equals, (obj, name, value), True, "leaf"))
                return
            self.anchors["attrs"].append((obj, name, value, mode_of(value)))
            self.anchor(value)
            return
        if value is ABSENT:
            self.checks.append(("attr_absent", rel.register, name))
            return
        dst = self.register()
        self.checks.append(("attr", dst, rel.register, name))
        self.bind(value, dst, f"{rel.expr}.{name}")

    def _of_gradient(self, obj: Any) -> None:
        """What is looked at may be a gradient, which is another one in every call."""
        tensor = self.gradients.get(id(obj))
        # If another place holds it, too, the tensor itself may not have been reached yet.
        if tensor is not None and id(obj) not in self.relative and id(obj) not in self.anchored:
            self.gradient(tensor, obj)

    def gradient(self, tensor: Any, value: Any) -> None:
        """The gradient that a tensor had when the call began was read or added to."""
        if id(tensor) in self.differentiated:
            return
        self.differentiated.add(id(tensor))
        self._of_gradient(tensor)
        dst = self.register()
        self.checks.append(("gradient", dst, self.operand(tensor)))
        rel = self.relative.get(id(tensor))
        read, name = f"_d{len(self.constants)}", f"_d{len(self.constants) + 1}"
        self.constants[read] = _tensor.gradient
        if rel is None:
            self.constants[name] = tensor
        self.bind(value, dst, f"{read}({name if rel is None else rel.expr})")

    def identity(self, obj: Any, key: Any, value: Any) -> None:
        """Which object it is was asked."""
        self.anchor(obj)

    def cell(self, cell: Any, key: Any, value: Any) -> None:
        """A closure cell was read."""
        rel = self.relative.get(id(cell))
        if rel is not None:
            if value is ABSENT:
                self.checks.append(("cell_empty", rel.register))
                return
            dst = self.register()
            self.checks.append(("cell", dst, rel.register))
            self.bind(value, dst, f"{rel.expr}.cell_contents")
            return
        self.anchor(cell)
        self.anchors["cells"].append((cell, value, mode_of(value)))
        self.anchor(value)

    def func(self, f: Any, key: Any, value: Any) -> None:
        """A Python function was entered."""
        self.anchors["funcs"].append((f, *value))
        _, defaults, kwdefaults = value
        self.anchor(f.__globals__)
        self.anchor(f.__builtins__)
        self.anchor(f.__closure__ or ())
        self.anchor(defaults)
        self.anchor(kwdefaults)
        if isinstance(kwdefaults, dict):
            self.anchor(tuple(kwdefaults.values()))

    def list_item(self, obj: Any, place: int, value: Any) -> None:
        """An element of a list was read; a negative place counts from the end.

        Only of a list that the run appends to, and does no more than that, this is all that counts.
        """
        if id(obj) in self.wholes:
            self.snap(obj, None, self.wholes[id(obj)])
            return
        rel = self.relative.get(id(obj))
        if rel is not None:
            self._item(rel.register, place, value, f"{rel.expr}[{place}]")
            return
        dst = self.register()
        self.checks.append(("item", dst, ("a", obj), place))
        if self._state(value):
            name = f"_d{len(self.constants)}"
            self.constants[name] = obj
            self.bind(value, dst, f"{name}[{place}]")
        else:
            self.checks.append((mode_of(value), dst, value))
            self.anchor(value)

    def snap(self, obj: Any, key: Any, pre: Any) -> None:
        """An outside container was looked into as a whole."""
        if id(obj) in self.snapped:
            return  # one of its elements was read before
        self.snapped.add(id(obj))
        self.factory(obj)
        rel = self.relative.get(id(obj))
        if rel is None:
            self._anchored_snap(obj, key if isinstance(obj, set) else pre)
            return
        reg, expr = rel.register, rel.expr
        if isinstance(obj, dict):
            self.checks.append(("dict_keys", reg, tuple(pre)))
            for k, v in pre.items():
                self.anchor(k)
                self.dict_key(obj, k, v)
        elif isinstance(obj, list):
            self.checks.append(("len", reg, len(pre)))
            for i, v in enumerate(pre):
                self._item(
                    reg,
                    i,
                    v,
                    f"{expr}[{i}]" if type(obj) is list else f"list.__getitem__({expr}, {i})",
                )
        elif isinstance(obj, set):
            self.checks.append(("set", reg, key))
            for x in key:
                self.anchor(x)
        elif isinstance(obj, collections.deque):
            self._most(obj)
            self.checks.append(("len", reg, len(pre)))
            first = self.nregs
            self.nregs += len(pre)
            self.checks.append(("deque", first, reg, len(pre)))
            for i, v in enumerate(pre):
                self.bind(v, first + i, f"{expr}[{i}]")
        elif isinstance(obj, bytearray):
            self.checks.append(("py", bytearray_equal(pre), (reg,)))

    def _most(self, d: Any) -> None:
        """So many elements are the most that a deque takes, which no operation on it changes."""
        rel = self.relative.get(id(d))
        if rel is not None and id(d) not in self.limited:
            self.limited.add(id(d))
            self.checks.append(("py", maxlen_equal(maxlen_of(d)), (rel.register,)))

    def _anchored_snap(self, obj: Any, pre: Any) -> None:
        state = id(obj) in self.rearranged and any(self._state(v) for v in pre)
        if state or self._numbered(obj, pre):
            self._elements(obj, pre)
            return
        if isinstance(obj, dict):
            self.anchors["dict_keys"].append((obj, tuple(pre)))
            for k, v in pre.items():
                self.anchor(k)
                self.dict_key(obj, k, v)
            return
        for v in pre:
            self.anchor(v)
        if isinstance(obj, list):
            self.anchors["lists"].append((obj, pre))
        elif isinstance(obj, set):
            self.anchors["sets"].append((obj, pre))
        elif isinstance(obj, collections.deque):
            self.checks.append(("py", deque_equal(pre), (("a", obj),)))
        elif isinstance(obj, bytearray):
            self.checks.append(("py", bytearray_equal(pre), (("a", obj),)))

    def _numbered(self, obj: Any, pre: tuple[Any, ...]) -> set[int]:
        """The places of numbers that are inputs, which may have been counted from the end."""
        return {i % len(pre) for holder, i in self.numbered if holder == id(obj)} if pre else set()

    def _elements(self, obj: Any, pre: tuple[Any, ...]) -> None:
        """The run puts other elements into a list or a deque, as it will in every call.

        What counts is what they are like. Others keep numbers there that are inputs.
        """
        name = f"_d{len(self.constants)}"
        self.constants[name] = obj
        place = ("a", obj)
        self.checks.append(("len", place, len(pre)))
        first = self.nregs
        self.nregs += len(pre)
        if isinstance(obj, list):
            self.checks += [("item", first + i, place, i) for i in range(len(pre))]
        else:
            self.checks.append(("deque", first, place, len(pre)))
        base = "list" if isinstance(obj, list) else f"_d{len(self.constants)}"
        if base != "list":
            self.constants[base] = collections.deque
        numbered = self._numbered(obj, pre)
        for i, v in enumerate(pre):
            if i in numbered:
                continue  # see `_counter`
            if id(obj) in self.rearranged and self._state(v):
                self.bind(v, first + i, f"{base}.__getitem__({name}, {i})")
            else:
                self.checks.append((mode_of(v), first + i, v))
                self.anchor(v)

    def _identities(self, inputs: list[Any]) -> None:
        """Relative objects that anchored places hold too stay these; the others stay others."""
        objects = []
        for r in self.relative.values():
            if id(r.obj) in self.anchored:
                self.checks.append(("is", r.register, r.obj))
            elif not isinstance(r.obj, (tuple, types.MethodType, frozenset)):
                objects.append(r)
        if objects:
            kinds = {type(r.obj) for r in objects}
            held = {id(v): v for v in inputs}
            held.update((id(d), d) for d, _ in self.dicts.values() if type(d) in kinds)
            held.update((i, v) for i, v in self.anchored.items() if type(v) in kinds)
            self.checks.append(
                ("distinct", tuple(r.register for r in objects), tuple(held.values()))
            )

    def _tensors(self) -> None:
        c = self.capture
        anchored = []
        for tensor in c.record.inputs.values():
            if id(tensor) not in self.relative:
                anchored.append(tensor)
                self.anchors["tensors"].append((tensor, c.metas[id(tensor)]))
            elif (spec := spec_of(tensor)) is not None:
                self.checks.append(("py", placed_as(spec), (self.operand(tensor),)))
        self._identities(anchored)
        self._overlaps(anchored)
        self._buffers()

    def _overlaps(self, anchored: list[Any]) -> None:
        """A tensor that the call changes shares memory with the tensors that it shared it with."""
        record = self.capture.record
        if not record.mutated:
            return
        mutated = [record.inputs[v] for v in record.mutated]
        count = len(mutated)
        seen = {id(t) for t in mutated}
        operands = mutated + [t for t in (*self.tensors, *anchored) if id(t) not in seen]
        # As they lay in memory when the call began.
        before = {id(record.inputs[v]): data for v, data in record.swapped.items()}
        lying = [before.get(id(t), t) for t in operands]
        pairs: list[tuple[int, int, int]] = []
        if not _tensor.apart(lying, count):
            pairs = [
                (i, j, how)
                for i in range(count)
                for j in range(i + 1, len(operands))
                if (how := _tensor.overlaps(lying[i], lying[j]))
            ]
        self.sharing = [(operands[i], operands[j]) for i, j, _ in pairs]
        if len(operands) > 1:
            named = tuple(self.operand(t) for t in operands)
            self.checks.append(("overlap", named, tuple(pairs), count))

    def _buffers(self) -> None:
        """Arrays and other buffers share memory with what they shared it with, and with no other.

        What is written through one of two of them would be read through the other.
        """
        c = self.capture
        mutated = [c.record.inputs[v] for v in c.record.mutated]
        if any(isinstance(b, bytearray) for b in c.buffers):
            # The one buffer that a call may change.
            mutated = list(c.record.inputs.values())
        moving = any(id(b) in self.relative for b in c.buffers)
        if c.buffers and (mutated or (moving and len(c.buffers) > 1)):
            operands = tuple(self.operand(v) for v in (*mutated, *c.buffers))
            lie = lie_as_before(len(mutated), addresses((*mutated, *c.buffers)))
            self.checks.append(("py", lie, operands))


def _overwritten(capture: Capture) -> set[tuple[int, Any]]:
    """The (dict, key) pairs that the run stored: earlier reads were of the program's own state."""
    found: set[tuple[int, Any]] = set()
    for e in capture.effects:
        if isinstance(e, ContainerEffect) and e.kind == "dict":
            for k, _ in e.stores:
                if isinstance(k, Const) and type(k.value) in (str, int):
                    found.add((id(e.obj), k.value))
    return found


_factory_of: Any = vars(collections.defaultdict)["default_factory"].__get__
_EVENTS = {
    "dict_has": Analyzer.dict_has,
    "dict_key": Analyzer.dict_key,
    "link_dict": Analyzer.link_dict,
    "type_attr": Analyzer.type_attr,
    "type_itself": Analyzer.type_itself,
    "protocols": Analyzer.protocols,
    "super": Analyzer.super_attr,
    "attr_c": Analyzer.attr_c,
    "cell": Analyzer.cell,
    "identity": Analyzer.identity,
    "func": Analyzer.func,
    "snap": Analyzer.snap,
    "list_item": Analyzer.list_item,
    "type": Analyzer.obj_type,
}


def analyze(capture: Capture) -> Analysis:
    """The meaning of a capture's log.

    Raises:
        Refusal: something was read for which there is no guard.
    """
    return Analyzer(capture).run()


__all__ = ["Analysis", "Analyzer", "Relative", "analyze"]
