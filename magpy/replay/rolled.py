"""Loops of any number of turns as one operation each.

Owns making one operation of the steps of all turns, and doing it.  Does not own which loops there
are (magpy/capture/loops.py).  Called by magpy/runtime/compiled.py before a capture becomes an
entry.

What a turn makes is known after the loop where the last turn has made it, or where all of it is
joined (`torch.stack(outputs)`): such an operation becomes a part of the loop.  Where anything else
of the turns is used, their number is what it was in the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from magpy.errors import Refusal
from magpy.instrument.turns import JOINS
from magpy.ir.aliasing import written
from magpy.ir.capture import Capture
from magpy.ir.loops import Loop, Position
from magpy.ir.ops import EffectStep, HostStep, ModeStep, OpStep, Record, Ref, Step, Var
from magpy.ir.torch_modes import TorchModes
from magpy.ir.trees import variables
from magpy.objects.types import isinstance
from magpy.replay.fx_graphs import GraphBuilder, module_of, substitute


@dataclass(slots=True)
class _Join:
    """An operation on what all turns have made: its function, and how it is given that."""

    step: OpStep
    parts: list[Any]


@dataclass(slots=True)
class _Plan:
    """What becomes of a loop.

    Attributes:
        carried: where a turn makes what the next one takes.
        last: what of the last turn is used later.
        joins: what is done with what all turns have made.
        outer: what the turns, and the joins, take from outside.
    """

    carried: list[Position]
    last: list[Var] = field(default_factory=list)
    joins: list[_Join] = field(default_factory=list)
    outer: list[Var] = field(default_factory=list)


class Rolled:
    """Does a loop.

    Args:
        body: does one turn: called with the index, what the turn before has made, and what comes
            from outside; gives what it has made, by `kept`.
        kept: where what it gives is made.
        plan: what becomes of the loop.
        members: the last turn's variables with their positions.
        operations: how many operations the loop had in the run.
        draws: how many of those draw random numbers.
        first: so many turns are done ahead of it.
    """

    def __init__(
        self,
        body: Callable[..., Any],
        kept: list[Position],
        plan: _Plan,
        members: dict[Var, Position],
        operations: int,
        draws: int,
        first: int,
    ) -> None:
        """Keeps how it is done."""
        self._first = first
        self.__name__ = "loop"
        self.body = body
        self.operations, self.draws = operations, draws
        at = {position: i for i, position in enumerate(kept)}
        self._carried = [at[p] for p in plan.carried]
        self._last = [at[members[v]] for v in plan.last]
        self._outer = plan.outer
        self._joins = [
            (j.step, [at[p] if type(p) is tuple else p for p in j.parts]) for j in plan.joins
        ]
        self._collected = sorted({i for _, parts in self._joins for i in parts if type(i) is int})

    def call(self, body: Callable[..., Any]) -> None:
        """From here on a turn is a call of this, which tells of its operations itself."""
        self.body, self.operations, self.draws = body, len(self._joins), 0

    def __call__(
        self, start: int, stop: int, step: int, inits: Sequence[Any], outer: Sequence[Any]
    ) -> list[Any]:
        """Does all turns.

        Returns:
            What the last one has made, then what the joins give.
        """
        state, made = list(inits), ()
        collected: dict[int, list[Any]] = {i: [] for i in self._collected}
        for index in range(start, stop, step)[self._first :]:
            made = self.body(index, *state, *outer)
            state = [made[i] for i in self._carried]
            for i, found in collected.items():
                found.append(made[i])
        known = dict(zip(self._outer, outer, strict=True))
        joined = [self._joined(s, parts, collected, known) for s, parts in self._joins]
        return [*(made[i] for i in self._last), *joined]

    @staticmethod
    def _joined(
        step: OpStep, parts: list[Any], collected: dict[int, list[Any]], known: dict[Var, Any]
    ) -> Any:
        tensors: list[Any] = []
        for part in parts:
            if type(part) is int:
                tensors += collected[part]
            else:
                tensors.append(known[part.var])
        rest, kwargs = substitute(step.args[1:], known), substitute(step.kwargs, known)
        return step.func(tensors, *rest, **kwargs)


def roll(capture: Capture, needed: set[Var]) -> None:
    """Makes one operation of each loop of a capture; where that is not possible, fixes its turns.

    Args:
        capture: the steps of its record are replaced.
        needed: the variables that its result and its effects use.

    Raises:
        Refusal: the number of turns was another one in each call, and is fixed.
    """
    record = capture.record
    loops, record.loops = record.loops, []
    # From the last one on: so the places of the steps of the others stay what they are.
    for loop in sorted(loops, key=lambda loop: loop.bounds[0], reverse=True):
        plan = None if record.symbols.fixed else _plan(loop, record, needed)
        if plan is not None and record.symbols.indices.ended(loop):
            record.steps = _rolled(loop, plan, record, capture.start_modes)
            record.loops.append(loop)
            continue
        if str(loop.place) in record.symbols.not_at:
            raise Refusal("the number of turns differs in every call", loop.where)
        record.symbols.indices.fix(loop)


def _plan(loop: Loop, record: Record, needed: set[Var]) -> _Plan | None:
    """How a loop becomes one operation; None if it cannot."""
    members, turns = loop.members, len(loop.values)
    final = {v for v, (k, _) in members.items() if k == turns - 1}
    plan = _Plan(sorted(loop.inits, key=repr))
    taken: set[Var] = set()
    changed: set[int] = set()
    modes = False
    for step in record.steps[loop.bounds[-1] :]:
        join = None if modes else _join(loop, step)
        if join is not None and _may_be_ahead(join, loop, record, changed):
            plan.joins.append(join)
            continue
        modes = modes or isinstance(step, ModeStep)
        if isinstance(step, (EffectStep, ModeStep)):
            continue
        taken |= _taken(step)
        if step.mutates:
            changed |= {record.storages.get(v, 0) for v in written(step)} or {0}
    taken |= needed
    used = taken & members.keys() | taken & set(loop.indices)
    if not (used <= final and used <= record.storages.keys()):
        return None
    plan.last = sorted(used)
    return plan


def _taken(step: OpStep | HostStep) -> set[Var]:
    heard = step.engine.heard if isinstance(step, HostStep) and step.engine is not None else ()
    return variables((step.args, step.kwargs)) | step.writes | {v for pair in heard for v in pair}


def _join(loop: Loop, step: Step) -> _Join | None:
    """An operation that joins what all turns have made."""
    if not isinstance(step, OpStep) or getattr(step.func, "__name__", "") not in JOINS:
        return None
    given: Any = step.args[0] if step.args else None
    parts = loop.parts(given) if type(given) in (list, tuple) else None
    if parts is None or step.mutates or variables((step.args[1:], step.kwargs)):
        return None
    return _Join(step, parts)


def _may_be_ahead(join: _Join, loop: Loop, record: Record, changed: set[int]) -> bool:
    """Whether a join can be done as soon as the loop is over."""
    if 0 in changed:
        return False
    taken = variables(join.step.args)
    start = loop.bounds[-1]
    later = {v for s in record.steps[start:] if isinstance(s, OpStep) for _, v in s.outs}
    return not taken & later and changed.isdisjoint(record.storages.get(v, 0) for v in taken)


def _rolled(loop: Loop, plan: _Plan, record: Record, start: TorchModes) -> list[Step]:
    """The steps of a run, with one in place of a loop."""
    first, steps, last = loop.first, record.steps, len(loop.values) - 1
    assert first is not None
    before, after = steps[: loop.bounds[first]], steps[loop.bounds[-1] :]
    members = {v: at for v, (k, at) in loop.members.items() if k == last}
    turn_before = {at: v for v, (k, at) in loop.members.items() if k == last - 1}
    turn = loop.turn(steps, last)
    carried = [turn_before[p] for p in plan.carried]
    used = set().union(*(variables((s.args, s.kwargs)) for s in turn if isinstance(s, _PARTS)))
    joined = {v.var for j in plan.joins for v in j.parts if type(v) is Ref}
    inside = {*members, *carried, loop.indices[last]}
    plan.outer = sorted((used - inside) | joined)
    kept = list(
        dict.fromkeys(
            [
                *plan.carried,
                *(members[v] for v in plan.last),
                *(p for j in plan.joins for p in j.parts if type(p) is tuple),
            ]
        )
    )
    made = {at: v for v, at in members.items()}
    modes = next((s.modes for s in reversed(before) if isinstance(s, ModeStep)), start)
    body = _body(turn, [loop.indices[last], *carried, *plan.outer], [made[p] for p in kept], modes)
    operations = [s for s in steps[loop.bounds[first] : loop.bounds[-1]] if isinstance(s, OpStep)]
    draws = sum(s.random for s in operations)
    count = len(operations) + len(plan.joins)
    inits = [loop.inits[p] for p in plan.carried]
    changed = {record.storages.get(v, 0) for s in operations if s.mutates for v in written(s)}
    given = {*inits, *plan.outer}
    writes = frozenset(v for v in given if record.storages.get(v, 0) in changed - {0})
    outs: list[tuple[Any, Var]] = [((i,), v) for i, v in enumerate(plan.last)]
    for i, j in enumerate(plan.joins, len(plan.last)):
        outs += [((i, *path), v) for path, v in j.step.outs]
    whole = OpStep(
        Rolled(body, kept, plan, members, count, draws, first),
        (*loop.args, [Ref(v) for v in inits], [Ref(v) for v in plan.outer]),
        {},
        outs,
        random=draws > 0,
        mutates=any(s.mutates for s in operations),
        writes=writes,
        unrepeatable=any(s.unrepeatable for s in operations),
        leaves=any(s.leaves for s in operations),
        where=next((s.where for s in turn if isinstance(s, OpStep) and s.where), ""),
    )
    gone = {id(j.step) for j in plan.joins}
    return [*before, whole, *(s for s in after if id(s) not in gone)]


_PARTS = OpStep, HostStep


def _body(
    turn: Sequence[Step], inputs: list[Var], outputs: list[Var], modes: TorchModes
) -> Callable[..., Any]:
    """What does one turn, as a function written by torch.fx."""
    builder = GraphBuilder(modes)
    for v in inputs:
        builder.placeholder(v)
    for s in turn:
        if isinstance(s, OpStep):
            builder.op(s)
        else:
            assert isinstance(s, HostStep)
            number = OpStep(s.func, s.args, s.kwargs, [((), v) for v in s.defined])
            builder.op(number)
    found: Callable[..., Any] = module_of(builder.finish(outputs)).forward
    return found


__all__ = ["Rolled", "roll"]
