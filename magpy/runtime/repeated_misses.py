"""What is done where calls miss again and again for one reason.

Owns when another entry is of no use, and what the next capture must not go by then: a value that
differs in every call, a branch on data.  Does not own why a call missed (magpy/runtime/misses.py),
what becomes an input (magpy/shapes/speculation.py), nor how a callable runs in part
(magpy/runtime/driver.py).  Called by magpy/runtime/compiled.py ahead of each capture.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from magpy import config
from magpy.capture import session
from magpy.frames import signals
from magpy.guards.words import Difference
from magpy.ir.capture import Differing
from magpy.ir.ops import Check
from magpy.objects.types import isinstance
from magpy.runtime.driver import Driver, argument_names
from magpy.runtime.journal import Journal
from magpy.runtime.misses import OF_DATA, Misses, Ways
from magpy.runtime.part import Part

#: Misses for one reason after which what differs is left to Python, where entries serve few calls.
STORM = 2
_MOST_OF_FEW = 8
#: So many calls of a callable wait for others that show whether those before them come again.
_MOST_WAITS = 2
#: Of these it is not followed which item differs.
_SEQUENCES = (list, tuple, set, collections.deque)


class Owner(Protocol):
    """What of a callable's manager is asked and told."""

    options: Any
    part: Part | None
    journal: Journal
    refused_for: set[Any]

    def is_undivided(self, compiled: Any) -> bool:
        """Whether nothing can be compiled in part."""

    def separate(self, compiled: Any, why: str) -> bool:
        """Makes regions of single statements; whether anything changes by that."""

    def drive(self, compiled: Any, teach: Callable[[Driver], bool], differs: bool) -> bool:
        """Lets a driver run the callable from now on; whether it does."""


