"""How calls of C functions are performed that the table of leaves reserves for the handler.

Owns one treatment for each `leaves.Effect`: a function (run, f, args, kwargs) that performs the
call and notes what of it the guard asks again or the mock code redoes; ABSENT leaves the call to
the probe.  Does not own which function has which effect (magpy/models/callables.py) nor the calls
that are made for an effect (magpy/capture/python/effects.py).  Called by
magpy/capture/python/callbacks.py.
"""

from __future__ import annotations

import abc
import contextvars
import enum
import functools
import gc
import re
import sys
import types
from _abc import _get_dump  # type: ignore[import-not-found]
from collections.abc import Callable
from typing import Any
from weakref import ref as weakref_to

import torch
import torch.utils.checkpoint

from magpy import _interp
from magpy.capture.python import draws, effects, memos, native, profiler_marks
from magpy.capture.python.run import Run
from magpy.capture.tensors import functorch
from magpy.errors import FILLED, NEXT_CALL
from magpy.frames import call_sites
from magpy.frames.locations import is_users, is_users_code, refuse
from magpy.ir.ops import Call, EffectStep, OpStep, OutsideRef, Ref, Var
from magpy.models import callables, torch_callables, torchscript
from magpy.models.callables import Effect
from magpy.models.torch_callables import Does
from magpy.objects import c_state
from magpy.objects.plain_values import is_immutable, is_plain
from magpy.objects.snapshots import (
    CONTAINERS,
    container_states,
    only_fills,
    written_places,
)
from magpy.objects.types import isinstance

ABSENT = _interp.ABSENT


