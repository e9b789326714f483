"""What the C++ session asks of Python while a program runs watched.

Owns the state of one watched run on the Python side, the values that are tracked from tensors' data
and counters through arithmetic, and the answers to the session's questions.  Does not own the event
log (csrc/interp), the operator steps (magpy/capture/tensors/recorder.py) nor how single C functions
are treated (magpy/capture/python/c_calls.py).  Made by magpy/capture/session.py, called by
csrc/interp.
"""

from __future__ import annotations

import collections
import contextvars
import copy
import functools
import gc
import inspect
import math
import operator
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from magpy import _interp, _tensor, faults
from magpy.capture import end_state
from magpy.capture.python import c_calls
from magpy.capture.python import effects as effect_calls
from magpy.capture.rebuild import Builder
from magpy.capture.tensors.arguments import QUEUED
from magpy.capture.tensors.recorder import Recorder
from magpy.errors import Refusal, hide_frames
from magpy.frames import call_sites, signals
from magpy.frames.locations import refuse, where_text
from magpy.ir.ops import (
    Bind,
    Call,
    EffectStep,
    HostStep,
    OutsideRef,
    Part,
    Record,
    Var,
    class_holding,
    class_number,
    item_held,
    part_held,
    slot_held,
)
from magpy.ir.recipes import Const
from magpy.ir.trees import has_ref
from magpy.models import callables, numpy_calls, numpy_warnings
from magpy.models.callables import Leaf
from magpy.objects import buffers as memory
from magpy.objects import c_state
from magpy.objects import contents as held
from magpy.objects.iterators import advance
from magpy.objects.plain_values import PLAIN_TYPES, is_immutable, is_plain
from magpy.objects.snapshots import CONTAINERS, is_changed
from magpy.objects.types import isinstance
from magpy.shapes.symbols import Symbols
from magpy.unwatched.changes import foreign, of_torch

ABSENT = _interp.ABSENT
_GOES_OVER_CHANGED = (
    "an iterator from outside is consumed, and the list that it goes over is changed"
)


def _frames_hidden(method: Callable[..., Any]) -> Callable[..., Any]:
    """What the program's calls raise does not keep the frames of the method that performs them."""

    @functools.wraps(method)
    def perform(self: Handler, *args: Any) -> Any:
        try:
            return method(self, *args)
        except BaseException as e:
            hide_frames(e)
            del args
            raise

    return perform