class RepeatedMisses:
    """The misses of one compiled callable, and what was learnt of them.

    Args:
        missed: its misses.
        differed: where calls found other values, the addresses of holders, with keys: those of a
            region are its driver's.
    """

    def __init__(self, missed: Misses, differed: set[tuple[int, Any]]) -> None:
        """None yet."""
        self.missed = missed
        self.differed = differed
        #: The values that the captured runs relied on, by line.
        self.checked: dict[str, set[Any]] = {}
        self.ways = Ways()
        #: Calls that were not captured since entries for the same reason serve too few.
        self.declined = 0
        #: Whether the call at hand is not captured, since earlier kinds of calls may come again.
        self.waits = False
        self._waits_left = _MOST_WAITS
        # By cause, how many calls its entries had served by then.
        self._served: dict[Any, int] = {}
        #: Whether the last miss was one of many for one reason.
        self.stormy = False
        self._in_vain = 0
        # By the address of a dict, the keys at which calls have found other values.
        self._keys: dict[int, list[Any]] = collections.defaultdict(list)

    def captured(self, checks: list[Check]) -> None:
        """Keeps which checks a captured call has, and with what values."""
        for step in checks:
            self.checked.setdefault(step.where, set()).add(step.told_apart())
        self.ways.add(checks)

    def why_missed(
        self, compiled: Any, waiting: Sequence[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Difference | None:
        """What the call differs in from the closest entry; None if that is not known."""
        made = [*compiled._magpy_entries, *waiting]
        try:
            with signals.held():
                why = self.missed.note(compiled._magpy_wrapped, made, args, kwargs)
                place = self.missed.place
                if place is not None and isinstance(place.holder, dict):
                    self._keys[id(place.holder)].append(place.key)
                return why
        except Exception as e:
            if signals.raised_by_handler(e):
                raise
            return None  # the words are nothing that a call may fail for

    def wanted(
        self,
        owner: Owner,
        compiled: Any,
        why: Difference,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[bool, Differing | None]:
        """Whether another entry is of use, and what its capture must not go by."""
        if compiled._magpy_wrapped is operator.call and self.serves_few(compiled, STORM):
            return False, None  # what one of a family differs in is its own affair
        differing = None
        storm = self.is_storm(owner, compiled, why)
        if self.waits:
            return False, None
        if storm:
            differing = self._differing(owner, compiled, why, args, kwargs)
            if differing is None:
                return False, None
        elif why is OF_DATA and self._may_part(owner, compiled):
            # Text that follows from what varies is never the same again: one line is Python's.
            of_text = {where: v for where, v in self.checked.items() if _has_text(v)}
            differing = Differing(checked=of_text) if of_text else None
        return not self._declines(owner, compiled, why, differing), differing

    def is_the_drivers(self, owner: Owner, compiled: Any, why: Difference | None) -> bool:
        """Whether a call is not to be captured whole, which has entries and a driver.

        It is where it differs from what is served in another thing than calls that were refused:
        the last and smaller batch of a training step that logs in every hundredth.
        """
        if why is None or self.missed.cause in owner.refused_for:
            return True
        return self.is_storm(owner, compiled, why) or self.waits

    def is_storm(self, owner: Owner, compiled: Any, why: Difference) -> bool:
        """Whether entries are made again and again for one reason, and serve few calls.

        The first time that something differs it becomes an input if it can, or another way.  Where
        a condition on a number leads another way (`i % 4 == 3`), the first call that goes that way
        may make what later ones find (the state of an optimizer).
        """
        self.waits = False
        if not self._may_part(owner, compiled):
            return False
        # What Python gives a region can as well be computed with there.
        place = self.missed.place
        known = place is not None and (id(place.holder), place.key) in self.differed
        condition = bool(why.where) and not why.was and why.what != OF_DATA.what
        fixed = bool(why.where) and not condition
        given = owner.part is not None and (self.missed.of_argument or known or fixed)
        # What a flag leads to differs in other things, too, by which there are several of each.
        few = _MOST_OF_FEW if owner.part is None else STORM
        of_few = self.missed.of_few or (self.missed.of_own_change and owner.part is None)
        of_few = of_few and len(self._missed_keys()) <= _MOST_OF_FEW
        # So may one whose value is checked ahead of all operations, where a miss costs nothing.
        condition |= why is OF_DATA and owner.part is None and not self._leaves_late(compiled)
        times = few if of_few else 1 if given else STORM + condition
        if not self.serves_few(compiled, times):
            return False
        return owner.part is not None or not self._may_recur(compiled)

    def _may_recur(self, compiled: Any) -> bool:
        """Whether calls may differ in few ways, of which the first ones come again.

        Some calls of other kinds run eagerly meanwhile (`waits`); where entries have served calls
        since, another kind is captured.
        """
        cause = self.missed.cause
        made = self._made(compiled)
        times = max(self.missed.times, len(self._missed_keys()))
        if times > _MOST_OF_FEW or self._leaves_late(compiled):
            return False
        hits = sum(e.hits for e in made)
        self.waits = hits <= self._served.get(cause, 0)
        if self.waits and not self._waits_left:
            self.waits = False
            return False
        self._waits_left -= self.waits
        self._served[cause] = hits
        return True

    def _made(self, compiled: Any) -> list[Any]:
        """The entries that were made for what the call at hand differs in."""
        return [e for e in compiled._magpy_entries if e.tag.cause == self.missed.cause]

    def _leaves_late(self, compiled: Any) -> bool:
        """Whether one of these finds that it does not fit after operations only."""
        return any(e.tag.leaves is not None for e in self._made(compiled))

    def _missed_keys(self) -> list[Any]:
        """The keys of the dict at hand at which calls have missed: a counter for each user."""
        place = self.missed.place
        return [] if place is None else self._keys.get(id(place.holder), [])

    @staticmethod
    def _may_part(owner: Owner, compiled: Any) -> bool:
        """Whether a line may be left to Python: the rest may be compiled then."""
        if not config.regions or owner.options.fullgraph:
            return False
        return not owner.is_undivided(compiled)

    def serves_few(self, compiled: Any, times: int) -> bool:
        """Whether one reason has made so many calls miss, of which entries serve few."""
        hits = [e.hits for e in self._made(compiled)]
        found = self.missed.times + self.missed.times_unlocated
        self.stormy = found >= times and sum(hits) <= 2 * len(hits)
        return self.stormy

    def _declines(
        self, owner: Owner, compiled: Any, why: Difference, differing: Differing | None
    ) -> bool:
        """Whether a call runs eagerly, since the entries made for what it differs in serve few.

        What else is called may be served: it stays in one piece. Sizes that are not followed are
        captured one by one, as a server that warms up for each of them expects.
        """
        known, most = why.where if differing is None else not why.of_tensor, 2 * STORM
        if owner.is_undivided(compiled):
            known, most = True, _MOST_OF_FEW
        if not known or differing not in (None, Differing()):
            return False
        hits = [e.hits for e in self._made(compiled)]
        if self.missed.times <= most or sum(hits) > 2 * len(hits):
            return False
        self.declined += 1
        at = f"; {why.where} fixes it" if why.where else ""
        owner.journal.note(f"calls that fit no entry for this run eagerly: {why.what}{at}")
        return True

    def _differing(
        self,
        owner: Owner,
        compiled: Any,
        why: Difference,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Differing | None:
        """What the next capture must not go by; None if it is known without one."""
        place, names = self.missed.place, argument_names(compiled, args, kwargs)
        at = names.index(why.what) if why.what in names else None
        given = [*args, *kwargs.values()]
        if self.missed.of_instance:
            return Differing()
        self._in_vain += 1
        if self._in_vain > STORM:
            return None if owner.separate(compiled, f"no entry fits ({why})") else Differing()
        if why is OF_DATA:
            return Differing(checked=self.checked | {line: set() for line in self.ways.multiply})
        if why.where and self._in_vain <= STORM:
            return Differing(fixed={why.where})
        if at is None and place is not None:
            at, whole = place.argument, isinstance(place.holder, _SEQUENCES)
            passed = at is None or isinstance(given[at], (list, tuple, set))
            if at is None or (place.holder is not None and not (whole and passed)):
                several = len({*map(repr, self._missed_keys())}) > 1
                key = None if whole or several else place.key
                self.differed.add((id(place.holder), key))
                return Differing(places=[(place.holder, key)])
        tensor = at is not None and isinstance(given[at], torch.Tensor)
        if why.of_tensor or tensor:
            return Differing()
        if at is not None and names[at]:
            varying = {names[at]}
            if owner.part is None:
                known = owner.drive(compiled, lambda driver: driver.vary(varying), True)
            else:
                known = owner.part.driver.vary(varying)
            if known:
                owner.journal.left[session.definition(compiled._magpy_wrapped)] = (
                    f"what follows from a value that differs in every call ({names[at]})"
                )
                return None
        if at is not None and isinstance(given[at], (list, set, dict)):
            # It is handed on: what reads it is Python's, wherever that is.
            return Differing(places=[(given[at], None)])
        return None if owner.separate(compiled, f"no entry fits ({why})") else Differing()


def _has_text(told: set[Any]) -> bool:
    """Whether text or bytes were relied on at a line (`Check.told_apart`)."""
    return any(kind in (str, bytes) for kind, _ in told)


def with_what_varies(
    part_of: Driver,
    compiled: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    differing: Differing | None,
) -> Differing | None:
    """What a capture of a region must not go by, with the containers that are known to vary."""
    known = part_of.lines.plan.varying
    if known:
        names = argument_names(compiled, args, kwargs)
        found = [
            (v, None)
            for n, v in zip(names, (*args, *kwargs.values()), strict=True)
            if n in known and isinstance(v, (list, set, dict))
        ]
        if found:
            differing = differing or Differing()
            differing.places += found
    return differing


__all__ = ["STORM", "RepeatedMisses", "with_what_varies"]
