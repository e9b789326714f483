"""Why calls fit no entry: the check of the closest entry that failed, counted by its words.

Owns the choice of that entry and the counts, and at which checks captured calls went different
ways.  Does not own the words (magpy/guards/words.py), nor
what is done about a miss (magpy/runtime/compiled.py, which calls this).
"""

from __future__ import annotations

import collections
import dataclasses
import operator
from typing import Any

import torch

from magpy.backends.runner import EntryInfo
from magpy.guards.checks import looks_at_contents
from magpy.guards.locate import Place, place_of, renewed
from magpy.guards.names import Program
from magpy.guards.program import INSTANCES
from magpy.guards.words import Difference, Names, difference
from magpy.ir.ops import Check
from magpy.objects.number_lists import form_of
from magpy.objects.plain_values import NUMPY_NUMBERS
from magpy.objects.quiet import unheard
from magpy.objects.types import isinstance
from magpy.shapes.places import evaluated
from magpy.shapes.speculation import PLAIN, is_number, number_at

_MOST = 64
#: So many captured calls, and so many checks of each, are compared.
_MOST_WAYS, _MOST_CHECKS = 4, 1024
#: So often a module is another one where it stands before it counts by what it is like.
_MANY_RENEWALS = 2
#: So many keys that were missing in one dict are one cause.
_MOST_KEYS = 3
#: What is counted under one name once `_MOST` different checks have failed.
OTHERS = "other checks"
#: All checks held, but a value that the entry computed led another way than in its capture.
OF_DATA = Difference("a value that the call computes", "", "leads another way")