class Handler:
    """What the C++ session asks while the program runs.  Every method runs with events paused."""

    def __init__(self, scalars: bool = True, symbols: Symbols | None = None) -> None:
        """Starts an empty session."""
        self.session = _interp.Session(self)
        self.recorder = Recorder(self.session.is_outside, self.session, scalars, symbols)
        self.called_effect: tuple[Any, EffectStep | None] = None, None
        #: The last store in a tracked array: what was stored, and how many steps there were before
        #: and after it was noted.
        self.stored: tuple[tuple[Any, ...], int, int] = (), 0, 0
        self.storing = False
        #: The address of the frame, and the instruction, at which C code has warned last.
        self.warned_at = 0, 0
        # The addresses of objects of the call's own whose death the program hears of, or of what
        # such weak references lead to.
        self.finalizers: set[int] = set()
        #: What it writes, if it is a `write` of a stream.
        self.written_text: str | bytes | None = None
        # The tensors that it is given, with their versions.
        self.versions: list[tuple[Any, int]] = []
        # The addresses of objects whose attributes the run has written, and how much of the log
        # they are taken from.
        self.assigned: set[int] = set()
        self.log_read = 0
        # What a call for its effect has put into globals: by their address and the key.
        self.redone: dict[tuple[int, str], Any] = {}
        # Where the numbers are that are followed, by the holder's address and the key.
        self.followed: set[tuple[int, Any]] = set()
        # By the dict's address and the key: the dict, a tuple that stands for another while the
        # program runs, the other, and the variable.
        self.parts: dict[tuple[int, Any], tuple[Any, Any, Any, Var]] = {}
        # Globals in which it may put such a thing.
        self.unwarned: list[dict[str, Any]] = []
        self.redo: list[tuple[Any, tuple[Any, ...], Any]] = []
        self.registered: dict[tuple[int, int], Any] = {}
        self.opaque: list[tuple[Any, Any]] = []
        # Objects of which the run has asked which they are.
        self.identities: list[Any] = []
        self.modules: list[tuple[types.ModuleType, str]] = []
        self.contexts: dict[int, tuple[contextvars.ContextVar[Any], Any]] = {}
        self.arrays: list[tuple[Any, Any]] = []
        self.sites: dict[int, str] = {}
        self.written: list[memory.Range | None] = []
        self.consumed: list[tuple[Any, tuple[Any, ...], list[Any]]] = []
        self.iterators: list[tuple[Any, tuple[Any, ...], int, bool]] = []
        self.memos: list[tuple[Any, Any, Any, Any]] = []
        # What the run has taken and not given back.
        self.locks: list[Any] = []
        self.refusal: Refusal | None = None
        self.recorder.is_rewritten = self._is_rewritten
        self.recorder.buffers_read = lambda: bool(self.arrays or self.opaque)
        # What the caller handles while the call runs.
        self.callers_error = sys.exception()

    def refuse(self, reason: str, remedy: str = "") -> None:
        """Keeps the first refusal, at the user's current line."""
        if self.refusal is None and self.recorder.refusal is None:
            self.refusal = Refusal(reason, where_text(2), remedy)

    def builder(self) -> Builder:
        """A fresh builder of specs for values as they are now."""
        session = self.session
        return Builder(session.is_outside, session.made, self.value_var, self._has_outside_memory)

    def _has_outside_memory(self, array: Any) -> bool:
        place = memory.of_buffer(array)
        return any(memory.meet(place, memory.of_buffer(v)) for v, _ in self.arrays)

    def value_var(self, v: Any) -> Var | None:
        """The variable of a tensor, of a tracked value or of an operation's exception."""
        if isinstance(v, BaseException):
            return self.recorder.raised_by(v)
        if type(v) is tuple:
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
                self.refuse(f"attributes are given to a {type(v).__name__} that the call makes")
            return Var(number) if number is not None else None
        return None

    def classify(self, f: Any) -> int:
        """The verdict on a C callable."""
        faults.check("log")
        try:
            return int(callables.classify(f))
        except (TypeError, AttributeError, ValueError):
            # A callable that lies about itself is not known.
            return int(Leaf.HANDLER)

    def matched(self, cls: type) -> None:
        """A pattern asks whether objects of a class are sequences or mappings."""
        c_calls.again(self, c_state.matched_as, (cls,))

    def plain_name(self, holder: Any, name: str) -> None:
        """C code that takes an object for a mapping finds something there that it cannot call."""
        c_calls.again(self, c_state.can_be_called, (holder, name))

    def deleted(self, cls: type, name: str) -> None:
        """An attribute of a class is about to be deleted, which it may have from a base."""
        c_calls.again(self, c_state.has_itself, (cls, name))

    def tensor_store(self, tensor: torch.Tensor, name: str) -> None:
        """An attribute that torch keeps of a tensor is about to be assigned."""
        if name == "__class__":
            self.refuse("a class is assigned to a tensor", "Use tensor.as_subclass(...)")
        if name in ("real", "imag"):  # alone of all: torch tells no mode of it
            self.refuse(
                f"tensor.{name} = ... writes to a tensor, and torch tells nobody",
                f"Use tensor.{name}.copy_(...) instead",
            )

    def touch(self, obj: Any, deep: bool) -> None:
        """An outside object that is no plain container is looked into as a whole by C code."""
        t = type(obj)
        base = _interp.c_base(t)
        if base is np.ndarray or base is np.void:  # the second is a record, which can be written to
            self._array(obj)
            return
        if base.__module__ == "numpy" and not hasattr(base, "__next__"):
            return
        if t in _VIEWS:
            self.refuse(f"a live view ({t.__name__}) of a dict from outside is read")
        elif t is types.MappingProxyType:
            self.proxied(obj)
        elif isinstance(obj, types.SimpleNamespace):
            c_calls.read_vars(self, vars, (obj,), {})
            if deep:
                self.session.touch(vars(obj))
        elif t is operator.attrgetter:
            self.refuse(
                "an operator.attrgetter is given to a C function, where nobody sees what it reads",
                "Use a lambda instead",
            )
        elif isinstance(obj, functools.partial):
            c_calls.again(self, c_state.has_dict, (obj,))
        elif t in _ITERATORS:
            self._iterator(obj)
        elif hasattr(t, "__next__"):
            self.refuse("an iterator or generator from outside is consumed", "Pass a list instead")
        elif c_state.stateful(t):  # type: ignore[arg-type]
            before = c_state.picture(obj)
            if before is None:
                self.refuse(f"a {t.__name__} from outside is read, whose state cannot be compared")
            self.opaque.append((obj, before))
            self.sites.setdefault(id(obj), where_text())

    def without_attributes(self, obj: Any) -> None:
        """Attributes are looked for in an object that has no dict yet, and gets none by that."""
        c_calls.again(self, c_state.without_attributes, (obj,))

    def _iterator(self, obj: Any) -> None:
        if any(is_changed(self.session, c) for c in end_state.iterated(obj)):
            self.refuse(_GOES_OVER_CHANGED)
        if all(it is not obj for it, *_ in self.consumed):
            self.consumed.append((obj, tuple(copy.copy(obj)), end_state.iterated(obj)))
            for x in self.consumed[-1][1]:
                self.session.reach(x)

    def held(self, obj: Any) -> None:
        """An object of C from outside is reached whose content C code may hand on, call or compare.

        What a weak reference leads to is asked for where the program calls it.
        """
        for x in c_state.held(obj):
            self.session.reach(x)
            if not isinstance(obj, weakref.ref):
                self.session.touch(x)

    def _array(self, array: Any) -> None:
        """An outside array, or one of a subclass, is looked into."""
        if np.asarray(array).dtype.hasobject:
            self.refuse("an array of objects from outside is read", "Use a list instead")
        self.arrays.append((array, memory.form_of(array)))
        self.sites.setdefault(id(array), where_text())

    @_frames_hidden
    def call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Performs a call that the table of leaves reserves for the handler."""
        treat = c_calls.TREATMENTS.get(callables.effect_of(f), c_calls.unknown)
        return treat(self, f, args, kwargs)

    def entered(self, manager: Any) -> None:
        """A `with` block is about to be entered."""
        self.recorder.catching.entered(manager, call_sites.program_frame())

    def caller_read(self, frame: Any) -> None:
        """The program looks at a frame that was there before the call."""
        self.refuse("the frame of a caller is looked at")

    def handles(self, error: BaseException | None) -> None:
        """The program asks which exception is being handled: one of its own, or its caller's."""
        if error is self.callers_error is not None:
            self.refuse("the exception that the caller handles is looked at")
        elif error is None:
            c_calls.again(self, sys.exception, ())

    def warning_raised(self, f: Any) -> None:
        """C code raises a warning, which the filters of another call may let pass."""
        if not call_sites.is_warning(f):  # what these do is guarded
            self.refuse("the filters of warnings make an error of one that C code gives")

    def proxied(self, proxy: Any) -> None:
        """The dict behind a mapping proxy is looked into."""
        for d in gc.get_referents(proxy):
            self.session.reach(d)
            self.session.touch(d)
            if self.session.is_outside(proxy):
                c_calls.again(self, c_state.behind, (proxy,))

    def finish_iterators(self, builder: Builder) -> None:
        """Notes how far the run went in outside iterators, and that it must go as far again."""
        for iterator, before, containers in self.consumed:
            if any(is_changed(self.session, c) for c in containers):
                raise Refusal(_GOES_OVER_CHANGED)
            rest = len(tuple(copy.copy(iterator)))
            taken = len(before) - rest
            # An exhausted list iterator forgets its list: it would not see what is appended later.
            exhausted = rest == 0 and len(iterator.__reduce__()) == 2
            if not all(map(is_immutable, before if exhausted else before[:taken])):
                raise Refusal(
                    "an iterator from outside is consumed whose elements are not plain values"
                )
            # One that was looked at, and not advanced, may have been asked how much is left.
            whole = exhausted or not taken
            self.iterators.append((iterator, before[:taken], len(before), whole))
            step = EffectStep(
                advance, [builder.build(iterator), Const(taken), Const(exhausted)], {}, []
            )
            self.recorder.record.steps.append(step)

    def written_tensors(self, record: Record) -> frozenset[Var]:
        """The outside tensors whose memory was written as that of an array."""
        if not self.written:
            return frozenset()
        places = [(v, memory.of_tensor(t)) for v, t in record.inputs.items()]
        return frozenset(v for v, p in places if any(memory.meet(p, w) for w in self.written))

    def check_below(self, record: Record) -> None:
        """Refuses where an effect and the call have to do with the same memory."""
        inputs = {v: memory.of_tensor(t) for v, t in record.inputs.items()}
        looked = [memory.of_buffer(a) for a, _ in self.arrays] + list(inputs.values())
        written = [*self.written, *(inputs[v] for v in record.mutated)]
        objects = {id(v) for v, _ in (*self.arrays, *self.opaque)}
        refusal = self.recorder.below.shared(objects, looked, written)
        self.refusal = self.refusal or refusal

    def check_buffers(self, where: str) -> None:
        """Refuses where a buffer from outside and a tensor share memory, and one is changed.

        What the buffer held when it was first read need not be what it held before the call; and
        what Python writes to it is written when the operations are over.

        Args:
            where: the place to name where that of the read is not known.
        """
        read = self._buffers()
        if not read or self.refusal is not None:
            return
        record = self.recorder.record
        written = [*self.written, *(memory.of_tensor(record.inputs[v]) for v in record.mutated)]
        for obj, changed in read:
            place = memory.of_buffer(obj)
            shown = any(memory.meet(place, memory.of_tensor(t)) for t in record.inputs.values())
            if shown and changed():
                self.refusal = Refusal(
                    f"a {type(obj).__name__} from outside is changed whose memory a tensor has",
                    self.sites.get(id(obj), where),
                )
                return
            if any(memory.meet(place, w) for w in written):
                self.refusal = Refusal(
                    f"memory that is read as a {type(obj).__name__} from outside is changed "
                    "through a tensor",
                    self.sites.get(id(obj), where),
                )
                return
            for own, site in self.recorder.views:
                if memory.meet(place, own):
                    reason = (
                        f"a tensor has the memory of a view of a {type(obj).__name__} from outside"
                    )
                    remedy = "Give the operation the object itself, and take a view of the tensor"
                    self.refusal = Refusal(reason, site, remedy)
                    return

    def buffers(self) -> list[Any]:
        """The objects from outside that were read and whose memory others may have, too."""
        return [obj for obj, _ in self._buffers() if memory.of_buffer(obj) is not None]

    def _buffers(self) -> list[tuple[Any, Callable[[], bool]]]:
        """The buffers from outside that were read; tells of each whether it was changed since."""

        def array_changed(array: Any, form: Any) -> bool:
            return bool(memory.form_of(array) != form)

        def object_changed(obj: Any, picture: Any) -> bool:
            return not c_state.same(c_state.picture(obj), picture)

        def bytes_changed(obj: bytearray, before: bytearray) -> bool:
            return obj != before

        found = [(obj, functools.partial(array_changed, obj, form)) for obj, form in self.arrays]
        found += [(obj, functools.partial(object_changed, obj, was)) for obj, was in self.opaque]
        for obj, before, *_ in self.session.containers():
            if isinstance(obj, bytearray):
                found.append((obj, functools.partial(bytes_changed, obj, before)))
        return list(found)

    def _is_rewritten(self, place: Any) -> bool:
        """Whether a buffer from outside with some of these bytes is not as it was at first."""
        return any(
            memory.meet(place, memory.of_buffer(obj)) and is_changed()
            for obj, is_changed in self._buffers()
        )

    def module_made(self, module: types.ModuleType) -> None:
        """The program has made a module, or Python has, which imports it."""
        self.modules.append((module, where_text()))

    def finish_modules(self) -> None:
        """Refuses where the call has made a module that it does not import.

        What is stored in a module is an effect on the very object, which other calls do not make.
        """
        made, self.modules = self.modules, []
        imported = {id(m) for m in sys.modules.values()} if made else set()
        for module, where in made:
            if id(module) not in imported:
                raise Refusal("a module is made", where, "Make it outside of the compiled function")

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

    def derive(
        self,
        f: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        written: list[Any] | None = None,
    ) -> Any:
        """Notes that `result` was computed from tracked values by `f`.

        Args:
            f: what was called.
            args: with these.
            kwargs: and these.
            result: what it gave.
            written: the tracked arrays that it may have changed.
        """
        recorder = self.recorder
        if recorder.refusal is not None or recorder.depth:
            return result
        if numpy_calls.holds_objects((args, kwargs, result)) or self._shows(result, (args, kwargs)):
            # Other calls must get the very objects, and the memory of their own arrays.
            self.session.rely_on((args, kwargs))
            for a in (*args, *kwargs.values()):
                self.session.touch(a)
            return result
        if not written and _is_short_tuple(result):
            one = functools.partial(functools.partial, element, f, len(result))
            return tuple(self.derive(one(i), args, kwargs, v) for i, v in enumerate(result))
        try:
            plan = recorder.convert_all(args), recorder.convert_all(kwargs)
            if recorder.symbols is not None and not written and not has_ref(plan):
                return result  # of symbols that are what they are in this run
            self._notes_writing(written or ())
            return self._telling(recorder.track, (f, *plan, result), f, args, kwargs)
        except Refusal as r:
            self.refusal = self.refusal or r.without_frames()
        except Exception as e:  # noqa: BLE001 - as above
            recorder.fail(e)
        return result

    def _shows(self, result: Any, given: Any) -> bool:
        """Whether a result has the memory of an array that does not follow from data."""
        made = [memory.of_buffer(a) for a in numpy_calls.arrays_in(result)]
        if not made:
            return False
        apart = [a for a in numpy_calls.arrays_in(given) if self.session.tracked(a) is None]
        return any(memory.meet(memory.of_buffer(a), place) for a in apart for place in made)

    def rely_on(self, v: Any) -> None:
        """A tracked value is about to be looked at in a way that cannot be redone: checks it."""
        var = self.session.tracked(v)
        if var is not None:
            self.recorder.rely_on(v, Var(var))

    def counter(self, holder: Any, key: Any, value: Any) -> Any:
        """A counter is read: the number becomes an input.  Returns an equal one to use instead."""
        recorder = self.recorder
        if recorder.refusal is not None:
            return _interp.fresh(value)
        read: Callable[..., Any]
        if type(holder) is types.CellType:
            read, where = getattr, "cell_contents"
        elif isinstance(holder, type):
            read, where = class_number, key
        elif not isinstance(holder, (dict, list, collections.deque)):
            read, where = slot_held, key
        else:
            exact = type(holder) in (dict, list, collections.deque)
            read, where = operator.getitem if exact else item_held, key
        if recorder.depth:
            # An operation reads it, of which nobody knows what depends on it.
            c_calls.again(self, read, (holder, where))
            return _interp.fresh(value)
        recorder.below.counted(holder, key)
        own = recorder.track(read, (OutsideRef(holder), where), {}, value)
        recorder.originals[id(own)] = value  # the session holds what is tracked
        if not isinstance(holder, type):
            recorder.counted(holder, key, own, value, (id(holder), key) in self.followed)
        return own

    def vary(self, holder: Any, key: Any, follow: bool = False) -> None:
        """A number in a container, class or cell is an input where the run reads it.

        Args:
            holder: what it is in.
            key: where; None for a cell.
            follow: what sizes and places in tensors depend on it is followed.
        """
        self.session.vary(holder, key.key if isinstance(key, Part) else key)
        if isinstance(key, Part):
            self._vary_part(holder, key.key)
            return
        if follow:
            self.followed.add((id(holder), key))
        if isinstance(holder, (list, collections.deque)):
            # Nothing tells of the reads of one item: it becomes an input at once.
            base: Any = list if isinstance(holder, list) else collections.deque
            base.__setitem__(holder, key, self.counter(holder, key, base.__getitem__(holder, key)))

    def _vary_part(self, holder: Any, key: Any) -> None:
        """The numbers in a tuple are inputs: for the run, an equal tuple takes its place."""
        first = dict.__getitem__(holder, key)
        if (id(holder), key) in self.parts:
            return
        recorder, place = self.recorder, OutsideRef(holder)
        recorder.below.counted(holder, key)
        var = recorder.tensors.new()
        recorder.note(item_held, (place, key), {}, Bind, tuple, result=var)
        numbers = []
        for i, value in enumerate(first):
            own = recorder.track(part_held, (place, key, i, len(first)), {}, value)
            recorder.originals[id(own)] = value
            recorder.counted(holder, Part(key, i), own, value, False)
            numbers.append(own)
        made = tuple(numbers)
        self.parts[id(holder), key] = holder, made, first, var
        dict.__setitem__(holder, key, made)

    def put_back(self) -> None:
        """The tuples that were there before the run are there again."""
        for (_, key), (holder, made, first, _) in self.parts.items():
            if dict.get(holder, key) is made:
                dict.__setitem__(holder, key, first)
        self.parts.clear()

    def inherits(self, cls: type, name: str) -> None:
        """A number that is an input is found through a class."""
        c_calls.again(self, class_holding, (cls, name))

    def same_number(self, a: Any, b: Any) -> bool:
        """Whether two numbers, of which copies are tracked, are one object."""
        originals = self.recorder.originals
        same = originals.get(id(a), a) is originals.get(id(b), b)
        if same:
            self.refuse(
                "whether two numbers (or texts) are one object is asked", "Compare them with =="
            )
        return same

    def truth(self, v: Any) -> None:
        """The truth of a tracked value decides a jump."""
        try:
            result = bool(v)
        except Exception:  # noqa: BLE001 - the program's own: the jump is about to raise it
            self.rely_on(v)
        else:
            self.derive(bool, (v,), {}, result)

    @_frames_hidden
    def contains(self, container: Any, item: Any) -> bool:
        """Whether a tracked value is in a container is about to be asked.

        Returns:
            Whether the answer is all that counts: both hold plain values only.
        """
        if type(item) not in (int, float, str) or item != item:
            return False
        t = type(container)
        if t is range:
            self.derive(operator.contains, (container, item), {}, item in container)
            return True
        # A class derived from these, such as Counter, that leaves the answer to them.
        base: Any = next((c for c in _ASKED if issubclass(t, c)), None)
        if base is None or t.__contains__ is not base.__contains__:
            return False
        if base.__len__(container) > _MOST_COMPARED:
            return False
        found = tuple(base.__iter__(container))
        tracked = self.session.tracked
        if any(type(v) not in PLAIN_TYPES or tracked(v) is not None for v in found):
            return False
        values = found if base in (tuple, list) else frozenset(found)
        self.derive(operator.contains, (values, item), {}, item in values)
        return True

    def binary(self, op: int, a: Any, b: Any, result: Any) -> Any:
        """A binary operation with a tracked operand."""
        if (result is a or result is b) and type(result) not in PLAIN_TYPES:
            # In place: redone where it stands.
            if self.session.tracked(result) is not None:
                self.host_only(BINARY[op], (a, b))
            else:
                self.session.rely_on((a, b))
            return result
        if type(result) in (list, tuple):
            # [x] * n: how many there are is the same again; the elements are what they were.
            self.session.rely_on([v for v in (a, b) if self.session.tracked(v) is not None])
            return result
        return self.derive(BINARY[op], (a, b), {}, result)

    def compare(self, op: int, a: Any, b: Any, result: Any) -> Any:
        """A comparison with a tracked operand."""
        return self.derive(COMPARE[op], (a, b), {}, result)

    @_frames_hidden
    def compare_items(self, a: Any, b: Any) -> bool:
        """Two tuples or lists are about to be tested for equality, item by item.

        Returns:
            Whether that is all: they hold numbers and the like only.
        """
        pairs = list(zip(a, b, strict=False)) if len(a) == len(b) else []
        if not all(type(v) in PLAIN_TYPES for pair in pairs for v in pair):
            return False
        for x, y in pairs:
            same = bool(x == y)
            if self.session.tracked(x) is not None or self.session.tracked(y) is not None:
                self.derive(operator.eq, (x, y), {}, same)
            if not same:
                break
        return True

    def unary(self, op: int, a: Any, b: Any, result: Any) -> Any:
        """A unary operation on a tracked value."""
        return self.derive(UNARY[op], (a,), {}, result)

    def item(self, op: int, obj: Any, key: Any, result: Any) -> Any:
        """obj[key] of a tracked array or string, or with a tracked key."""
        if self.session.tracked(obj) is None:
            self.session.rely_on(key)
            return result
        return self.derive(operator.getitem, (obj, key), {}, result)

    def item_store(self, op: int, obj: Any, key: Any, value: Any) -> Any:
        """obj[key] = value in a tracked array."""
        array = isinstance(obj, np.ndarray)
        if not (memory.is_writeable(obj) if array else isinstance(obj, _FLAGS)):
            return None  # a number, a text, an array to read: that raises, whatever its value
        if value is ABSENT:
            self._store(operator.delitem, (obj, key))
        else:
            self._store(operator.setitem, (obj, key, value))
        return None

    def attribute_store(self, op: int, obj: Any, name: Any, value: Any) -> Any:
        """obj.name = value of a tracked array."""
        self._store(setattr, (obj, name, value))
        return value

    def _store(self, f: Any, args: tuple[Any, ...]) -> None:
        """Notes a store in a tracked array that is about to be made."""
        steps = self.recorder.record.steps
        before = len(steps)
        self.storing = True
        try:
            self.host_only(f, args)
        finally:
            self.storing = False
        if type(args[0]) is _FLAGS:
            for step in steps[before:]:
                if isinstance(step, HostStep):
                    step.mutates = True  # the array, whose variable is another one
        self.stored = args, before, len(steps)

    def stored_in(self, obj: Any) -> None:
        """The last store in a tracked array has been made."""
        (args, before, after), self.stored = self.stored, ((), 0, 0)
        steps = self.recorder.record.steps
        if args and after > before and self.refusal is None:
            step = steps[after - 1]
            if isinstance(step, HostStep) and step.warnings is not None:
                self._told(*step.warnings, self.recorder.warns_itself())

    def store_raised(self, obj: Any, late: bool) -> None:
        """The last store in a tracked array raised; it has stored nothing unless that was late."""
        (args, before, after), self.stored = self.stored, ((), 0, 0)
        steps = self.recorder.record.steps
        if not args or self.refusal is not None:
            return
        if (
            late
            or len(steps) != after
            or numpy_calls.holds_objects(args)
            or not _recomputable(args[1:])
        ):
            self.refuse("a store in an array that follows from data raises")
            return
        del steps[before:]
        # That it raises follows from the form of the array, which is compared, and from these.
        self.session.rely_on(args[1:])
        for a in args[1:]:
            self.session.touch(a)

    def _told(self, told: Var, place: Any, shown: bool) -> None:
        """What a step has told of is an effect of its own, or there was nothing."""
        try:
            effect_calls.arithmetic(self, told, place, shown)
        except Refusal as r:
            self.refusal = self.refusal or r.without_frames()
        except Exception as e:  # noqa: BLE001 - a failure of magpy must not reach the program
            self.recorder.fail(e)

    def attribute(self, op: int, obj: Any, name: Any, value: Any) -> Any:
        """obj.name of a tracked value."""
        if _FLAGS in (type(obj), type(value)) or (
            type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"
        ):
            self.derive(getattr, (obj, name), {}, value)
        elif isinstance(obj, QUEUED):
            if name in _HANDLES:
                self.refuse(f"the {name} of a {type(obj).__name__} is read that the call makes")
        elif name in _ADDRESSES:
            self.refuse("the address of an array that follows from data is asked for")
        elif not callable(value) and (
            type(obj).__name__ != "ndarray" or type(value).__name__ in ("flatiter", "memoryview")
        ):
            self.rely_on(obj)
        return None

    def format(self, conversion: int, value: Any, spec: Any, result: Any) -> Any:
        """A tracked value in an f-string."""
        return self.derive(format_value, (value, spec or "", conversion), {}, result)

    def join(self, op: int, parts: Any, unused: Any, result: Any) -> Any:
        """The parts of an f-string, some of them tracked."""
        return self.derive("".join, (parts,), {}, result)

    def host_only(
        self,
        f: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
        written: list[Any] | None = None,
    ) -> None:
        """Notes a call on a tracked value that is redone for what it does.

        Args:
            f: what was called.
            args: with these.
            kwargs: and these.
            written: the tracked arrays that it may have changed; the first argument if None.
        """
        recorder = self.recorder
        if recorder.refusal is not None or recorder.depth:
            return
        try:
            plan = recorder.convert_all(args), recorder.convert_all(kwargs or {})
            self._notes_writing(args[:1] if written is None else written)
            self._telling(recorder.note, (f, *plan, Call), f, args, kwargs or {})
        except Refusal as r:
            self.refusal = self.refusal or r.without_frames()
        except Exception as e:  # noqa: BLE001 - a failure of magpy must not reach the program
            recorder.fail(e)

    def _without_writing(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return numpy_calls.call_without_writing(f, args, kwargs, self._at_line(f, args, kwargs))

    def _at_line(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        """A function `call(f, args, kwargs)`; numpy, which may warn, it calls from the program."""
        if numpy_warnings.computes(f) and _is_of_numpy(f, (*args, *kwargs.values())):
            return functools.partial(self.recorder.compute, _place())
        return lambda f, args, kwargs: f(*args, **kwargs)

    def _telling(
        self,
        write: Callable[..., Any],
        step: tuple[Any, ...],
        f: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """What `write(*step)` gives, which writes a call down.

        What numpy warns of in it is an effect of its own.
        """
        recorder = self.recorder
        if not numpy_warnings.computes(f) or not _is_of_numpy(f, (*args, *kwargs.values())):
            return write(*step)
        if f is operator.setitem and self._is_small(args[2]):
            return write(*step)
        if numpy_warnings.calls_back():
            raise refuse("numpy calls the program where arithmetic fails (numpy.seterrcall)")
        told, place = recorder.tensors.new(), _place()
        again = isinstance(f, functools.partial) and f.func is element and f.args[2] > 0
        # A store is noted before it is made.
        shown = not self.storing and self._warns_itself(write, f, args, kwargs)
        recorder.telling, recorder.computed_warns = (told, place), False
        before = len(recorder.record.steps)
        try:
            result = write(*step)
        finally:
            recorder.telling = None
        # Of a function that gives several values each is computed by itself.
        steps = recorder.record.steps[before:]
        made = any(isinstance(s, HostStep) and s.warnings == (told, place) for s in steps)
        if made and not again and not self.storing:
            self._told(told, place, shown)
        return result

    def _is_small(self, v: Any) -> bool:
        """Whether a number is the same in every call, and one that every array can take."""
        return type(v) in (bool, int, float) and abs(v) < 100 and self.session.tracked(v) is None

    def _warns_itself(
        self, write: Any, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """Whether the call has warned, which a step does by itself."""
        recorder = self.recorder
        if recorder.computed_warns:
            return True
        most = len(recorder.warned[0])
        if most > 1 and write != recorder.note:
            # Some may be those of another call from this line: how many are its own is found out.
            told: list[Any] = []
            numpy_warnings.telling(f)(told, *args, **kwargs)
            most = len(told)
        return recorder.warns_itself(most)

    def _notes_writing(self, targets: Any) -> None:
        """The step that is about to be added changes these arrays, where they are tracked."""
        found = [a for a in targets if isinstance(a, np.ndarray)]
        self.written.extend(map(memory.of_buffer, found))
        numbers = [self.session.tracked(a) for a in found]
        self.recorder.writes(frozenset(Var(n) for n in numbers if n is not None))

    def sure(
        self,
        call: Callable[..., Any],
        f: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        owner: Any = None,
    ) -> Any:
        """What `call(f, args, kwargs)` gives; that it raises is sure for these very values only."""
        try:
            return call(f, args, kwargs)
        except numpy_calls.Writes:
            raise
        except Exception:
            self.session.rely_on((args, kwargs, owner))
            for a in (owner, *args, *kwargs.values()):
                self.session.touch(a)
            raise

    @_frames_hidden
    def tracked_call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A C function is called with tracked values."""
        owner = getattr(f, "__self__", None)
        terms = _terms(f, args, kwargs)
        if terms:
            step = operator.add if f is sum else operator.mul
            return functools.reduce(lambda a, b: _interp.call(step, (a, b), {}), terms)
        array = isinstance(owner, (np.ndarray, np.generic))
        plain = _recomputable((args, kwargs, owner) if array else (args, kwargs))
        # operator.iadd(x, ...) of a list changes it.
        changes = bool(args) and type(args[0]) in (list, dict) and callables.is_in_place(f)
        if callables.scalar_function(f) and plain and not changes:
            try:
                return self._recomputed(f, args, kwargs, owner)
            except numpy_calls.Writes:
                pass  # the call has not been made; not made here, where that would be its context
            return self._writing(f, args, kwargs, owner)
        if callables.classify(f) is Leaf.TORCH:
            before = self.recorder.operations
            result = f(*args, **kwargs)
            if self.recorder.operations == before and not self.recorder.tensors.fresh(result):
                self.session.rely_on((args, kwargs))
                for a in (*args, *kwargs.values()):
                    self.session.touch(a)  # it is `torch.Size` of a list
            return result
        if callables.is_numpys(f) and numpy_calls.arrays_in((args, kwargs)):
            return self._writing(f, args, kwargs, owner)
        self.session.rely_on((args, kwargs, owner))
        for a in (owner, *args, *kwargs.values()):
            self.session.touch(a)
        return ABSENT

    def _recomputed(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], owner: Any) -> Any:
        """A function that computes a value is called; the step computes it again.

        Raises:
            Writes: it writes to an array, and has not been called.
        """
        self._memory_asked(f, args, kwargs)
        if isinstance(owner, np.void) and self.session.tracked(owner) is None:
            raise numpy_calls.Writes  # it may write to the array that it is a part of
        if isinstance(owner, np.ndarray) and self.session.tracked(owner) is None:
            # A flag may say that the method writes (byteswap), or gives the array itself (astype).
            self.session.rely_on([a for a in numpy_calls.arrays_in((args, kwargs)) if _is_flag(a)])
        if owner is not None and not isinstance(owner, (types.ModuleType, type)):
            result = self.sure(self._without_writing, f, args, kwargs, owner)
            unbound = getattr(type(owner), f.__name__)
            if result is None:
                self.host_only(unbound, (owner, *args), kwargs)
                return result
            return self.derive(unbound, (owner, *args), kwargs, result)
        if f is int or f is float:
            self.recorder.direct = True
        try:
            result = self.sure(self._without_writing, f, args, kwargs)
        finally:
            self.recorder.direct = False
        if type(result) is list and any(result is a for a in args):
            self.session.rely_on((args, kwargs))  # which of them it is, is not asked again
            return result
        if any(isinstance(a, torch.Tensor) for a in args):
            if is_plain(result) and self.session.tracked(result) is None:
                self.session.rely_on((args, kwargs))  # of the tensors it has taken the numbers
            return result
        return self.derive(f, args, kwargs, result)

    def _memory_asked(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuses where the memory of arrays from outside and of others is compared.

        A step holds copies of the former, and which memory it is follows from no data.
        """
        given = numpy_calls.arrays_in((args, kwargs))
        if callables.name_of(f).rpartition(".")[2] in ("shares_memory", "may_share_memory") and any(
            self.session.tracked(a) is None for a in given
        ):
            self.refuse("it is asked whether an array has the memory of one that follows from data")

    def _writing(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], owner: Any) -> Any:
        """A function of numpy is called that writes to some of its arrays."""
        function, given = numpy_calls.unbound(f, args)
        if owner is not None and function is f and not isinstance(owner, types.ModuleType):
            function, given = getattr(type(owner), f.__name__), (owner, *args)
        targets = numpy_calls.arrays_in((given, kwargs))
        tracked = [a for a in targets if self.session.tracked(a) is not None]
        part = isinstance(owner, np.void) and self.session.tracked(owner) is None
        if len(tracked) == len(targets) and not part and _recomputable((given, kwargs)):
            result = self.sure(self._at_line(f, args, kwargs), f, args, kwargs, owner)
            if result is None:
                self.host_only(function, given, kwargs, tracked)
            else:
                result = self.derive(function, given, kwargs, result, tracked)
            return result
        # Which of them it writes to is not known; what it writes follows from what is relied on.
        self.session.rely_on((args, kwargs, owner))
        for a in (*given, *kwargs.values()):
            self.session.touch(a)
        before = [a.tobytes() for a in tracked]
        result = _interp.watched(f, args, kwargs)
        if [a.tobytes() for a in tracked] != before:
            self.refuse(f"{callables.name_of(f)} writes to an array that follows from data")
        return result

    @_frames_hidden
    def array_call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A C function is called with tensors: one of numpy, which takes their data, is redone."""
        recorder = self.recorder
        if recorder.refusal is not None or recorder.depth or self.refusal is not None:
            return ABSENT
        if f is len and recorder.symbols is not None and type(args[0]) in _TENSORS:
            # len() itself would make a number of its own of the one that is followed.
            return args[0].size(0) if args[0].dim() else ABSENT
        # An operator leaves a tensor and an array to numpy.
        known = callables.numpy_function(f) or (
            inspect.isbuiltin(f) and f in _OPERATORS and numpy_calls.arrays_in(args)
        )
        if not known or not _recomputable((args, kwargs)):
            return ABSENT
        return self._computed(f, args, kwargs)

    def array_operation(self, kind: str, op: int, a: Any, b: Any) -> Any:
        """An operator is about to be applied to a tensor and what may be an array.

        Torch leaves it to numpy, which asks the tensor for its data and makes a tensor of what it
        has computed.
        """
        recorder = self.recorder
        if recorder.refusal is not None or recorder.depth or self.refusal is not None:
            return ABSENT
        array = b if isinstance(a, torch.Tensor) else a
        if not isinstance(array, np.ndarray):
            return ABSENT
        if numpy_calls.holds_objects(array):
            self.refuse("an operator is applied to a tensor and an array of objects")
            return ABSENT
        result = self._computed((BINARY if kind == "binary" else COMPARE)[op], (a, b), {})
        if result is ABSENT and self.refusal is None:
            self.refuse("an operator is applied to a tensor and an array, and writes or raises")
        return result

    def _computed(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What numpy computes from tensors, which is redone; ABSENT if it does more than that."""
        recorder = self.recorder
        values = (*args, *kwargs.values())
        if any(isinstance(a, torch.Tensor) and type(a) not in _TENSORS for a in values):
            return ABSENT
        self._memory_asked(f, args, kwargs)
        for a in values:
            if self.session.tracked(a) is None:
                self.session.touch(a)
        recorder.depth += 1
        try:
            plan = recorder.convert_all(args), recorder.convert_all(kwargs)
            result = self._without_writing(f, args, kwargs)
        except Refusal as r:
            self.refusal = self.refusal or r.without_frames()
            return ABSENT
        except numpy_calls.Writes:
            return ABSENT
        except Exception:
            self.refuse(f"{callables.name_of(f)} raises for a tensor")
            raise
        finally:
            recorder.depth -= 1
        try:
            return self._telling(recorder.called, (f, *plan, result), f, args, kwargs)
        except Refusal as r:
            self.refusal = self.refusal or r.without_frames()
            return result

    def below(self, function: Any, given: tuple[Any, ...]) -> None:
        """A Python function starts where events are paused, or below a call done as a whole.

        These are calls for their effect, and autograd's engine.
        """
        f, step = self.called_effect
        # In the engine, Python's own functions are torch's helpers.
        known = of_torch(function) if f is not None else foreign(function)
        whole = self.recorder.whole is not None
        if whole:  # where torch's modules look at attributes that the call may have changed
            known = held.package(function.__module__) == "magpy"
        if (f is not None and step is None) or self.refusal is not None or known:
            return
        if self.recorder.performs(function):
            return  # and it would hold what the operation is given, and autograd's graph by that
        below = self.recorder.below
        try:
            (below.entered_whole if whole else below.entered)(function, given)
        except Refusal as r:
            what = "a backward pass is made" if f is None else f"{callables.name_of(f)} is called"
            self.refuse(f"{'a function is called as a whole' if whole else what}: {r.reason}")

    def finalizable(self, obj: Any) -> None:
        """The program makes an object with a `__del__`, or a weak reference with a callback."""
        if isinstance(obj, weakref.ref):
            callback = obj.__callback__
            # Weak containers only forget what has died.
            known = type(callback) is types.FunctionType and foreign(callback)
            if known or self.session.is_outside(weakref.ref.__call__(obj)):
                return
        self.finalizers.add(id(obj))

    def finalized(self, obj: Any) -> None:
        """That of such an object runs."""
        self.finalizers.discard(id(obj))

    def signalled(self, function: Any, number: int) -> bool:
        """Whether a function is the handler of a signal: it has come into this very call."""
        if not signals.handles(function, number):
            return False
        reason = "a signal is handled in the middle of the call"
        self.refusal = self.refusal or Refusal(reason, where_text(), passing=True).without_frames()
        return True

    def effect_done(self, result: Any) -> Any:
        """A call for its effect, which `_effect` has left to the probe, is over.

        Args:
            result: its result, or ABSENT if it raised.

        Returns:
            What the program gets for the result; ABSENT if it is to get the result itself.
        """
        self.recorder.depth -= 1
        f, step = self.called_effect
        self.called_effect = None, None
        for place in self.unwarned:
            if call_sites.REGISTRY in place:
                self.redone[id(place), call_sites.REGISTRY] = place[call_sites.REGISTRY]
        if result is ABSENT:
            # It may not raise in the next call: filters decide of warnings, files of output.
            self.refuse(f"{callables.name_of(f)} raises an exception")
        elif step is not None:
            own = effect_calls.result_of(self, f, self.written_text, result)
            if any(_tensor.tensor_version(t) != version for t, version in self.versions):
                self.refuse(f"{callables.name_of(f)} changes a tensor that it is given")
            self.versions = []
            try:
                self.recorder.below.done(callables.name_of(f))
            except Refusal as r:
                self.refusal = self.refusal or r
            except Exception as e:  # noqa: BLE001 - a failure of magpy must not reach the program
                self.recorder.fail(e)
            self.recorder.record.steps.append(step)
            return own
        return ABSENT

    def warns(self, message: Any, watched: bool) -> bool:
        """A warning is about to be shown (CPython, Python/_warnings.c, `call_show_warning`).

        Args:
            message: the `warnings.WarningMessage`.
            watched: by code written in C that the program has called.

        Returns:
            Whether it is an effect of its own, and `effect_done` follows.
        """
        recorder = self.recorder
        if self.called_effect[0] is not None:
            return False  # the effect warns
        if recorder.depth or recorder.computing:
            recorder.warns()
        elif watched:
            effect_calls.effect(self, warnings.warn, (str(message.message), message.category), {})
            step = self.called_effect[1]
            frame = call_sites.program_frame()
            # One operation says everything at one instruction, and nothing twice.
            at = id(frame), frame.f_lasti if frame is not None else 0
            if at != self.warned_at or any(step.args == s.args for s in recorder.warned[0] if step):
                recorder.warned = [], 0
            recorder.warned = [*recorder.warned[0], *([step] if step else [])], self.session.events
            self.warned_at = at
            return True
        return False

    def c_result(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """A C function returned tensors."""
        if self.recorder.depth or self.refusal is not None or self.recorder.refusal is not None:
            return
        owner = getattr(f, "__self__", None)
        if isinstance(owner, CONTAINERS):
            return  # it gives what is there, and makes nothing
        method = (
            getattr(torch.Tensor, getattr(f, "__name__", ""), None)
            if isinstance(owner, torch.Tensor)
            else None
        )
        if isinstance(method, types.MethodDescriptorType):
            # The operation takes the tensor, which is another one in every call.
            f, args, owner = method, (owner, *args), None
        try:
            if (
                owner is not None
                and not isinstance(owner, (types.ModuleType, type))
                and not self.session.is_outside(owner)
            ):
                if self.recorder.tensors.fresh(result):
                    raise Refusal(
                        f"{callables.name_of(f)} returns a tensor that magpy did not see being "
                        "made",
                        where_text(),
                    )
                return
            self.recorder.unseen_result(f, args, kwargs, result)
        except Refusal as r:
            if self.refusal is None:
                self.refusal = r.without_frames()


def _recomputable(values: Any, depth: int = numpy_calls.DEPTH) -> bool:
    """Whether a function of values, given these, does nothing but compute from them.

    Iterators are used up, and functions run code of their own: such a call is watched, and relies
    on the tracked values that it is given.
    """
    t = type(values)
    if t is tuple or t is list:
        return depth > 0 and all(_recomputable(v, depth - 1) for v in values)
    if t is dict:
        items = values.items()
        return depth > 0 and all(type(k) is str and _recomputable(v, depth - 1) for k, v in items)
    if t is np.ndarray or isinstance(values, np.generic):
        return not numpy_calls.holds_objects(values)
    return is_plain(values) or isinstance(values, (torch.Tensor, type))


def _is_of_numpy(f: Any, given: Iterable[Any]) -> bool:
    """Whether numpy does what a call of `f` with these values does."""
    return callables.is_numpys(f) or any(isinstance(a, (np.ndarray, np.generic)) for a in given)


def _place() -> call_sites.Site:
    """The line of the program that is done now."""
    frame = call_sites.program_frame()
    assert frame is not None
    return call_sites.site_of(frame)


def _is_flag(array: Any) -> bool:
    return bool(array.size == 1 and array.dtype == bool)


def _terms(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """What `sum` or `math.prod` joins one after another, where tensors are among it; else nothing.

    Their code in C adds numbers up as such, which are then other objects than the tracked ones.
    """
    if (f is not sum and f is not math.prod) or not 1 <= len(args) + len(kwargs) <= 2 or not args:
        return []
    values, *rest = args
    start = rest[0] if rest else kwargs.get("start", 0 if f is sum else 1)
    whole = type(values) in _TENSORS and values.dim() > 0
    if not (whole or type(values) in (list, tuple)) or not set(kwargs) <= {"start"}:
        return []
    terms = [start, *values]
    first = next((i for i, v in enumerate(terms) if type(v) in _TENSORS), None)
    numbers = terms[:first]
    # Several floats Python adds up more exactly than one by one, from 3.12 on.
    exact = sum(type(v) in (float, complex) for v in numbers) <= 1
    plain = all(type(v) in (int, float, complex) for v in numbers)
    return terms if first is not None and exact and plain else []


# Longer tuples of values are compared, and so is what is in longer containers.
_MOST, _MOST_COMPARED = 8, 256


def _is_short_tuple(v: Any) -> bool:
    return type(v) is tuple and 0 < len(v) <= _MOST and all(type(x) in (int, float, str) for x in v)


def element(f: Any, n: int, i: int, *args: Any, **kwargs: Any) -> Any:
    """One of the `n` values in the tuple that a function gives; ABSENT if it gives another."""
    values = f(*args, **kwargs)
    return values[i] if type(values) is tuple and len(values) == n else ABSENT


# Attributes of an array that let others write to its memory unseen.
_ADDRESSES = frozenset(["__array_interface__", "__array_struct__", "ctypes"])
# What tells one event from another.
_HANDLES = frozenset(["event_id", "cuda_event"])
_TENSORS = (torch.Tensor, torch.nn.Parameter)
# What tells how the memory of an array lies, and says whether it may be written to.
_FLAGS = type(np.empty(0).flags)


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


# What answers whether a value is in it by the values that it holds.
_ASKED = (tuple, list, set, frozenset, dict)
# Functions in C that do what an operator does.
_OPERATORS = {pow, divmod, *(f for f in vars(operator).values() if inspect.isbuiltin(f))}
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
