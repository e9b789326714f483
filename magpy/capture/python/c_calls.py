"""How calls of C functions are performed that the table of leaves reserves for the handler.

Owns one treatment for each `leaves.Effect`: a function (run, f, args, kwargs) that performs the
call and notes what of it the guard asks again or the mock code redoes; ABSENT leaves the call to
the probe.  Does not own which function has which effect (magpy/models/callables.py), the treatments
of torch's functions (magpy/capture/python/torch_calls.py) nor the calls that are made for an effect
(magpy/capture/python/effects.py).  Called by magpy/capture/python/callbacks.py.
"""

from __future__ import annotations

import _thread
import abc
import contextvars
import enum
import functools
import gc
import inspect
import re
import string
import sys
import threading
import types
from _abc import _get_dump  # type: ignore[import-not-found]
from collections.abc import Callable
from typing import Any
from weakref import ref as weakref_to

import torch
import torch.utils.checkpoint

from magpy import _interp
from magpy.capture.python import draws, effects, memos, profiler_marks, torch_calls
from magpy.capture.python.run import Run
from magpy.errors import NEXT_CALL, an, frames_of_the_call
from magpy.frames import call_sites
from magpy.frames.locations import in_package, is_users, is_users_code, refuse, where_text
from magpy.ir.ops import EffectStep, OpStep
from magpy.models import callables
from magpy.models.c_function_tables import Effect
from magpy.objects import c_state
from magpy.objects.plain_values import is_plain
from magpy.objects.snapshots import (
    CONTAINERS,
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
    """A lock: one of the program's is taken in Python, in each call, for what it protects.

    Those of libraries (imports, caches, logging) protect what the guard compares, and an entry
    takes none of them; but whether another thread has taken it must be the same again.
    """
    owner, name = getattr(f, "__self__", None), f.__name__
    if owner is None or isinstance(owner, (type, types.ModuleType)):
        owner = args[0] if args else None
        args = args[1:]
    if name in ("__enter__", "acquire", "acquire_lock", "_acquire_restore"):
        waits = name != "acquire" or (not args and not kwargs) or args == (True,)
        taken = not waits and _taken(run, owner)
        if not taken:
            run.locks.append(owner)
        takes_lock(run, owner)
    elif name in ("locked", "locked_lock", "_is_owned"):
        _taken(run, owner)
    elif name in ("__exit__", "release", "release_lock", "_release_save"):
        at = next((i for i, v in enumerate(run.locks) if v is owner), None)
        if at is not None:
            del run.locks[at]
        elif name.startswith("release") and run.session.is_outside(owner):
            run.refuse("a lock is given back that the call has not taken")
    return ABSENT


def takes_lock(run: Run, lock: Any) -> None:
    """A lock is about to be taken: refuses it if the program does so itself, and no library."""
    frame = call_sites.program_frame()
    if not isinstance(lock, _LOCKS) or frame is None or in_package(where_text()):
        return
    if is_users(frame) and run.session.is_outside(lock):
        run.refuse(
            "a lock is taken", "What it protects is done one after the other; the line stays Python"
        )


_LOCKS = (
    *(_thread.LockType, _thread.RLock, threading._RLock),
    *(threading.Condition, threading.Semaphore),
)


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
    if text is not (args[0] if args else None) and run.session.tracked(text) is not None:
        f, args = getattr(str, f.__name__), (text, *args)  # the text is an argument that differs
    if any(
        run.session.tracked(a) is not None or type(a) is torch.Tensor
        for a in (*args, *kwargs.values())
    ):
        result = run.tracked.tracked_call(f, args, _named_in(text, kwargs))
        if result is not ABSENT:
            return result
    for a in (*args, *kwargs.values()):
        run.session.touch(a)
    return _interp.watched(f, args, kwargs)


def _named_in(text: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a format names: `"{loss}".format(**vars(self))` is given many more."""
    if type(text) is not str:
        return kwargs
    try:
        fields = list(string.Formatter().parse(text))
    except ValueError:
        return kwargs  # it raises
    if any(spec and "{" in spec for _, _, spec, _ in fields):
        return kwargs
    names = {_FIELD.match(name).group() for _, name, _, _ in fields if name}  # type: ignore[union-attr]
    return {k: v for k, v in kwargs.items() if k in names}


def refused(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What has no place in an entry."""
    run.refuse(f"{callables.name_of(f)} is called")
    return ABSENT


def remade(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An object of a class written in C is made anew, of which nothing else tells."""
    bound = isinstance(f, (types.MethodWrapperType, types.BuiltinFunctionType))
    obj = f.__self__ if bound else args[0] if args else None
    if run.session.is_outside(obj) or isinstance(obj, types.ModuleType):
        run.refuse(
            f"{callables.name_of(f)} gives {an(type(obj).__name__)} from outside another state"
        )
    elif run.session.tracked(obj) is not None:
        run.refuse(
            f"{callables.name_of(f)} gives {an(type(obj).__name__)} that follows from data another"
        )
    for a in (*args, *kwargs.values()):
        run.session.touch(a)
    return ABSENT


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
    owner = getattr(f, "__self__", None)
    if owner is not None and run.session.tracked(owner) is not None:
        return torch_calls.in_order(run, f, args, kwargs)  # of a random generator
    for a in args:
        run.session.touch(a)
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


def asks_files(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One thing is asked of a file: in each call, where its name is another one in each."""
    if any(run.session.tracked(a) is not None for a in args):
        return run.tracked.derive(f, args, kwargs, f(*args, **kwargs))
    return read(run, f, args, kwargs)


def joins_path(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`os.path.join`, of text that is another one in each call."""
    texts = all(type(a) is str for a in args) and not kwargs
    if texts and any(run.session.tracked(a) is not None for a in args):
        return run.tracked.derive(f, args, kwargs, f(*args))
    return _interp.watched(f, args, kwargs)


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
    token = f(*args, **kwargs)
    for obj in (var, token):
        run.sites[id(obj)] = obj, frames_of_the_call()
    return token


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


def aside(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Python that is none of the program's, and is not watched."""
    return f(*args, **kwargs)


def loads(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A module is looked for and imported that is not there yet: later calls find it.

    To watch its code, and that of all that it imports, takes minutes for a large package.
    """
    run.refuse(f"{args[0]} is imported", f"{NEXT_CALL} finds it")
    return f(*args, **kwargs)


_EPOCH = "the batches of a DataLoader are looped over", "What is done with each is compiled"
_SEARCH = "LBFGS.step goes by the values of the loss", "Its closure is compiled"
#: What each of these does, which differs in every call, and what of it is compiled.  In an epoch a
#: DataLoader draws a seed, and its batches are data.  How often L-BFGS calls its closure, and with
#: how many directions it computes, the loss decides.
IN_PYTHON: dict[Any, tuple[str, str]] = {
    torch.utils.data.DataLoader._get_iterator: _EPOCH,
    torch.utils.data.dataloader._BaseDataLoaderIter._reset: _EPOCH,
    inspect.unwrap(torch.optim.LBFGS.step): _SEARCH,
}


def in_python(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of `IN_PYTHON` is called."""
    refusal = refuse(*IN_PYTHON[getattr(f, "__func__", f)])
    refusal.drives = True
    run.refusals.keep(refusal)
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
        run.refuse(f"{an(type(f).__name__)}, whose class hides what a partial calls, is called")
        return ABSENT
    if run.session.is_outside(f):
        for name in _PARTS:
            run.session.attr_read(f, name, getattr(f, name))
        run.session.touch(f.keywords)
    if isinstance(f.func, types.FunctionType) and f.func.__code__ not in callables.python_leaves():
        return ABSENT
    return _interp.call(f.func, (*f.args, *args), {**f.keywords, **kwargs})


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


# A replacement field that names an attribute: "{a.b}".
_FIELD = re.compile(r"[^.\[]*")
_ATTRIBUTE_FIELD = re.compile(r"\{[^{}!:]*\.[^{}!:]*[}!:]")


# How a call is performed; one whose effect is not here has effects that magpy does not know.
TREATMENTS: dict[Effect, Callable[[Run, Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    Effect.EFFECT: effects.effect,
    Effect.WHOLE: torch_calls.whole_call,
    Effect.VARS: read_vars,
    Effect.REDUCE: reduce,
    Effect.REMADE: remade,
    Effect.LOCK: lock,
    Effect.RANDOM: draws.draw,
    Effect.SEED: torch_calls.seed,
    Effect.NUMBER: number,
    Effect.CLOCK: clock,
    Effect.PARTIAL: partial,
    Effect.WEAKREF: weakref,
    Effect.HOLDERS: holders,
    Effect.MEMO: memos.asked,
    Effect.REFUSE: refused,
    Effect.INSIDE: torch_calls.inside,
    Effect.FORMAT: format_text,
    Effect.READ: read,
    Effect.PATH: joins_path,
    Effect.FILES: asks_files,
    Effect.TORCH_STATE: torch_calls.torch_state,
    Effect.QUESTION: torch_calls.question,
    Effect.IN_ORDER: torch_calls.in_order,
    Effect.REGISTRY: registry,
    Effect.OVERRIDES: torch_calls.overrides,
    Effect.CONTEXT: context,
    Effect.COLLECTOR: collector,
    Effect.HANDLED: handled,
    Effect.SCRIPT: torch_calls.script,
    Effect.CALLABLE: is_callable,
    Effect.IDENTITY: which,
    Effect.TRANSFORM: torch_calls.transform,
    Effect.TRANSFORM_READ: torch_calls.transform_read,
    Effect.CHECKPOINT: torch_calls.checkpoint,
    Effect.SAVED: torch_calls.saved_hooks,
    Effect.NODE_HOOK: torch_calls.node_hook,
    Effect.DYNAMO: torch_calls.dynamo,
    Effect.MARK: profiler_marks.mark,
    Effect.ASIDE: aside,
    Effect.IMPORT: loads,
    Effect.IN_PYTHON: in_python,
    Effect.OPERATION: torch_calls.operation,
}
