"""What an entry does when it is left after it has changed something.

Owns whether changes must be taken back (by a copy made before them), and the refusals of entries
that could not take back what they did.  Does not own the copies (magpy/replay/support.py) nor the
exceptions that lead there (magpy/runtime/exceptions.py).  Called once the segments are cut.
"""

from __future__ import annotations

from typing import Any

from magpy.errors import Refusal
from magpy.ir.ops import Bind, Call, HostStep, OpStep, Record, Ref
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


def is_transactional(plan: segments.Plan, record: Record, total: Totality) -> bool:
    """Whether an entry saves what it changes, so that it can be left after that.

    Raises:
        Refusal: it may have to be left, and what it changes cannot be put back.
    """
    refusal = cannot_undo(record)
    if needs_undo(plan, record, total) or (record.caught and changes_outside(record)):
        if refusal is not None:
            raise refusal
        return True
    return refusal is None and may_not_fit(record)


def needs_undo(plan: segments.Plan, record: Record, total: Totality) -> bool:
    """Whether the entry may have to be left after something that the outside sees was changed."""
    changes = changes_outside(record)
    ahead = {id(s) for s in plan.prelude}
    drawn = False
    for step in record.steps:
        if isinstance(step, OpStep) and changes and id(step) not in ahead:
            # Python of the program may raise in one call and not in another.
            if step.unrepeatable or step not in total:
                return True
        elif isinstance(step, HostStep):
            if (decides(step, total) or step.unrepeatable) and (
                drawn or step.owner is not None or (changes and id(step) not in ahead)
            ):
                return True
            drawn = drawn or step.owner is not None
    return False


def decides(step: HostStep, total: Totality) -> bool:
    """Whether what a step gives decides about the entry."""
    if isinstance(step, Bind) and step.in_order:
        return False  # an object of which no more is asked than its class
    return not isinstance(step, Call) and step not in total


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


__all__ = ["changes_outside", "decides", "is_transactional"]
