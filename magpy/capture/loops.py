"""Loops over a range whose number of turns follows from sizes: `for t in range(x.size(1))`.

Owns what the program iterates over in such a loop, and finding out whether all turns do the same,
whatever their number.  Does not own the steps (magpy/capture/tensors/writer.py) nor the operation
that is made of them (magpy/replay/rolled.py).  Asked by magpy/capture/python/arrays.py, where the
program calls `range`.

A turn is determined by what it finds: what the frame's variables lead to, and the index.  The index
is a number that is followed: where the program goes by it, it is fixed, and so is the number of
turns.  If two turns find the same, but for the tensors that the turn before each has made, they do
the same, and so do all that follow.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from magpy import _interp
from magpy.capture.python.run import Run
from magpy.frames import call_sites
from magpy.frames.locations import place_of_program, where_text
from magpy.instrument.turns import Body, body_of
from magpy.ir.loops import Loop
from magpy.ir.ops import Bind, Ref, Var, identity
from magpy.objects.plain_values import PLAIN_TYPES
from magpy.objects.quiet import modes_of_the_program, unheard
from magpy.objects.types import isinstance
from magpy.shapes.arithmetic import is_open

ABSENT = _interp.ABSENT
#: More objects than these the variables of a frame may not lead to.
_MOST = 2000
#: The turns before all do the same: in the first one `h` may be None.
_MOST_BEFORE = 1
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_SHARED = type, types.ModuleType, types.MethodDescriptorType, types.WrapperDescriptorType
_WRITES = frozenset(["write_attr", "write_type", "dict_del"])


class Loops:
    """The loops of one run.

    Args:
        run: the state of the run.
    """

    def __init__(self, run: Run) -> None:
        """None was begun."""
        self._run = run
        self._recorder: Any = run.recorder
        self._active: Loop | None = None

    def begin(self, args: tuple[Any, ...]) -> Any:
        """What the program iterates over in place of a range; ABSENT if that is to be one.

        Args:
            args: of the range.
        """
        try:
            return self._begun(args, call_sites.program_frame(sys._getframe(1)))
        except Exception as e:  # noqa: BLE001 - a failure of magpy must not reach the program
            self._recorder.fail(e)
        return ABSENT

    def _begun(self, args: tuple[Any, ...], frame: types.FrameType | None) -> Any:
        recorder, symbols = self._recorder, self._recorder.symbols
        if (
            symbols is None
            or symbols.fixed
            or self._active is not None
            or self._run.refusals.first is not None
        ):
            return ABSENT
        if recorder.depth or recorder.transformed or modes_of_the_program(recorder):
            return ABSENT
        numbers = self._numbers(args)
        if numbers is None or frame is None or frame.f_globals.get("torch") is not torch:
            return ABSENT
        place, values = place_of_program(), range(*args)
        if place is None or place.start is None or len(values) <= 1:
            return ABSENT
        with unheard():
            body = body_of(_interp.original_of(frame.f_code) or frame.f_code, *place[1:])
        if body is None:
            return ABSENT
        recorder.note_modes()
        loop = Loop(numbers, values, place=place, where=where_text())
        self._active = loop
        return _Turns(self, loop, _Heads(self._run, body))

    def _numbers(self, args: tuple[Any, ...]) -> tuple[Any, Any, int] | None:
        """The arguments as a step keeps them, if the number of turns varies."""
        followed = self._recorder.symbols.numbers
        found: list[Any] = []
        for a in (0, *args) if len(args) == 1 else args:
            var = self._recorder.tracked(a)
            if type(a) is not int or (var is not None and var not in followed):
                return None
            found.append(Ref(var) if var is not None and is_open(followed[var]) else a)
        if len(found) == 2:
            found.append(1)
        varies = any(type(a) is Ref for a in found[:2])
        return tuple(found) if varies and found[2] in (1, -1) else None

    def turn(self, loop: Loop, heads: _Heads, frame: types.FrameType) -> Any:
        """The index of the next turn; ABSENT after the last one."""
        recorder, k = self._recorder, loop.done
        loop.done += 1
        index = loop.values[k] if k < len(loop.values) else ABSENT
        if (
            self._active is not loop
            or self._run.refusals.first is not None
            or recorder.symbols.fixed
        ):
            return index
        try:
            return self._turn(loop, k, heads, frame)
        except Exception as e:  # noqa: BLE001 - as above
            recorder.fail(e)
        return index

    def _turn(self, loop: Loop, k: int, heads: _Heads, frame: types.FrameType) -> Any:
        recorder = self._recorder
        steps = recorder.record.steps
        loop.bounds.append(len(steps))
        heads.look(loop, steps, frame)
        if k == len(loop.values):
            self._end(loop, heads)
            return ABSENT
        if heads.same_from - 1 > _MOST_BEFORE:
            self.finish()  # turns differ, a list may grow in each: to go on costs its square
            return loop.values[k]
        var = recorder.tensors.new()
        value = _interp.fresh(loop.values[k])
        recorder.add(Bind(identity, (loop.values[k],), {}, expected=int, result=var, symbolic=True))
        recorder.is_tracked(value, var)
        loop.indices.append(var)
        recorder.symbols.indices.add(loop, var, loop.values[k])
        return value

    def _end(self, loop: Loop, heads: _Heads) -> None:
        """The last turn is over: they may do the same, or the number of turns is what it is."""
        record, symbols = self._recorder.record, self._recorder.symbols
        self._active = None
        loop.first = self._first(loop, heads.same_from)
        with unheard():
            loop.note(record.steps)
            if loop.first is None or not symbols.indices.settle(loop):
                symbols.indices.fix(loop)
            else:
                record.loops.append(loop)
                if loop.first:
                    record.steps[loop.bounds[0]].args = loop.args[:1]  # one turn is done ahead

    def _first(self, loop: Loop, same_from: int) -> int | None:
        """The first of the turns that all do the same; None if there are none."""
        last = len(loop.values) - 1
        for first in range(max(same_from - 1, 0), _MOST_BEFORE + 1):
            if first < last and self._is_first(loop, first, last):
                return first
        return None

    def _is_first(self, loop: Loop, first: int, last: int) -> bool:
        steps, symbols = self._recorder.record.steps, self._recorder.symbols
        forms = loop.forms(steps, last)
        if forms is None or any(loop.forms(steps, k) != forms for k in range(first + 1, last)):
            return False
        fakes = [self._forms(loop.made(steps, k)) for k in range(first, last + 1)]
        inits = loop.starts_like(steps, first)
        if inits is None or any(f != fakes[0] for f in fakes):
            return False
        at = {position: v for v, position in loop.made(steps, first).items()}
        loop.inits, given = inits, self._recorder.record.inputs
        return all(symbols.form(v, given.get(v)) == symbols.form(at[p]) for p, v in inits.items())

    def _forms(self, made: dict[Var, Any]) -> Any:
        symbols, tensors = self._recorder.symbols, self._recorder.record.storages
        return {at: symbols.form(v) if v in tensors else None for v, at in made.items()}

    def finish(self) -> None:
        """The loop that is at work has the turns that it has; when the run is over, too."""
        loop, self._active = self._active, None
        if loop is not None:
            with unheard():
                self._recorder.symbols.indices.fix(loop)


class _Turns:
    """What the program iterates over: it sees integers, and never this."""

    def __init__(self, loops: Loops, loop: Loop, heads: _Heads) -> None:
        self._loops, self._loop, self._heads = loops, loop, heads

    def __iter__(self) -> _Turns:
        return self

    def __next__(self) -> int:
        _interp.pause()
        try:
            index = self._loops.turn(self._loop, self._heads, sys._getframe(1))
        finally:
            _interp.resume()
        if index is ABSENT:
            raise StopIteration
        found: int = index
        return found


class _Heads:
    """What the turns of a loop find.

    Args:
        run: the state of the run.
        body: the source of the loop.
    """

    def __init__(self, run: Run, body: Body) -> None:
        self._run = run
        self._recorder: Any = run.recorder
        self._body = body
        self._last: Any = None
        self._lists: dict[str, list[Any]] = {}
        #: From this turn on each finds the same.
        self.same_from = 0

    def look(self, loop: Loop, steps: list[Any], frame: types.FrameType) -> None:
        """A turn begins, or the last one is over."""
        k = len(loop.bounds) - 1
        before = loop.made(steps, k - 1) if k else {}
        variables = _local_variables(frame)
        try:
            with unheard():
                found: Any = self._state(variables, before)
        except _UnknownError:
            found = object()
        finally:
            variables.clear()
        if found != self._last:
            self.same_from = k
        self._last = found

    def _state(self, variables: dict[str, Any], before: dict[Var, Any]) -> Any:
        walk = _Walk(self._run, before)
        body = self._body
        found = {
            name: self._collected(name, v, walk) if name in body.collects else walk.form(v)
            for name, v in variables.items()
            if name not in body.dead
        }
        return found, self._recorder.modes(), self._outside(walk)

    def _collected(self, name: str, held: Any, walk: _Walk) -> Any:
        """What the last turn has added to a list that only collects."""
        known = self._lists.get(name, [])
        same = type(held) is list and all(a is b for a, b in zip(known, held, strict=False))
        if not same or len(held) < len(known):
            raise _UnknownError
        self._lists[name] = list(held)
        added = held[len(known) :]
        if not all(map(walk.is_made, added)):
            raise _UnknownError  # there are as many of them as turns, and nothing else tells that
        return [walk.form(v) for v in added]

    def _outside(self, walk: _Walk) -> Any:
        """Where the run has written to objects from outside, and what of its own is there."""
        run, session = self._run, self._run.session
        cells = session.written_cells()
        places = [(h, k) for h, k, *_ in session.stores()]
        places += [(o, n) for event, o, n, _ in session.log() if event in _WRITES]
        # What is put there once more takes the place of what was.
        known = {(id(h), k if type(k) in (str, int) else id(k)): (h, k) for h, k in places}
        for holder, key in known.values():
            walk.held(holder, key)
        for cell, _ in cells:
            walk.held(cell, None)
        written = [(id(c), n, sure) for c, _, _, n, sure in session.containers()]
        for container, before, *_ in session.containers():
            walk.all_held(container, before)
        for var, _ in run.contexts.values():
            walk.one_held(var.get(None))
        counts = len(cells), len(run.contexts), len(run.locks)
        return counts, list(known), written, walk.held_forms


class _UnknownError(Exception):
    """A turn may find something of which nobody knows what it is."""


class _Walk:
    """The forms of objects: equal ones for what a program cannot tell apart.

    Args:
        run: the state of the run.
        before: where the turn before has made its variables.
    """

    def __init__(self, run: Run, before: dict[Var, Any]) -> None:
        self._outside: Callable[[Any], bool] = run.session.is_outside
        self._recorder: Any = run.recorder
        self._before = before
        self._seen: dict[int, int] = {}
        #: Of what the run has made, and put somewhere outside.
        self.held_forms: list[Any] = []

    def form(self, v: Any) -> Any:
        """The form of an object.

        Raises:
            _UnknownError: it may hold something that is not seen.
        """
        t = type(v)
        var = self._recorder.tracked(v)
        if var is not None:
            if var not in self._recorder.symbols.numbers:
                raise _UnknownError
            return "number", var
        if t in PLAIN_TYPES or t is range:
            return t, repr(v)
        if t in _TENSORS:
            return self._tensor(v)
        if self._outside(v) or self._has_no_state(v):
            return "shared", id(v)
        if id(v) in self._seen:
            return "again", self._seen[id(v)]
        if len(self._seen) >= _MOST:
            raise _UnknownError
        self._seen[id(v)] = len(self._seen)
        if t in (tuple, list, torch.Size):
            return t, id(v) if t is list else 0, [self.form(x) for x in v]
        if t is dict:
            return t, id(v), [(self.form(k), self.form(x)) for k, x in v.items()]
        if t is types.MethodType:
            return t, self.form(v.__func__), self.form(v.__self__)
        raise _UnknownError

    def is_made(self, v: Any) -> bool:
        """Whether the turn before has made a tensor."""
        return isinstance(v, torch.Tensor) and self._recorder.tensors.known(v) in self._before

    def _has_no_state(self, v: Any) -> bool:
        """Whether an object that is not from outside leads to nothing that can be changed."""
        if isinstance(v, (types.BuiltinFunctionType, types.MethodWrapperType)):
            return v.__self__ is None or isinstance(v.__self__, types.ModuleType)
        if type(v) is types.FunctionType:
            return v.__closure__ is None and not (_defaults(v) or v.__dict__)
        return isinstance(v, _SHARED)

    def _tensor(self, v: torch.Tensor) -> Any:
        recorder = self._recorder
        var = recorder.tensors.known(v)
        attributes = None if self._outside(v) else self._attributes(v)
        if var is None:
            return "shared", id(v), attributes
        flags = v.requires_grad, v.is_leaf, type(v), attributes
        if var not in self._before:
            return "variable", var, v.shape, v.stride(), flags
        return "made", self._before[var], recorder.symbols.form(var), flags

    def _attributes(self, v: torch.Tensor) -> Any:
        """What a tensor that the run has made has in its own dict, such as a mark of Dynamo's."""
        own = _interp.own_dict(v)
        if not own:
            return None
        if self._recorder.tensors.known(v) in self._before:
            raise _UnknownError  # each turn sets it on a tensor of its own
        if not all(
            type(x) in PLAIN_TYPES and self._recorder.tracked(x) is None for x in own.values()
        ):
            raise _UnknownError
        return id(v), repr(own)

    def held(self, holder: Any, key: Any) -> None:
        """Looks at what the run has put somewhere outside: the program may change it there.

        Raises:
            _UnknownError: it may hold something that is not seen.
        """
        for v in _at(holder, key):
            self.one_held(v)

    def all_held(self, container: Any, before: Any) -> None:
        """Looks at what a container from outside holds, where, and in what order.

        What it held before the call is another object's affair, but for its place.
        """
        if len(container) > _MOST:
            raise _UnknownError
        there = {id(v) for v in _elements(before)}
        self.held_forms.append(
            [k if type(k) in (str, int) else id(k) for k in container]
            if isinstance(container, dict)
            else len(container)
        )
        for v in _elements(container):
            if id(v) in there:
                self.held_forms.append(id(v))
            else:
                self.one_held(v)

    def one_held(self, v: Any) -> None:
        """Looks at something that is reached from outside."""
        self.held_forms.append(self.form(v))


def _at(holder: Any, key: Any) -> Iterator[Any]:
    """What an object holds at a key or name; all that it holds where there is none."""
    if type(holder) is types.CellType:
        if holder != types.CellType():
            yield holder.cell_contents
    elif isinstance(holder, dict):
        yield dict.get(holder, key)
    elif isinstance(holder, (list, tuple)):
        yield from holder
    else:
        own = _interp.own_dict(holder) or {}
        if key not in own:
            raise _UnknownError
        yield own[key]


def _elements(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


def _defaults(function: types.FunctionType) -> bool:
    return bool(function.__defaults__ or function.__kwdefaults__)


def _local_variables(frame: types.FrameType) -> dict[str, Any]:
    """The variables of a frame, which keeps no reference to them (PEP 667: from 3.13 on a view)."""
    found = frame.f_locals
    variables = dict(found)
    if type(found) is dict:
        found.clear()
    return variables


__all__ = ["Loops"]
