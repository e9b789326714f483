"""Segments: tensor operations between two values that Python looks at, as torch.fx graphs.

Owns the cut of the steps into segments and the building of each `torch.fx.GraphModule`.  Does not
own what runs them (magpy/backends) nor what stands between them (magpy/replay/codegen.py).  Called
by magpy/runtime/entry.py.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from magpy.ir.aliasing import written
from magpy.ir.ops import HostStep, ModeStep, OpStep, Ref, Step, Var
from magpy.ir.torch_modes import TorchModes
from magpy.ir.trees import collect, variables
from magpy.models.torch_callables import communicates
from magpy.models.torch_ops import resizable
from magpy.objects.types import isinstance
from magpy.replay.fx_graphs import GraphBuilder
from magpy.replay.passes import transform_regions
from magpy.replay.passes.hoist import Hoist
from magpy.replay.passes.schedule import schedule
from magpy.replay.passes.totality import Certain
from magpy.unwatched import autograd


@dataclass(slots=True)
class Segment:
    """One graph.

    Attributes:
        inputs: the variables it takes, in order.
        outputs: the variables it gives, in order.
        graph: the graph module.
        compiled: what the backend made of it, or None as long as it has not been asked.
        once: it must run once (magpy/ir/ops.py).
        unrepeatable: operations in it take part in what several processes do, or a call done as a
            whole does that, or draws numbers of Python's or numpy's.
        native: Python runs the graph as it is, whatever the backend.
        draws: how many of its operations draw random numbers.
        memory: a number for the memory of each input and output; 0 if it is not known.
        modes: torch's modes that it is called under; None where they are those of the call.
        changes: the numbers of the memories that it writes to.
        detached: the inputs that it changes and gives no gradients.
    """

    index: int
    inputs: list[Var]
    outputs: list[Var]
    graph: Any
    nodes: int
    compiled: Callable[..., Any] | None = None
    once: bool = False
    unrepeatable: bool = False
    native: bool = False
    draws: int = 0
    memory: dict[Var, int] = field(default_factory=dict)
    modes: TorchModes | None = None
    changes: frozenset[int] = frozenset()
    detached: frozenset[Var] = frozenset()


@dataclass(slots=True)
class Plan:
    """The steps in order: segments (of graph steps) and single host or effect steps.

    Attributes:
        items: segments; host steps, and operations that make views of a segment's outputs, each
            with the modes that it runs under; effect steps.
        prelude: operations and checks that are done one by one ahead of everything else.
    """

    items: list[Any] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    prelude: list[Any] = field(default_factory=list)


def swaps_data(step: Step) -> bool:
    """Whether a step assigns `Tensor.data`: the tensor has other memory from there on."""
    return isinstance(step, (OpStep, HostStep)) and step.func is setattr and step.args[1] == "data"


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


def pruned(steps: list[Step], needed: set[Var]) -> list[Step]:
    """The steps without those that compute a size which nobody uses, and such results."""
    used, kept = set(needed), []
    for step in reversed(steps):
        if isinstance(step, HostStep) and step.symbolic and step.result not in used:
            continue
        if isinstance(step, (OpStep, HostStep)):
            collect((step.args, step.kwargs), used)
        kept.append(transform_regions.used_only(step, used) if isinstance(step, OpStep) else step)
    kept.reverse()
    return kept


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


def _views(
    done: list[tuple[OpStep, TorchModes]],
    inputs: list[Var],
    outputs: list[Var],
    storages: dict[Var, int],
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
            made = maker.get(todo.pop())
            if made is None or made in chain:
                continue  # an input, or seen to
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
                if step.mutates or step.random or step.once or len(step.outs) > 1:
                    return None
            elif step.mutates or step.random or step.once or found.difference(bases):
                break
            chain.add(made)
            todo.extend(bases)
        else:
            again |= chain
    return [done[i] for i in sorted(again)]


_DETACHES = frozenset([torch.Tensor.detach, torch.detach])


def _detaches(step: OpStep) -> bool:
    """Whether the result of an operation knows nothing of autograd's of where it comes from."""
    if step.func in _DETACHES:
        return True
    return step.func is getattr and step.args[1] == "data"


def _detached(
    done: list[tuple[OpStep, TorchModes]],
    inputs: list[Var],
    outputs: list[Var],
    changes: frozenset[int],
    storages: dict[Var, int],
) -> frozenset[Var]:
    """The inputs that a graph changes behind autograd's back, and that no gradients come to.

    A compiler takes what becomes of them for a result, and gives them gradients of zeros
    (`b.data.add_(1)` beside a loss that has nothing to do with b).
    """
    if not any(modes.grad and not modes.inference and _detaches(s) for s, modes in done):
        return frozenset()
    found = set()
    for v in inputs:
        if storages.get(v, 0) not in changes or not storages.get(v, 0):
            continue
        reached = {v}
        for step, modes in done:
            if not modes.grad or modes.inference or _detaches(step):
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


