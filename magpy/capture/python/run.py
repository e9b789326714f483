"""The state of one watched run that the answers to the session share.

Owns what calls of C functions, effects and tracked values all read or add to: what guards ask
again, the run's refusal, the objects that were read or changed as a whole.  Does not own the
answers themselves (magpy/capture/python/callbacks.py), nor the steps
(magpy/capture/tensors/recorder.py).  Made by magpy/capture/python/callbacks.py.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import gc
import sys
from collections.abc import Callable
from typing import Any, Protocol

import torch

from magpy import _interp
from magpy.capture.rebuild import Builder
from magpy.capture.refusals import RefusalBox
from magpy.capture.tensors.arguments import QUEUED
from magpy.capture.tensors.recorder import Recorder
from magpy.errors import Site, an, hide_frames
from magpy.ir.ops import TUPLES, EffectStep, Var
from magpy.objects import buffers as memory
from magpy.objects import c_state
from magpy.objects.plain_values import is_immutable, is_plain
from magpy.objects.types import isinstance


def frames_hidden(method: Callable[..., Any]) -> Callable[..., Any]:
    """What the program's calls raise does not keep the frames of the method that performs them."""

    @functools.wraps(method)
    def perform(self: Any, *args: Any) -> Any:
        try:
            return method(self, *args)
        except BaseException as e:
            hide_frames(e)
            del args
            raise

    return perform


class TracksValues(Protocol):
    """What is done where a call is given, or returns, a value that differs from call to call."""

    def derive(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, /) -> Any:
        """Notes that `result` was computed by `f`; returns what the program gets for it."""

    def sure(
        self,
        call: Callable[..., Any],
        f: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        /,
    ) -> Any:
        """What `call(f, args, kwargs)` gives; that it raises holds for these very values only."""

    def tracked_call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], /) -> Any:
        """Calls a C function with such values; ABSENT leaves the call to the probe."""


class FollowsLoops(Protocol):
    """What is done where the program loops over a range that is another one in each call."""

    def begin(self, args: tuple[Any, ...], /) -> Any:
        """What it iterates over in place of the range; ABSENT if that is to be one."""


