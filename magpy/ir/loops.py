"""Loops over a range whose number of turns follows from sizes, as a run has recorded them.

Owns which steps each turn is, and whether two turns do the same.  Does not own what the program may
do in such a loop (magpy/capture/loops.py, which makes them), nor the one operation that is made of
it (magpy/replay/rolled.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from magpy.ir.ops import Bind, OpStep, OutsideRef, Path, Ref, Step, Var
from magpy.objects.plain_values import PLAIN_TYPES
from magpy.objects.types import is_named_tuple

#: Where in a turn a variable is made: by which step, and where in its result.
Position = tuple[int, Path]


@dataclass(slots=True)
class Loop:
    """A loop `for i in range(start, stop, step)`.

    Attributes:
        args: of the range: numbers, and variables that are followed.
        values: what they were.
        indices: the variable of `i` in each turn.
        bounds: how many steps there were when each turn began, and when the last one was over.
        first: the first turn that does the same as all later ones; None if there is none.
        inits: where the turn before makes what a turn takes, and the variable that the first of
            them takes in its place.
        done: how often it was asked for the next turn.
        place: the expression of the program that gives the range, for messages.
        where: its line.
        members: what the turns from `first` on make, each with its turn and its position.
    """

    args: tuple[Any, Any, int]
    values: range
    indices: list[Var] = field(default_factory=list)
    bounds: list[int] = field(default_factory=list)
    first: int | None = None
    inits: dict[Position, Var] = field(default_factory=dict)
    done: int = 0
    place: Any = None
    where: str = ""
    members: dict[Var, tuple[int, Position]] = field(default_factory=dict)

    def note(self, steps: Sequence[Step]) -> None:
        """Fills `members`, when the last turn is over."""
        first = self.first or 0
        for k in range(first, len(self.values)):
            self.members.update((v, (k, at)) for v, at in self.made(steps, k).items())

    def parts(self, given: Sequence[Any]) -> list[Any] | None:
        """A list of tensors, in which positions stand for what all turns make there, in order.

        Returns:
            None if it holds something of the turns otherwise, or nothing of them.
        """
        found: list[Any] = []
        first, after = self.first or 0, len(self.values)
        expected: tuple[int, Position] | None = None
        for v in given:
            member = self.members.get(v.var) if type(v) is Ref else None
            if expected is not None and member != expected:
                return None
            if member is None:
                found.append(v)
                continue
            k, at = member
            if expected is None:
                if k != first:
                    return None
                found.append(at)
            expected = (k + 1, at) if k + 1 < after else None
        if expected is not None or not any(type(x) is tuple for x in found):
            return None
        return found

    @property
    def numbers(self) -> set[Var]:
        """The numbers that the range is made of, and those that it gives."""
        return {*self.indices, *(a.var for a in self.args if isinstance(a, Ref))}

    def turn(self, steps: Sequence[Step], k: int) -> Sequence[Step]:
        """The steps of a turn, but for what makes its index."""
        return steps[self.bounds[k] + 1 : self.bounds[k + 1]]

    def made(self, steps: Sequence[Step], k: int) -> dict[Var, Position]:
        """Where a turn makes each of its variables."""
        return {v: at for at, v in _made(self.turn(steps, k))}

    def forms(self, steps: Sequence[Step], k: int, alone: bool = False) -> list[Any] | None:
        """What a turn does, such that two turns that do the same have equal ones.

        Args:
            steps: of the run.
            k: the turn.
            alone: nothing is known of the turn before it.

        Returns:
            A form for each step; None if there is a step that no graph holds.
        """
        own = self.made(steps, k)
        before = self.made(steps, k - 1) if k and not alone else {}
        index = self.indices[k]

        def of(var: Var) -> Any:
            if var == index:
                return _INDEX
            if var in own:
                return _OWN, own[var]
            return (_BEFORE, before[var]) if var in before else (_OUTER, var)

        found = []
        for s in self.turn(steps, k):
            if isinstance(s, Bind) and (s.symbolic or _is_arithmetic(s)):
                outs: list[Any] = []
            elif isinstance(s, OpStep) and not s.whole:
                outs = [path for path, _ in s.outs]
            else:
                return None
            flags = s.mutates, s.random, s.unrepeatable
            written = sorted((of(v) for v in s.writes), key=repr)
            found.append((s.func, _form((s.args, s.kwargs), of), outs, flags, written))
        return found

    def starts_like(self, steps: Sequence[Step], k: int) -> dict[Position, Var] | None:
        """What a turn takes in place of what the one before the next has made.

        Returns:
            The variables by their positions; None if it does something else than the next one.
        """
        found: dict[Position, Var] = {}
        here, then = self.forms(steps, k, alone=True), self.forms(steps, k + 1)
        if here is None or then is None or not _fits(here, then, found):
            return None
        return found


_INDEX, _OWN, _BEFORE, _OUTER = ("index",), "own", "before", "outer"


def _is_arithmetic(step: Bind) -> bool:
    """Whether a number is computed of numbers by Python's operators and functions."""
    module = getattr(step.func, "__module__", "")
    return (
        module in ("_operator", "math", "builtins")
        and step.expected in (int, float)
        and not (step.mutates or step.random or step.owner or step.kwargs)
    )


def _made(turn: Sequence[Step]) -> Iterator[tuple[Position, Var]]:
    for i, s in enumerate(turn):
        if isinstance(s, OpStep):
            yield from (((i, path), v) for path, v in s.outs)
        elif isinstance(s, Bind):
            yield (i, ()), s.result


def _form(v: Any, of: Any) -> Any:
    t = type(v)
    if t is Ref:
        return of(v.var)
    if t is tuple or t is list or is_named_tuple(t):
        return t, [_form(x, of) for x in v]
    if t is dict:
        return t, [(k, _form(x, of)) for k, x in v.items()]
    if t is slice:
        return t, [_form(x, of) for x in (v.start, v.stop, v.step)]
    if t is OutsideRef:
        return t, id(v.obj)
    return (t, repr(v)) if t in PLAIN_TYPES else (t, id(v))


def _fits(here: Any, then: Any, found: dict[Position, Var]) -> bool:
    """Whether a form is another one, but for what that takes of the turn before it."""
    if type(then) is tuple and len(then) == 2 and then[0] == _BEFORE:
        if type(here) is not tuple or here[0] != _OUTER:
            return False
        return bool(found.setdefault(then[1], here[1]) == here[1])
    if type(here) is type(then) and type(then) in (tuple, list):
        return len(here) == len(then) and all(
            _fits(a, b, found) for a, b in zip(here, then, strict=True)
        )
    return bool(here == then)


__all__ = ["Loop", "Position"]
