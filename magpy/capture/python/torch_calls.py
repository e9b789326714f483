"""How calls of torch's C functions are performed that the table of leaves reserves for the handler.

Owns the treatments of calls that are done as a whole, settings and questions of torch's, queues of
devices, TorchScript, transforms, and seeds.  Does not own the table of treatments, nor those of
Python's own functions (magpy/capture/python/c_calls.py, the only caller).
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint

from magpy import _interp
from magpy.capture.python import native
from magpy.capture.python.run import Run
from magpy.capture.tensors import functorch
from magpy.errors import FILLED
from magpy.frames import call_sites
from magpy.frames.locations import refuse
from magpy.ir.ops import Call, EffectStep, OutsideRef, Ref, Var
from magpy.models import callables, torch_callables, torchscript
from magpy.models.torch_callables import Does
from magpy.objects import c_state
from magpy.objects.plain_values import is_plain
from magpy.objects.snapshots import (
    container_states,
    only_fills,
    written_places,
)
from magpy.objects.types import isinstance

ABSENT = _interp.ABSENT


def inside(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A context that an operation written in Python enters, which is done anew with it."""
    whole = run.recorder.whole
    communicates = torch_callables.does(f) is Does.COMMUNICATES
    if whole is None and communicates and args and run.session.tracked(args[0]) is not None:
        return in_order(run, f, args, kwargs)  # of work that the call itself has begun
    if whole is None:
        run.refuse(f"{callables.name_of(f)} is called")
        return ABSENT
    if communicates:
        whole.unrepeatable = True
    return ABSENT


