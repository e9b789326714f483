"""One capture: runs the program for real, watched, and says what it read, did and left behind.

Owns the course of the watched run and the collection of what the end state says: specs of the
result and of every change.  Does not own what is asked while the program runs
(magpy/capture/python/callbacks.py), the meaning of the log (magpy/guards) nor code (magpy/replay).
Called by magpy/runtime/compiled.py.
"""

from __future__ import annotations

import functools
import gc
import operator
from typing import Any

import torch

from magpy import _interp, _tensor, faults
from magpy.capture.end_state import end_state
from magpy.capture.python import effects as effect_calls
from magpy.capture.python.callbacks import Handler
from magpy.capture.python.memos import shown
from magpy.capture.python.native import find_dynamo, prepare
from magpy.errors import Refusal, an, raised_in
from magpy.frames import signals
from magpy.ir.capture import Capture, Differing, Outcome, Varying
from magpy.ir.ops import Part, Record
from magpy.models.patched_names import replaced
from magpy.objects import c_state as opaque
from magpy.objects import saved_tensors
from magpy.objects.jagged import attributes
from magpy.objects.quiet import unheard
from magpy.objects.types import attribute, isinstance
from magpy.shapes.symbols import Symbols

ABSENT = _interp.ABSENT


def run(
    f: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    scalars: bool = True,
    varying: Varying | None = None,
    differing: Differing | None = None,
) -> Outcome:
    """Calls `f(*args, **kwargs)` for real, watched.

    Args:
        f: the program.
        args: its positional arguments.
        kwargs: its keyword arguments.
        scalars: whether graphs may take Python numbers as inputs.
        varying: the sizes and numbers among the arguments that become inputs.
        differing: what the run must not go by.

    Returns:
        The program's result or exception, and either a capture or the reason why there is none.
        Never raises on the program's behalf.
    """
    with signals.held():  # but where the program runs
        return _run(f, args, kwargs, scalars, varying, differing)


def _run(
    f: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    scalars: bool,
    varying: Varying | None,
    differing: Differing | None,
) -> Outcome:
    out = Outcome()
    handler: Handler | None = None
    try:
        prepare()
        find_dynamo()
        name = replaced()
        if name:
            # torch tells the recorder of what stands there, not of what is called.
            raise Refusal(f"another function has been put at {name}")
        symbols = None
        if varying is not None and varying.follow:
            symbols = Symbols(varying.sizes, varying.data, varying.alike)
        handler = Handler(scalars, symbols)
        state = _tensor.TorchState()
        metas = {
            id(v): _tensor.TensorMeta(v)
            for v in (*args, *kwargs.values())
            if isinstance(v, torch.Tensor)
        }
        recorder = handler.recorder
        if varying is not None:
            handler.contents = varying.contents
            args, kwargs = _with_inputs(varying, handler, args, kwargs)
        if differing is not None:
            recorder.checked = differing.checked
            if symbols is not None and differing.fixed:
                symbols.not_at = differing.fixed
            for holder, key in differing.places:
                handler.session.differ(holder, key)
                if key is None:
                    handler.run.differing.add(id(holder))
        recorder.observer.start()
    except Exception as e:  # noqa: BLE001 - magpy failed before the program ran: it runs eagerly
        if isinstance(e, Refusal):
            out.refusal = e.without_frames()
        else:
            out.failure, out.stage = e, "start"
    if out.refusal is not None or out.failure is not None:
        # Not while that is handled: the program would find it in `sys.exc_info()`.
        return _unwatched(out, handler, f, args, kwargs)
    assert handler is not None
    try:
        with recorder, saved_tensors.called_by(recorder.hook):
            out.value = handler.session.run(*_called(f, args), kwargs)
    except BaseException as program:  # noqa: BLE001 - handed to the caller as the program's own
        out.exception = program
    finally:
        recorder.observer.stop()
    # What is made of the run are many objects that stay: to look for garbage among them only costs.
    collecting = gc.isenabled()
    gc.disable()
    try:
        _finish(out, handler, f, args, kwargs, state, metas)
    except Refusal as r:
        out.refusal = r.without_frames()  # they would hold what the call made
        out.contents = handler.small_inputs and not r.raised
        r.passing = r.passing or out.contents
    except Exception as e:  # noqa: BLE001 - P1: the program's outcome stands
        out.failure, out.stage = e, out.stage or "record"
    finally:
        out.keeps_graph = recorder.record.keeps_graph
        # What regions give, the pass may take: of a call that is refused the pass may be Python's.
        refused = out.refusal is not None or out.failure is not None
        out.again = recorder.record.again or (recorder.record.keeps_graph and refused)
        # The recorder refers to its tensors and to the handler: break the cycle at once.
        handler.end()
        del handler
        if collecting:
            gc.enable()
    return out


