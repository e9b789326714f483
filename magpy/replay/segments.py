"""Segments: tensor operations between two values that Python looks at, as torch.fx graphs.

Owns the plan of an entry and the building of each segment's torch.fx graph.  Does not own
which operations stand in which segment (magpy/replay/passes/schedule.py), what runs the graphs
(magpy/backends) nor what stands between them (magpy/replay/codegen.py).  Called by
magpy/replay/pipeline.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import fx

from magpy.ir.aliasing import written
from magpy.ir.ops import HostStep, ModeStep, OpStep, Ref, Step, Var
from magpy.ir.torch_modes import TorchModes
from magpy.ir.trees import collect, variables
from magpy.models.backward import PASSES, give_gradient
from magpy.models.torch_callables import communicates
from magpy.models.torch_ops import resizable
from magpy.objects.types import isinstance
from magpy.replay.fx_graphs import GraphBuilder, detaches, module_of
from magpy.replay.passes.schedule import ignores_modes
from magpy.replay.passes.trace_backward import gives_values


@dataclass(slots=True)
class Segment:
    """One graph.

    Attributes:
        inputs: the variables it takes, in order.
        outputs: the variables it gives, in order.
        operations: the graph.
        compiled: what the backend made of it, or None as long as it has not been asked.
        unrepeatable: it must run once (magpy/ir/ops.py).
        communicates: operations in it take part in what several processes do, or a call done as a
            whole does that, or draws numbers of Python's or numpy's.
        native: Python runs the graph as it is, whatever the backend.
        draws: how many of its operations draw random numbers.
        memory: a number for the memory of each input and output; 0 if it is not known.
        modes: torch's modes that it is called under; None where they are those of the call.
        changes: the numbers of the memories that it writes to.
        detached: the inputs that it changes and gives no gradients.
        steps: the operations.
    """

    index: int
    inputs: list[Var]
    outputs: list[Var]
    operations: fx.Graph
    nodes: int
    compiled: Callable[..., Any] | None = None
    unrepeatable: bool = False
    communicates: bool = False
    native: bool = False
    draws: int = 0
    memory: dict[Var, int] = field(default_factory=dict)
    modes: TorchModes | None = None
    changes: frozenset[int] = frozenset()
    detached: frozenset[Var] = frozenset()
    steps: tuple[OpStep, ...] = ()
    _module: fx.GraphModule | None = None

    @property
    def graph(self) -> fx.GraphModule:
        """The graph as a module, made when it is first asked for.

        A twelfth of a capture would go into its Python code, which only a call that the entry
        serves, a compiler or a reader needs.
        """
        if self._module is None:
            self._module = module_of(self.operations)
        return self._module

    @property
    def differentiates(self) -> bool:
        """Whether a backward pass is one of the operations."""
        return any(s.func in PASSES for s in self.steps)

    @property
    def keeps_graph(self) -> bool:
        """Whether such a pass gives what can be differentiated."""
        return any(s.func in PASSES and not gives_values(s) for s in self.steps)


@dataclass(slots=True)
class Plan:
    """The steps in order: segments (of graph steps) and single host or effect steps.

    Attributes:
        items: segments; host steps, and operations that make views of a segment's outputs, each
            with the modes that it runs under; effect steps.
    """

    items: list[Any] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)


def swaps_data(step: Step) -> bool:
    """Whether a step assigns `Tensor.data`: the tensor has other memory from there on."""
    return isinstance(step, (OpStep, HostStep)) and step.func is setattr and step.args[1] == "data"


def assigns_gradient(step: Step) -> bool:
    """Whether a step gives a tensor another gradient: no memory is written to."""
    return isinstance(step, HostStep) and (
        step.func is give_gradient or (step.func is setattr and step.args[1] == "grad")
    )


def switches_gradients(step: Step, inputs: Container[Var]) -> bool:
    """Whether a step says of an outside tensor whether it requires grad."""
    if not isinstance(step, (OpStep, HostStep)) or not step.args:
        return False
    target = step.args[0]
    if not isinstance(target, Ref) or target.var not in inputs:
        return False
    if step.func is setattr:
        return bool(step.args[1] == "requires_grad")
    return getattr(step.func, "__name__", "") == "requires_grad_"


def _made_and_used(steps: Iterable[Step]) -> tuple[set[Var], set[Var]]:
    """The variables that operations make, and those that they take from elsewhere."""
    made: set[Var] = set()
    used: set[Var] = set()
    for s in steps:
        if isinstance(s, OpStep):
            used |= variables((s.args, s.kwargs)) - made
            made |= {v for _, v in s.outs}
    return made, used


def _written_ahead_of_passes(runs: list[Any], storages: dict[Var, int]) -> set[int]:
    """The memories from outside that a call writes to before a backward pass, its own or a later.

    An optimizer's writes come after it.
    """
    steps: list[OpStep | HostStep] = []
    for item in runs:
        for s in item[1] if isinstance(item, tuple) else [item]:
            if isinstance(s, (OpStep, HostStep)):
                steps.append(s)
    ends = (
        i
        for i, s in enumerate(steps)
        if s.func in PASSES or (isinstance(s, HostStep) and s.engine is not None)
    )
    del steps[next(ends, len(steps)) :]
    found = {storages.get(v, 0) for s in steps if s.mutates for v in written(s)} - {0}
    if not found:
        return found
    made = {v for s in steps for _, v in s.outs}
    return found & {
        storages.get(v, 0) for s in steps for v in variables((s.args, s.kwargs)) if v not in made
    }


_CASTS = frozenset(["to", "type", "type_as", "float", "double", "half", "bfloat16"])


def _is_kept(step: OpStep, modes: TorchModes, inputs: list[Var], shared: _Shared) -> bool:
    """Whether a backward pass takes the result of an operation as it is when that is done.

    It may be a copy that protects what it is of, or be computed of what is written to; what shows
    the same memory changes with that, in eager, too.
    """
    copies = getattr(step.func, "__name__", "") == "clone"
    if not (copies or shared.written) or not shared.compiled:
        return False
    if not modes.grad or modes.inference or step.random:
        return False

    def memories(found: Iterable[Var]) -> set[int]:
        return {shared.storages.get(v, 0) for v in found}

    made = memories(written(step) if step.mutates else (v for _, v in step.outs))
    given = memories(variables((step.args, step.kwargs)))
    if step.mutates:
        return made.isdisjoint(shared.written) and bool(given & shared.written)
    if not made or not given.isdisjoint(made):
        return False
    return (copies and not given.isdisjoint(memories(inputs))) or bool(given & shared.written)


def _last_uses(runs: list[Any], needed: set[Var]) -> dict[Var, int]:
    """The index of the last run that uses a variable, beyond all if something comes after them."""
    last: dict[Var, int] = {}
    for i, item in enumerate(runs):
        found: set[Var] = set()
        if isinstance(item, tuple):
            collect([(s.args, s.kwargs) for s in item[1] if isinstance(s, OpStep)], found)
        elif hasattr(item, "outs"):
            collect((item.args, item.kwargs), found)
        last.update(dict.fromkeys(found, i))
    last.update(dict.fromkeys(needed, len(runs)))
    return last


# Of these nobody tells whether the tensor is a view of another.
_VALUES = frozenset(
    ["item", "tolist", "__float__", "__int__", "__bool__", "__index__", "__complex__", "__format__"]
)


def _last_bonds(runs: list[Any], needed: set[Var], last: dict[Var, int]) -> dict[Var, int]:
    """As `last`, the last uses, but for what reads the values of a tensor alone (`item`)."""
    others = [
        None if isinstance(s, HostStep) and getattr(s.func, "__name__", "") in _VALUES else s
        for s in runs
    ]
    return last if all(map(operator.is_, others, runs)) else _last_uses(others, needed)


def _cut_off(done: list[tuple[OpStep, TorchModes]], carry: set[Var]) -> set[Var]:
    """What is cut off from autograd's graph where a pass goes through that in the same graph.

    What it was cut off from could not leave the graph as one that can be differentiated once more,
    and nobody asks how two such results go together.
    """
    if not any(s.func in PASSES for s, _ in done):
        return set()
    return {
        v
        for s, _ in done
        if detaches(s) and not carry.isdisjoint(variables((s.args, s.kwargs)))
        for _, v in s.outs
    }


def _views(
    done: list[tuple[OpStep, TorchModes]],
    inputs: list[Var],
    outputs: list[Var],
    storages: dict[Var, int],
    fresh: set[Var],
    inference: bool,
) -> list[tuple[OpStep, TorchModes]] | None:
    """The operations that make outputs which are views of other outputs, or of changed inputs.

    Compilers give outputs the same memory, but not the bond between a view and its base, by which
    autograd tells one of a change of the other. A view of an input that the graph changes they lay
    out as what they computed, which is wrong for other offsets and strides than a new tensor's.
    In inference mode they leave out the bond to an input, too.

    Returns:
        The operations in order; None if they cannot be done after the others.
    """
    taken = {storages.get(v, 0) for v in inputs}
    changed = set(taken) if inference else set()
    last: dict[int, int] = {}
    for i, (step, _) in enumerate(done):
        if step.mutates:
            targets = {storages.get(v, 0) for v in written(step)}
            changed |= targets
            if variables(resizable(step.func, step.args, step.kwargs)):
                last.update(dict.fromkeys(targets, i))
    groups: dict[int, list[Var]] = {}
    for v in outputs:
        groups.setdefault(storages.get(v, 0), []).append(v)
    maker = {v: i for i, (step, _) in enumerate(done) for _, v in step.outs}
    again: set[int] = set()
    for memory, todo in groups.items():
        if not memory or (memory not in changed if memory in taken else len(todo) < 2):
            continue
        chain: set[int] = set()
        while todo:
            v = todo.pop()
            made = maker.get(v)
            if made is None or made in chain or v in fresh:
                continue  # an input, or seen to, or what `Tensor.data` is assigned
            step = done[made][0]
            found: set[Var] = set()
            collect((step.args, step.kwargs), found)
            bases = [v for v in found if storages.get(v, 0) == memory]
            if not bases:
                continue
            if made < last.get(memory, 0):
                return None
            if memory in taken:
                # Of several views that were made at once autograd allows no change.
                if step.mutates or step.random or step.unrepeatable or len(step.outs) > 1:
                    return None
            elif step.mutates or step.random or step.unrepeatable or found.difference(bases):
                break
            chain.add(made)
            todo.extend(bases)
        else:
            again |= chain
    return [done[i] for i in sorted(again)]


def _detached(
    done: list[tuple[OpStep, TorchModes]],
    inputs: list[Var],
    outputs: list[Var],
    changes: frozenset[int],
    storages: dict[Var, int],
) -> frozenset[Var]:
    """The inputs that a graph changes behind autograd's back, and that no gradients come to.

    A compiler takes what becomes of them for a result, and gives them gradients of zeros
    (`b.data.add_(1)` beside a loss that has nothing to do with b).  Those that get another form in
    place are none of them: it is theirs.
    """
    formed: set[Var] = set()
    for s, _ in done:
        formed |= variables(resizable(s.func, s.args, s.kwargs))
    apart = {
        storages.get(x, 0)
        for s, modes in done
        if modes.grad and not modes.inference and detaches(s)
        for x in s.defined
    }
    found = set()
    for v in inputs:
        memory = storages.get(v, 0)
        if not memory or memory not in changes or apart.isdisjoint((memory, 0)) or v in formed:
            continue
        reached = {v}
        for step, modes in done:
            if not modes.grad or modes.inference or detaches(step):
                continue
            if reached & variables((step.args, step.kwargs)):
                reached.update(x for _, x in step.outs)
                reached.update(written(step) if step.mutates else ())
        if not reached & (set(outputs) | set(inputs) - {v}):
            found.add(v)
    return frozenset(found)


def _modes_around(run: Any, now: TorchModes, start: TorchModes) -> TorchModes:
    """The modes under which a graph is called, of operations that begin under `now`."""
    (kind, settings), _ = run
    if kind != "inference":
        return start if settings == start.settings else replace(start, settings=settings)
    for step in run[1]:
        if isinstance(step, OpStep):
            break
        if isinstance(step, ModeStep):
            now = step.modes
    return replace(start, inference=now.inference, grad=now.grad, settings=settings)


@dataclass(slots=True)
class _Shared:
    """The last use of each variable, and those arguments of `build_graphs` that segments need."""

    last_uses: dict[Var, int]
    last_bonds: dict[Var, int]
    start: TorchModes
    fixed: set[Var]
    storages: dict[Var, int]
    fresh: set[Var]
    compiled: bool
    carry: set[Var]
    written: set[int]


def build_graphs(
    runs: list[Any],
    needed: set[Var],
    start: TorchModes,
    fixed: set[Var],
    storages: dict[Var, int],
    fresh: set[Var],
    compiled: bool,
    carry: set[Var],
) -> Plan:
    """The plan of an entry: a segment for each run of operations, host and effect steps between.

    Args:
        runs: what magpy/replay/passes/schedule.py gives.
        needed: variables that the result and the effects use.
        start: torch's modes when the call begins.
        fixed: inputs that are the same tensor objects in every call; they come first among a
            segment's inputs.
        storages: memory of each variable.
        fresh: the variables that had memory of their own when they were made.
        compiled: a compiler takes the graphs, and not Python.
        carry: the variables that may carry autograd's graph.
    """
    changes = _written_ahead_of_passes(runs, storages) if compiled else set()
    last = _last_uses(runs, needed)
    bonds = _last_bonds(runs, needed, last)
    shared = _Shared(last, bonds, start, fixed, storages, fresh, compiled, carry, changes)
    modes = start
    plan = Plan()
    for i, item in enumerate(runs):
        if not isinstance(item, tuple):
            of = shared.start if ignores_modes(item) else modes
            plan.items.append((item, of) if hasattr(item, "outs") else item)
            continue
        segment, views, modes = _segment(i, item, modes, shared, len(plan.segments))
        if segment is not None:
            plan.segments.append(segment)
            plan.items.append(segment)
            plan.items.extend(views)
    return plan


def _segment(
    at: int, run: Any, modes: TorchModes, shared: _Shared, index: int
) -> tuple[Segment | None, list[tuple[OpStep, TorchModes]], TorchModes]:
    """A run of operations as a segment.

    Args:
        at: the position of the run among all runs.
        run: its kind, and the steps.
        modes: torch's modes when it begins.
        shared: see there.
        index: the segment's number.

    Returns:
        The segment, or None if no operation is in the run; the operations that make views of its
        outputs after it; torch's modes when the run is over.
    """
    (kind, _), steps = run
    storages = shared.storages
    around = _modes_around(run, modes, shared.start)
    builder = GraphBuilder(around)
    builder.modes(modes)
    made, used = _made_and_used(steps)
    inputs = sorted(used & shared.fixed) + sorted(used - shared.fixed)
    for v in inputs:
        builder.placeholder(v)
    done: list[tuple[OpStep, TorchModes]] = []
    for s in steps:
        if isinstance(s, ModeStep):
            modes = s.modes
            builder.modes(modes)
        elif isinstance(s, OpStep):
            keep = _is_kept(s, modes, inputs, shared)
            if keep and getattr(s.func, "__name__", "") in _CASTS:
                # TorchInductor makes one of a cast of a cast.
                shared.written.update(storages.get(v, 0) for _, v in s.outs)
            builder.op(s, keep)
            done.append((s, modes))
    if not done:
        return None, [], modes
    outputs = sorted(v for v in made if shared.last_uses.get(v, at) > at)
    views: list[tuple[OpStep, TorchModes]] | None = []
    if shared.compiled and kind != "native":
        cut = _cut_off(done, shared.carry)
        bound = [v for v in outputs if shared.last_bonds.get(v, at) > at and v not in cut]
        views = _views(done, inputs, bound, storages, shared.fresh, kind == "inference")
    native = kind == "native" or views is None
    if any(s.func in PASSES for s, _ in done):
        # A compiler differentiates what carries a graph out of this one: once is enough.
        native |= not shared.carry.isdisjoint((*inputs, *outputs))
    if views:
        again, bases = _made_and_used(step for step, _ in views)
        outputs = sorted((set(outputs) | bases) - again - set(inputs))
    segment = Segment(index, inputs, outputs, builder.finish(outputs), builder.nodes)
    segment.unrepeatable = any(s.unrepeatable for s, _ in done)
    segment.communicates = any(
        s.unrepeatable and (s.whole or communicates(s.func)) for s, _ in done
    )
    segment.native = native
    segment.steps = tuple(s for s, _ in done)
    segment.changes = frozenset(
        storages.get(v, 0) for s, _ in done if s.mutates for v in written(s)
    )
    if not segment.differentiates:
        segment.detached = _detached(done, inputs, outputs, segment.changes, storages)
    segment.modes = around if around is not shared.start else None
    segment.draws = sum(s.random and getattr(s.func, "draws", 1) for s, _ in done)
    segment.memory = {v: storages.get(v, 0) for v in (*inputs, *outputs)}
    taken = {segment.memory[v] for v in inputs}
    # Its memory becomes that of an input when it is assigned to `Tensor.data`, and is another here.
    apart = (v for v in shared.fresh.intersection(outputs) if segment.memory[v] in taken)
    segment.memory.update({v: -2 - v for v in apart})
    return segment, views or [], modes
