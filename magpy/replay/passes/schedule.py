"""The order of operations and host steps: host steps wait until somebody needs their value.

Owns which host steps wait, and between which operations they stand.  Does not own checks that go
ahead of the operations (magpy/replay/passes/hoist.py) nor the graphs made of the runs between
(magpy/replay/segments.py).  Called by magpy/replay/pipeline.py.
"""

from __future__ import annotations

import types
from collections.abc import Container
from typing import Any

import torch

from magpy.ir import aliasing
from magpy.ir.ops import (
    Bind,
    Call,
    HostStep,
    ModeStep,
    OpStep,
    Ref,
    Step,
    Var,
    calls_on_tensors,
    class_number,
    has_gradient,
    item_held,
    part_held,
    slot_held,
)
from magpy.ir.torch_modes import TorchModes
from magpy.ir.trees import collect, generators_of, leaves, variables
from magpy.models import profiler_marks, torch_callables
from magpy.models.backward import PASSES, differentiated, give_gradient
from magpy.models.callables import NUMBER_METHODS
from magpy.models.torch_ops import scalar_bound, scalar_tensor, scalar_within
from magpy.objects.jagged import NestedTensor
from magpy.objects.plain_values import PLAIN_TYPES
from magpy.objects.types import isinstance
from magpy.replay.fx_graphs import IN_PLACE, safe
from magpy.replay.passes import transform_regions
from magpy.replay.passes.totality import Totality, runs_python
from magpy.replay.passes.trace_backward import history
from magpy.replay.rolled import Rolled
from magpy.unwatched import autograd


class _Schedule:
    """Lets host steps wait until an operation needs them: they cut the graph late and rarely."""

    def __init__(
        self,
        found: dict[Var, set[int]],
        costly: set[int],
        total: Totality,
        carry: set[Var] | frozenset[Var] = frozenset(),
    ) -> None:
        self.found = found
        self._carry = carry
        self._costly = costly
        self._total = total
        self._undecided = False  # a step waits that may find that this is another call
        #: What runs a graph, and the settings of torch's that it runs under.
        self.kind: tuple[Any, ...] = ("graph", ())
        self.runs: list[Any] = []
        self.graph: list[Step] = []
        self.waiting: list[HostStep] = []
        self.blocked: set[Var] = set()
        self.made: set[Var] = set()
        self.read: set[int] = set()
        self.draws = False
        self.python = False  # some may run in the graph
        #: Marks that end in the graph.
        self.ended: list[HostStep] = []

    def flush(self) -> None:
        self.runs.append((self.kind, self.graph))
        self.runs.extend(self.waiting)
        self.runs.extend(reversed(self.ended))
        self.graph, self.waiting, self.ended, self.python = [], [], [], False
        self.blocked, self.made, self.read, self.draws = set(), set(), set(), False
        self._undecided = False

    def cuts(self, step: OpStep, kind: tuple[Any, ...]) -> bool:
        """Whether an operation begins another run."""
        if kind != self.kind:
            return True
        if not self.waiting:
            return False
        memory = aliasing.changed(step, self.found) if step.mutates else set()
        unknown = aliasing.UNKNOWN in memory or aliasing.UNKNOWN in self.read
        return (
            not self.blocked.isdisjoint(variables((step.args, step.kwargs)))
            or (step.mutates and (unknown or aliasing.meet(memory, self.read)))
            or (step.random and self.draws)
            # What is changed before that would have to be saved.
            or (self._undecided and aliasing.meet(memory, self._costly))
        )

    def holds(self, step: OpStep, kind: tuple[Any, ...], history: set[Var]) -> bool:
        """Whether the graph that is being built makes all that an operation differentiates."""
        return not self.cuts(step, kind) and history <= self.made

    def op(self, step: OpStep, kind: tuple[Any, ...]) -> None:
        if self.cuts(step, kind):
            self.flush()
            self.kind = kind
        self.graph.append(step)
        self.made.update(step.defined)
        self.python = self.python or runs_python(step)

    def mark(self, step: HostStep) -> None:
        """A mark of a profiler: one that begins or ends within a graph does with the graph."""
        if step.func is profiler_marks.begin:
            if not self.blocked.isdisjoint(variables(step.args)):
                self.flush()  # its name is computed
            self.runs.append(step)
        else:
            self.ended.append(step)

    def host(self, step: HostStep) -> None:
        if (
            step.mutates
            or step.unrepeatable
            or step.in_order
            or calls_on_tensors(step)
            or is_differentiated(step, self._carry)
        ):
            self.flush()
            self.runs.append(step)
            return
        found: set[Var] = set()
        collect((step.args, step.kwargs), found)
        if reads_gradient(step) and not (self.python or found & self.made):
            self.runs.append(step)  # only Python below an operation gives a tensor another one
            return
        self.waiting.append(step)
        self._undecided = self._undecided or self._total.decides(step)
        self.read.update(*(self.found[v] for v in found if v in self.found))
        self.blocked.update(step.defined)
        self.draws = self.draws or step.random


