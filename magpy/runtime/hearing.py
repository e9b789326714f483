"""Entries below hooks of saved tensors that are Python of the program.

Such hooks run in the middle of an entry's operations, and may look at anything and change much.  An
entry may run below them if neither can tell that it is no eager call: what it does are operations,
in the order of the program; it changes nothing of Python's; its graph saves for the backward pass
what these operations save, in their order, as a trial run has shown where the graph was compiled;
and the hooks cannot change what the call reads.

Owns that decision.  Does not own the hooks (magpy/objects/saved_tensors.py), what they can change
(magpy/unwatched/reachability.py) nor how a call is served (magpy/runtime/compiled.py).  Asked by
magpy/runtime/below_hooks.py and entry.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

from magpy.backends import eager
from magpy.backends.runner import EntryInfo, Runner
from magpy.ir.capture import Capture
from magpy.ir.ops import HostStep, OpStep
from magpy.objects import contents
from magpy.objects.types import isinstance
from magpy.replay.pipeline import Lowering
from magpy.replay.segments import Segment
from magpy.unwatched.reachability import reachable

_META = ("dtype", "device", "shape", "requires_grad")
#: So many objects among the arguments are looked at.
_MANY = 2000


def keeps_order(low: Lowering, program: list[OpStep]) -> bool:
    """Whether an entry does the operations of the program, in their order, and nothing else.

    Args:
        low: what the passes have made of a capture.
        program: its operations, as they were captured.
    """
    done: list[OpStep] = []
    for item in low.plan.items:
        step = item[0] if isinstance(item, tuple) else item
        if isinstance(item, Segment):
            done += item.steps
        elif isinstance(step, OpStep):
            done.append(step)
        elif not isinstance(step, HostStep) or _acts(step):
            return False
    return len(done) == len(program) and all(a is b for a, b in zip(done, program, strict=True))


def _acts(step: HostStep) -> bool:
    """Whether what Python does between graphs is more than to look at something."""
    changes = step.mutates or step.random or step.unrepeatable
    return changes or step.engine is not None or step.owner is not None


def looked_at(capture: Capture) -> frozenset[int]:
    """The addresses of the objects that a call has read from."""
    found: set[int] = set()
    for _, holder, *_ in capture.log:
        found.add(id(holder))
        if isinstance(holder, type):
            found.update(map(id, contents.mro(holder)))
    return frozenset(found)


def saves_as_eager(info: EntryInfo, inputs: list[Any] | None) -> bool:
    """Whether the graphs of an entry save what their operations save, in the same order.

    Args:
        info: of an entry that keeps the order of the program's operations.
        inputs: what its first graph may be tried with.
    """
    compiled = [r for r in info.runners if r.backend is not eager]
    if not compiled:
        return True
    if len(info.runners) > 1 or inputs is None or info.mutates or info.dynamic.symbols is not None:
        return False
    runner: Runner = compiled[0]
    if any(s.random or s.mutates or s.unrepeatable or s.whole for s in runner.segment.steps):
        return False  # it cannot be done once more
    saved = []
    with runner.modes():
        for graph in (runner.segment.graph, runner.segment.compiled):
            if graph is None:
                return False
            found: list[torch.Tensor] = []
            with saved_tensors_hooks(_noting(found), _itself):
                graph(*inputs)
            saved.append(found)
    return len(saved[0]) == len(saved[1]) and all(map(_alike, *saved))


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _noting(found: list[torch.Tensor]) -> Any:
    def note(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    return note


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a is b:
        return True
    if type(a) is not type(b) or a.layout is not torch.strided or b.layout is not torch.strided:
        return False
    if any(getattr(a, n) != getattr(b, n) for n in _META) or a.stride() != b.stride():
        return False
    with torch.no_grad():
        return bool(((a == b) | ((a != a) & (b != b))).all())


def may_run(info: EntryInfo, pack: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an entry may serve a call below a hook of the program.

    Args:
        info: of the entry.
        pack: the hook, which is given what is saved.
        args: those of the call.
        kwargs: likewise.
    """
    if info.heard is None:
        return False
    touched = reachable([pack])
    if touched is None or not touched.isdisjoint(info.heard):
        return False
    # What the call reads of its arguments may be other objects in each call.
    seen: set[int] = set()
    todo = [*args, *kwargs.values()]
    while todo:
        v = todo.pop()
        if id(v) in seen or contents.leaf(v) or isinstance(v, torch.Tensor):
            continue
        seen.add(id(v))
        if id(v) in touched or len(seen) > _MANY:
            return False
        if isinstance(v, torch.nn.Module) and id(contents.own_dict(v)) in info.heard:
            continue  # it is known where this one is looked at
        own = contents.own_dict(v)
        todo += (*contents.elements(v), *contents.inside(v), *(() if own is None else (own,)))
    return True


__all__ = ["keeps_order", "looked_at", "may_run", "saves_as_eager"]
