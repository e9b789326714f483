"""What a recorded run consists of: the steps, in order, and the values that flow between them.

Owns the data types only.  The recorder makes the steps (magpy/capture/tensors/recorder.py),
magpy/replay makes segments and code of them. A step never holds a tensor that the program made:
tensors appear as `Ref(var)`.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NewType

import torch

from magpy.ir.torch_modes import TorchModes
from magpy.objects.types import isinstance

Var = NewType("Var", int)


@dataclass(frozen=True, slots=True)
class Ref:
    """A tensor, or a value computed anew in every call, in the arguments of a step."""

    var: Var


@dataclass(frozen=True, slots=True)
class OutsideRef:
    """An outside object (no tensor) in the arguments of a step: reached anew in every call."""

    obj: Any


@dataclass(frozen=True, slots=True)
class Fresh:
    """An array, bytearray or dict of the run in the arguments of a step: copied in every call."""

    obj: Any


Path = tuple[Any, ...]


@dataclass(slots=True, kw_only=True)
class Effects:
    """What an operation does beside giving its result: what decides whether it may be moved.

    Attributes:
        mutates: it changes something: its arguments, gradients, an object.
        writes: the variables that it writes to, if it mutates and if that is known.
        random: it draws from torch's generators.
        unrepeatable: it must run once: autograd's engine goes on to what was made before the call,
            which it takes apart, or runs Python that changes something, or a call done as a whole
            draws.
    """

    mutates: bool = False
    writes: frozenset[Var] = frozenset()
    random: bool = False
    unrepeatable: bool = False


@dataclass(slots=True)
class Operation(Effects):
    """A call that the run made, and that an entry makes again.

    Attributes:
        outs: where in the result each new tensor is, and the variable that it becomes.
        where: the line of the program that makes it: "file:line (function)".
        site: where the program was, if it may warn.
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outs: list[tuple[Path, Var]] = field(default_factory=list)
    where: str = field(default="", kw_only=True)
    site: Any = field(default=None, kw_only=True)

    @property
    def defined(self) -> list[Var]:
        """The variables that it defines."""
        return [v for _, v in self.outs]


@dataclass(slots=True)
class OpStep(Operation):
    """One tensor operation of the operator graph.

    Attributes:
        leaves: among what it makes is a leaf of autograd: a parameter's view where gradients are
            off, or a new tensor that requires grad.
        whole: it is a call done as a whole, in which Python runs.
        hidden: it is a method of tensors, and this tensor may have another one at its name.
    """

    leaves: bool = field(default=False, kw_only=True)
    whole: bool = field(default=False, kw_only=True)
    hidden: bool = field(default=False, kw_only=True)


@dataclass(slots=True)
class ModeStep:
    """From here on operations run under `modes`."""

    modes: TorchModes


@dataclass(slots=True)
class EngineRun:
    """What autograd's engine does in a step.

    Attributes:
        gradients: the memories in which it adds to gradients; any `.grad` may be another object
            afterwards. None if it adds to none.
        goes_on: it goes on to a graph from before the call, which may be freed by another one: then
            it raises.
        leaves: the tensors to whose gradients it adds, if these are all, and no Python runs in it;
            none for a pass that gives the gradients as results. None if a graph could not make the
            pass.
        heard: what was made in the call and the gradients of that, which hooks were given: what
            they did comes after the step, and needs an operation that gives these gradients.
        frames: if it goes on, or must run once, the frames of the call, the innermost first
            (magpy/errors.py).
    """

    gradients: frozenset[int] | None = None
    goes_on: bool = False
    leaves: tuple[Var, ...] | None = None
    heard: tuple[tuple[Var, Var], ...] = ()
    frames: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class HostStep(Operation):
    """What Python does between two segments: a value of data, or what no graph can hold.

    Its subclasses say what becomes of the result.

    Attributes:
        owner: the random generator of Python or numpy that the step draws from.
        engine: what autograd's engine does in it.
        in_order: it has to do with a device's queue of work (events, waiting), and stands where it
            stands among the operations.
    """

    owner: Any = field(default=None, kw_only=True)
    arithmetic: Any = field(default=None, kw_only=True)
    engine: EngineRun | None = field(default=None, kw_only=True)
    in_order: bool = field(default=False, kw_only=True)

    @property
    def defined(self) -> list[Var]:
        """The variables that it defines."""
        heard = () if self.engine is None else self.engine.heard
        return [v for _, v in (*self.outs, *heard)]

    @property
    def gradients(self) -> frozenset[int] | None:
        """The memories in which autograd's engine adds to gradients; None if it does not."""
        return None if self.engine is None else self.engine.gradients


