"""One capture: runs the program for real, watched, and says what it read, did and left behind.

Owns the Python side of the session (what the C++ session asks while the program runs) and the
collection of what the end state says: specs of the result and of every change.  Does not own the
meaning of the log (magpy/refgraph) nor code (magpy/mock).  Called by magpy/runtime/compiled.py.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import contextvars
import copy
import copyreg
import enum
import gc
import operator
import random
import re
import sys
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from magpy import _interp, _tensor
from magpy.capture import attribution, leaves, memory, opaque
from magpy.capture.effects import (
    AttrEffect,
    ContainerEffect,
    at_start,
    container_states,
    end_state,
)
from magpy.capture.leaves import Effect, Leaf
from magpy.capture.native import prepare
from magpy.capture.recorder import Recorder, unheard, where_text
from magpy.capture.steps import (
    EffectStep,
    HostStep,
    OpStep,
    OutsideRef,
    Record,
    Var,
    is_leaf,
)
from magpy.errors import Refusal
from magpy.mock.segments import refs
from magpy.mock.spec import Builder, Const, Spec
from magpy.mock.support import advance
from magpy.runtime import faults

ABSENT = _interp.ABSENT


@dataclass(slots=True)
class Capture:
    """A finished, successful capture: all that the later stages need."""

    f: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    log: list[tuple[str, Any, Any, Any]]
    record: Record
    metas: dict[int, Any]
    state: Any
    result: Spec
    effects: list[ContainerEffect | AttrEffect]
    redo: list[tuple[Any, tuple[Any, ...], Any]]
    opaque: list[tuple[Any, Any]]
    arrays: list[tuple[Any, Any]]
    memos: list[tuple[Any, Any, Any]]
    iterators: list[tuple[Any, tuple[Any, ...], int, bool]]
    start_modes: Any
    events: int
    raised_at: list[tuple[str, int, str, dict[str, Any]]] | None = None


@dataclass(slots=True)
class Outcome:
    """What came of the watched run: its own outcome, and the capture or why there is none."""

    value: Any = None
    exception: BaseException | None = None
    capture: Capture | None = None
    refusal: Refusal | None = None
    failure: BaseException | None = None
    stage: str = ""


class Handler:
    """What the C++ session asks while the program runs.  Every method runs with events paused."""

    def __init__(self, scalars: bool = True) -> None:
        """Starts an empty session."""
        self.session = _interp.Session(self)
        self.recorder = Recorder(self.session.is_outside, self.session, scalars)
        self._called: tuple[Any, EffectStep | None] = None, None
        self.redo: list[tuple[Any, tuple[Any, ...], Any]] = []
        self.opaque: list[tuple[Any, Any]] = []
        self.contexts: dict[int, tuple[contextvars.ContextVar[Any], Any]] = {}
        self.arrays: list[tuple[Any, Any]] = []
        self.sites: dict[int, str] = {}
        self.written: list[memory.Range | None] = []
        self.consumed: list[tuple[Any, tuple[Any, ...]]] = []
        self.iterators: list[tuple[Any, tuple[Any, ...], int, bool]] = []
        self.memos: list[tuple[Any, Any, Any]] = []
        self.refusal: Refusal | None = None

    def refuse(self, reason: str, remedy: str = "") -> None:
        """Keeps the first refusal, at the user's current line."""
        if self.refusal is None:
            self.refusal = Refusal(reason, where_text(2), remedy)

    def builder(self) -> Builder:
        """A fresh builder of specs for values as they are now."""
        return Builder(self.session.is_outside, self.session.made, self.value_var)

    def value_var(self, v: Any) -> Var | None:
        """The variable of a tensor, of a tracked value or of an operation's exception."""
        if isinstance(v, BaseException):
            entry = self.recorder.errors.get(id(v))
            return entry[1] if entry is not None else None
        if isinstance(v, torch.Tensor):
            var = self.recorder.known(v)
            if var is not None:
                return var
            if self.session.is_outside(v):
                return self.recorder.var_of(v)
        elif self.recorder.any_tracked:
            number = self.session.tracked(v)
            return Var(number) if number is not None else None
        return None

    # ------------------------------------------------------------- asked by the session

    def classify(self, f: Any) -> int:
        """The verdict on a C callable."""
        faults.check("log")
        try:
            return int(leaves.classify(f))
        except (TypeError, AttributeError, ValueError):
            # A callable that lies about itself is not known.
            return int(Leaf.HANDLER)

    def touch(self, obj: Any, deep: bool) -> None:
        """An outside object that is no plain container is looked into as a whole by C code."""
        t = type(obj)
        if t.__module__ == "numpy":
            if t.__name__ == "ndarray":
                self.arrays.append((obj, obj.copy()))
                self.sites.setdefault(id(obj), where_text())
            return
        if t in _VIEWS:
            self.refuse(f"a live view ({t.__name__}) of a dict from outside is read")
        elif t is types.MappingProxyType:
            self._proxied(obj)
        elif isinstance(obj, types.SimpleNamespace):
            self._vars(vars, (obj,), {})
        elif t is operator.attrgetter:
            self.refuse(
                "an operator.attrgetter is given to a C function, where nobody sees what it reads",
                "Use a lambda instead",
            )
        elif t in _ITERATORS:
            if all(it is not obj for it, _ in self.consumed):
                self.consumed.append((obj, tuple(copy.copy(obj))))
                for x in self.consumed[-1][1]:
                    self.session.reach(x)
        elif hasattr(t, "__next__"):
            self.refuse("an iterator or generator from outside is consumed", "Pass a list instead")
        elif opaque.stateful(t):  # type: ignore[arg-type]
            before = opaque.picture(obj)
            if before is None:
                self.refuse(f"a {t.__name__} from outside is read, whose state cannot be compared")
            self.opaque.append((obj, before))
            self.sites.setdefault(id(obj), where_text())

    def call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Performs a call that the table of leaves reserves for the handler."""
        treat = _TREATMENTS.get(leaves.effect_of(f), Handler._unknown)
        return treat(self, f, args, kwargs)

    def caller_read(self, frame: Any) -> None:
        """The program looks at a frame that was there before the call."""
        self.refuse("the frame of a caller is looked at")

    def _vars(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            self.session.attr_read(args[0], "__dict__", None)
            d = getattr(args[0], "__dict__", None)
            if isinstance(d, types.MappingProxyType):
                self._proxied(d)
            elif isinstance(d, dict) and self.session.is_outside(d):
                self.session.touch(d)
        return ABSENT

    def _proxied(self, proxy: Any) -> None:
        """The dict behind a mapping proxy is looked into."""
        for d in gc.get_referents(proxy):
            self.session.reach(d)
            self.session.touch(d)

    def _reduce(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = getattr(f, "__self__", None)
        target = args[0] if target is None and args else target
        d = getattr(target, "__dict__", None)
        if isinstance(d, dict) and target is not None and self.session.is_outside(target):
            self.session.attr_read(target, "__dict__", None)
            self.session.touch(d)
        return ABSENT

    def _neutral(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return ABSENT

    def _clock(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self._derive(f, args, kwargs, f(*args, **kwargs))

    def _weakref(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = f(*args)
        if not self.session.is_outside(f):
            return target  # made by the run, which must not be kept alive
        self.session.reach(target)
        self.redo.append((f, args, target))
        return target

    def _attrgetter(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) != 1 or kwargs:
            return ABSENT

        def read(path: str) -> Any:
            v = args[0]
            for name in path.split("."):
                v = _interp.call(getattr, (v, name), {})
            return v

        values = tuple(read(path) for path in f.__reduce__()[1])
        return values if len(values) > 1 else values[0]

    def _format(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        text = getattr(f, "__self__", None)
        if not isinstance(text, str):
            text = args[0] if args else None
        if isinstance(text, str) and _ATTRIBUTE_FIELD.search(text):
            self.refuse("str.format reads an attribute", "Use an f-string instead")
            return ABSENT
        if any(self.session.tracked(a) is not None for a in (*args, *kwargs.values())):
            return self.tracked_call(f, args, kwargs)
        for a in (*args, *kwargs.values()):
            self.session.touch(a)
        return _interp.watched(f, args, kwargs)

    def _refused(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.refuse(f"{_name(f)} is called")
        return ABSENT

    def finish_iterators(self, builder: Builder) -> None:
        """Notes how far the run went in outside iterators, and that it must go as far again."""
        for iterator, before in self.consumed:
            rest = len(tuple(copy.copy(iterator)))
            taken = len(before) - rest
            # An exhausted list iterator forgets its list: it would not see what is appended later.
            exhausted = rest == 0 and len(iterator.__reduce__()) == 2
            if not all(is_leaf(x) for x in before[:taken]) or (
                exhausted and not all(is_leaf(x) for x in before)
            ):
                raise Refusal(
                    "an iterator from outside is consumed whose elements are not plain values"
                )
            self.iterators.append((iterator, before[:taken], len(before), exhausted))
            step = EffectStep(
                advance, [builder.build(iterator), Const(taken), Const(exhausted)], {}, []
            )
            self.recorder.record.steps.append(step)

    def _whole_call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One operation of the graph in which Python may run: it may not change the world."""
        before = container_states(self.session)
        result = self.recorder.whole_call(
            _whole(f), args, kwargs, lambda: _interp.watched(f, args, kwargs)
        )
        after = container_states(self.session)
        if any(after[k] != v for k, v in before.items()) or any(
            v is not None for k, v in after.items() if k not in before
        ):
            self.refuse(f"{_name(f)}, which is called as a whole, changes an object from outside")
        return result

    def _unknown(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        before = len(self.recorder.record.steps)
        for a in (*args, *kwargs.values()):
            self.session.touch(a)
        result = _interp.watched(f, args, kwargs)
        if len(self.recorder.record.steps) == before:
            self.refuse(
                f"{_name(f)} is called, a C function whose effects magpy does not know",
                f"Say what it is with magpy.pure({_name(f)}) or magpy.effect({_name(f)})",
            )
        return result

    def _read(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function that reads the world: the guard reads it again."""
        for a in args:
            self.session.touch(a)
        owner = getattr(f, "__self__", None)
        if (
            kwargs
            or not all(is_leaf(a) or isinstance(a, enum.Enum) for a in args)
            or not (
                owner is None
                or isinstance(owner, (types.ModuleType, type))
                or self.session.is_outside(owner)
            )
        ):
            self.refuse(f"{_name(f)} is called with objects made in the call")
        try:
            result = f(*args, **kwargs)
        except Exception:
            self._again(opaque.outcome, (f, *args))
            raise
        if isinstance(result, tuple) and not is_leaf(result):
            self._again(opaque.outcome, (f, *args))
        else:
            self.session.reach(result)
            self.redo.append((f, args, result))
        return result

    def _again(self, f: Any, args: tuple[Any, ...]) -> None:
        """The guard calls `f` and compares what it gives with what it gives now."""
        if all(g is not f or a != args for g, a, _ in self.redo):
            self.redo.append((f, args, f(*args)))

    def _ambient(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._again(opaque.decimal_context, ())
        return ABSENT

    def _context(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A context variable is state like a global (PEP 567)."""
        var = getattr(f, "__self__", None)
        if not isinstance(var, contextvars.ContextVar):
            self.refuse(f"{_name(f)} is called without an instance")
            return ABSENT
        known = id(var) in self.contexts
        if not self.session.is_outside(var) or (known and f.__name__ == "get"):
            return ABSENT
        if f.__name__ == "get":
            return self._read(f, args, kwargs)
        if not known:
            self.contexts[id(var)] = (var, var.get(ABSENT))
        return ABSENT

    def check_buffers(self, where: str) -> None:
        """Refuses where memory was read as a buffer from outside and written through a tensor.

        What the buffer held when it was first read need not be what it held before the call.

        Args:
            where: the place to name where that of the read is not known.
        """
        bytearrays = [obj for obj, _, _ in self.session.containers() if isinstance(obj, bytearray)]
        read = [obj for obj, _ in (*self.arrays, *self.opaque)] + bytearrays
        if not read or self.refusal is not None:
            return
        record = self.recorder.record
        written = [*self.written, *(memory.of_tensor(record.inputs[v]) for v in record.mutated)]
        for obj in read:
            place = memory.of_buffer(obj)
            if any(memory.meet(place, w) for w in written):
                self.refusal = Refusal(
                    f"memory that is read as a {type(obj).__name__} from outside is changed "
                    "through a tensor",
                    self.sites.get(id(obj), where),
                )
                return

    def finish_contexts(self, builder: Builder) -> None:
        """Notes the context variables that the run has left changed."""
        for var, before in self.contexts.values():
            now = var.get(ABSENT)
            if now is before:
                continue
            if now is ABSENT:
                raise Refusal(f"the call takes the value of {var!r} away")
            step = EffectStep(
                contextvars.ContextVar.set, [builder.build(var), builder.build(now)], {}, []
            )
            self.recorder.record.steps.append(step)

    def _registry(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._again(abc.get_cache_token, ())
        return ABSENT

    def _collector(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if f is gc.isenabled:
            self.redo.append((f, (), self.session.collecting))
            return self.session.collecting
        if f in (gc.enable, gc.disable):
            self.recorder.record.steps.append(EffectStep(f, [], {}, []))
            self.session.collecting = f is gc.enable
            return None
        return self._effect(f, args, kwargs)

    # ------------------------------------------------------------- values that differ between calls

    def _derive(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
        recorder = self.recorder
        if recorder.refusal is not None or recorder._depth:
            return result
        try:
            return recorder.track(
                f, recorder.convert_all(args), recorder.convert_all(kwargs), result
            )
        except Refusal as r:
            self.refusal = self.refusal or r.without_frames()
            return result

    def rely_on(self, v: Any) -> None:
        """A tracked value is about to be looked at in a way that cannot be redone: checks it."""
        var = self.session.tracked(v)
        if var is not None:
            self.recorder.rely_on(v, Var(var))

    def counter(self, holder: Any, key: Any, value: Any) -> Any:
        """A counter is read: the number becomes an input.  Returns an equal one to use instead."""
        recorder = self.recorder
        if recorder.refusal is not None or recorder._depth:
            return _interp.fresh(value)
        if key is None:
            return recorder.track(getattr, (OutsideRef(holder), "cell_contents"), {}, value)
        return recorder.track(operator.getitem, (OutsideRef(holder), key), {}, value)

    def truth(self, v: Any) -> None:
        """The truth of a tracked value decides a jump."""
        try:
            result = bool(v)
        except Exception:  # noqa: BLE001 - the program's own: the jump is about to raise it
            self.rely_on(v)
        else:
            self._derive(bool, (v,), {}, result)

    def binary(self, op: int, a: Any, b: Any, result: Any) -> Any:
        """A binary operation with a tracked operand."""
        if (result is a or result is b) and type(result).__module__ == "numpy":
            # In place: redone where it stands.
            self._host_only(BINARY[op], (a, b))
            return result
        return self._derive(BINARY[op], (a, b), {}, result)

    def compare(self, op: int, a: Any, b: Any, result: Any) -> Any:
        """A comparison with a tracked operand."""
        return self._derive(COMPARE[op], (a, b), {}, result)

    def unary(self, op: int, a: Any, b: Any, result: Any) -> Any:
        """A unary operation on a tracked value."""
        return self._derive(UNARY[op], (a,), {}, result)

    def item(self, op: int, obj: Any, key: Any, result: Any) -> Any:
        """obj[key] of a tracked array or string, or with a tracked key."""
        if self.session.tracked(obj) is None:
            self.session.rely_on(key)
            return result
        return self._derive(operator.getitem, (obj, key), {}, result)

    def item_store(self, op: int, obj: Any, key: Any, value: Any) -> Any:
        """obj[key] = value in a tracked array."""
        if value is ABSENT:
            self._host_only(operator.delitem, (obj, key))
        else:
            self._host_only(operator.setitem, (obj, key, value))
        return None

    def attribute(self, op: int, obj: Any, name: Any, value: Any) -> Any:
        """obj.name of a tracked value."""
        if type(value).__module__ == "numpy" and type(value).__name__ == "ndarray":
            self._derive(getattr, (obj, name), {}, value)
        elif not callable(value) and (
            type(obj).__name__ != "ndarray" or type(value).__name__ in ("flatiter", "memoryview")
        ):
            self.rely_on(obj)
        return None

    def format(self, conversion: int, value: Any, spec: Any, result: Any) -> Any:
        """A tracked value in an f-string."""
        return self._derive(format_value, (value, spec or "", conversion), {}, result)

    def join(self, op: int, parts: Any, unused: Any, result: Any) -> Any:
        """The parts of an f-string, some of them tracked."""
        return self._derive("".join, (parts,), {}, result)

    def _host_only(self, f: Any, args: tuple[Any, ...]) -> None:
        recorder = self.recorder
        if isinstance(args[0], np.ndarray):
            self.written.append(memory.of_buffer(args[0]))
        if recorder.refusal is None and not recorder._depth:
            recorder._add(
                HostStep(
                    f,
                    recorder.convert_all(args),
                    {},
                    "none",
                    None,
                    [],
                    where_text(2),
                    recorder.dirty(),
                )
            )

    def _sure(
        self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], owner: Any = None
    ) -> Any:
        """Calls `f`; that it raises is sure for these very values only."""
        try:
            return f(*args, **kwargs)
        except Exception:
            self.session.rely_on((args, kwargs, owner))
            raise

    def tracked_call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A C function is called with tracked values."""
        owner = getattr(f, "__self__", None)
        if leaves.scalar_function(f) and _recomputable(f, (args, kwargs)):
            if owner is not None and not isinstance(owner, (types.ModuleType, type)):
                name = f.__name__
                result = self._sure(f, args, kwargs, owner)
                unbound = getattr(type(owner), name)
                if result is None:
                    self._host_only(unbound, (owner, *args))
                    return result
                return self._derive(unbound, (owner, *args), kwargs, result)
            if f is int or f is float:
                self.recorder.direct = True
            try:
                result = self._sure(f, args, kwargs)
            finally:
                self.recorder.direct = False
            if any(isinstance(a, torch.Tensor) for a in args):
                return result
            return self._derive(f, args, kwargs, result)
        if leaves.classify(f) is Leaf.TORCH:
            before = self.recorder.operations
            result = f(*args, **kwargs)
            if self.recorder.operations == before:
                fresh: list[Any] = []
                if not _fresh(result, self):
                    self.session.rely_on((args, kwargs))
                del fresh
            return result
        self.session.rely_on((args, kwargs, owner))
        for a in (owner, *args, *kwargs.values()):
            self.session.touch(a)
        return ABSENT

    def array_call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A C function is called with tensors: one of numpy, which takes their data, is redone."""
        recorder = self.recorder
        if recorder.refusal is not None or recorder._depth or self.refusal is not None:
            return ABSENT
        if not leaves.numpy_function(f) or "out" in kwargs or not _recomputable(f, (args, kwargs)):
            return ABSENT
        values = (*args, *kwargs.values())
        if any(isinstance(a, torch.Tensor) and type(a) not in _TENSORS for a in values):
            return ABSENT
        for a in values:
            if self.session.tracked(a) is None:
                self.session.touch(a)
        recorder._depth += 1
        try:
            plan = recorder.convert_all(args), recorder.convert_all(kwargs)
            result = f(*args, **kwargs)
        except Refusal as r:
            self.refusal = self.refusal or r
            return ABSENT
        except Exception:
            self.refuse(f"{_name(f)} raises for a tensor")
            raise
        finally:
            recorder._depth -= 1
        try:
            return recorder.called(f, *plan, result)
        except Refusal as r:
            self.refusal = self.refusal or r
            return result

    def _number(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if any(self.session.tracked(a) is not None for a in (*args, *kwargs.values())):
            return self.tracked_call(f, args, kwargs)
        if args and type(args[0]) in (int, float, bool, str):
            return f(*args, **kwargs)
        if args and isinstance(args[0], torch.Tensor):
            self.recorder.direct = True
            try:
                return f(*args, **kwargs)
            finally:
                self.recorder.direct = False
        for a in args:
            self.session.touch(a)
        return ABSENT

    def _partial(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A functools.partial: what it holds is read, then its function is called directly."""
        if self.session.is_outside(f):
            for name in ("func", "args", "keywords"):
                self.session.attr_read(f, name, getattr(f, name))
            self.session.touch(f.keywords)
        if isinstance(f.func, types.FunctionType):
            return ABSENT
        return _interp.call(f.func, (*f.args, *args), {**f.keywords, **kwargs})

    def _random(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A draw from Python's or numpy's generator: redone in order, its value bound."""
        name = f.__name__
        if args and getattr(type(args[0]), name, None) == f:
            f, args = types.MethodType(f, args[0]), args[1:]  # called with its receiver first
        owner = getattr(f, "__self__", None)
        recorder = self.recorder
        if recorder._depth or recorder.refusal is not None or self.refusal is not None:
            return ABSENT
        if owner is None or isinstance(owner, type) or not self._outside_generator(owner):
            self.refuse(f"{_name(f)} draws from a generator that the call made")
            return ABSENT
        if (
            name == "choice"
            and isinstance(owner, random.Random)
            and len(args) == 1
            and not kwargs
            and len(args[0])
        ):
            self.session.touch(args[0])
            draw = owner._randbelow  # type: ignore[attr-defined]
            i = draw(len(args[0]))
            recorder._add(
                HostStep(
                    draw,
                    (len(args[0]),),
                    {},
                    "leaf",
                    i,
                    [],
                    where_text(),
                    recorder.dirty(),
                    owner=owner,
                )
            )
            return args[0][i]
        if name in ("shuffle", "seed", "setstate", "set_state", "getstate", "get_state"):
            self.refuse(f"{_name(f)} is called")
            return ABSENT
        for a in (*args, *kwargs.values()):
            self.session.touch(a)
        converted = recorder.convert_all(args), recorder.convert_all(kwargs)
        result = self._sure(f, args, kwargs)
        try:
            return recorder.track(f, converted[0], converted[1], result, owner)
        except Refusal as r:
            self.refusal = self.refusal or r.without_frames()
            return result

    def _seed(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Torch's generators are seeded: done again between the same operations."""
        recorder = self.recorder
        if recorder._depth or recorder.refusal is not None or self.refusal is not None:
            return ABSENT
        plan = recorder.convert_all(args), recorder.convert_all(kwargs)
        where, dirty = where_text(), recorder.dirty()
        recorder._depth += 1
        try:
            result = f(*args, **kwargs)
        finally:
            recorder._depth -= 1
        self.session.reach(result)
        recorder.record.random = True
        recorder._add(HostStep(f, *plan, "none", None, [], where, dirty, random=True, mutates=True))
        return result

    def _outside_generator(self, owner: Any) -> bool:
        return (
            self.session.is_outside(owner)
            or owner is getattr(random.random, "__self__", None)
            or _is_numpy_global(owner)
        )

    def _memo(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of an lru_cache: what it remembers is outside state; filling it is not redone."""
        self.session.rely_on((args, kwargs))
        memo = getattr(f, "__func__", f)
        before = memo.cache_info().misses
        result = _interp.watched(f, args, kwargs)
        misses = memo.cache_info().misses
        if misses != before:
            self.refuse(
                f"{_name(memo)} fills its lru_cache",
                "The next call finds the result there and is captured",
            )
            return result
        if not self.session.is_outside(result):
            self.session.reach(result)
        recorder = self.recorder
        if recorder.refusal is None and not recorder._depth:
            kept = leaves.remembered(memo, None if kwargs else args, result)
            if kept is None:
                self.refuse(f"{_name(memo)} is called, an lru_cache that keeps nothing")
            else:
                self.memos.append((memo, *kept))
            recorder._add(
                HostStep(
                    f,
                    recorder.convert_all(args),
                    recorder.convert_all(kwargs),
                    "call",
                    None,
                    [],
                    where_text(),
                    recorder.dirty(),
                )
            )
        return result

    def _effect(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        step: EffectStep | None = None
        if self.refusal is None and self.recorder.refusal is None:
            try:
                step = self._effect_step(f, args, kwargs)
            except Refusal as r:
                self.refusal = Refusal(f"{_name(f)} is called: {r.reason}", where_text(), r.remedy)
        self._called = f, step
        self.recorder._depth += 1
        return NotImplemented  # called from the program's own frame, which it may look at

    def _effect_step(
        self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> EffectStep | None:
        """How a call for its effect is redone; None if it has none.

        Raises:
            Refusal: it cannot be redone.
        """
        looked_at = self._looked_at((args, kwargs))
        sites, caller = None, 0
        frame = attribution.program_frame()
        if attribution.is_warning(f) and frame is not None:
            site, caller, plain, named = attribution.of_warning(frame, args, kwargs)
            if self._silent(plain[0], named.get("category"), site):
                return None
            if caller:
                sites, args, kwargs = [site], plain, named
        elif f is print and not kwargs.get("file") and self._changed(sys, "stdout"):
            raise Refusal("sys.stdout is what the call has put there")
        builder = self.builder()
        return EffectStep(
            f,
            [builder.build(a) for a in args],
            {k: builder.build(v) for k, v in kwargs.items()},
            sites or _callers(f, args, kwargs),
            tensors=looked_at,
            caller=caller,
        )

    def effect_done(self, result: Any) -> None:
        """A call for its effect, which `_effect` has left to the probe, is over.

        Args:
            result: its result, or ABSENT if it raised.
        """
        self.recorder._depth -= 1
        f, step = self._called
        self._called = None, None
        if step is not None and result is not ABSENT:
            if not is_leaf(result):
                self.refuse(f"{_name(f)} returns a {type(result).__name__}")
            self.recorder.record.steps.append(step)

    def _changed(self, module: types.ModuleType, name: str) -> bool:
        before = at_start(self.session, module, name)
        return (
            before is not vars(module).get(name, ABSENT)
            or container_states(self.session).get(id(before)) is not None
        )

    def _silent(self, message: Any, category: Any, site: attribution.Site) -> bool:
        """Whether a warning is ignored under filters that the call itself has set.

        Raises:
            Refusal: the call has changed what becomes of warnings, and this one is not ignored.
        """
        if not any(self._changed(warnings, name) for name in attribution.WARNING_STATE):
            return False
        if not attribution.is_ignored(message, category, site):
            raise Refusal("a warning is issued while the call has changed what becomes of warnings")
        return True

    def _looked_at(self, values: Any) -> list[Any]:
        """The tensors that a call for its effect reaches.

        Raises:
            Refusal: it reaches an outside object that the run has changed, which at replay is
                changed only afterwards.
        """
        session = self.session
        changed = {i for i, now in container_states(session).items() if now is not None}
        changed.update(id(obj) for kind, obj, _, _ in session.log() if kind == "write_attr")
        changed.update(id(cell) for cell, _ in session.written_cells())
        tensors: list[Any] = []
        seen: dict[int, Any] = {}
        todo: list[Any] = [values]
        while todo:
            v = todo.pop()
            if id(v) in seen or type(v) in _PLAIN or isinstance(v, _NOT_LOOKED_INTO):
                continue
            seen[id(v)] = v
            if id(v) in changed:
                raise Refusal(f"it is given a {type(v).__name__} that the call has changed before")
            if len(seen) > _REACH:
                raise Refusal("it is given too many objects to tell which of them the call changes")
            if isinstance(v, torch.Tensor):
                var = self.recorder.known(v)
                tensors.append(v if var is None else var)
            elif isinstance(v, dict):
                todo.extend(dict.values(v))
            elif isinstance(v, _SEQUENCES):
                base: Any = next(c for c in _SEQUENCES if isinstance(v, c))
                todo.extend(base.__iter__(v))
            todo.extend(_state_of(v))
        return tensors

    def c_result(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """A C function returned tensors."""
        if self.recorder._depth or self.refusal is not None or self.recorder.refusal is not None:
            return
        owner = getattr(f, "__self__", None)
        try:
            if (
                owner is not None
                and not isinstance(owner, (types.ModuleType, type))
                and not self.session.is_outside(owner)
            ):
                fresh = _fresh(result, self)
                if fresh:
                    raise Refusal(
                        f"{_name(f)} returns a tensor that magpy did not see being made",
                        where_text(),
                    )
                return
            self.recorder.unseen_result(f, args, kwargs, result)
        except Refusal as r:
            if self.refusal is None:
                self.refusal = r.without_frames()


# A replacement field that names an attribute: "{a.b}".
_ATTRIBUTE_FIELD = re.compile(r"\{[^{}!:]*\.[^{}!:]*[}!:]")

# How a call is performed; one whose effect is not here has effects that magpy does not know.
_TREATMENTS: dict[Effect, Callable[[Handler, Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    Effect.EFFECT: Handler._effect,
    Effect.WHOLE: Handler._whole_call,
    Effect.VARS: Handler._vars,
    Effect.REDUCE: Handler._reduce,
    Effect.NEUTRAL: Handler._neutral,
    Effect.RANDOM: Handler._random,
    Effect.SEED: Handler._seed,
    Effect.NUMBER: Handler._number,
    Effect.CLOCK: Handler._clock,
    Effect.PARTIAL: Handler._partial,
    Effect.WEAKREF: Handler._weakref,
    Effect.MEMO: Handler._memo,
    Effect.REFUSE: Handler._refused,
    Effect.ATTRGETTER: Handler._attrgetter,
    Effect.FORMAT: Handler._format,
    Effect.READ: Handler._read,
    Effect.AMBIENT: Handler._ambient,
    Effect.REGISTRY: Handler._registry,
    Effect.CONTEXT: Handler._context,
    Effect.COLLECTOR: Handler._collector,
}


def _recomputable(f: Any, values: Any) -> bool:
    """Whether a function of values, given these, does nothing but compute a value from them.

    Iterators are used up, functions run code of their own, and arrays made by the run may be
    written to: such a call is watched, and relies on the tracked values that it is given.
    """
    t = type(values)
    if t is tuple or t is list:
        return all(_recomputable(f, x) for x in values)
    if t is dict:
        return all(type(k) is str and _recomputable(f, v) for k, v in values.items())
    if t is np.ndarray:
        return getattr(f, "__name__", "") not in _WRITES_ARRAYS
    # A step keeps a torch.Size as a tuple.
    return (is_leaf(values) and t is not torch.Size) or isinstance(
        values, (torch.Tensor, np.generic, type)
    )


_TENSORS = (torch.Tensor, torch.nn.Parameter)

# Functions of numpy that write to an array that they are given.
_WRITES_ARRAYS = frozenset(["copyto", "put", "place", "putmask", "fill_diagonal", "put_along_axis"])


def _fresh(v: Any, handler: Handler, depth: int = 0) -> bool:
    if isinstance(v, torch.Tensor):
        return handler.recorder.known(v) is None and not handler.session.is_outside(v)
    if depth > _DEPTH:
        return False
    if isinstance(v, (tuple, list)):
        return any(_fresh(x, handler, depth + 1) for x in v)
    if isinstance(v, dict):
        return any(_fresh(x, handler, depth + 1) for x in v.values())
    return False


# What printing does not look into, and how many objects it may look at.
_NOT_LOOKED_INTO = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
_PLAIN = (int, float, complex, bool, str, bytes, type(None))
_SEQUENCES = (list, tuple, set, frozenset, collections.deque)
_REACH = 20000


def _state_of(v: Any) -> list[Any]:
    """The instance dict and the contents of the slots of an object."""
    t = type(v)
    d = getattr(v, "__dict__", None)
    state: list[Any] = [d] if isinstance(d, dict) else []
    if t.__flags__ & (1 << 9):
        for name in copyreg._slotnames(t):  # type: ignore[attr-defined]
            with contextlib.suppress(AttributeError):
                state.append(object.__getattribute__(v, name))
    return state


def _check_effects(record: Record) -> None:
    """Effects are redone after all operations.

    Raises:
        Refusal: an operation changes a tensor after an effect has looked at it.
    """
    variables = {id(t): v for v, t in record.inputs.items()}
    looked: set[int] = set()
    name = where = ""
    for step in record.steps:
        if isinstance(step, EffectStep):
            for t in step.tensors:
                var = Var(t) if isinstance(t, int) else variables.get(id(t))
                if var in record.storages:
                    looked.add(record.storages[var])
            name = _name(step.func)
            if step.sites:
                where = "{}:{} ({})".format(*step.sites[-1])
        elif looked and isinstance(step, (OpStep, HostStep)) and step.mutates:
            found: set[Var] = set()
            refs((step.args, step.kwargs), found)
            if not looked.isdisjoint(record.storages.get(v, 0) for v in found):
                raise Refusal(f"{name} is given a tensor that the call changes afterwards", where)


# A C function returns tensors themselves or in a small structure of its own, never deeper.
_DEPTH = 3


def _is_numpy_global(owner: Any) -> bool:
    import numpy as np

    return owner is np.random.mtrand._rand


def format_value(value: Any, spec: str, conversion: int) -> str:
    """What an f-string makes of a value (https://docs.python.org/3/reference/lexical_analysis.html#f-strings)."""
    if conversion in _CONVERSIONS:
        value = _CONVERSIONS[conversion](value)
    return format(value, spec)


# FORMAT_VALUE's and CONVERT_VALUE's numbers, and the character codes of the syntax tree.
_CONVERSIONS: dict[int, Any] = {
    1: str,
    2: repr,
    3: ascii,
    ord("s"): str,
    ord("r"): repr,
    ord("a"): ascii,
}
UNARY = {100: operator.neg, 101: operator.pos, 102: operator.invert, 103: operator.not_}
COMPARE = [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]
# In the order of CPython's NB_* numbers (Include/opcode.h).
BINARY = [
    getattr(operator, name)
    for name in [
        "add",
        "and_",
        "floordiv",
        "lshift",
        "matmul",
        "mul",
        "mod",
        "or_",
        "pow",
        "rshift",
        "sub",
        "truediv",
        "xor",
        "iadd",
        "iand",
        "ifloordiv",
        "ilshift",
        "imatmul",
        "imul",
        "imod",
        "ior",
        "ipow",
        "irshift",
        "isub",
        "itruediv",
        "ixor",
    ]
]
_ITERATORS: tuple[type, ...] = (
    type(iter([])),
    type(iter(())),
    type(iter(range(0))),
    type(reversed([])),
    type(iter("")),
)
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))


def _name(f: Any) -> str:
    owner = getattr(f, "__self__", None)
    if owner is not None and not isinstance(owner, types.ModuleType):
        cls = owner if isinstance(owner, type) else type(owner)
        return f"{cls.__name__}.{getattr(f, '__name__', f)}"
    return str(getattr(f, "__qualname__", None) or getattr(f, "__name__", None) or f)


def _whole(f: Any) -> Callable[..., Any]:
    """A plain function around a callable that is recorded as a whole."""
    if isinstance(f, types.FunctionType):
        return f

    def whole(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs)

    owner = getattr(f, "__self__", None)
    whole.__name__ = f"whole_{getattr(owner, '__name__', '')}_{getattr(f, '__name__', 'call')}"
    whole.__magpy_target__ = f  # type: ignore[attr-defined]
    return whole


def run(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], scalars: bool = True) -> Outcome:
    """Calls `f(*args, **kwargs)` for real, watched.

    Args:
        f: the program.
        args: its positional arguments.
        kwargs: its keyword arguments.
        scalars: whether graphs may take Python numbers as inputs.

    Returns:
        The program's result or exception, and either a capture or the reason why there is none.
        Never raises on the program's behalf.
    """
    out = Outcome()
    try:
        prepare()
        handler = Handler(scalars)
        state = _tensor.TorchState()
        metas = {
            id(v): _tensor.TensorMeta(v)
            for v in (*args, *kwargs.values())
            if isinstance(v, torch.Tensor)
        }
        recorder = handler.recorder
        recorder.observer.start()
    except Exception as e:  # noqa: BLE001 - magpy failed before the program ran: it runs eagerly
        out.failure, out.stage = e, "start"
        try:
            out.value = f(*args, **kwargs)
        except BaseException as program:  # noqa: BLE001 - handed to the caller as the program's own
            out.exception = program
        return out
    try:
        with recorder:
            out.value = handler.session.run(f, args, kwargs)
    except BaseException as program:  # noqa: BLE001 - handed to the caller as the program's own
        out.exception = program
    finally:
        recorder.observer.stop()
    try:
        _finish(out, handler, f, args, kwargs, state, metas)
    except Refusal as r:
        out.refusal = r
    except Exception as e:  # noqa: BLE001 - P1: the program's outcome stands
        out.failure, out.stage = e, out.stage or "record"
    finally:
        handler.session.clear()
        # The recorder refers to its tensors and to the handler: break the cycle at once.
        recorder._known.clear()
        recorder._is_outside = bool
        del handler
    return out


def _finish(
    out: Outcome,
    handler: Handler,
    f: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    state: Any,
    metas: dict[int, Any],
) -> None:
    recorder, session = handler.recorder, handler.session
    failure = session.failure
    if failure is not None:
        out.stage = failure[0]
        cause = failure[1]
        if isinstance(cause, str):
            raise Refusal(cause)
        out.failure = cause if isinstance(cause, BaseException) else RuntimeError(str(cause))
        return
    if recorder.failure is not None:
        out.failure, out.stage = recorder.failure, "recorder"
        return
    record = recorder.finish()
    for now, before in handler.arrays:
        if _array_form(now) != _array_form(before) and handler.refusal is None:
            handler.refusal = Refusal(
                "a numpy array from outside is changed",
                handler.sites[id(now)],
                "Return a new array",
            )
    handler.check_buffers(_definition(f))
    refusal = handler.refusal or recorder.refusal
    if refusal is not None:
        raise refusal
    if out.exception is not None and not isinstance(out.exception, Exception):
        raise Refusal(f"the call raised {type(out.exception).__name__}", _raise_site(out.exception))
    difference = state.difference()
    if difference is not None:
        raise Refusal(f"the call leaves torch in another state than it found it in ({difference})")
    faults.check("log")
    _check_effects(record)
    with unheard():
        out.capture = _end(out, handler, f, args, kwargs, state, metas, record)


def _end(
    out: Outcome,
    handler: Handler,
    f: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    state: Any,
    metas: dict[int, Any],
    record: Record,
) -> Capture:
    """What the run has left behind."""
    recorder, session = handler.recorder, handler.session
    log = session.log()
    builder = handler.builder()
    if out.exception is None:
        result = builder.build(out.value)
    else:
        result = _exception_spec(out.exception, builder)
    handler.finish_iterators(builder)
    handler.finish_contexts(builder)
    for obj, before in handler.opaque:
        if not opaque.same(opaque.picture(obj), before):
            raise Refusal(f"the call changes a {type(obj).__name__} from outside")
    effects = end_state(session, log, builder)
    log = session.log()  # an effect may rely on more of what was there before
    metas.update(recorder.metas)
    return Capture(
        f,
        args,
        kwargs,
        log,
        record,
        metas,
        state,
        result,
        effects,
        handler.redo,
        handler.opaque,
        handler.arrays,
        handler.memos,
        handler.iterators,
        recorder.start_modes,
        session.events,
        _sites(out.exception) if out.exception is not None else None,
    )


def _definition(f: Any) -> str:
    code = getattr(getattr(f, "__func__", f), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno} ({code.co_name})" if code else ""


def _array_form(array: Any) -> tuple[Any, ...]:
    return array.dtype, array.shape, array.strides, array.tobytes()


def _callers(
    f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[str, int, str, dict[str, Any]]]:
    """The frames of the program that a call for its effect may report, outermost first.

    Raises:
        Refusal: it reports a frame outside of the compiled call.
    """
    wanted = kwargs.get("stacklevel", args[2] if f is warnings.warn and len(args) > 2 else 1)
    if not isinstance(wanted, int):
        wanted = 1
    frame: types.FrameType | None = sys._getframe(1)
    sites: list[tuple[str, int, str, dict[str, Any]]] = []
    while frame is not None and len(sites) < wanted:
        if _interp.is_caller(frame):
            break
        name = frame.f_globals.get("__name__", "")
        if not isinstance(name, str) or name.partition(".")[0] != "magpy" or ".demo" in name:
            code = frame.f_code
            sites.append((code.co_filename, frame.f_lineno, code.co_name, frame.f_globals))
        frame = frame.f_back
    if len(sites) < wanted and wanted > 1:
        raise Refusal("it reports a frame outside of the compiled call")
    return sites[::-1]


def _exception_spec(error: BaseException, builder: Builder) -> Spec:
    where = _raise_site(error)
    try:
        if error.__cause__ is not None or error.__context__ is not None:
            raise Refusal("it was raised while another was handled")
        return builder.build(error)
    except Refusal as r:
        raise Refusal(
            f"the call raised {type(error).__name__}: {str(error)[:200]} ({r.reason})", where
        ) from r


def _sites(error: BaseException) -> list[tuple[str, int, str, dict[str, Any]]]:
    """The frames of the program that an exception passed, outermost first."""
    sites = []
    tb = error.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        if tb.tb_frame.f_globals.get("__name__", "").partition(".")[0] != "magpy":
            sites.append((code.co_filename, tb.tb_lineno, code.co_name, tb.tb_frame.f_globals))
        tb = tb.tb_next
    return sites


def _raise_site(e: BaseException) -> str:
    tb = e.__traceback__
    where = ""
    while tb is not None:
        where = f"{tb.tb_frame.f_code.co_filename}:{tb.tb_lineno} ({tb.tb_frame.f_code.co_name})"
        tb = tb.tb_next
    return where


__all__ = [
    "ABSENT",
    "Capture",
    "Handler",
    "Outcome",
    "run",
]