class Run:
    """The state of one watched run.

    Args:
        session: the C++ session.
        recorder: writes down the steps.
        refusals: keeps the refusal of the run.
    """

    #: Follows values that differ from call to call; set by who makes the run.
    tracked: TracksValues
    #: What the program iterates over in loops of any number of turns; likewise.
    loops: FollowsLoops

    def __init__(self, session: _interp.Session, recorder: Recorder, refusals: RefusalBox) -> None:
        """Nothing has happened yet."""
        self.session = session
        self.recorder = recorder
        self.refusals = refusals
        #: Calls that guards make again, with their arguments and what they gave.
        self.redo: list[tuple[Any, tuple[Any, ...], Any]] = []
        #: Addresses of containers that hold other things in every call.
        self.differing: set[int] = set()
        #: What `again` has asked, by numbers that the same questions have.
        self._asked: dict[tuple[int, ...], list[tuple[Any, tuple[Any, ...]]]] = {}
        #: Objects of which the run has asked which they are.
        self.identities: list[Any] = []
        #: Arrays from outside that were looked into, with their form then.
        self.arrays: list[tuple[Any, Any]] = []
        #: By the dict's address and the key: the dict, a tuple that stands for another while the
        #: program runs, the other, and the variable.
        self.parts: dict[tuple[int, Any], tuple[Any, Any, Any, Var]] = {}
        #: Context variables that were set, with their values before.
        self.contexts: dict[int, tuple[contextvars.ContextVar[Any], Any]] = {}
        #: Where something was made or changed that an entry may not leave behind, by its address.
        self.sites: dict[int, tuple[Any, list[Site]]] = {}
        #: What guards ask of abstract base classes, by the two classes' addresses.
        self.registered: dict[tuple[int, int], Any] = {}
        #: Calls of lru_caches that found a result: the cache, how it is found, and the result.
        self.memos: list[tuple[Any, Any, Any, Any]] = []
        #: Such caches that the run has filled.
        self.filled: list[Any] = []
        #: Calls of such caches whose functions were followed: the cache, what it was asked for
        #: (numbers and values), the result.
        self.looked_through: list[tuple[Any, list[tuple[Any, Any]], Any]] = []
        #: Containers that such a cache has given anew, with the objects in them.
        self.remembered: list[tuple[Any, Any]] = []
        #: Locks that the run has taken and not given back.
        self.locks: list[Any] = []
        #: Marks of torch's profiler that were begun, with their variables, by their addresses.
        self.marks: dict[int, tuple[Any, Var]] = {}
        #: The exception that the caller handles while the call runs.
        self.callers_error = sys.exception()
        # Of the call for its effect that is made now: the function and its step, what it writes if
        # it is the `write` of a stream, the tensors that it is given with their versions, and the
        # globals in which it may register a warning.
        self.called_effect: tuple[Any, EffectStep | None] = None, None
        self.written_text: str | bytes | None = None
        self.versions: list[tuple[Any, int]] = []
        self.unwarned: list[dict[str, Any]] = []
        #: The addresses of objects whose attributes the run has written, and how much of the log
        #: they are taken from.
        self.assigned: set[int] = set()
        self.log_read = 0

    def refuse(self, reason: str, remedy: str = "") -> None:
        """Keeps the first refusal, at the user's current line."""
        self.refusals.refuse(reason, remedy)

    def differs(self, holder: Any, key: Any) -> None:
        """What is read was another value in every call so far."""
        kind = type(holder).__name__
        shown = repr(key) if is_plain(key) else an(type(key).__name__)
        name = f"{shown} of {an(kind)}" if key is not None else kind
        self.refuse(f"what is read here ({name}) differs in every call")

    def fixes(self) -> None:
        """A size or number is relied on where it was another one in every call."""
        self.refuse("what this goes by is a size or number that differs in every call")

    def again(self, f: Any, args: tuple[Any, ...]) -> None:
        """The guard calls `f` and compares what it gives with what it gives now."""
        for a in args:
            if id(a) in self.differing:
                self.differs(a, None)
        asked = self._asked.setdefault((id(f), *map(_key, args)), [])
        if not any(g is f and _same_given(a, args) for g, a in asked):
            asked.append((f, args))
            self.redo.append((f, args, f(*args)))

    def proxied(self, proxy: Any) -> None:
        """The dict behind a mapping proxy is looked into."""
        for d in gc.get_referents(proxy):
            self.session.reach(d)
            self.session.touch(d)
            if self.session.is_outside(proxy):
                self.again(c_state.behind, (proxy,))

    def handles(self, error: BaseException | None) -> None:
        """The program asks which exception is being handled: one of its own, or its caller's."""
        if error is self.callers_error is not None:
            self.refuse("the exception that the caller handles is looked at")
        elif error is None:
            self.again(sys.exception, ())

    def builder(self) -> Builder:
        """A fresh builder of specs for values as they are now."""
        session = self.session
        made = Builder(session.is_outside, session.made, self.value_var, self._has_outside_memory)
        made.sites = self.sites
        return made

    def _has_outside_memory(self, array: Any) -> bool:
        place = memory.of_buffer(array)
        return any(memory.meet(place, memory.of_buffer(v)) for v, _ in self.arrays)

    def value_var(self, v: Any) -> Var | None:
        """The variable of a tensor or of a tracked value."""
        if type(v) in TUPLES:
            return next((var for _, made, _, var in self.parts.values() if made is v), None)
        if isinstance(v, torch.Tensor):
            var = self.recorder.tensors.known(v)
            if var is not None:
                return var
            if self.session.is_outside(v):
                return self.recorder.tensors.var_of(v)
        elif self.recorder.any_tracked:
            number = self.session.tracked(v)
            if number is not None and isinstance(v, QUEUED) and _interp.own_dict(v):
                self.refuse(f"attributes are given to {an(type(v).__name__)} that the call makes")
            return Var(number) if number is not None else None
        return None


def _key(given: Any) -> int:
    """The same number for what `_same_given` may find the same."""
    if is_immutable(given):
        with contextlib.suppress(TypeError):  # slices
            return hash(given)
    return id(given)


def _same_given(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Whether two calls are given the same: objects that are equal may answer differently."""
    return len(a) == len(b) and all(
        x is y or (is_immutable(x) and is_immutable(y) and _interp.leaf_equal(x, y))
        for x, y in zip(a, b, strict=True)
    )


__all__ = ["Run", "TracksValues", "frames_hidden"]