def _unwatched(
    out: Outcome, handler: Handler | None, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Outcome:
    """The outcome of a call that runs eagerly, since the watch could not begin."""
    if handler is not None:
        handler.varying.put_back()
    try:
        out.value = _interp.let_signals_in(functools.partial(f, *args, **kwargs))
    except BaseException as program:  # noqa: BLE001 - handed to the caller as the program's own
        out.exception = program
    return out


def _with_inputs(
    varying: Varying, handler: Handler, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a run in which the values that vary are inputs."""
    number, parts = handler.recorder.argument, handler.varying.argument
    args, kwargs = varying.replace(number, parts, args, kwargs)
    symbols = handler.recorder.symbols
    if symbols is not None:
        symbols.refuse = handler.run.fixes
        symbols.turn_by({handler.recorder.tracked(args[i]) for i in varying.turns})
    for array in varying.arrays:
        sized = id(array) in varying.sized
        handler.buffers.is_input(array, sized)
        handler.recorder.array_argument(array, sized)
    handler.recorder.lists.add(varying.lists)
    tuples: dict[tuple[int, Any], tuple[Any, Any, set[int]]] = {}
    for holder, key, follow in varying.places:
        if isinstance(key, Part):
            *_, at = tuples.setdefault((id(holder), key.key), (holder, key.key, set()))
            at.add(key.at)
        else:
            handler.varying.vary(holder, key, follow)
    for holder, key, at in tuples.values():
        handler.varying.vary_parts(holder, key, at)
    return args, kwargs


def _called(f: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """What is called: it may be another one in each call, and is given as an argument then."""
    return (args[0], args[1:]) if f is operator.call else (f, args)


def _finish(
    out: Outcome,
    handler: Handler,
    f: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    state: Any,
    metas: dict[int, Any],
) -> None:
    run, recorder, session = handler.run, handler.recorder, handler.session
    failure = session.failure
    if failure is not None:
        out.stage = failure[0]
        cause = failure[1]
        if isinstance(cause, str):
            raise Refusal(cause)
        if isinstance(cause, RecursionError):
            raise Refusal("the call uses up the interpreter's stack") from cause
        out.failure = cause if isinstance(cause, BaseException) else RuntimeError(str(cause))
        return
    if isinstance(run.refusals.failure, RecursionError):
        raise Refusal("the call uses up the interpreter's stack") from run.refusals.failure
    if run.refusals.failure is not None:
        out.failure, out.stage = run.refusals.failure, "recorder"
        return
    handler.loops.finish()
    record = recorder.finish()
    buffers = handler.buffers
    buffers.written += recorder.buffers
    record.mutated |= buffers.written_tensors(record)
    buffers.check_arrays()
    buffers.check_shared(definition(f))
    buffers.check_inputs(record)
    buffers.check_below()
    recorder.check_end()
    if any(map(session.is_outside, run.locks)):
        run.refuse("a lock is taken and not given back")
    if run.refusals.first is not None:
        raise run.refusals.first
    if out.exception is not None:
        error = out.exception
        refusal = Refusal(
            f"the call raised {type(error).__name__}: {str(error)[:200]}",
            _raise_site(error),
            passing=signals.raised_by_handler(error)
            and isinstance(error, (Exception, KeyboardInterrupt)),
        )
        refusal.raised, refusal.frames = True, raised_in(error.__traceback__)
        raise refusal
    difference = state.difference()
    if difference is not None:
        raise Refusal(f"the call leaves torch in another state than it found it in ({difference})")
    faults.check("log")
    effect_calls.check(record)
    record.transform_spans = recorder.transforms.spans
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
    run, recorder, session = handler.run, handler.recorder, handler.session
    log = session.log()
    builder = run.builder()
    result = builder.build(out.value)
    handler.finish_contexts(builder)
    handler.finish_modules()
    for tensor in record.inputs.values():
        gradient = _tensor.gradient(tensor)
        if gradient is not None and not session.is_outside(gradient) and attributes(gradient):
            # Autograd's engine makes another one in every call, and nobody would set it there.
            raise Refusal("an attribute is set of a gradient that the call makes")
    for obj, before in handler.buffers.opaque:
        if not opaque.same(opaque.picture(obj), before):
            raise Refusal(f"the call changes {an(type(obj).__name__)} from outside")
    reads: list[tuple[str, Any, Any, Any]] = []
    effects = end_state(session, log, builder, handler.redone, reads, handler.tables.stores())
    _check_tracebacks(log)
    reads += [("identity", obj, None, None) for obj in run.identities]
    if not all(map(builder.knows, handler.finalizers)):
        # The collector has it die later, and Python of the program runs then, of which no entry
        # knows.
        raise Refusal(
            "the call leaves an object behind that runs code when it dies (a __del__, the callback "
            "of a weak reference)"
        )
    for refusal in (recorder.given.kept(builder.knows), shown(run.remembered, builder.knows)):
        if refusal is not None:
            raise refusal
    log = [*session.log(), *reads]  # an effect may rely on more of what was there before
    metas.update(recorder.tensors.metas)
    for read, keys, value in recorder.settings.unguarded():
        if isinstance(value, list):  # which has an identity of its own
            run.redo.append((opaque.outcome, (read, *keys), tuple(value)))
        else:
            run.redo.append((read, keys, value))
    if any(kind == "object" and opaque.of_numpy(obj) for kind, obj, _, _ in log):
        run.redo.append((opaque.numpy_errors, (), opaque.numpy_errors()))
    return Capture(
        f=f,
        args=args,
        kwargs=kwargs,
        log=log,
        record=record,
        metas=metas,
        state=state,
        result=result,
        effects=effects,
        redo=run.redo,
        opaque=handler.buffers.opaque,
        arrays=handler.buffers.compared(),
        array_inputs=handler.buffers.inputs,
        buffers=handler.buffers.shared(),
        memos=run.memos,
        start_modes=recorder.start_modes,
        events=session.events,
    )


def definition(f: Any) -> str:
    """Where a function, or a module's `forward`, is defined: "file:line (function)"."""
    if isinstance(f, torch.nn.Module):
        f = type(f).forward
    inner = attribute(f, "__func__")
    code = attribute(f if inner is None else inner, "__code__")
    return f"{code.co_filename}:{code.co_firstlineno} ({code.co_name})" if code else ""


def _check_tracebacks(log: list[tuple[str, Any, Any, Any]]) -> None:
    """Refuses where an exception from outside was raised and handled: its traceback has grown."""
    written = {(id(obj), name) for kind, obj, name, _ in log if kind == "write_attr"}
    for kind, obj, _, value in log:
        if kind != "object" or not isinstance(obj, BaseException):
            continue
        traceback_before, context = value
        if obj.__traceback__ is not traceback_before:
            raise Refusal(f"{an(type(obj).__name__)} from outside is raised and handled")
        if obj.__context__ is not context and (id(obj), "__context__") not in written:
            raise Refusal(f"{an(type(obj).__name__)} from outside is raised where one is handled")


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
    "Varying",
    "definition",
    "run",
]
