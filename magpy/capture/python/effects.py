"""Calls that a program makes for their effect: printing, warnings, logging, users' callbacks.

Owns how such a call is noted so that the mock code makes it again, in order, with its arguments
built anew and from the place that it reports, and when it cannot be.  Does not own changes of
objects (magpy/capture/end_state.py).  Called by magpy/capture/python/c_calls.py, and at the end of
the run by magpy/capture/session.py.
"""

from __future__ import annotations

import collections
import gc
import io
import itertools
import logging
import os
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch

from magpy import _interp, _tensor
from magpy.capture.python.run import Run
from magpy.errors import Refusal, an
from magpy.frames import call_sites
from magpy.frames.locations import is_own
from magpy.ir import aliasing
from magpy.ir.ops import EffectStep, HostStep, OpStep, Record, Var
from magpy.ir.recipes import spec_vars
from magpy.ir.trees import tensors as tensors_in
from magpy.models import callables
from magpy.objects import contents
from magpy.objects.plain_values import is_plain
from magpy.objects.snapshots import at_start, content_of, is_changed
from magpy.objects.types import isinstance
from magpy.unwatched import listeners

ABSENT = _interp.ABSENT
# Classes of C; those of `io` only claim them.
_STREAMS: tuple[Any, ...] = (io.StringIO.__base__, io.BytesIO.__base__)


