"""Which memory the tensors and the arrays of a run may have.

Owns what follows from the steps about it.  Does not own the numbers of memories, which are given
while the run is watched (magpy/capture/tensors/identity.py), nor addresses
(magpy/objects/buffers.py). Called by magpy/capture/tensors/recorder.py,
magpy/capture/python/effects.py, magpy/replay/pipeline.py and magpy/replay/codegen.py.

Memories are numbers.  Two stand for more: `UNKNOWN`, that of a tensor which shares memory with what
was given where it was made, or does not, or which has no storage to tell it by; and `ANY`.
"""

from __future__ import annotations

from collections.abc import Iterable

from magpy.ir.ops import BindArray, Binding, HostStep, OpStep, Record, Step, Var
from magpy.ir.trees import collect, variables
from magpy.models.torch_ops import writes_first
from magpy.objects.types import isinstance

UNKNOWN = 0
#: That of a tensor from outside of which it is not known; whose it is no guard tells.
ANY = -1


def array_memories(steps: Iterable[Step], storages: dict[Var, int]) -> dict[Var, set[int]]:
    """The memories that each array of the run may have, of the tensors that it comes of or became.

    Whether numpy gave a view or a copy is not asked: at worst the graph is cut once more.
    """
    first: dict[Var, Var] = {}  # an array, and one that may share memory with it
    held: dict[Var, set[int]] = {}

    def root(v: Var) -> Var:
        while first[v] != v:
            first[v] = v = first[first[v]]
        return v

    for step in steps:
        if not isinstance(step, (OpStep, HostStep)):
            continue
        around: set[Var] = set()
        collect((step.args, step.kwargs), around)
        if isinstance(step, BindArray):
            first[step.result], held[step.result] = step.result, set()
            around.add(step.result)
        together = {root(v) for v in around if v in first}
        if together:
            around.update(v for _, v in step.outs)
            kept, *others = together
            for v in others:
                first[v] = kept
                held[kept] |= held.pop(v)
            held[kept].update(storages[v] for v in around if v in storages)
    return {v: held[root(v)] for v in first}


def possible(steps: Iterable[Step], storages: dict[Var, int]) -> dict[Var, set[int]]:
    """The memories that each tensor and each array of a run may have.

    Args:
        steps: what the run did, in order.
        storages: the number of each tensor's memory.
    """
    operations = [step for step in steps if isinstance(step, (OpStep, HostStep))]
    arrays = array_memories(operations, storages)
    found: dict[Var, set[int]] = {v: {n} for v, n in storages.items()} | arrays
    inside = {v for step in operations for _, v in step.outs}
    for v, n in storages.items():
        if n == UNKNOWN and v not in inside:
            found[v] = {UNKNOWN, ANY}
    for step in operations:
        made = [v for _, v in step.outs if storages.get(v) == UNKNOWN]
        if isinstance(step, Binding) and step.result in arrays:
            made.append(step.result)
        if made:
            given = variables((step.args, step.kwargs))
            taken = set().union(*(found[v] for v in given if v in found))
            for v in made:
                found[v] = found[v] | taken
    return found


def changed(step: OpStep | HostStep, found: dict[Var, set[int]]) -> set[int]:
    """The memories that a step which changes something may write to, of those in `found`."""
    if isinstance(step, HostStep) and step.gradients is not None:
        # What the engine starts from it does not write to.
        return set(step.gradients)
    return set().union(*(found.get(v, {UNKNOWN}) for v in written(step)))


def meet(a: set[int], b: set[int]) -> bool:
    """Whether two sets of memories, both of them not empty, may have one in common."""
    return bool(a and b) and (ANY in a or ANY in b or not a.isdisjoint(b))


def unchanged(record: Record) -> set[Var]:
    """The inputs whose memory no step of a run writes to."""
    steps = [s for s in record.steps if isinstance(s, (OpStep, HostStep)) and s.mutates]
    if not steps:
        return set(record.inputs)
    found = possible(record.steps, record.storages)
    changes = set().union(*(changed(s, found) for s in steps))
    return {v for v in record.inputs if v in found and not meet(found[v] - {UNKNOWN}, changes)}


def written(step: OpStep | HostStep) -> set[Var]:
    """The variables that a step which changes an argument may write to."""
    found: set[Var] = set(step.writes)
    if not found:
        first = writes_first(step.func) and "out" not in step.kwargs
        collect(step.args[:1] if first else (step.args, step.kwargs), found)
    return found


def of_arrays(record: Record) -> set[Var]:
    """The tensors of which a compiler does not see that others have their memory.

    Python made them of arrays of the run, or they are views of such; and what has no storage.
    """
    arrays: set[Var] = set()
    found = {v for v in record.inputs if record.storages.get(v) == UNKNOWN}
    for step in record.steps:
        if not isinstance(step, (OpStep, HostStep)):
            continue
        if isinstance(step, BindArray):
            arrays.add(step.result)
        elif arrays or found:
            given = variables((step.args, step.kwargs))
            of_array = not arrays.isdisjoint(given)
            if of_array or not found.isdisjoint(given):
                shared = (v for _, v in step.outs if record.storages.get(v) == UNKNOWN)
                found.update((v for _, v in step.outs) if of_array else shared)
    return found
