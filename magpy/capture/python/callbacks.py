"""What the C++ session asks of Python while a program runs watched.

Owns the object that answers (`_interp.Handler` lists what is asked), and the answers about objects,
iterators, modules, frames and effects themselves.  Does not own the other answers, which it takes
from the classes beside it (tracked, arrays, varying, buffers), the event log (csrc/interp), the
operator steps (magpy/capture/tensors/recorder.py) nor how single C functions are treated
(magpy/capture/python/c_calls.py).  Made by magpy/capture/session.py, called by csrc/interp.
"""

from __future__ import annotations

import contextvars
import functools
import operator
import sys
import types
import warnings
import weakref
from typing import Any

import numpy as np
import torch

from magpy import _interp, _tensor, faults
from magpy.capture.loops import Loops
from magpy.capture.python import c_calls, profiler_marks
from magpy.capture.python import effects as effect_calls
from magpy.capture.python.arrays import ArrayCalls
from magpy.capture.python.buffers import OutsideBuffers
from magpy.capture.python.joins import Joins
from magpy.capture.python.run import Run, frames_hidden
from magpy.capture.python.tables import Tables
from magpy.capture.python.tracked import TrackedValues
from magpy.capture.python.varying import VaryingNumbers
from magpy.capture.races import race
from magpy.capture.rebuild import Builder
from magpy.capture.refusals import RefusalBox
from magpy.capture.tensors.recorder import Recorder
from magpy.errors import Refusal, an
from magpy.frames import call_sites, signals
from magpy.frames.locations import where_text
from magpy.ir.ops import (
    EffectStep,
)
from magpy.models import callables
from magpy.models.c_function_tables import Leaf
from magpy.models.torch_ops import makes_tensor_of_numbers
from magpy.objects import c_state
from magpy.objects.snapshots import CONTAINERS
from magpy.objects.types import isinstance
from magpy.shapes.symbols import Symbols
from magpy.unwatched import listeners
from magpy.unwatched.changes import foreign

ABSENT = _interp.ABSENT
#: So many bytes of an array from outside are not compared in any call.
LARGE = 1 << 16
#: Modules of torch's that take modes off its stack and put them back.
_OF_MODES = ("torch.overrides", "torch.utils._device")
#: So often it is asked whether a refused run is given up before it is.
_MOST_ASKED = 4