@dataclass(slots=True)
class Call(HostStep):
    """The result is not looked at.

    Attributes:
        tensors: it has to do with tensors: operations stay before or after it.
    """

    tensors: bool = field(default=True, kw_only=True)


@dataclass(slots=True)
class Check(HostStep):
    """The result must be as `expected`, or the entry is left.  Its subclasses say how."""

    expected: Any = field(kw_only=True)

    def told_apart(self) -> Any:
        """What tells the expected value from others."""
        v = self.expected
        return type(v), v.tobytes() if hasattr(v, "tobytes") else repr(v)

    def is_new(self, checked: dict[str, set[Any]]) -> bool:
        """Whether other values were expected at this line before, and not this one."""
        seen = checked.get(self.where)
        return seen is not None and self.told_apart() not in seen


class CheckValue(Check):
    """The result must equal a plain value."""

    __slots__ = ()


class CheckArray(Check):
    """The result must equal a numpy array, or a number of numpy's."""

    __slots__ = ()


class CheckMetadata(Check):
    """The result is tensors, whose metadata must be equal."""

    __slots__ = ()


class CheckSizes(Check):
    """The result is tensors, whose metadata must fit `TensorMeta`s: some sizes are followed."""

    __slots__ = ()


@dataclass(slots=True)
class Binding(HostStep):
    """The result becomes a variable, and must be as `expected` says.  Subclasses say how."""

    expected: Any = field(kw_only=True)
    result: Var = field(kw_only=True)

    @property
    def defined(self) -> list[Var]:
        """The variables that it defines."""
        return [self.result, *(v for _, v in self.outs)]


@dataclass(slots=True)
class Bind(Binding):
    """The result must be of the class `expected`.

    Attributes:
        symbolic: a number that follows from sizes alone: a graph can hold the step, and cannot come
            to anything else than the entry's conditions admit.
    """

    symbolic: bool = field(default=False, kw_only=True)


class BindArray(Binding):
    """The result must be a numpy array; `expected` is its dtype and its shape.

    In place of the shape stands the number of dimensions where sizes of inputs decide it.
    """

    __slots__ = ()


@dataclass(slots=True)
class EffectStep:
    """A call with an effect beyond the program's objects, redone when everything else is certain.

    Attributes:
        args, kwargs: specs (magpy/capture/rebuild.py) of the arguments as they were when it was
        made. sites: (filename, line, function name, globals) of the frames of the program that the
        call
            can look at, outermost first.
        modes: torch's modes and settings when it was made; None where they are the call's.
        tensors: what the call may look at: outside tensors, and variables of those of the run.
    """

    func: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]
    sites: list[tuple[str, int, str, dict[str, Any]]]
    result: Any = None
    tensors: list[Any] = field(default_factory=list)
    modes: TorchModes | None = None


@dataclass(slots=True)
class Unwatched:
    """A question that guards ask again: whether Python of the program's runs below a step.

    Attributes:
        ask: tells what runs there (magpy/unwatched/listeners.py).
        of: objects from outside that it is asked of.
        passes: what decided whether the records of a logger pass.
    """

    ask: Callable[..., Any]
    of: tuple[Any, ...]
    passes: list[str]


Step = OpStep | ModeStep | HostStep | EffectStep


def calls_on_tensors(step: Step) -> bool:
    """Whether a step is a call on tensors whose result nobody looks at."""
    return isinstance(step, Call) and step.tensors


def python_number(v: Any) -> Any:
    """The number of Python's that is equal to one of numpy's."""
    return v.item()


def identity(v: Any) -> Any:
    """The value itself: what a check of a value computed earlier calls."""
    return v


def item_held(holder: Any, key: Any) -> Any:
    """An item of a dict, list or deque, whatever the `__getitem__` of a subclass gives."""
    base: Any
    for base in (dict, list, collections.deque):
        if isinstance(holder, base):
            return base.__getitem__(holder, key)
    raise TypeError(holder)


def slot_held(obj: Any, name: str) -> Any:
    """What an object has in a slot, whatever the `__getattribute__` of its class gives."""
    return object.__getattribute__(obj, name)


#: The classes of tuples of which single numbers may be inputs.
TUPLES = (tuple, torch.Size)


class Part(NamedTuple):
    """A place in a tuple that a dict or list holds at a key."""

    key: Any
    at: int


def part_held(holder: Any, key: Any, index: int, length: int, cls: type) -> Any:
    """An item of a tuple, of this class and with so many items, that a dict or list holds.

    Raises:
        LookupError, TypeError: it holds no such tuple.
    """
    return part(item_held(holder, key), index, length, cls)


def part(whole: Any, index: int, length: int, cls: type[tuple[Any, ...]]) -> Any:
    """An item of a tuple, of this class and with so many items.

    Raises:
        TypeError: it is no such tuple.
    """
    if type(whole) is not cls or len(whole) != length:
        raise TypeError(whole)
    return whole[index]