def read_vars(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`vars(obj)`: the instance dict is read."""
    if f is dir:
        return refused(run, f, args, kwargs)  # it finds the names in all classes, too
    if args and not isinstance(type(args[0]).__getattribute__, types.FunctionType):
        d = getattr(args[0], "__dict__", None)  # `vars` gives one to what has none so far
        run.session.attr_read(args[0], "__dict__", None)
        if isinstance(d, types.MappingProxyType):
            if not (isinstance(args[0], type) and run.session.made(args[0])):
                run.proxied(d)
        elif isinstance(d, dict) and run.session.is_outside(d):
            run.session.compare(d)
    return ABSENT


def reduce(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`obj.__reduce__()`, copying, pickling: the instance dict and the slots are read."""
    target = getattr(f, "__self__", None)
    target = args[0] if target is None and args else target
    if isinstance(target, CONTAINERS):
        run.session.touch(target)
    if f.__name__ == "__dir__":
        return refused(run, f, args, kwargs)  # it finds the names in all classes, too
    if target is None or isinstance(target, type) or not run.session.is_outside(target):
        return ABSENT
    if hasattr(type(target), "__next__"):
        run.refuse("an iterator from outside is copied", "Make a list of it first")
    elif _interp.c_base(type(target)) is not object:
        run.session.touch(target)  # what C code keeps of it
    d = getattr(target, "__dict__", None) if c_state.has_dict(target) else None
    if isinstance(d, dict):
        run.session.attr_read(target, "__dict__", None)
        run.session.touch(d)
    for name, value in c_state.slots_of(target):
        run.session.attr_read(target, name, value)
    return ABSENT


def lock(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A lock: an entry takes none, but whether another has taken it must be the same again."""
    owner, name = getattr(f, "__self__", None), f.__name__
    if owner is None or isinstance(owner, (type, types.ModuleType)):
        owner = args[0] if args else None
        args = args[1:]
    if name in ("__enter__", "acquire", "acquire_lock", "_acquire_restore"):
        waits = name != "acquire" or (not args and not kwargs) or args == (True,)
        taken = not waits and _taken(run, owner)
        if not taken:
            run.locks.append(owner)
    elif name in ("locked", "locked_lock", "_is_owned"):
        _taken(run, owner)
    elif name in ("__exit__", "release", "release_lock", "_release_save"):
        at = next((i for i, v in enumerate(run.locks) if v is owner), None)
        if at is not None:
            del run.locks[at]
        elif name.startswith("release") and run.session.is_outside(owner):
            run.refuse("a lock is given back that the call has not taken")
    return ABSENT


def _taken(run: Run, owner: Any) -> bool:
    """The program asks whether a lock is taken: whether it cannot have it."""
    asks = getattr(owner, "locked", None)
    if any(v is owner for v in run.locks):
        return asks is not None  # one without may be taken several times
    if not run.session.is_outside(owner):
        return asks is not None and bool(asks())
    if asks is None:
        run.refuse("it is asked whether a lock is taken", "Wait for it, or use `with`")
        return False
    run.again(asks, ())
    return bool(asks())


def holders(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Who refers weakly to an object: nobody who would not without magpy."""
    run.refuse(f"{callables.name_of(f)} is called")
    run.recorder.forget_tensors()
    return ABSENT


def clock(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The time: a value that differs in every call."""
    return run.tracked.derive(f, args, kwargs, f(*args, **kwargs))


def weakref(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A weak reference is followed: the guard follows it again."""
    target = f(*args)
    if not run.session.is_outside(f):
        return target  # made by the run, which must not be kept alive
    run.session.reach(target)
    run.redo.append((f, args, target))
    return target


def format_text(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`str.format` and the like, whose fields may name attributes."""
    text = getattr(f, "__self__", None)
    if not isinstance(text, str):
        text = args[0] if args else None
    if isinstance(text, str) and _ATTRIBUTE_FIELD.search(text):
        run.refuse("str.format reads an attribute", "Use an f-string instead")
        return ABSENT
    if any(run.session.tracked(a) is not None for a in (*args, *kwargs.values())):
        result = run.tracked.tracked_call(f, args, kwargs)
        if result is not ABSENT:
            return result
    for a in (*args, *kwargs.values()):
        run.session.touch(a)
    return _interp.watched(f, args, kwargs)


def refused(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What has no place in an entry."""
    run.refuse(f"{callables.name_of(f)} is called")
    return ABSENT


def inside(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A context that an operation written in Python enters, which is done anew with it."""
    whole = run.recorder.whole
    communicates = torch_callables.does(f) is Does.COMMUNICATES
    if whole is None and communicates and args and run.session.tracked(args[0]) is not None:
        return in_order(run, f, args, kwargs)  # of work that the call itself has begun
    if whole is None:
        return refused(run, f, args, kwargs)
    if communicates:
        whole.unrepeatable = True
    return ABSENT


def remade(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An object of a class written in C is made anew, of which nothing else tells."""
    bound = isinstance(f, (types.MethodWrapperType, types.BuiltinFunctionType))
    obj = f.__self__ if bound else args[0] if args else None
    if run.session.is_outside(obj) or isinstance(obj, types.ModuleType):
        run.refuse(
            f"{callables.name_of(f)} gives a {type(obj).__name__} from outside another state"
        )
    elif run.session.tracked(obj) is not None:
        run.refuse(
            f"{callables.name_of(f)} gives a {type(obj).__name__} that follows from data another"
        )
    for a in (*args, *kwargs.values()):
        run.session.touch(a)
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


def unknown(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A C function that nobody vouches for: let be only if tensor operations make it up."""
    for a in (*args, *kwargs.values()):
        run.session.touch(a)
    steps = run.recorder.record.steps
    before, events = len(steps), run.session.events
    result = _interp.watched(f, args, kwargs)
    # Where Python runs below it, the operations may be Python's (`contextvars.Context.run`).
    own = run.session.events == events
    if not (own and any(isinstance(step, OpStep) for step in steps[before:])):
        name = callables.name_of(f)
        run.refuse(
            f"{name} is called, a C function whose effects magpy does not know",
            f"Say what it is with magpy.pure({name}) or magpy.effect({name})",
        )
    return result


# What a file answers otherwise once something is written to it.
_OF_FILES = frozenset(["getvalue", "tell"])


def read(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function that reads the world: the guard reads it again."""
    for a in args:
        run.session.touch(a)
    owner = getattr(f, "__self__", None)
    if (
        kwargs
        or not all(is_plain(a) or isinstance(a, enum.Enum) for a in args)
        or not (
            owner is None
            or isinstance(owner, (types.ModuleType, type))
            or run.session.is_outside(owner)
        )
    ):
        run.refuse(f"{callables.name_of(f)} is called with objects made in the call")
    if f.__name__ in _OF_FILES and run.recorder.below.written_to(owner):
        run.refuse(f"{callables.name_of(f)} is called of what the call has written to")
    asked = (*(memo for memo, *_ in run.memos), *run.filled)
    if f.__name__ == "cache_info" and any(owner is memo for memo in asked):
        run.refuse(f"{callables.name_of(owner)} counts calls that the call itself has made")
    if f.__name__ == "initial_seed" and run.recorder.seeded:
        run.refuse("torch.initial_seed is called after the call itself has seeded")
    try:
        result = f(*args, **kwargs)
    except Exception:
        run.again(c_state.outcome, (f, *args))
        raise
    if isinstance(result, tuple) and not is_plain(result):
        run.again(c_state.outcome, (f, *args))
    else:
        run.session.reach(result)
        run.redo.append((f, args, result))
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


def context(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A context variable is state like a global (PEP 567)."""
    var = getattr(f, "__self__", None)
    if not isinstance(var, contextvars.ContextVar):
        run.refuse(f"{callables.name_of(f)} is called without an instance")
        return ABSENT
    known = id(var) in run.contexts
    if not run.session.is_outside(var):
        return ABSENT
    if f.__name__ == "get":
        # What was there before may be there again (`reset`).
        own = known and var.get(ABSENT) is not run.contexts[id(var)][1]
        return ABSENT if own else read(run, f, args, kwargs)
    if not known:
        run.contexts[id(var)] = (var, var.get(ABSENT))
    if any(var is v for v in c_state.NUMPY_CONTEXT):
        # What numpy computes is computed under it again.
        return run.recorder.settings.of_context(var, lambda: f(*args, **kwargs))
    return ABSENT


class _Registered:
    """Whether a class still is, or is not, a virtual subclass of an abstract base class.

    Any registration anywhere moves the token of the caches (PEP 3119); only then is it asked anew.
    """

    def __init__(self, base: Any, cls: type, result: bool) -> None:
        self.base, self.cls = base, weakref_to(cls)
        self.token, self.result = abc.get_cache_token(), result

    def __call__(self) -> bool:
        token = abc.get_cache_token()
        if token != self.token:
            cls = self.cls()
            # A class that the call made is gone; the next one is registered where that was.
            if cls is None or issubclass(cls, self.base) is not self.result:
                return False
            self.token = token
        return True

    def is_about(self, cls: type) -> bool:
        """Whether this is the class asked about, and not one that came to lie where it was."""
        return self.cls() is cls


def registry(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Depends on what is registered with an abstract base class."""
    given: tuple[Any, ...] = args if len(args) == 2 else (None, None)
    base, other = given
    cls = type(other) if f.__name__ == "_abc_instancecheck" else other
    if (
        not isinstance(base, abc.ABCMeta)
        or not isinstance(cls, type)
        or (cls is not other and other.__class__ is not cls)
        or not run.session.is_outside(base)
    ):
        run.again(abc.get_cache_token, ())
        return ABSENT
    kept = _kept_answers(base)
    result = _interp.watched(f, args, kwargs)
    if kept is not None and kept != _kept_answers(base):
        run.refuse(
            f"{base.__name__}.__subclasshook__ answers, and the answer is kept",
            "The next call finds it there and is captured",
        )
    known = run.registered.get((id(base), id(cls)))
    if known is None or not known.is_about(cls):
        known = run.registered[id(base), id(cls)] = _Registered(base, cls, bool(result))
        run.again(known, ())
    return result


def _kept_answers(base: Any) -> tuple[int, ...] | None:
    """How many answers an abstract base class keeps, where code of the program finds them."""
    owner = next(c for c in base.__mro__ if "__subclasshook__" in vars(c))
    if owner.__module__.partition(".")[0] in sys.stdlib_module_names:
        return None
    _, found, not_found, _ = _get_dump(base)
    return len(found), len(not_found)


def script(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function that TorchScript compiled, in which nobody sees what it does."""
    recorder = run.recorder
    if recorder.depth or run.refusals.first is not None:
        return ABSENT
    done = torchscript.look(f)
    if done.decides or done.affects:
        what = "decides by data" if done.decides else "changes its module or a container, or prints"
        run.refuse(f"a TorchScript function is called that {what}")
        return ABSENT
    module = torchscript.module_of(f)
    try:
        if module is not None:
            run.again(torchscript.state, (module,))  # the form of the result may depend on it
    except Exception as e:  # noqa: BLE001 - it must not reach the program
        run.refuse(f"a module of TorchScript is called of which nobody can tell what it holds: {e}")
        return ABSENT
    result = f(*args, **kwargs)
    recorder.unseen_result(f, args, kwargs, result, writes=done.writes)
    return result


def script_read(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An attribute that TorchScript holds is read: the guard asks again for a plain value."""
    result = f(*args, **kwargs)
    if kwargs or not run.session.is_outside(args[0]):
        run.refuse("an attribute of a TorchScript module is read that the call has made")
    elif is_immutable(result):
        run.again(f, args)
    elif not isinstance(result, (torch.Tensor, torch._C.ScriptModule, torch._C.ScriptMethod)):
        run.refuse(f"a {type(result).__name__} is read that a TorchScript module holds")
    return ABSENT


def is_callable(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Asks whether the class of an object, which may change, has a `__call__`."""
    changeable = len(args) == 1 and not kwargs and type(args[0]).__flags__ & (1 << 9)  # a heap type
    if changeable and run.session.is_outside(args[0]):
        run.again(f, args)
    return f(*args, **kwargs)


def handled(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Asks which exception is being handled."""
    run.handles(sys.exception())
    return f(*args, **kwargs)


def collector(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The garbage collector is asked or switched."""
    if f is gc.isenabled:
        run.redo.append((f, (), run.session.collecting))
        return run.session.collecting
    if f in (gc.enable, gc.disable):
        run.recorder.record.steps.append(EffectStep(f, [], {}, []))
        run.session.collecting = f is gc.enable
        return None
    return effects.effect(run, f, args, kwargs)


def overrides(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Whether a `__torch_function__` hears of an operation: the recorder, if it may be told of it.

    A function of torch that would hand itself over becomes one operation of the graph.  One that
    only asks, to choose a way, must get the answer that it gets where nobody watches.
    """
    frame = call_sites.program_frame()
    if frame is not None and "handle_torch_function" in frame.f_code.co_names:
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


def transform(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A part of a transform of torch's (grad, vmap): an operation that no mode sees."""
    functorch.load(f)
    run.again(functorch.state, ())
    return run.recorder.transform(f, args, kwargs)


def transform_read(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What follows from the transforms that are active."""
    run.again(functorch.state, ())
    return f(*args, **kwargs)


def aside(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Python that is none of the program's, and is not watched."""
    return f(*args, **kwargs)


def loads(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A module is looked for and imported that is not there yet: later calls find it.

    To watch its code, and that of all that it imports, takes minutes for a large package.
    """
    run.refuse(f"{args[0]} is imported", f"{NEXT_CALL} finds it")
    return f(*args, **kwargs)


def _counts_itself(f: Any, t: torch.Tensor) -> bool:
    """Whether Python of the program's makes the number of a tensor."""
    name = {int: "__int__", float: "__float__"}.get(f)
    method: Any = _interp.type_lookup(type(t), name) if name is not None else None
    return isinstance(method, types.FunctionType) and is_users_code(
        method.__code__, method.__globals__
    )


def number(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`int(x)`, `float(x)`, ...: a number made of a number, a tensor or an object."""
    if any(run.session.tracked(a) is not None for a in (*args, *kwargs.values())):
        return run.tracked.tracked_call(f, args, kwargs)
    if args and all(type(a) in (int, float, bool, str) for a in (*args, *kwargs.values())):
        return f(*args, **kwargs)
    if args and isinstance(args[0], torch.Tensor) and not _counts_itself(f, args[0]):
        run.recorder.direct = True
        try:
            return f(*args, **kwargs)
        finally:
            run.recorder.direct = False
    for a in args:
        run.session.touch(a)
    return ABSENT


_PARTS = ("func", "args", "keywords")


def partial(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A functools.partial: what it holds is read, then its function is called directly."""
    if any(_interp.type_lookup(type(f), n) is not vars(functools.partial)[n] for n in _PARTS):
        # What C code calls is not what the program, or a guard, finds there.
        run.refuse(f"a {type(f).__name__}, whose class hides what a partial calls, is called")
        return ABSENT
    if run.session.is_outside(f):
        for name in _PARTS:
            run.session.attr_read(f, name, getattr(f, name))
        run.session.touch(f.keywords)
    if isinstance(f.func, types.FunctionType) and f.func.__code__ not in callables.python_leaves():
        return ABSENT
    return _interp.call(f.func, (*f.args, *args), {**f.keywords, **kwargs})


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


def which(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`id(obj)`, and the hash of an object that has none of its own: what it is, is looked at."""
    if len(args) == 1 and not kwargs and run.session.is_outside(args[0]):
        # Python's library and torch ask in order to know an object again within the call.
        asks = call_sites.program_frame()
        hashes: Any = _interp.type_lookup(type(args[0]), "__hash__")
        if asks is not None and is_users(asks) and (f is id or hashes is vars(object)["__hash__"]):
            run.identities.append(args[0])
    if f is hash:
        for a in args:
            run.session.touch(a)
    return ABSENT


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


# A replacement field that names an attribute: "{a.b}".
_ATTRIBUTE_FIELD = re.compile(r"\{[^{}!:]*\.[^{}!:]*[}!:]")

# How a call is performed; one whose effect is not here has effects that magpy does not know.
TREATMENTS: dict[Effect, Callable[[Run, Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    Effect.EFFECT: effects.effect,
    Effect.WHOLE: whole_call,
    Effect.VARS: read_vars,
    Effect.REDUCE: reduce,
    Effect.REMADE: remade,
    Effect.LOCK: lock,
    Effect.RANDOM: draws.draw,
    Effect.SEED: seed,
    Effect.NUMBER: number,
    Effect.CLOCK: clock,
    Effect.PARTIAL: partial,
    Effect.WEAKREF: weakref,
    Effect.HOLDERS: holders,
    Effect.MEMO: memos.asked,
    Effect.REFUSE: refused,
    Effect.INSIDE: inside,
    Effect.FORMAT: format_text,
    Effect.READ: read,
    Effect.TORCH_STATE: torch_state,
    Effect.QUESTION: question,
    Effect.IN_ORDER: in_order,
    Effect.REGISTRY: registry,
    Effect.OVERRIDES: overrides,
    Effect.CONTEXT: context,
    Effect.COLLECTOR: collector,
    Effect.HANDLED: handled,
    Effect.SCRIPT: script,
    Effect.SCRIPT_READ: script_read,
    Effect.CALLABLE: is_callable,
    Effect.IDENTITY: which,
    Effect.TRANSFORM: transform,
    Effect.TRANSFORM_READ: transform_read,
    Effect.CHECKPOINT: checkpoint,
    Effect.SAVED: saved_hooks,
    Effect.NODE_HOOK: node_hook,
    Effect.DYNAMO: dynamo,
    Effect.MARK: profiler_marks.mark,
    Effect.ASIDE: aside,
    Effect.IMPORT: loads,
}