class Handler:
    """What the C++ session asks while the program runs.  Every method runs with events paused."""

    def __init__(self, scalars: bool = True, symbols: Symbols | None = None) -> None:
        """Starts an empty session."""
        self.session = _interp.Session(self)
        refusals = RefusalBox()
        self.recorder = Recorder(self.session.is_outside, self.session, scalars, symbols, refusals)
        #: What the answers share with c_calls and effects.
        self.run = Run(self.session, self.recorder, refusals)
        # The addresses of objects of the call's own whose death the program hears of, or of what
        # such weak references lead to.
        self.finalizers: set[int] = set()
        # What a call for its effect has put into globals: by their address and the key.
        self.redone: dict[tuple[int, str], Any] = {}
        self.modules: list[tuple[types.ModuleType, str]] = []
        self._asked = 0
        self.buffers = OutsideBuffers(self.run)
        self.recorder.is_rewritten = self.buffers.is_rewritten
        self.recorder.buffers_read = self.buffers.looked_into
        tracked = TrackedValues(self.run, self.buffers)
        tables = self.tables = Tables(self.run)
        arrays = self.run.tracked = ArrayCalls(self.run, tracked, tables)
        self.loops = self.run.loops = Loops(self.run)
        self.varying = VaryingNumbers(self.run)
        #: Whether small arrays that are reached are inputs, and whether there was one.
        self.contents = self.small_inputs = False
        # Answers of the others.
        self.counter, self.inherits = self.varying.counter, self.varying.inherits
        self.same_number = self.varying.same_number
        self.is_outside_value = self.varying.is_outside_value
        self.differs = self.run.differs
        self.rely_on, self.truth = tracked.rely_on, tracked.truth
        self.contains, self.compare_items = tracked.contains, tracked.compare_items
        self.binary, self.compare, self.unary = tracked.binary, tracked.compare, tracked.unary
        self.item, self.attribute = tracked.item, tracked.attribute
        self.format, self.join = tracked.format, tracked.join
        self.array_written = tracked.array_written
        self.table_item, self.table_has = tables.item, tables.has
        self.table_new = tables.new_key
        self.table_store, self.table_left = tables.store, tables.left
        self.tracked_call, self.array_call = arrays.tracked_call, arrays.array_call
        self.array_operation, self.percent = arrays.array_operation, arrays.percent
        self.joined_call = Joins().joined_call

    def refuse(self, reason: str, remedy: str = "") -> None:
        """Keeps the first refusal, at the user's current line."""
        self.run.refuse(reason, remedy)

    def name_replaced(self, name: str) -> None:
        """From now on torch would tell the recorder of what stands at the name, not of what ran."""
        self.run.refuse(
            f"another function is put at the name {name}, by which torch tells of an operation",
            "Do this outside of the compiled function",
        )
        self.recorder.leave()

    def handles(self, error: BaseException | None) -> None:
        """The program asks which exception is being handled: one of its own, or its caller's."""
        self.run.handles(error)

    def given_up(self) -> bool | None:
        """Whether the run was refused some time ago: nothing that follows is watched then.

        Not at once, since the lines that would be refused next are known for the next call. None
        where torch is about to ask the recorder, which it has found on its stack of modes.
        """
        if self.run.refusals.first is None and self.session.failure is None:
            return False
        self._asked += 1
        if self._asked <= _MOST_ASKED:
            return False
        return (not _asks_modes(sys._getframe(1)) and self.recorder.give_up()) or None

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
        self.run.again(c_state.matched_as, (cls,))

    def plain_name(self, holder: Any, name: str) -> None:
        """C code that takes an object for a mapping finds something there that it cannot call."""
        self.run.again(c_state.can_be_called, (holder, name))

    def deleted(self, cls: type, name: str) -> None:
        """An attribute of a class is about to be deleted, which it may have from a base."""
        self.run.again(c_state.has_itself, (cls, name))

    def tensor_store(self, tensor: torch.Tensor, name: str) -> None:
        """An attribute that torch keeps of a tensor is about to be assigned."""
        if name == "__class__":
            self.run.refuse("a class is assigned to a tensor", "Use tensor.as_subclass(...)")
        if name in ("real", "imag"):  # alone of all: torch tells no mode of it
            self.run.refuse(
                f"tensor.{name} = ... writes to a tensor, and torch tells nobody",
                f"Use tensor.{name}.copy_(...) instead",
            )

    def touch(self, obj: Any, deep: bool) -> None:
        """An outside object that is no plain container is looked into as a whole by C code."""
        t = type(obj)
        base = _interp.c_base(t)
        if base is np.ndarray or base is np.void:  # the second is a record, which can be written to
            self.buffers.array_read(obj)
            return
        if base.__module__ == "numpy" and not hasattr(base, "__next__"):
            return
        if t in _VIEWS:
            self.run.refuse(f"a live view ({t.__name__}) of a dict from outside is read")
        elif t is types.MappingProxyType:
            self.run.proxied(obj)
        elif isinstance(obj, types.SimpleNamespace):
            c_calls.read_vars(self.run, vars, (obj,), {})
            if deep:
                self.session.touch(vars(obj))
        elif t is operator.attrgetter:
            self.run.refuse(
                "an operator.attrgetter is given to a C function, where nobody sees what it reads",
                "Use a lambda instead",
            )
        elif isinstance(obj, functools.partial):
            self.run.again(c_state.has_dict, (obj,))
        elif hasattr(t, "__next__"):
            self.run.refuse(
                "an iterator or generator from outside is consumed", "Pass a list instead"
            )
        elif c_state.stateful(t):
            before = c_state.picture(obj)
            if before is None:
                self.run.refuse(
                    f"{an(t.__name__)} from outside is read, whose state cannot be compared"
                )
            self.buffers.opaque_read(obj, before)

    def without_attributes(self, obj: Any) -> None:
        """Attributes are looked for in an object that has no dict yet, and gets none by that."""
        self.run.again(c_state.without_attributes, (obj,))

    def held(self, obj: Any) -> None:
        """An object of C from outside is reached whose content C code may hand on, call or compare.

        What a weak reference leads to is asked for where the program calls it.
        """
        for x in c_state.held(obj):
            self.session.reach(x)
            if not isinstance(obj, weakref.ref):
                self.session.touch(x)

    @frames_hidden
    def call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Performs a call that the table of leaves reserves for the handler."""
        treat = c_calls.TREATMENTS.get(callables.effect_of(f), c_calls.unknown)
        return treat(self.run, f, args, kwargs)

    def entered(self, manager: Any) -> None:
        """A `with` block is about to be entered."""
        self.recorder.catching.entered(manager, call_sites.program_frame())
        c_calls.takes_lock(self.run, manager)
        profiler_marks.begun(self.run, manager)

    def caller_read(self, frame: Any) -> None:
        """The program looks at a frame that was there before the call."""
        self.run.refuse("the frame of a caller is looked at")

    def warning_raised(self, f: Any) -> None:
        """C code raises a warning, which the filters of another call may let pass."""
        if not call_sites.is_warning(f):  # what these do is guarded
            self.run.refuse("the filters of warnings make an error of one that C code gives")

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
        for var, before in self.run.contexts.values():
            now = var.get(ABSENT)
            if now is before:
                continue
            if now is ABSENT:
                refusal = Refusal(f"the call takes the value of {var!r} away")
                refusal.frames = self.run.sites[id(var)][1]
                raise refusal
            step = EffectStep(
                contextvars.ContextVar.set, [builder.build(var), builder.build(now)], {}, []
            )
            self.recorder.record.steps.append(step)

    def end(self) -> None:
        """Lets go of what the run referred to, and of what refers to the handler."""
        self.varying.put_back()
        self.session.clear()
        self.recorder.end()
        del self.run.tracked, self.run.loops

    def below(self, function: Any) -> None:
        """A Python function starts below a call for its effect, or in autograd's engine."""
        f, step = self.run.called_effect
        known = foreign(function) or self.recorder.performer.performs(function)
        if (f is not None and step is None) or self.run.refusals.first is not None or known:
            return
        what = "a backward pass is made" if f is None else f"{callables.name_of(f)} is called"
        self.run.refuse(
            f"{what}: {listeners.name_of(function)} runs in it, Python of the program that nobody "
            "watches there"
        )

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
        self.run.refusals.refuse(reason, passing=True)
        return True

    def array_reached(self, array: Any) -> None:
        """A large array of numbers from outside is an input: to compare it takes long.

        A small one may as well be a table that the program writes to, which is redone: it is one
        where such have differed.
        """
        recorder, small = self.recorder, array.nbytes < LARGE
        if (small and not self.contents) or array.dtype.kind not in "biufc" or recorder.depth:
            return
        if self.run.refusals.first is None and self.session.tracked(array) is None:
            self.small_inputs |= small
            self.buffers.is_input(array)
            recorder.array_argument(array)

    def of_list(self, function: Any, numbers: list[Any]) -> int | float | None:
        """A builtin is given a list of numbers that is an input, and may give a number."""
        if self.recorder.depth or self.run.refusals.first is not None:
            return None
        return self.recorder.of_list(function, numbers)

    def makes_tensor(self, function: Any) -> bool:
        """A function is given a list of numbers that is an input: the recorder hears of that."""
        alone = not self.recorder.depth and torch._C._len_torch_function_stack() == 1
        name = getattr(function, "__name__", "")
        return alone and makes_tensor_of_numbers(function, name, ([],))

    def set_asked(self, container: Any, item: Any) -> bool:
        """A set is asked whether it has an element, which the guard asks again."""
        self.run.again(operator.contains, (container, item))
        return True

    def raced(self, holder: Any) -> None:
        """Another thread has changed something that the call reads."""
        self.run.refusals.keep(race(holder))

    def effect_done(self, result: Any) -> Any:
        """A call for its effect, which `_effect` has left to the probe, is over.

        Args:
            result: its result, or ABSENT if it raised.

        Returns:
            What the program gets for the result; ABSENT if it is to get the result itself.
        """
        self.recorder.depth -= 1
        f, step = self.run.called_effect
        self.run.called_effect = None, None
        for place in self.run.unwarned:
            if call_sites.REGISTRY in place:
                self.redone[id(place), call_sites.REGISTRY] = place[call_sites.REGISTRY]
        if result is ABSENT:
            # It may not raise in the next call: filters decide of warnings, files of output.
            self.run.refuse(f"{callables.name_of(f)} raises an exception")
        elif step is not None:
            own = effect_calls.result_of(self.run, f, self.run.written_text, result)
            if any(_tensor.tensor_version(t) != version for t, version in self.run.versions):
                self.run.refuse(f"{callables.name_of(f)} changes a tensor that it is given")
            self.run.versions = []
            try:
                self.recorder.below.done(callables.name_of(f))
            except Refusal as r:
                self.run.refusals.keep(r)
            except Exception as e:  # noqa: BLE001 - a failure of magpy must not reach the program
                self.recorder.fail(e)
            self.recorder.record.steps.append(step)
            return own
        return ABSENT

    def warns(self, watched: bool) -> None:
        """A warning is about to be shown (CPython, Python/_warnings.c, `call_show_warning`).

        Args:
            watched: by code written in C that the program has called.
        """
        recorder = self.recorder
        if self.run.called_effect[0] is not None:
            return  # the effect warns
        if recorder.performer.computing:
            self.run.refuse("numpy warns of arithmetic that fails")
        elif recorder.depth:
            recorder.performer.warns(recorder.operation)
            try:
                recorder.unwatched(listeners.hearers, (warnings.warn, None))
            except Refusal as r:
                self.run.refuse(f"an operation warns: {r.reason}")
        elif watched:
            self.run.refuse("a function written in C warns")

    def c_result(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """A C function returned tensors."""
        if self.recorder.depth or self.run.refusals.first is not None:
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
                and not isinstance(owner, (types.ModuleType, type, torch.Generator))
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
            self.run.refusals.keep(r)


_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))


def _asks_modes(frame: types.FrameType | None) -> bool:
    """Whether a frame, or one that called it, may be about to ask the recorder's mode."""
    while frame is not None:
        home = frame.f_globals.get("__name__")
        if home in _OF_MODES or "handle_torch_function" in frame.f_code.co_names:
            return True
        frame = frame.f_back
    return False