def effect(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Notes how to make the call again, and leaves it to the probe; `effect_done` follows."""
    step: EffectStep | None = None
    if f is print and any(map(_speaks, args)) and _texts_will_do(args, kwargs):
        return _print_texts(args, kwargs)  # what they say now: the call may change them afterwards
    if run.refusals.first is None:
        try:
            step = _effect_step(run, f, args, kwargs)
        except Refusal as r:
            if f is print and _texts_will_do(args, kwargs):
                return _print_texts(args, kwargs)
            run.refusals.refuse(f"{callables.name_of(f)} is called: {r.reason}", r.remedy)
        except Exception as e:  # noqa: BLE001 - a failure of magpy must not reach the program
            run.recorder.fail(e)
    run.called_effect = f, step
    writes = isinstance(getattr(f, "__self__", None), _STREAMS) and f.__name__ == "write"
    run.written_text = args[0] if writes and args and type(args[0]) in (str, bytes) else None
    given = getattr(f, "__self__", None), *args, *kwargs.values(), sys.stdout, sys.stderr
    if run.refusals.first is None:  # else what it is given, a file perhaps, dies as in eager
        try:
            run.recorder.below.begin(given, listeners.hearers(*_heard(f, kwargs)).objects)
        except Exception as e:  # noqa: BLE001 - as above
            run.recorder.fail(e)
    else:
        run.recorder.below.end()
    run.recorder.depth += 1
    run.versions = [(t, _tensor.tensor_version(t)) for t in tensors_in((args, kwargs))]
    run.unwarned = [s[3] for s in step.sites if call_sites.REGISTRY not in s[3]] if step else []
    return NotImplemented  # called from the program's own frame, which it may look at


def result_of(run: Run, f: Any, text: str | bytes | None, result: Any) -> Any:
    """What the program gets for the result of a call for its effect; ABSENT: the result itself.

    An entry makes the call last.  How much a stream has written (`io.TextIOBase.write`,
    `io.BufferedIOBase.write`) is known before that: all of it.  What else comes back is not.
    """
    if text is not None and type(result) is int and result == len(text):
        if run.session.tracked(text) is None:
            return ABSENT
        return run.tracked.derive(len, (text,), {}, result)
    if result is not None:
        run.refuse(
            f"{callables.name_of(f)} returns {an(type(result).__name__)}, and is called for its "
            "effect",
            "Let it return None",
        )
    return ABSENT


def _print_texts(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Prints objects that cannot be printed again later as what they say now, one by one."""
    separator, end = kwargs.get("sep"), kwargs.get("end")
    separator = " " if separator is None else separator
    for i, a in enumerate(args):
        last = i == len(args) - 1
        how = {"file": kwargs.get("file"), "end": end if last else separator}
        _interp.call(
            print, (_text(a),), {**how, "flush": kwargs.get("flush", False)} if last else how
        )


def _texts_will_do(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call of print is right, and has something else than texts to print."""
    words = all(isinstance(kwargs.get(n), (str, type(None))) for n in ("sep", "end"))
    known = kwargs.keys() <= {"sep", "end", "file", "flush"}
    return words and known and not all(type(a) is str for a in args)


def _speaks(a: Any) -> str:
    """The method in Python that says what an object is as a text; "" if C does."""
    for name in ("__str__", "__repr__"):
        owner = next(c for c in type(a).__mro__ if name in vars(c))
        if isinstance(vars(owner)[name], types.FunctionType):
            return name
        if owner is not object:
            break
    return ""


def _text(a: Any) -> Any:
    """What an object says, by its own method where that is Python, whose numbers are followed."""
    name = _speaks(a)
    if not name:
        return _interp.call(str, (a,), {})
    method = _interp.call(getattr, (type(a), name), {})
    text = _interp.call(method, (a,), {})
    if isinstance(text, str):
        return text if type(text) is str else str.__str__(text)
    says = "__str__"  # so CPython names either
    raise TypeError(f"{says} returned non-string (type {type(text).__name__})")


def _effect_step(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> EffectStep:
    """How a call for its effect is redone.

    Raises:
        Refusal: it cannot be redone.
    """
    printing = torch._tensor_str.PRINT_OPTS
    looked_at = _looked_at(run, (args, kwargs, printing))
    altered = _altered(run)
    for v in listeners.hearers(*_heard(f, kwargs)).objects:
        if any(map(altered, (v, *_state_of(v), *contents.held_by_library(v)))):
            raise Refusal(f"{an(type(v).__name__)} hears of it that the call has changed before")
    if getattr(f, "__module__", None) == "logging":
        if f.__name__ == "exception" or kwargs.get("exc_info"):
            raise Refusal("it tells of an exception with its traceback")
        if kwargs.get("stack_info"):
            raise Refusal("it tells of the frames that called it (stack_info)")
    frame = call_sites.program_frame()
    if call_sites.is_warning(f) and frame is not None:
        _ask_errors(run)
        if not isinstance(call_sites.of_warning(frame, args, kwargs), (str, Warning)):
            # It raises, unless the filters have changed since the module warned.
            raise Refusal("a warning is neither a text nor a Warning")
        if any(_changed(run, warnings, name) for name in call_sites.WARNING_STATE):
            raise Refusal("the call has changed what becomes of warnings")
    elif f is print and not kwargs.get("file") and _changed(run, sys, "stdout"):
        raise Refusal("sys.stdout is what the call has put there")
    _ask_who_hears(run, f, args, kwargs)
    builder = run.builder()
    return EffectStep(
        f,
        [builder.build(a) for a in args],
        {k: builder.build(v) for k, v in kwargs.items()},
        _callers(f, args, kwargs),
        tensors=looked_at,
        modes=run.recorder.modes(),
    )


_SHOWN = 100  # arguments, and what they hold


def _ask_who_hears(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Has guards ask which Python of the program runs below a call for its effect."""
    outside = run.session.is_outside
    function, target = _heard(f, kwargs)
    if target is not None and target is not logging.root and not outside(target):
        target = type(target)
    shown: list[Any] = []
    todo = collections.deque((*args, *kwargs.values()))
    for _ in range(_SHOWN):
        if not todo:
            break
        v = todo.popleft()
        if outside(v):
            shown += [] if is_plain(v) else [v]
        else:  # what the call has made may hold what is shown with it
            todo += itertools.islice(contents.elements(v), _SHOWN)
    run.recorder.unwatched(listeners.hearers, (function, target, *shown))


def _heard(f: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The function of a call for its effect, and the stream or the logger that it is of."""
    if f is print:
        return f, kwargs.get("file")
    if getattr(f, "__module__", None) == "logging" and not isinstance(f, types.MethodType):
        return f, logging.root
    return getattr(f, "__func__", f), getattr(f, "__self__", None)


def _changed(run: Run, module: types.ModuleType, name: str) -> bool:
    before = at_start(run.session, module, name)
    return before is not vars(module).get(name, ABSENT) or is_changed(run.session, before)


def _ask_errors(run: Run) -> None:
    """Has guards ask which warnings are errors."""
    before = call_sites.errors(at_start(run.session, warnings, "filters"))
    errors = call_sites.errors, (), before
    if errors not in run.redo:
        run.redo.append(errors)


def _looked_at(run: Run, values: Any) -> list[Any]:
    """The tensors that a call for its effect reaches.

    Raises:
        Refusal: it reaches an outside object that the run has changed, which at replay is
            changed only afterwards.
    """
    altered = _altered(run)
    tensors: list[Any] = []
    seen: dict[int, Any] = {}
    todo: list[Any] = [values]
    while todo:
        v = todo.pop()
        if id(v) in seen or id(type(v)) in _PLAIN or isinstance(v, _NOT_LOOKED_INTO):
            continue
        seen[id(v)] = v
        if altered(v):
            raise Refusal(f"it is given {an(type(v).__name__)} that the call has changed before")
        if len(seen) > _REACH:
            raise Refusal("it is given too many objects to tell which of them the call changes")
        if isinstance(v, torch.Tensor):
            var = run.recorder.tensors.known(v)
            tensors.append(v if var is None else var)
        elif isinstance(v, dict):
            todo.extend(dict.values(v))
        elif isinstance(v, _SEQUENCES):
            base: Any = next(c for c in _SEQUENCES if isinstance(v, c))
            todo.extend(base.__iter__(v))
        else:
            # A view, a proxy, a partial, an exception: what C code holds, it may look into.
            todo.extend(gc.get_referents(v))
        todo.extend(_state_of(v))
    return tensors


def _altered(run: Run) -> Callable[[Any], bool]:
    """Tells of an object whether the call has changed it by now."""
    session = run.session
    # The log is long, and calls like this one may be many.
    news = session.log(run.log_read)
    run.log_read += len(news)
    run.assigned.update(id(obj) for kind, obj, _, _ in news if kind == "write_attr")
    changed = {id(cell) for cell, _ in session.written_cells()} | run.assigned
    snapshots = {id(obj): (obj, pre) for obj, pre, *_ in session.containers()}

    def altered(v: Any) -> bool:
        obj, pre = snapshots.get(id(v), (None, None))
        return id(v) in changed or (obj is not None and content_of(obj) != content_of(pre))

    return altered


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
    counted = 0  # logging passes its own frames over
    while frame is not None and counted < wanted:
        if _interp.is_caller(frame):
            break
        if not is_own(frame):
            code = frame.f_code
            sites.append((code.co_filename, frame.f_lineno, code.co_name, frame.f_globals))
            counted += os.path.normcase(code.co_filename) != logging._srcfile
        frame = frame.f_back
    if counted < wanted and wanted > 1:
        raise Refusal("it reports a frame outside of the compiled call")
    return sites[::-1]


def _state_of(v: Any) -> list[Any]:
    """The instance dict and the contents of the slots of an object."""
    own = contents.own_dict(v)
    return [*([] if own is None else [own]), *contents.slots(v).values()]


def check(record: Record) -> None:
    """Effects are redone after all operations.

    No guard tells what memory a tensor has that only an effect looks at: in some call it may be
    that of any tensor from outside.

    Raises:
        Refusal: an operation changes a tensor after an effect has looked at it, or may do so.
    """
    if not any(isinstance(step, EffectStep) for step in record.steps):
        return
    inputs = {id(t): v for v, t in record.inputs.items()}
    outside = {record.storages[v] for v in record.inputs if v in record.storages}
    found = aliasing.possible(record.steps, record.storages)
    looked: set[int] = set()
    name = where = ""
    for step in record.steps:
        if isinstance(step, EffectStep):
            shown: set[Var] = set()
            spec_vars([*step.args, *step.kwargs.values()], shown, set())
            looked.update(*(found[v] for v in shown if v in found and v not in record.storages))
            for t in step.tensors:
                var = Var(t) if isinstance(t, int) else inputs.get(id(t))
                if var in record.storages:
                    looked |= found[var]
                else:
                    looked |= outside
            name = callables.name_of(step.func)
            if step.sites:
                where = "{}:{} ({})".format(*step.sites[-1])
        elif (
            looked
            and isinstance(step, (OpStep, HostStep))
            and (step.mutates or step.writes)
            and aliasing.meet(looked, aliasing.changed(step, found))
        ):
            raise Refusal(f"{name} is given a tensor that the call changes afterwards", where)


# What printing does not look into, and how many objects it may look at.
_NOT_LOOKED_INTO = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)

_PLAIN = frozenset(map(id, (int, float, complex, bool, str, bytes, type(None))))

_SEQUENCES = (list, tuple, set, frozenset, collections.deque)

_REACH = 20000