def class_number(cls: type, name: str) -> Any:
    """What the bases of a class hold under a name, whatever its metaclass makes of that.

    Raises:
        AttributeError: none of them holds it.
    """
    return class_holding(cls, name).__dict__[name]


def class_holding(cls: type, name: str) -> type:
    """The class that a class inherits a name from.

    Raises:
        AttributeError: there is none.
    """
    for c in cls.__mro__:
        if name in c.__dict__:
            return c
    raise AttributeError(name)


def has_gradient(tensor: Any, gradient: Any) -> bool:
    """Whether the gradient of a tensor is this very object."""
    return tensor.grad is gradient


def has_room(tensor: Any, size: int) -> bool:
    """Whether a tensor's memory has so many bytes, or may get them, which `numpy()` ends."""
    memory = tensor.untyped_storage()
    return bool(memory.resizable() or memory.nbytes() >= size)


class NotStrided:
    """Stands for the class of a sparse tensor, or of a nested one, which no compiler takes."""


class Wrapped:
    """Stands for the class of a tensor of a transform (grad, vmap), which no compiler takes."""


@dataclass(slots=True)
class Record:
    """Everything that a run did to tensors.

    Attributes:
        inputs: outside tensors by variable, held.
        mutated: variables of outside tensors that were changed in place.
        random: whether an operation drew from torch's generators.
        storages: which memory each variable had, to know what an in-place operation can have
            changed.
        fresh: variables that had memory of their own when they were made: no views.
        elements: how many elements each tensor had when it became a variable.
        types: the classes of the tensors that are not plain ones, and of random generators.
        generators: random generators that are variables.
        floating: variables whose elements are floating-point or complex numbers.
        complex: those whose elements are complex: some are no floats, whatever the first one was.
        data_dependent: variables whose shape follows from data.
        cached: what was known of the sequences of jagged tensors from outside (`jagged.cached`).
        numbers: the numbers among the arguments that are inputs, by identity.
        symbols: the sizes and numbers that were followed (magpy/shapes/symbols.py), or None.
        kept: objects, by identity, that a call done as a whole may keep, and where it is made.
        counters: numbers from outside that are inputs: what holds one, the key, the number.
        held_numbers: those that are no arguments, by the identity of what stands for them: that
            itself, the function that reads the number again, what holds it, the key.
        relied: whether the run relies on what one of its integers is.
        swapped: for tensors from outside whose `data` was assigned, what it was before.
        again: what was computed before the call is differentiated so that the derivatives can be.
        keeps_graph: something is.
        pinned: whether it relies on a size or an integer that follows from data.
        of_lists: lists, by identity, of which tensors were made, and which guards compare.
        gradients: tensors from outside and the gradients that they had when the call began, where
            the run has read or added to them.
        unwatched: what asks for Python that runs unwatched below steps.
        caught: the line of the first operation after a change of which the program may catch what
            it raises; "" if there is none.
        loops: those whose number of turns follows from sizes (magpy/ir/loops.py).
        transform_spans: the steps during which a transform of torch.func was active
            (magpy/capture/tensors/functorch.py).
    """

    steps: list[Step] = field(default_factory=list)
    inputs: dict[Var, Any] = field(default_factory=dict)
    mutated: frozenset[Var] = frozenset()
    random: bool = False
    nvars: int = 0
    storages: dict[Var, int] = field(default_factory=dict)
    fresh: set[Var] = field(default_factory=set)
    elements: dict[Var, int] = field(default_factory=dict)
    types: dict[Var, type] = field(default_factory=dict)
    generators: dict[Var, Any] = field(default_factory=dict)
    floating: set[Var] = field(default_factory=set)
    complex: set[Var] = field(default_factory=set)
    data_dependent: frozenset[Var] = frozenset()
    cached: dict[Var, frozenset[str]] = field(default_factory=dict)
    numbers: dict[int, Any] = field(default_factory=dict)
    symbols: Any = None
    kept: dict[int, tuple[Any, str]] = field(default_factory=dict)
    counters: list[tuple[Any, Any, Any]] = field(default_factory=list)
    held_numbers: dict[int, tuple[Any, Any, Any, Any]] = field(default_factory=dict)
    relied: bool = False
    swapped: dict[Var, Any] = field(default_factory=dict)
    again: bool = False
    keeps_graph: bool = False
    pinned: bool = False
    of_lists: dict[int, Any] = field(default_factory=dict)
    gradients: list[tuple[Any, Any]] = field(default_factory=list)
    unwatched: list[Unwatched] = field(default_factory=list)
    caught: str = ""
    transform_spans: list[Any] = field(default_factory=list)
    loops: list[Any] = field(default_factory=list)