class Misses:
    """The misses of one compiled callable."""

    def __init__(self) -> None:
        """None yet."""
        #: How often each check failed, by what it looks at.
        self.counts: dict[str, int] = {}
        self._told: set[str] = set()
        #: Where the value is that the last miss was about, in that call.
        self.place: Place | None = None
        #: The places in which calls found other objects of a class than entries had been made for:
        #: dicts by their addresses, with keys, and closure cells.
        self.renewed: set[tuple[int, Any]] = set()
        #: Those that the last call found, with the object there was and the one that there is.
        self.replaced: dict[tuple[int, Any], tuple[Any, Any]] = {}
        self._renewals: collections.Counter[tuple[int, Any]] = collections.Counter()
        self._causes: dict[Any, int] = {}
        # By the address of a dict, the keys that were missing there.
        self._absent: dict[int, set[str]] = {}
        #: The cause of the last miss, and how often it has made calls miss.
        self.cause: Any = None
        self.times = 0
        #: How often, before that, a value of data did so of which the line was not known.
        self.times_unlocated = 0
        #: Whether the last miss was about a module or a function that is another one.
        self.of_instance = False
        #: Whether it was about an argument, or what that holds, which cannot become an input.
        self.of_argument = False
        #: Whether it was about what a small array holds.
        self.of_contents = False
        #: Whether it was about what there are few of: a bool, None, whether a size is 1.
        self.of_few = False
        #: Whether it was about what an entry's calls change themselves: the state of an optimizer,
        #: which the first steps make.
        self.of_own_change = False
        # Whether it was about a condition on sizes and numbers that are inputs already.
        self._of_conditions = False

    def note(
        self, f: Any, entries: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Difference | None:
        """Counts a miss.

        Args:
            f: the callable that was called.
            entries: its entries, the newest first.
            args: the positional arguments of the call.
            kwargs: its keyword arguments.

        Returns:
            What the call differs in from the closest entry; None if there is none.
        """
        self.place, self.of_instance, self.of_argument, self.cause = None, False, False, None
        self.of_contents = self.of_few = self._of_conditions = self.of_own_change = False
        self.times_unlocated = 0
        self.replaced = {}
        found = self._closest(f, entries, args, kwargs)
        if found is not None:
            what = found.what
            self.of_few |= found.of_one
            self.of_own_change = self._is_of_own_change(entries)
            of_lists = any(e.tag.dynamic.of_lists for e in entries)
            self.of_argument = self._is_of_argument(found, [*args, *kwargs.values()], of_lists)
            # A tensor may have another size in this dimension, and in that one.
            cause = found.where or (what if found.of_tensor else self._cause(what))
            if found.of_presence:
                cause = self._of_keys(what) or cause, "there"
            elif found.of_one:
                cause = cause, "one"
            self.cause = cause
            self.times = self._causes[cause] = self._causes.get(cause, 0) + 1
            of_data = what == OF_DATA.what and bool(found.where)
            self.times_unlocated = self._causes.get(what, 0) if of_data else 0
            if what not in self.counts and len(self.counts) >= _MOST:
                what = OTHERS
            self.counts[what] = self.counts.get(what, 0) + 1
        return found

    def _is_of_own_change(self, entries: list[Any]) -> bool:
        # A list or deque that a call changes is another one in each call: that does not settle.
        if self.place is None or not isinstance(self.place.holder, dict):
            return False
        return any(id(self.place.holder) in e.tag.changes for e in entries)

    def _is_of_argument(self, found: Difference, given: list[Any], of_lists: bool) -> bool:
        place = self.place
        if place is None or place.argument is None or self._of_conditions:
            return False
        if of_lists and form_of(given[place.argument]):
            return False
        value = given[place.argument] if place.holder is None else None
        if isinstance(value, torch.Tensor):
            return False
        input = isinstance(value, PLAIN) or type(value) in NUMPY_NUMBERS
        return not found.of_tensor and not input

    def _cause(self, what: str) -> Any:
        """What one miss and another are to be counted by: of containers not the single item."""
        place = self.place
        if place is None or (place.key is not None and not isinstance(place.holder, (list, tuple))):
            return what
        return id(place.holder) if place.argument is None else place.argument

    def _of_keys(self, what: str) -> int | None:
        """The dict at hand, once several keys were missing there: a memo for each form of input."""
        if self.place is None or not isinstance(self.place.holder, dict):
            return None
        missed = self._absent.setdefault(id(self.place.holder), set())
        missed.add(what)
        return id(self.place.holder) if len(missed) >= _MOST_KEYS else None

    def repeated(self, found: Difference | None, followed: bool) -> bool:
        """Whether the same check failed before, and nobody was told of that yet.

        Args:
            found: what `note` gave.
            followed: sizes that vary are followed; else each is known to be a capture of its own.
        """
        if found is None or found is OF_DATA or self.counts.get(found.what, 0) < 2:
            return False
        if found.of_tensor and not followed:
            return False
        new = found.what not in self._told
        self._told.add(found.what)
        return new

    def _closest(
        self, f: Any, entries: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Difference | None:
        """The difference from the entry of which most checks held before the first that failed."""
        if not entries:
            return None
        found = [(e.tag, e.guard.explain(args, kwargs)) for e in entries]
        holding = [info for info, failure in found if failure is None]
        failing = [(info, failure) for info, failure in found if failure is not None]
        if holding:
            # An entry compared a number that it had read.  A newer one tells its name and line.
            fixed = [(info, failure) for info, failure in failing if _fixes(info, failure)]
            if not fixed or not any(_number_changed(info, args, kwargs) for info in holding):
                lines = [c.broken_at() for info in holding for c in info.dynamic.of_data]
                where = next(filter(None, lines), "")
                return dataclasses.replace(OF_DATA, where=where) if where else OF_DATA
            failing = fixed
        info, failure = max(failing, key=lambda one: _held(one[1][0]))
        with unheard():
            if info.program is not None:
                self.of_instance = _is_of_instance(info.program, failure[0])
                self.of_contents = _is_of_contents(info.program, failure[0])
                self.of_few = _is_of_few(info.program, failure[0])
                self._of_conditions = _fixes(info, failure)
                given = [*args, *(kwargs[k] for k in info.program.kwnames if k in kwargs)]
                self.place = place_of(info.program, failure, given)
                at = None if self.place is None else self.place.argument
                if at is not None and self.place is not None and self.place.holder is None:
                    self.of_few |= _is_of_kind(info.program, failure[0], given[at])
            for other, (at, _) in failing:
                anchored = not isinstance(at, int) and at[0] in ("dicts", "cells", "lists")
                if anchored and other.program is not None:
                    self.replaced |= renewed(other.program)
            for place, (_, now) in self.replaced.items():
                module = isinstance(now, torch.nn.Module)
                self._renewals[place] += 1
                # One that is replaced once is found faster as the very one that it is by then.
                if not module or self._renewals[place] >= _MANY_RENEWALS:
                    self.renewed.add(place)
                    self.of_instance |= module
            return _words(f, args, info, failure)


class Ways:
    """Which ways the captured calls of one callable went, by the checks that their runs made."""

    def __init__(self) -> None:
        """No call was captured yet."""
        self._seen: list[list[tuple[str, Any]]] = []
        #: Lines at which two calls went different ways, and one call did so from turn to turn of a
        #: loop: there may be as many ways as turns, and twice as many with each more.
        self.multiply: set[str] = set()

    def add(self, checks: list[Check]) -> None:
        """Notes the checks of a run, in their order."""
        way = [(c.where, c.told_apart()) for c in checks[:_MOST_CHECKS]]
        values: dict[str, set[Any]] = {}
        for where, value in way:
            values.setdefault(where, set()).add(value)
        for other in self._seen:
            parted = next((a for a, b in zip(way, other, strict=False) if a != b), None)
            if parted is not None and len(values[parted[0]]) > 1:
                self.multiply.add(parted[0])
        self._seen = [*self._seen[1 - _MOST_WAYS :], way]


def _fixes(info: EntryInfo, failure: tuple[Any, str]) -> bool:
    """Whether the conditions on sizes and numbers are what does not hold."""
    if info.program is None or not isinstance(failure[0], int):
        return False
    kind, check, *_ = info.program.checks[failure[0]]
    return kind == "py" and check is info.dynamic.conditions


def _is_of_instance(program: Program, where: Any) -> bool:
    """Whether a check is for one module or function that the arguments reach."""
    kind, *rest = program.checks[where] if isinstance(where, int) else ("",)
    return kind == "is" and isinstance(rest[1], INSTANCES)


def _is_of_contents(program: Program, where: Any) -> bool:
    """Whether a check is for what an array holds."""
    kind, *rest = program.checks[where] if isinstance(where, int) else ("",)
    return kind == "py" and looks_at_contents(rest[0])


def _is_of_few(program: Program, where: Any) -> bool:
    """Whether a check is for a bool or None: a call goes one of two ways by it."""
    kind, *rest = program.checks[where] if isinstance(where, int) else ("",)
    return kind in ("is", "leaf") and (rest[1] is None or type(rest[1]) is bool)


def _is_of_kind(program: Program, where: Any, value: Any) -> bool:
    """Whether None is given, or a number of another class than an entry needs, as one of numpy's.

    A sum begins with an integer 0 in each epoch; what numpy draws is a `float64`.
    """
    kind, *rest = program.checks[where] if isinstance(where, int) else ("",)
    if kind not in ("leaf", "type", "small_int"):
        return False
    if value is None:
        return True
    needed = int if kind == "small_int" else rest[1] if kind == "type" else type(rest[1])
    return is_number(needed) and is_number(type(value)) and needed is not type(value)


def goes_by_instance(info: EntryInfo) -> bool:
    """Whether an entry serves calls with one module or function alone of those that are alike.

    Or one module, in the place of which there is another by now.
    """
    program = info.program
    if program is None:
        return False
    replaced = renewed(program).values()
    return any(_is_of_instance(program, i) for i in range(len(program.checks))) or any(
        isinstance(now, torch.nn.Module) for _, now in replaced
    )


def _number_changed(info: EntryInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a number that an entry read, and compares where it is used, is another one now."""
    given = {f"_a{i}": v for i, v in enumerate(args)}
    given.update((f"_k{i}", v) for i, v in enumerate(kwargs.values()))
    for expr, holder, key, before, relied in info.dynamic.numbers:
        if relied:
            known = holder if expr is None else evaluated(expr, info.mock.__globals__, given)
            now = number_at(known, key)
            if type(now) is type(before) and now != before:
                return True
    return False


def _held(where: Any) -> int:
    """How far a guard came: it looks at the call's form, then at anchors, then at arguments."""
    if isinstance(where, int):
        return where + 1
    return -1 if where[0] in ("args", "dead") else 0


def _words(f: Any, args: tuple[Any, ...], info: EntryInfo, failure: tuple[Any, str]) -> Difference:
    assert info.program is not None
    if info.names is None:
        shared = f is operator.call
        info.names = Names(args[0] if shared else f, info.program, shared)
    return difference(info.names, info.program, failure)


__all__ = ["OF_DATA", "OTHERS", "Misses", "Ways", "goes_by_instance"]
