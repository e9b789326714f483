"""The analysis of a capture: the reference graph, and what else a guard has to check.

Owns the checks that follow from a capture as a whole: numbers that are inputs, how tensors and
buffers share memory, what was asked of the world, what runs unwatched.  Does not own the walk over
the log (magpy/guards/graph.py) nor how a check is run (csrc/interp/guards.cpp).  Called by
magpy/runtime/entry.py.
"""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

from magpy import _interp
from magpy.errors import Refusal
from magpy.guards.checks import (
    answers,
    array_lies_as,
    array_unchanged,
    c_leaf,
    class_holds,
    item_is_number,
    knows,
    lie_as_before,
    mode_of,
    placed_as,
    runs_below,
    still_remembers,
)
from magpy.guards.edges import ClassAttribute, DictKey, Item, Load, number_of
from magpy.guards.graph import ReferenceGraph, build
from magpy.guards.program import Check, Operand, Relative
from magpy.guards.world import Run, World, key_of_place
from magpy.ir.capture import Capture
from magpy.ir.ops import (
    Bind,
    CheckValue,
    HostStep,
    ModeStep,
    OpStep,
    OutsideRef,
    Record,
    Ref,
    class_number,
    item_held,
    part,
    part_held,
)
from magpy.ir.recipes import Const, ContainerEffect, Value
from magpy.ir.trees import leaves
from magpy.models import callables
from magpy.models.torch_ops import looked_up
from magpy.objects import c_state, jagged
from magpy.objects.types import attribute, isinstance
from magpy.shapes.conditions import Conditions
from magpy.shapes.speculation import PLAIN
from magpy.unwatched import listeners


def _same(a: Any, b: Any) -> bool:
    """Whether two structures of tuples hold the same objects, or equal leaves."""
    if type(a) is type(b) is tuple:
        return len(a) == len(b) and all(map(_same, a, b))
    return a is b or (c_leaf(a) and c_leaf(b) and _interp.leaf_equal(a, b))


# What is asked of the tensors that a backward pass comes to: of others in other calls.
_OF_TENSORS = (listeners.hooks, listeners.native_hooks)


@dataclass(frozen=True, slots=True)
class Analysis:
    """What a log means.

    Attributes:
        npos, kwnames, nregs, checks, anchors: the arguments of `_interp.Guard`; the keyword names
            are in the caller's order.
        relative: relative objects by id.
        constants: names that the expressions of relative objects use.
        sharing: pairs of tensors, the first of which the call changes, that share memory.
        conditions: on the sizes and numbers that vary, to be filled when all graphs are compiled.
        graph: the reference graph that all of it is made from.
    """

    npos: int
    kwnames: tuple[str, ...]
    nregs: int
    checks: list[Check]
    anchors: dict[str, Any]
    relative: dict[int, Relative]
    constants: dict[str, Any]
    sharing: list[tuple[Any, Any]]
    conditions: Conditions | None
    graph: ReferenceGraph

    def guard(self) -> Any:
        """The guard program."""
        return _interp.Guard(self.npos, self.kwnames, self.nregs, self.checks, self.anchors)


def run_of(capture: Capture) -> Run:
    """What the walk has to know of a capture."""
    record = capture.record
    changed = [e for e in capture.effects if isinstance(e, ContainerEffect)]
    steps = [step for step in record.steps if isinstance(step, HostStep)]
    items = [step.args for step in steps if step.func in (operator.getitem, item_held)]
    return Run(
        capture.log,
        capture.f,
        capture.args,
        capture.kwargs,
        metas=capture.metas,
        noted=None
        if any(isinstance(s, OpStep) and s.whole for s in record.steps)
        else frozenset(map(id, _known_tensors(record))),
        numbers=frozenset(record.numbers),
        held_numbers=record.held_numbers,
        gradients=tuple(record.gradients),
        overwritten=frozenset(_places_of_stores(record, changed)) | capture.renewed,
        rearranged=frozenset(id(e.obj) for e in changed if e.kind in ("list", "deque"))
        | {at for at, _ in capture.renewed},
        numbered=frozenset(
            (id(args[0].obj), args[1])
            for args in items
            if isinstance(args[0], OutsideRef)
            and isinstance(args[0].obj, (list, collections.deque))
        ),
        parts=frozenset(
            (id(step.args[0].obj), step.args[1]) for step in steps if step.func is part_held
        ),
        instances_vary=capture.instances_vary,
    )


