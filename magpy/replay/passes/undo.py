"""What an entry does when it is left after it has changed something.

Owns which changes must be taken back (by a copy made before them): those after which a check may
fail; and the refusals of entries that could not take back what they did.  Does not own the copies
(magpy/replay/support.py) nor the exceptions that lead there (magpy/runtime/exceptions.py).
Called once the segments are cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from magpy.errors import Refusal
from magpy.ir import aliasing
from magpy.ir.aliasing import UNKNOWN
from magpy.ir.ops import HostStep, OpStep, Record, Ref, Step, Var
from magpy.ir.trees import variables
from magpy.objects.types import isinstance
from magpy.replay import segments
from magpy.replay.passes.totality import Totality
from magpy.replay.support import is_leaf_tensor


def changes_outside(record: Record) -> bool:
    """Whether something that the outside sees is changed before the effects."""
    return (
        bool(record.mutated)
        or record.random
        or any(
            isinstance(s, HostStep) and ((s.mutates and not s.writes) or s.gradients is not None)
            for s in record.steps
        )
        or any(segments.swaps_data(s) for s in record.steps)
    )


@dataclass(frozen=True, slots=True)
class Undo:
    """What an entry saves of what it changes, and while it may need that.

    Attributes:
        first: the index of the first item of the plan that changes something.
        last: that of the last one in which the entry may be left; before `first` if nothing has to
            be taken back then.
        steps: those of these two and between them: what they change is saved.
    """

    first: int
    last: int
    steps: tuple[Step, ...]

    @property
    def saves(self) -> bool:
        """Whether the entry can be left after it has changed something."""
        return bool(self.steps)


def undo(
    plan: segments.Plan, record: Record, total: Totality, possible: dict[Var, set[int]]
) -> Undo:
    """What an entry has to save.

    Args:
        plan: what the entry does.
        record: what the run did.
        total: the steps that cannot raise.
        possible: the memories that each variable may have.

    Raises:
        Refusal: it may have to be left, and what it changes cannot be put back.
    """
    items = [_steps(item) for item in plan.items]
    outside = set().union(*(possible.get(v, {UNKNOWN}) for v in record.mutated))

    def changes(step: Step) -> bool:
        return _changes(step, possible, outside)

    first = next((i for i, steps in enumerate(items) if any(map(changes, steps))), len(items))
    last = -1
    if first < len(items):
        refusal = cannot_undo(record)
        if (record.caught and changes_outside(record)) or (refusal is None and may_not_fit(record)):
            last = len(items) - 1
        else:
            leaves = (i for i, steps in enumerate(items) if any(may_leave(s, total) for s in steps))
            last = max(leaves, default=-1)
        if refusal is not None and last >= first:
            raise refusal
    return Undo(first, last, tuple(s for steps in items[first : last + 1] for s in steps))


def _steps(item: Any) -> tuple[Step, ...]:
    if isinstance(item, segments.Segment):
        return item.steps
    return (item[0] if isinstance(item, tuple) else item,)


def _changes(step: Step, possible: dict[Var, set[int]], outside: set[int]) -> bool:
    """Whether a step changes something that the outside sees, as it may see these memories."""
    if not isinstance(step, (OpStep, HostStep)):
        return False
    drawn = isinstance(step, HostStep) and step.owner is not None
    if step.random or drawn or segments.swaps_data(step):
        return True
    if not step.mutates:
        return False
    if isinstance(step, HostStep) and (not step.writes or step.gradients is not None):
        return True
    changed = aliasing.changed(step, possible)
    return bool(outside) and (UNKNOWN in changed or aliasing.meet(changed, outside))


def may_leave(step: Step, total: Totality) -> bool:
    """Whether an entry may have to be left in a step: a check fails, or the program's Python."""
    if isinstance(step, OpStep):
        return step.unrepeatable or step not in total
    return isinstance(step, HostStep) and (step.unrepeatable or total.decides(step))


def may_not_fit(record: Record) -> bool:
    """Whether an operation, after a change, takes a tensor whose shape follows from data.

    What other operations raise for data (an index out of range) is an assumption of
    docs/semantics.md: to save for each of them would cost in calls that raise nothing.
    Where numbers are drawn and nothing else changes, to save costs little: then any shape that
    varies counts, for torch's symbols do not know all that an operation asks of its arguments.
    """
    changed = False
    moving = record.data_dependent
    if record.symbols is not None:
        moving |= record.symbols.varying(data=bool(record.mutated))
    for step in record.steps:
        changed = changed or (
            isinstance(step, (OpStep, HostStep)) and (bool(step.mutates) or step.random)
        )
        if (
            changed
            and isinstance(step, OpStep)
            and not moving.isdisjoint(variables((step.args, step.kwargs)))
        ):
            return True
    return False


def cannot_undo(record: Record) -> Refusal | None:
    """Why a call cannot be left after what it changes, or None."""
    reads = (s.where for s in record.steps if isinstance(s, HostStep))
    where = next((site for site in reads if site), record.caught)
    then = "a value is read that depends on data"
    if where == record.caught:
        then = "an operation whose exception the program may catch"
    if any(_changes_form(s, record) for s in record.steps):
        return Refusal(
            f"what an outside tensor is (its size, its hooks) is changed before {then}", where
        )
    for v in record.mutated:
        t = record.inputs[v]
        if t.requires_grad and not is_leaf_tensor(t):
            return Refusal(f"a tensor that requires grad is changed in place before {then}", where)
    return None


# What an outside tensor is, which no copy of its data brings back.
_FORM_CHANGES = frozenset(
    ["detach_", "set_", "resize_", "resize_as_", "register_hook", "retain_grad"]
)


def _changes_form(step: Any, record: Record) -> bool:
    if not isinstance(step, (OpStep, HostStep)) or not step.args:
        return False
    target = step.args[0]
    if not isinstance(target, Ref) or target.var not in record.inputs:
        return False
    return step.func is not setattr and getattr(step.func, "__name__", "") in _FORM_CHANGES


__all__ = ["Undo", "changes_outside", "undo"]