def whole_call(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One operation of the graph in which Python may run: it may not change the world."""
    before, places = container_states(run.session), written_places(run.session)
    start = len(run.recorder.record.steps)
    whole = _whole(f)
    result = run.recorder.whole_call(whole, args, kwargs, lambda: _interp.watched(f, args, kwargs))
    after = container_states(run.session)
    if (
        any(after[k] != v for k, v in before.items())
        or any(v is not None for k, v in after.items() if k not in before)
        or any(places.get(k, places) is not v for k, v in written_places(run.session).items())
    ):
        run.refuse(
            f"{callables.name_of(f)}, which magpy records as one operation, changes an object "
            "from outside",
            FILLED
            if only_fills(run.session)
            else "Let it return what it computes, and change the object in the compiled function",
        )
    if any(isinstance(s, EffectStep) for s in run.recorder.record.steps[start:]):
        run.refuse(
            f"{callables.name_of(f)}, which magpy records as one operation, has a side effect "
            "(it prints, logs or warns)",
            "Do that in the compiled function itself",
        )
    return result


def operation(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A Python function of torch's that is one operation, as if it were written in C."""
    own = getattr(f, "__self__", None)
    return run.recorder.own_operation(
        getattr(f, "__func__", f), args if own is None else (own, *args), kwargs
    )


def checkpoint(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.utils.checkpoint.checkpoint` is done as a whole, so that it saves and repeats as ever.

    With `use_reentrant=True` it is a torch.autograd.Function that is.
    """
    # It has its code in common with others that torch decorates in the same way.
    if f is not torch.utils.checkpoint.checkpoint:
        return ABSENT
    with run.recorder.aside():
        _first_checkpoint()
    if not torch.is_grad_enabled():
        return ABSENT
    return ABSENT if kwargs.get("use_reentrant", True) else whole_call(run, f, args, kwargs)


@functools.cache
def _first_checkpoint() -> None:
    """The first one imports TorchDynamo and keeps what torch asks once, which is not the call's."""
    torch.utils.checkpoint.checkpoint(tuple, use_reentrant=False, preserve_rng_state=False)


def saved_hooks(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Hooks of saved tensors are set: what a graph saves is its own affair."""
    if torch.is_grad_enabled() and not run.recorder.depth:
        run.refuse("hooks of saved tensors are set, which run when the backward pass does")
    return f(*args, **kwargs)


def node_hook(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A node of autograd's graph gets a hook, which runs in a backward pass."""
    recorder = run.recorder
    node = getattr(f, "__self__", None)
    if recorder.depth or recorder.refusals.first is not None:
        return ABSENT
    later = refuse(f"{callables.name_of(f)} is called")
    if len(args) != 1 or kwargs or not recorder.hooks.takes(node, args[0]):
        run.refusals.keep(later)
        return ABSENT
    return recorder.hooks.register(node, args[0], recorder.hook_in_pass, later)


def dynamo(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """TorchDynamo, also below `torch.cond`: what it compiles must not see that a run is watched."""
    run.refuse(f"{callables.name_of(f)} is called, which runs TorchDynamo")
    with run.recorder.aside():
        result = f(*args, **kwargs)
    native.find_dynamo()
    return result


def torch_state(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of `torch._C` that switches a setting."""
    if f is torch.clear_autocast_cache:
        run.recorder.clears_autocast_cache()
        return f()
    run.session.rely_on((args, kwargs))
    return run.recorder.sets(f, args, kwargs)


def question(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of torch's that asks for a state: the guard asks again."""
    run.session.rely_on((args, kwargs))
    owner = getattr(f, "__self__", None)
    if torch_callables.does(f) is Does.ASKS_VALUE and not run.session.is_outside(args[0]):
        return ABSENT
    for a in (*args, *kwargs.values(), owner):
        if is_plain(a) or isinstance(a, (enum.Enum, type, types.ModuleType)) or _of_pybind(a):
            continue
        if not run.session.is_outside(a):
            run.refuse(f"{callables.name_of(f)} is called with objects made in the call")
            return ABSENT
        run.session.reach(a)
        run.identities.append(a)
    result = f(*args, **kwargs)
    if kwargs:
        run.refuse(f"{callables.name_of(f)} is called with arguments by name")
    elif run.recorder.settings.is_own(f, args):
        return result
    elif isinstance(result, (list, tuple)) and is_plain(result):
        run.again(c_state.outcome, (f, *args))
    elif isinstance(result, (dict, list)):
        run.refuse(f"{callables.name_of(f)} tells of torch's state")
    else:
        run.session.reach(result)
        run.redo.append((f, args, result))
    return result


def _of_pybind(a: Any) -> bool:
    """Whether it is what stands behind a function of pybind11, or one of an enumeration."""
    t = type(a)
    return t.__module__ == "pybind11_builtins" or "__members__" in vars(t)


def in_order(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What has to do with a device's queue of work: done again at its place among the operations.

    To record an event, or to wait for one, may be done twice: where an entry is left after it, the
    call is made again and so are these.
    """
    recorder = run.recorder
    if recorder.depth or run.refusals.first is not None:
        return ABSENT
    own = getattr(f, "__self__", None)
    if isinstance(own, (torch.Stream, torch.Event, torch.Generator)):
        f, args = callables.unbound(f), (own, *args)
    if f is torch.Generator.manual_seed and args:
        if run.session.tracked(args[0]) is None:
            # One from outside: the next call would find it in another state.
            run.refuse(f"{callables.name_of(f)} is called", "Seed a generator made in the call")
            return ABSENT
        if any(recorder.is_of_data(v) for v in (*args[1:], *kwargs.values())):
            # A loader that shuffles: its batches are computed with one by one, not as a whole.
            run.refuse(
                "a random generator gets a seed that was read from a tensor",
                "Draw the seed outside of the compiled function",
            )
            return ABSENT
    if (
        f.__name__ == "__new__"
        and issubclass(args[0], torch.Stream)
        and not _OF_STREAMS & {*kwargs}
    ) or f is torch.Stream:
        run.refuse("a stream is made in the call, another one each time", "Make it once, outside")
        return ABSENT
    plan = (
        [_in_order_given(run, a) for a in args],
        {k: _in_order_given(run, v) for k, v in kwargs.items()},
    )
    if any(v is ABSENT for v in (*plan[0], *plan[1].values())):
        run.refuse(f"{callables.name_of(f)} is called with objects made in the call")
        return ABSENT
    recorder.note_modes()
    recorder.depth += 1
    try:
        result = f(*args, **kwargs)
    except Exception:
        run.refuse(f"{callables.name_of(f)} raises")
        raise
    finally:
        recorder.depth -= 1
    known = any(result is a for a in args) or torch_callables.does(f) is Does.COMMUNICATES
    return recorder.in_order(f, tuple(plan[0]), plan[1], result, known)


# What says which stream it is that an object is made for.
_OF_STREAMS = frozenset(["stream_id", "stream_ptr"])


def _in_order_given(run: Run, v: Any) -> Any:
    """An argument of such a call, as a step keeps it; ABSENT if it has no place in a step."""
    var = run.session.tracked(v)
    if var is not None:
        return Ref(Var(var))
    if is_plain(v) or isinstance(v, type):
        return v
    if not run.session.is_outside(v):
        return ABSENT
    run.session.reach(v)
    return OutsideRef(v)


def script(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function that TorchScript compiled, in which nobody sees what it does."""
    recorder = run.recorder
    if recorder.depth or run.refusals.first is not None:
        return ABSENT
    if not isinstance(f, torch.jit.ScriptFunction):
        # What it holds in C++ may change, and its result with that.
        run.refuse("a module of TorchScript is called")
        return ABSENT
    done = torchscript.look(f)
    if done.decides or done.affects:
        what = "decides by data" if done.decides else "changes a container, or prints"
        run.refuse(f"a TorchScript function is called that {what}")
        return ABSENT
    result = f(*args, **kwargs)
    if done.branches and not _all_new(recorder, result):
        run.refuse("a TorchScript function is called that may give back an argument")
        return result
    recorder.unseen_result(f, args, kwargs, result, writes=done.writes)
    return result


def _all_new(recorder: Any, v: Any) -> bool:
    """Whether a function made all that it gave: then what it gives comes from its operation."""
    if isinstance(v, (tuple, list)):
        return all(_all_new(recorder, x) for x in v)
    return isinstance(v, torch.Tensor) and recorder.tensors.fresh(v)


def overrides(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Whether a `__torch_function__` hears of an operation: the recorder, if it may be told of it.

    A function of torch that would hand itself over becomes one operation of the graph.  One that
    only asks, to choose a way, must get the answer that it gets where nobody watches.
    """
    frame = call_sites.program_frame()
    if frame is not None and "handle_torch_function" in frame.f_code.co_names and _of_torch(frame):
        return ABSENT
    for a in args:
        run.session.touch(a)
    top = torch._C._len_torch_function_stack() - 1
    if top < 0 or torch._C._get_function_stack_at(top) is not run.recorder:
        return ABSENT
    torch._C._pop_torch_function_stack()
    try:
        return f(*args, **kwargs)
    finally:
        torch._C._push_on_torch_function_stack(run.recorder)


def _of_torch(frame: types.FrameType) -> bool:
    """Whether a frame is a function of torch's, which may be an operation.

    What the program makes overridable (`torch.overrides.wrap_torch_function`) is Python of its own.
    """
    module = frame.f_globals.get("__name__")
    if module == torch.overrides.__name__:
        module = getattr(frame.f_locals.get("func"), "__module__", None)
    return str(module).partition(".")[0] == "torch"


def transform(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A part of a transform of torch's (grad, vmap): an operation that no mode sees."""
    functorch.load(f)
    run.again(functorch.state, ())
    return run.recorder.transform(f, args, kwargs)


def transform_read(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What follows from the transforms that are active."""
    run.again(functorch.state, ())
    return f(*args, **kwargs)


def seed(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Torch's generators are seeded: done again between the same operations."""
    recorder = run.recorder
    if recorder.depth or run.refusals.first is not None:
        return ABSENT
    plan = recorder.convert_all(args), recorder.convert_all(kwargs)
    recorder.depth += 1
    try:
        result = f(*args, **kwargs)
    except Exception:
        run.session.rely_on((args, kwargs))  # another seed need not raise
        raise
    finally:
        recorder.depth -= 1
    run.session.reach(result)
    recorder.record.random = recorder.seeded = True
    recorder.note(f, *plan, Call, random=True, mutates=True)
    return result


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