def _places_of_stores(
    record: Record, changed: Iterable[ContainerEffect]
) -> Iterator[tuple[int, Any]]:
    """The places in dicts from outside in which the call stores something."""
    for effect in changed:
        for k, _ in effect.stores if effect.kind == "dict" else ():
            if isinstance(k, Value):
                key = record.inputs.get(k.var)  # a tensor from outside, or something new
            else:
                key = k.value if isinstance(k, Const) else getattr(k, "obj", None)
            place = None if key is None else key_of_place(key)
            if place is not None:
                yield id(effect.obj), place


def _known_tensors(record: Record) -> Iterator[Any]:
    """The tensors that operations took, and what these consist of."""
    for tensor in record.inputs.values():
        yield tensor
        yield from (part for _, part, _ in jagged.parts(tensor))


def _is_of_part(step: Any) -> TypeGuard[CheckValue]:
    """Whether a step compares an item of a tuple of which others are inputs."""
    return isinstance(step, CheckValue) and step.func in (part, part_held)


class Analyzer:
    """Adds to the reference graph's checks those that follow from the capture as a whole."""

    def __init__(self, capture: Capture, world: World, trace: bool) -> None:
        """Walks the log; `run` does the rest."""
        self.capture = capture
        self.world = world
        self.graph = build(run_of(capture), world, trace)
        self.sharing: list[tuple[Any, Any]] = []
        # The registers of numbers that are read from outside and followed, by identity.
        self.registers: dict[int, int] = {}

    def run(self) -> Analysis:
        """The analysis.

        Raises:
            Refusal: something was read for which there is no guard.
        """
        c, graph = self.capture, self.graph
        for step in c.record.steps:
            if (isinstance(step, Bind) and step.args) or _is_of_part(step):
                self.number_read(step)
        for e in c.effects:
            if isinstance(e, ContainerEffect) and e.kind == "deque":
                graph.capacity(e.obj)
        for *_, answer in (*c.redo, *c.memos):
            graph.anchor(answer)
        self._tensors()
        conditions = self._conditions()
        if c.instances_vary:
            self._instances()
        self._operations()
        self._asked_again()
        self._unwatched()
        for array, before in c.arrays:
            self.python_check(array_unchanged(before), array)
        for array, sized in c.array_inputs:
            self.python_check(array_lies_as(array, sized), array)
        for obj, before in c.opaque:
            self.python_check(c_state.unchanged(before), obj)
        anchors: dict[str, Any] = dict(graph.records)
        anchors.update((name, list(group.values())) for name, group in graph.groups.items())
        anchors["state"] = c.state
        return Analysis(
            len(c.args),
            tuple(c.kwargs),
            graph.nregs,
            graph.checks,
            anchors,
            graph.relative,
            graph.constants,
            self.sharing,
            conditions,
            graph,
        )

    def python_check(self, check: Any, *objects: Any) -> None:
        """Adds a check that is a Python function of objects."""
        self.graph.check(("py", check, tuple(map(self.graph.operand, objects))))

    def _conditions(self) -> Conditions | None:
        """What must hold of the sizes and numbers that vary is not known yet."""
        symbols, graph = self.capture.record.symbols, self.graph
        outside = [s for s in symbols.sources if s.outside is not None] if symbols else []
        if not outside:
            return None
        conditions = Conditions()
        by_id = {id(s.outside): s.outside for s in outside}
        keys = conditions.over(outside, lambda s: id(s.outside))
        places = [(self.registers.get(k), by_id[k]) for k in keys]
        given = [graph.operand(v) if place is None else place for place, v in places]
        graph.check(("py", conditions, tuple(given)))
        return conditions

    def _instances(self) -> None:
        """No step may hold a module or function that is another one in other calls."""
        record, relative = self.capture.record, self.graph.relative
        if any(u.ask not in _OF_TENSORS for u in record.unwatched):
            raise Refusal("Python runs unwatched, which may belong to a module that varies")
        for step in record.steps:
            held = [] if isinstance(step, ModeStep) else [step.func]
            if isinstance(step, (OpStep, HostStep)):
                held += leaves((step.args, step.kwargs))
            for v in held:
                owner = None if isinstance(v, (OutsideRef, Ref)) else attribute(v, "__self__")
                if id(v) in relative or (owner is not None and id(owner) in relative):
                    raise Refusal("a module or function that varies is part of an operation")

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
                    found = self.world.class_attribute(owner, name)
                    self.graph.read(ClassAttribute(owner, name, found))
                elif isinstance(owner, types.ModuleType):
                    held, found = self.world.module_attribute(owner, name)
                    self.graph.read(DictKey(held, name, found))

    def _asked_again(self) -> None:
        """What the world answered to the run's questions."""
        c = self.capture
        for f, args, value in c.redo:
            if self._asked_of_relative(f, args, value):
                continue
            last = self.graph.records["redo"][-1:]
            # The same question again, with the same answer.
            if not (last and last[0][0] is f and _same(last[0][1:3], (args, value))):
                self.graph.record("redo", f, args, value, mode_of(value))
        for memo, key, value, result in c.memos:
            if id(memo) in self.graph.relative:
                raise Refusal("an lru_cache is called that is reached through the arguments")
            self.python_check(still_remembers(key, value, result), memo)

    def _unwatched(self) -> None:
        """Still no Python of the program's may run unwatched below steps."""
        for unwatched in self.capture.record.unwatched:
            self.python_check(runs_below(unwatched), *unwatched.of)

    def _asked_of_relative(self, f: Any, args: tuple[Any, ...], value: Any) -> bool:
        """A question about an object that is another one in every call is asked of that."""
        parts: list[Any] = []
        places: list[tuple[int, Any]] = []
        for i, v in enumerate((f, *args)):
            owner = getattr(v, "__self__", None) if callable(v) else None
            if owner is not None and id(owner) in self.graph.relative:
                places.append((i, self.graph.operand(owner)))
                v = callables.unbound(v)
            elif id(v) in self.graph.relative:
                places.append((i, self.graph.operand(v)))
                v = None
            parts.append(v)
        if not places:
            return False
        check = answers(tuple(parts), tuple(i for i, _ in places), value)
        self.graph.check(("py", check, tuple(place for _, place in places)))
        return True

    def number_read(self, step: Bind | CheckValue) -> None:
        """A number in a dict, cell or class that is an input: it must be there, and of its type."""
        graph = self.graph
        holder = step.args[0].obj if isinstance(step.args[0], OutsideRef) else None
        key: Any = step.args[1] if len(step.args) > 1 else None
        if isinstance(holder, list) and type(key) is not int:
            return  # no element: how many there are
        if isinstance(holder, type) and step.func is class_number:
            self.python_check(class_holds(key, step.expected), holder)
            return
        if isinstance(holder, collections.deque):
            self.python_check(item_is_number(key, step.expected), holder)
            return
        if step.func in (part, part_held):
            *_, index, length, cls = step.args
            source: Operand = graph.operand(holder)
            if step.func is part_held:
                whole = graph.register()
                held = Item if isinstance(holder, list) else DictKey
                graph.check(held(holder, key, cls).load(whole, source))
                source = whole
            graph.check(("type", source, cls))
            graph.check(("len", source, length))
            read: Load = Item(tuple, index, step.expected)
        elif (kind := number_of(holder, step.func)) is not None:
            read, source = kind(holder, key, step.expected), graph.operand(holder)
        else:
            return
        dst = graph.register()
        graph.check(read.load(dst, source))
        if isinstance(step, CheckValue):
            graph.check(("leaf", dst, step.expected))
            return
        symbols = self.capture.record.symbols
        if symbols is not None and step.result in symbols.outside:
            self.registers[id(symbols.outside[step.result])] = dst
        # Arithmetic with small integers is certain to succeed (magpy/replay/passes/totality.py).
        graph.check(("small_int", dst) if step.expected is int else ("type", dst, step.expected))

    def _identities(self, inputs: list[Any]) -> None:
        """Relative objects that anchored places hold too stay these; the others stay others."""
        objects = []
        for r in self.graph.relative.values():
            if id(r.obj) in self.graph.anchored:
                self.graph.check(("is", r.register, r.obj))
            # Numbers and text that are inputs may well be one object: no capture goes by that.
            elif not isinstance(r.obj, (tuple, types.MethodType, frozenset, *PLAIN)):
                objects.append(r)
        if objects:
            kinds = {type(r.obj) for r in objects}
            held = {id(v): v for v in inputs}
            held.update(
                (id(d), d) for d, _ in self.graph.groups["dicts"].values() if type(d) in kinds
            )
            held.update((i, v) for i, v in self.graph.anchored.items() if type(v) in kinds)
            self.graph.check(("distinct", tuple(r.register for r in objects), tuple(held.values())))

    def _tensors(self) -> None:
        c = self.capture
        anchored = []
        for tensor in c.record.inputs.values():
            if id(tensor) not in self.graph.relative:
                anchored.append(tensor)
                self.graph.record("tensors", tensor, c.metas[id(tensor)])
            elif (spec := self.world.placement(tensor)) is not None:
                self.python_check(placed_as(spec), tensor)
        for v, cached in c.record.cached.items():
            self.python_check(knows(cached), c.record.inputs[v])
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
        operands = mutated + [t for t in (*self.graph.tensors, *anchored) if id(t) not in seen]
        # As they lay in memory when the call began.
        before = {id(record.inputs[v]): data for v, data in record.swapped.items()}
        lying = [before.get(id(t), t) for t in operands]
        pairs = self.world.overlaps(lying, count)
        self.sharing = [(operands[i], operands[j]) for i, j, _ in pairs]
        if len(operands) > 1:
            named = tuple(self.graph.operand(t) for t in operands)
            self.graph.check(("overlap", named, tuple(pairs), count))

    def _buffers(self) -> None:
        """Arrays and other buffers share memory with what they shared it with, and with no other.

        What is written through one of two of them would be read through the other.
        """
        c = self.capture
        mutated = [c.record.inputs[v] for v in c.record.mutated]
        if any(isinstance(b, bytearray) for b in c.buffers):
            # The one buffer that a call may change.
            mutated = list(c.record.inputs.values())
        moving = any(id(b) in self.graph.relative for b in c.buffers)
        if c.buffers and (mutated or (moving and len(c.buffers) > 1)):
            objects = (*mutated, *c.buffers)
            lie = lie_as_before(len(mutated), self.world.addresses(objects))
            self.python_check(lie, *objects)


def analyze(capture: Capture, world: World | None = None, trace: bool = False) -> Analysis:
    """The meaning of a capture's log.

    Args:
        capture: what was captured.
        world: answers what the log does not tell; None: the objects themselves.
        trace: the graph keeps its edges, for a picture.

    Raises:
        Refusal: something was read for which there is no guard.
    """
    return Analyzer(capture, world if world is not None else World(), trace).run()


__all__ = ["Analysis", "Relative", "analyze"]
