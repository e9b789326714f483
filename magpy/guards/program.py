"""A guard while it is made: its registers, checks and records, and the objects that it knows.

Owns `Edge`, what a read is, and `Program`, what reads are lowered to.  Does not own the kinds of
reads (magpy/guards/edges.py), the walk over a log (magpy/guards/graph.py), nor how a guard is run
(csrc/interp/guards.cpp).  Called by these two.
"""

from __future__ import annotations

import abc
import collections
import enum
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from magpy import _interp
from magpy.guards.checks import ABSENT, c_leaf
from magpy.guards.world import Run, World
from magpy.objects.types import isinstance, may_be_assigned

ANCHOR_TYPES = (
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

# Those of which there may be many that are alike.
INSTANCES = (torch.nn.Module, types.FunctionType, torch.Generator)

Check = tuple[Any, ...]
# How a check names an object: a register, or ("a", object).
Operand = int | tuple[str, Any]
# Gives an object a name among the globals of the mock function.
Name = Callable[[Any], str]
# The classes of edges by the events of the log that tell of them.
CLASSES: dict[str, type[Edge]] = {}


# Thousands are made for a capture: to make a frozen one takes three times as long.
@dataclass(slots=True, eq=False)
class Edge:
    """A read: `source` was asked for `key`, and gave `value` (ABSENT: it had none).

    Attributes:
        is_read: whether the program saw the value; else the event tells of something else.
        gives_object: whether the value is an outside object or a plain value.
        label_form, words_form: what is written beside the edge in a picture, and what is read, as a
            phrase for people.  Both may name the `key`, and the `kind`: the source's class.
        load_check, absent_check: the names of the checks that put the value into a register, and
            that there is none.
    """

    source: Any
    key: Any
    value: Any
    is_read: ClassVar[bool] = True
    gives_object: ClassVar[bool] = False
    label_form: ClassVar[str] = "{key}"
    words_form: ClassVar[str] = ""
    load_check: ClassVar[str] = ""
    absent_check: ClassVar[str] = ""

    def __init_subclass__(
        cls,
        *,
        events: tuple[str, ...] = (),
        is_read: bool | None = None,
        gives_object: bool | None = None,
        label: str | None = None,
        words: str | None = None,
        load: str | None = None,
        absent: str | None = None,
    ) -> None:
        """Registers the class of edges for its events of the log.

        Raises:
            ValueError: another class has one of them.
        """
        told = {"is_read": is_read, "gives_object": gives_object, "label_form": label}
        told |= {"words_form": words, "load_check": load, "absent_check": absent}
        for name, value in told.items():
            if value is not None:
                setattr(cls, name, value)
        for event in events:
            if event in CLASSES:
                raise ValueError(f"the event {event!r} has the class {CLASSES[event].__name__}")
            CLASSES[event] = cls

    def label(self) -> str:
        """What is written beside the edge in a picture."""
        return self.label_form.format(key=self.key)

    def words(self) -> str:
        """What is read, as a phrase for people."""
        return self.words_form.format(key=self.key, kind=type(self.source).__name__)

    def lower(self, program: Program) -> None:
        """Adds to the guard what must hold for the read to give the same again."""


@dataclass(slots=True)
class Relative:
    """A relative object: its register in the guard and its expression in the mock function."""

    obj: Any
    register: int
    expr: str


class Program(abc.ABC):
    """The guard of a run.

    Attributes:
        run, world: what it is made from.
        edges: the reads in their order, each with the checks that it lowered to (those of the
            values that it reached included).
        relative, anchored: the nodes by identity; an object can be both.
        wholes: what containers held that were looked at as a whole, at some time.
        checks, records, nregs: the checks of `_interp.Guard`, in order; the records about anchored
            objects, by section; how many registers there are.
        constants: names that the expressions of relative objects use.
        tensors: the relative tensors in the order in which they were reached.
    """

    def __init__(self, run: Run, world: World, trace: bool = True) -> None:
        """Knows no object yet; `trace`: each edge keeps the checks that it lowers to."""
        self.run = run
        self._trace = trace
        self.world = world
        self.edges: list[tuple[Edge, list[Check]]] = []
        self.relative: dict[int, Relative] = {}
        self.anchored: dict[int, Any] = {}
        self.checks: list[Check] = []
        self.records: dict[str, list[Any]] = collections.defaultdict(list)
        self.groups: dict[str, dict[int, tuple[Any, list[Any]]]] = {"dicts": {}, "types": {}}
        self.nregs = len(run.args) + len(run.kwargs)
        self.constants: dict[str, Any] = {}
        self.tensors: list[Any] = []
        self.wholes = {id(obj): pre for kind, obj, _, pre in run.log if kind == "snap"}
        # What was written over, as it was before the run.
        written = [(id(v), key, old) for kind, v, key, old in run.log if kind == "write_attr"]
        self._classes = {v: old for v, key, old in written if key == "__class__"}
        self._factories = {v: old for v, key, old in written if key == "default_factory"}
        # Gradients that the tensors began with: they are other ones in every call.
        self._gradients = {id(g): t for t, g in run.gradients if g is not None}
        self._done: set[tuple[Any, int]] = set()
        self._held: set[int] = set()  # of the anchored objects those that the guard keeps alive
        # Classes, by identity, of which an object holds nothing that is guarded with it.
        self._holds_nothing: dict[int, type] = {}
        self._open: list[Check] = []  # the checks of the read that is being lowered

    def register(self, count: int = 1) -> int:
        """A new register, or the first of so many."""
        self.nregs += count
        return self.nregs - count

    def check(self, check: Check) -> None:
        """Adds a check, which runs after those that are there."""
        self.checks.append(check)
        if self._trace:
            self._open.append(check)

    def record(self, section: str, *record: Any) -> None:
        """Adds a record about an anchored object (the sections are those of `_interp.Guard`)."""
        self.records[section].append(record)
        if self._trace:
            self._open.append((section, *record))

    def group(self, section: str, obj: Any, *entries: Any) -> None:
        """Likewise in a section that has one record for each object."""
        self.groups[section].setdefault(id(obj), (obj, []))[1].extend(entries)
        if self._trace:
            self._open += [(section, obj, *entry) for entry in entries]

    def operand(self, obj: Any) -> Operand:
        """How a check names an object: a register, or the object itself."""
        found = self.relative.get(id(obj))
        return found.register if found is not None else ("a", obj)

    def name(self, obj: Any) -> str:
        """A name for an object in the expressions of relative ones."""
        name = f"_d{len(self.constants)}"
        self.constants[name] = obj
        return name

    def first(self, kind: Any, obj: Any) -> bool:
        """Whether a kind of read of an object, which is guarded once, is the first one."""
        known = (kind, id(obj)) in self._done
        self._done.add((kind, id(obj)))
        return not known

    def class_of(self, obj: Any) -> Any:
        """The class that an object had before the run."""
        return self._classes.get(id(obj), type(obj))

    def is_state(self, value: Any) -> bool:
        """Whether a value may be the program's state: what it is like counts, not which it is."""
        if value is ABSENT or c_leaf(value) or id(value) in self.anchored:
            return False
        varies = self.run.instances_vary and isinstance(value, torch.nn.Module)
        return varies or not isinstance(value, ANCHOR_TYPES)

    def is_rearranged(self, obj: Any, pre: Any) -> bool:
        """Whether the run puts state into a list or a deque."""
        return id(obj) in self.run.rearranged and any(map(self.is_state, pre))

    def reach(self, obj: Any, reg: int, expr: str) -> None:
        """Adds a relative object."""
        self.relative[id(obj)] = Relative(obj, reg, expr)

    def class_assigned(self, v: Any) -> None:
        """The very object that is expected may be given another class."""
        t = self.class_of(v)
        if may_be_assigned(t) and self.first("class", v):
            self.record("objtypes", v, t)

    # What the walk does (magpy/guards/graph.py).

    @abc.abstractmethod
    def read(self, edge: Edge) -> None:
        """Adds an edge, and to the guard what must hold for it."""

    @abc.abstractmethod
    def link(self, edge: Edge) -> None:
        """Adds an edge that the guard of the source covers."""

    @abc.abstractmethod
    def bind(self, v: Any, reg: int, expr: str) -> None:
        """Guards what is in a register as far as that is done without looking inside."""

    @abc.abstractmethod
    def anchor(self, v: Any, held: bool = True) -> None:
        """An anchored place holds this very object: relative ones must stay it, or stay others.

        Args:
            v: what the place holds.
            held: the guard may keep it alive, as the place does.
        """

    @abc.abstractmethod
    def factory(self, d: Any) -> None:
        """What a defaultdict puts under a key that is missing, of which no event tells."""

    @abc.abstractmethod
    def capacity(self, d: Any) -> None:
        """How many elements a relative deque takes, of which no event tells."""