def cut(
    steps: list[Step],
    needed: set[Var],
    start: TorchModes,
    fixed: set[Var],
    storages: dict[Var, int] | None = None,
    types: dict[Var, type] | None = None,
    numbers: Certain | None = None,
) -> Plan:
    """Cuts the steps into segments.

    Args:
        steps: what the run did, in order.
        needed: variables that the result and the effects use.
        start: torch's modes when the call begins.
        storages: memory of each variable; None forbids moving checks ahead.
        fixed: inputs that are the same tensor objects in every call; they come first among a
            segment's inputs.
        types: the classes of the tensors that are not plain ones; None when Python itself runs the
            graphs, which may then hold any tensor.
        numbers: if Python itself runs the graphs: the steps that are certain, of which graphs may
            hold those that compute Python numbers; no check would follow them there.
    """
    steps = pruned(steps, needed)
    hoist = Hoist(steps, needed, start, storages or {})
    if storages is not None:
        hoist.run()
    prelude, steps = hoist.result()
    runs = schedule(steps, storages or {}, hoist.found, types, numbers, start, needed)
    modes = start
    plan = Plan(prelude=prelude)
    last_uses = _last_uses(runs, needed)
    for i, item in enumerate(runs):
        if not isinstance(item, tuple):
            if hasattr(item, "outs"):
                item_modes = modes
                plan.items.append((item, item_modes))
            else:
                plan.items.append(item)
            continue
        around = _modes_around(item, modes, start)
        builder = GraphBuilder(around)
        builder.modes(modes)
        made: set[Var] = set()
        used: set[Var] = set()
        ops = 0
        for s in item[1]:
            if isinstance(s, OpStep):
                ops += 1
                found: set[Var] = set()
                collect((s.args, s.kwargs), found)
                used |= found - made
                made |= {v for _, v in s.outs}
        inputs = sorted(used & fixed) + sorted(used - fixed)
        for v in inputs:
            builder.placeholder(v)
        done: list[tuple[OpStep, TorchModes]] = []
        for s in item[1]:
            if isinstance(s, ModeStep):
                modes = s.modes
                builder.modes(modes)
            elif isinstance(s, OpStep):
                builder.op(s)
                done.append((s, modes))
        if ops == 0:
            continue
        outputs = sorted(v for v in made if last_uses.get(v, i) > i)
        views: list[tuple[OpStep, TorchModes]] | None = []
        if types is not None and item[0][0] != "native":
            inference = item[0][0] == "inference"
            views = _views(done, inputs, outputs, storages or {}, inference)
        native = item[0][0] == "native" or views is None
        if views:
            again = {v for step, _ in views for _, v in step.outs}
            bases: set[Var] = set()
            for step, _ in views:
                collect((step.args, step.kwargs), bases)
            outputs = sorted((set(outputs) | bases) - again - set(inputs))
        segment = Segment(
            len(plan.segments), inputs, outputs, builder.finish(outputs), builder.nodes
        )
        segment.once = any(isinstance(s, OpStep) and s.once for s in item[1])
        segment.unrepeatable = any(s.once and (s.whole or communicates(s.func)) for s, _ in done)
        segment.native = native
        segment.changes = frozenset(
            (storages or {}).get(v, 0) for s, _ in done if s.mutates for v in written(s)
        )
        segment.detached = _detached(done, inputs, outputs, segment.changes, storages or {})
        segment.modes = around if around is not start else None
        segment.draws = sum(s.random and getattr(s.func, "draws", 1) for s, _ in done)
        segment.memory = {v: (storages or {}).get(v, 0) for v in (*inputs, *outputs)}
        plan.segments.append(segment)
        plan.items.append(segment)
        plan.items.extend(views or ())
    _keep_differentiable(plan)
    return plan


def _keep_differentiable(plan: Plan) -> None:
    """Lets Python run what the call itself differentiates where a compiler's graph would not do.

    What AOTAutograd makes has no second derivatives, which a gradient penalty takes; and autograd's
    engine comes to all its leaves at once, whose hooks the program runs in the order of its layers.
    """
    last = 0
    for i, item in enumerate(plan.items):
        step = item[0] if isinstance(item, tuple) else item
        if isinstance(step, HostStep) and (
            step.hooks or autograd.keeps_graph(step.func, step.args, step.kwargs)
        ):
            last = i
    for item in plan.items[:last]:
        if isinstance(item, Segment):
            item.native = True