def reads_gradient(step: Step) -> bool:
    """Whether a step looks at the gradient of a tensor."""
    if not isinstance(step, (OpStep, HostStep)):
        return False
    return step.func is has_gradient or (step.func is getattr and step.args[1] == "grad")


def is_differentiated(step: Step, carry: Container[Var]) -> bool:
    """Whether a backward pass may come to what a step computes: it stays in its place among such.

    Gradients are summed in the order of the operations.
    """
    if not isinstance(step, (OpStep, HostStep)) or step.func is getattr or reads_gradient(step):
        return False
    return any(v in carry for v in step.defined)


def lets_go(step: Step) -> bool:
    """Whether a step gives up the gradient of a tensor."""
    return isinstance(step, HostStep) and step.func is setattr and step.args[1:] == ("grad", None)


def has_a_place(step: HostStep) -> bool:
    """Whether a step is done for more than its value, or draws."""
    return step.owner is not None or isinstance(step, Call) or step.in_order


_MARKS = (profiler_marks.begin, profiler_marks.end)
_OF_NUMBERS = (
    *(scalar_tensor, scalar_within, scalar_bound),
    *(class_number, item_held, part_held, slot_held),
)


def ignores_modes(step: Step) -> bool:
    """Whether a step is about a gradient, as an attribute, or a mark of a profiler."""
    if not isinstance(step, HostStep):
        return False
    if step.func in (getattr, setattr):
        return bool(step.args[1] == "grad")
    return step.func in _MARKS or step.func in (has_gradient, give_gradient)


def anywhere(step: Step) -> bool:
    """Whether no mode of torch has a part in a step: it is about a Python number or a gradient.

    Settings that a run has changed have: below a `__torch_function__` that `super()` has called,
    one of them keeps the Python of the subclass from running once more for `item`.
    """
    return ignores_modes(step) or (
        isinstance(step, HostStep)
        and not step.outs
        and (
            step.func in _OF_NUMBERS
            or getattr(step.func, "__name__", "") in NUMBER_METHODS
            or (isinstance(step, Call) and not step.tensors)
            or getattr(step.func, "__module__", None) in ("_operator", "math", "builtins")
        )
    )


def _number(step: Bind) -> bool:
    """Whether a step takes a number out of a tensor, or computes one from numbers."""
    return step.expected in (int, float, complex) and safe(step.args)


# Classes of tensors that every backend takes for what they are.
_PLAIN = (torch.nn.Parameter,)


