"""Which graphs run by Python although a compiler is there: those that it cannot follow.

Owns the choice where inputs are changed in place, and where the call differentiates what a
compiler's graph has no derivatives of, or gives them but once.  Does not own which operations a
compiler cannot have at all (magpy/replay/segments.py).  Called once the segments are cut.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import torch

from magpy.guards.analysis import Analysis
from magpy.ir.aliasing import UNKNOWN, meet, of_arrays
from magpy.ir.ops import HostStep, Record, Step, Var
from magpy.ir.trees import variables
from magpy.objects.quiet import unheard
from magpy.replay import segments
from magpy.replay.passes.trace_backward import followers, history
from magpy.replay.support import (
    is_leaf_tensor,
)
from magpy.shapes.symbols import Symbols
from magpy.unwatched import autograd


def keep_differentiable(plan: segments.Plan, carry: AbstractSet[Var], again: bool) -> None:
    """Lets Python run what the call itself differentiates where a compiler's graph would not do.

    What AOTAutograd makes has no second derivatives, which a gradient penalty takes.  And it is one
    node of autograd's graph: a pass that comes to one of its results frees all that it has saved,
    and another result that lies beside the pass's way could not be differentiated any more.

    Args:
        plan: the segments, and the passes that no graph holds between them.
        carry: the variables that carry autograd's graph.
        again: what the call gives may be differentiated so that the derivatives can be.
    """
    twice = 0
    done: list[Step] = []
    before: list[segments.Segment] = []
    for i, item in enumerate(plan.items):
        step = item[0] if isinstance(item, tuple) else item
        if isinstance(step, segments.Segment):
            before.append(step)
            done += step.steps
            twice = i if step.native and step.keeps_graph else twice
        elif isinstance(step, HostStep) and step.func in autograd.RUNS:
            twice = i if autograd.keeps_graph(step.func, step.args, step.kwargs) else twice
            reached = history(done, variables(step.args[:1]), carry)
            freed = reached
            if step.func is torch.autograd.grad:
                freed = reached & followers(done, variables(step.args[1:2]))
            for segment in before:
                given = carry & set(segment.outputs)
                segment.native |= not given.isdisjoint(reached) and not given <= freed
        elif isinstance(step, HostStep):
            done.append(step)
    for item in plan.items if again else plan.items[:twice]:
        if isinstance(item, segments.Segment) and not carry.isdisjoint(item.outputs):
            item.native = True


def keep_native(
    plan: segments.Plan,
    analysis: Analysis,
    record: Record,
    possible: Mapping[Var, set[int]],
    carry: AbstractSet[Var],
) -> None:
    """Lets Python run the graphs that change an input in a way that compilers cannot follow.

    Compilers work on copies and write them back.  Where inputs share memory they rely on where in
    it each lies, which differs from call to call.  A copy of an input with gaps has none, nor have
    the copy's views, and where elements of an input share memory the copy's do not.  What lies how
    is known of tensors from outside; of those that another graph made, a view may have gaps.
    """
    inputs = record.inputs
    symbols = record.symbols or Symbols({})
    for v in record.mutated:
        # What they keep for a backward pass is the input that they then write to.
        kept = inputs[v].requires_grad and not is_leaf_tensor(inputs[v])
        if kept or not symbols.dense(v, inputs[v]):
            for segment in plan.segments:
                segment.native |= v in segment.inputs
    holders = collections.Counter(record.storages.values())
    for segment in plan.segments:
        made = (record.storages.get(v, 0) for v in segment.inputs if v not in inputs)
        segment.native |= any(m in segment.changes and holders[m] > 1 for m in made)
    arrays = of_arrays(record)
    for segment in plan.segments:
        segment.native |= bool(segment.changes) and not arrays.isdisjoint(segment.inputs)
    for written, other in analysis.sharing:
        pair = {v for v, t in inputs.items() if t is written or t is other}
        for segment in plan.segments:
            if pair.issubset(segment.inputs):
                segment.native = True
    _keep_where_data_is_assigned(plan, record, possible, carry)


def _keep_where_data_is_assigned(
    plan: segments.Plan, record: Record, possible: Mapping[Var, set[int]], carry: AbstractSet[Var]
) -> None:
    """What is computed of tensors whose `data` is assigned is compiled where that cannot matter.

    To a graph such a tensor is one that has other memory in every call.  No compiler knows what
    else has that memory in a graph which writes to it, what it is like where that changes, nor that
    a backward pass after the assignment reads what the tensor holds then.
    """
    swapped = record.swapped
    if not swapped:
        return
    memories = {UNKNOWN}.union(*(possible.get(v, set()) for v in swapped))
    with unheard():
        leaves = {v for v in swapped if record.inputs[v].requires_grad}
        unlike = {v for v, t in swapped.items() if _form(record.inputs[v]) != _form(t)}
    awaited = _differentiated_after_an_assignment(plan, carry)
    for segment in plan.segments:
        found = swapped.keys() & segment.inputs
        lying = [possible.get(v, {UNKNOWN}) for v in segment.inputs]
        there = [m for m in lying if meet(m, memories)]
        segment.native |= (
            (
                meet(set(segment.changes), memories)
                and any(meet(a, b) for a, b in itertools.combinations(there, 2))
            )
            or not unlike.isdisjoint(found)
            or (not leaves.isdisjoint(found) and segment.index in awaited)
        )


def _differentiated_after_an_assignment(plan: segments.Plan, carry: AbstractSet[Var]) -> set[int]:
    """The graphs whose results no backward pass has freed when `Tensor.data` is assigned next."""
    done: list[Step] = []
    waiting: dict[int, set[Var]] = {}
    found: set[int] = set()
    for item in plan.items:
        step = item[0] if isinstance(item, tuple) else item
        if isinstance(step, segments.Segment):
            waiting[step.index] = {v for v in step.outputs if v in carry}
            done += step.steps
        elif segments.swaps_data(step):
            found.update(i for i, left in waiting.items() if left)
        elif isinstance(step, HostStep) and autograd.frees_all(step.func, step.args, step.kwargs):
            freed = history(done, variables(step.args[:1]), carry)
            waiting = {i: left - freed for i, left in waiting.items()}
        elif isinstance(step, HostStep):
            done.append(step)
    return found


def _form(t: torch.Tensor) -> tuple[object, ...]:
    return t.shape, t.stride(), t.storage_offset(), t.dtype, t.device, t.layout