# Operations that no compiler takes: one that reaches for a tensor's memory, which there is none of
# while it traces, and recurrent layers with what packs their sequences, which are one kernel each
# (torch.compile leaves them out too; AOTAutograd fails where they are trained on a CPU). So are
# fused optimizers, which functionalization refuses where one of their lists is empty.
_BEHIND = (
    *(getattr(torch._VF, name) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")),
    *(getattr(torch._VF, name) for name in ("_pack_padded_sequence", "_pad_packed_sequence")),
    *(getattr(torch, f"_fused_{name}_") for name in ("adam", "adamw", "sgd", "adagrad")),
)


def _takes_objects(step: OpStep) -> bool:
    """Whether a call that is recorded as a whole is given code (a checkpointed block) or an object.

    That may hold tensors, which no compiler could tell from constants, and may be looked at later.
    One that draws numbers of Python's would draw them while a compiler traces. DTensors are moved
    by functional collectives, which compilers take; placements and meshes are plain values.
    """
    owner = getattr(getattr(step.func, "__magpy_target__", None), "__self__", None)
    moves = str(getattr(owner, "__module__", "")).startswith("torch.distributed.tensor.")
    return step.whole and (
        (step.unrepeatable and not moves)
        or not all(
            isinstance(v, (Ref, type, types.BuiltinFunctionType))
            or type(v) in PLAIN_TYPES
            or torch_callables.is_value(v)
            for v in leaves((step.args, step.kwargs))
        )
    )


def _draws_elsewhere(step: OpStep) -> bool:
    """Whether an operation draws from a generator that the program has given it.

    AOTAutograd holds it in the graph like a constant, draws from it while it traces, and what
    TorchInductor finds in its cache draws from another one. Where it is a variable, its class tells
    (`Record.types`).
    """
    return step.random and any(True for _ in generators_of(step))


def _runs_later(step: OpStep) -> bool:
    """Whether Python of the program looks around when autograd's engine comes to an operation.

    A compiler traces it once, at the beginning.
    """
    target = getattr(step.func, "__magpy_target__", None)
    cls = getattr(target, "__self__", None)
    return (
        isinstance(cls, type)
        and issubclass(cls, torch.autograd.Function)
        and autograd.looks_around(cls)
    )


def writes_again(step: OpStep, storages: dict[Var, int]) -> bool:
    """Whether an operation writes to a list of tensors some of which share memory.

    Eager does so one after the other. What AOTAutograd makes of it takes all of them as they were.
    """
    if not step.mutates:
        return False
    for given in (*step.args, *step.kwargs.values()):
        if isinstance(given, (list, tuple)):
            taken = [v.var for v in given if isinstance(v, Ref)]
            if step.writes and step.writes.isdisjoint(taken):
                continue  # it only reads them
            if len({storages.get(v, 0) for v in taken}) < len(taken):
                return True
    return False


def _only_python(step: OpStep, types: dict[Var, type]) -> bool:
    """Whether only Python can do an operation: it takes or makes a tensor of a class of its own.

    A compiler traces a class that says how to take it apart (`__tensor_flatten__`); for any other
    it would leave out what the class does, and take its results for plain tensors. Jagged tensors
    it would compile for the offsets of one call.
    """
    if hasattr(step.func, "__magpy_form__"):  # its result is compared, and a compiler has none
        return True
    if isinstance(step.func, Rolled):  # its turns are compiled (magpy/runtime/blocks.py)
        return True
    if step.func in _BEHIND or _takes_objects(step) or _runs_later(step) or _draws_elsewhere(step):
        return True
    if transform_regions.only_python(step):
        return True
    if not types:
        return False
    found: set[Var] = set()
    collect((step.args, step.kwargs), found)
    taken = {types[v] for v in found if v in types}.difference(_PLAIN)
    made = {types[v] for _, v in step.outs if v in types}
    return any(t is NestedTensor or not hasattr(t, "__tensor_flatten__") for t in taken | made)


def _seen_leaves(
    steps: list[Step], needed: set[Var], start: TorchModes, types: dict[Var, type]
) -> set[int]:
    """The operations that make leaves of autograd which somebody can tell from other tensors.

    No compiler's graph gives out leaves, nor does it add to gradients of its own.  Where gradients
    are off (a slice of an embedding in a model that serves) operations take a leaf like any other
    tensor, and it stays in the graph.

    Returns:
        The identities of the steps.
    """
    if not any(isinstance(s, OpStep) and s.leaves for s in steps):
        return set()
    now = start
    grads: list[bool] = []
    for s in steps:
        if isinstance(s, ModeStep):
            now = s.modes
        grads.append(now.grad)
    found: set[int] = set()
    seen = set(needed)
    for s, grad in zip(reversed(steps), reversed(grads), strict=True):
        if not isinstance(s, (OpStep, HostStep)):
            continue
        if isinstance(s, OpStep) and s.leaves and any(v in seen for _, v in s.outs):
            found.add(id(s))
        if (
            grad
            or not isinstance(s, OpStep)
            or s.unrepeatable
            or id(s) in found
            or _only_python(s, types)
        ):
            collect((s.args, s.kwargs), seen)
    return found


def _taken_by_graphs(steps: list[Step]) -> set[Var]:
    """The numbers that operations take, and those that these are computed from.

    A number that nobody else takes is read when the graph is done: it is no part of it.
    """
    found: set[Var] = set()
    for s in reversed(steps):
        if isinstance(s, OpStep) or (isinstance(s, Bind) and s.result in found):
            collect((s.args, s.kwargs), found)
    return found


def _graph_kind(now: TorchModes, start: TorchModes, types: Any) -> tuple[Any, ...]:
    """The kind of a graph that holds what runs under modes: it is of one kind."""
    # Compilers give ordinary tensors where a graph itself enters inference mode.
    apart = types is not None and now.inference != start.inference
    return ("inference" if apart else "graph", now.settings)


def schedule(
    steps: list[Step],
    ahead: int,
    few: bool,
    storages: dict[Var, int],
    possible: dict[Var, set[int]],
    types: dict[Var, type] | None,
    total: Totality,
    costly: set[int],
    start: TorchModes,
    needed: set[Var],
    carry: set[Var],
) -> list[Any]:
    """The steps as runs of a kind: operations for one graph, or a host step or an effect alone.

    Args:
        steps: in the order of the run.
        ahead: how many of them are done, whatever waits, before the rest begins.
        few: Python does these one by one.
        storages: which memory each variable had.
        possible: the memory that a variable may share.
        types: the classes of tensors that are not plain ones; None where Python runs the graphs.
        total: the steps that cannot fail.
        costly: the memories that are not changed before it is certain that this is the call: to
            save what they hold costs.
        start: torch's modes when the run began.
        needed: the variables that the result and the effects need.
        carry: the variables that may carry autograd's graph.
    """
    plan = _Schedule(possible, costly, total, carry)
    leaves = set() if types is None else _seen_leaves(steps, needed, start, types)
    modes: ModeStep | None = None
    host_modes: TorchModes | None = None
    # Compilers take no numbers of data: a graph with one would be a graph of its own.
    given = _taken_by_graphs(steps) if types is None else set()
    for i, step in enumerate(steps):
        if i == ahead:
            plan.flush()
        if few and i < ahead:
            plan.runs.append(step)
        elif isinstance(step, ModeStep):
            modes = step
            if host_modes != step.modes and (
                (host_modes or start).settings != step.modes.settings
                or not all(map(anywhere, plan.waiting))
            ):
                plan.flush()  # a waiting step runs under the modes of its own place
            plan.graph.append(step)
        elif isinstance(step, OpStep):
            now = modes.modes if modes is not None else start
            kind = _graph_kind(now, start, types)
            if types is not None and (
                (
                    step.func in PASSES
                    and not plan.holds(
                        step, kind, history(steps[:i], variables(step.args[:1]), carry) & carry
                    )
                )
                or step.func is differentiated
                or id(step) in leaves
                or _only_python(step, types)
                or writes_again(step, storages)
            ):
                kind = ("native", now.settings)
            plan.op(step, kind)
        elif (
            isinstance(step, Bind)
            and i >= ahead  # there Python computes numbers, for checks that Python makes
            and step.arithmetic is None
            and (step.symbolic or (step.result in given and step in total and _number(step)))
        ):
            # A number does not change in place; torch.fx would give the old one's name to the new.
            func = IN_PLACE.get(step.func, step.func)
            number = OpStep(func, step.args, step.kwargs, [((), step.result)])
            number.unrepeatable = step.unrepeatable
            number.where = step.where
            now = modes.modes if modes is not None else start
            plan.op(number, _graph_kind(now, start, types))
        elif isinstance(step, HostStep) and step.func in _MARKS:
            plan.mark(step)
        elif isinstance(step, HostStep):
            host_modes = modes.modes if modes is not None else None
            plan.host(step)
        else:
            plan.runs.append(step)  # effects wait for the end: they do not cut
    plan.flush()
    return plan.runs
