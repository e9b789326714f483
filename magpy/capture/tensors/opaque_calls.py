"""Calls that are recorded as one operation although Python of the program runs in them.

They are `torch.autograd.Function.apply`, checkpointed blocks and what the user allows in graphs.
Owns what such a call may be given and what it changes beside that.  Does not own the recording
(magpy/capture/tensors/recorder.py), nor what it changes of Python's objects
(magpy/capture/python/c_calls.py).

What it is given it may keep and look at later: when a backward pass comes.  So an object has to be
the very one that eager gives.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import torch
import torch.utils.checkpoint

from magpy import _interp, _tensor
from magpy._tensor import DYNAMIC_SHAPE
from magpy.capture.tensors.escapes import Given
from magpy.capture.tensors.identity import Identity
from magpy.errors import Refusal
from magpy.frames.locations import refuse, where_text
from magpy.instrument.code_accesses import Touches, accesses
from magpy.ir.ops import Record, Var
from magpy.ir.trees import tensors
from magpy.models import torch_callables
from magpy.models.torch_ops import SHAPE_READS, accessor_of, would_write
from magpy.objects import c_state
from magpy.objects.hashing import pairs_of
from magpy.objects.plain_values import PLAIN_TYPES
from magpy.objects.types import isinstance
from magpy.unwatched import autograd
from magpy.unwatched import changes as below

# They read memory that no operator is asked for.
_LOOKS = frozenset(["tolist", "numpy", "__array__"])
# They tell how many there are.
_COUNTS = SHAPE_READS | {"__len__", "__iter__", "unbind"}


_BUFFERS = (np.ndarray, bytearray)
# What the call may change after it was given.
_CHANGED = (list, dict, functools.partial, *_BUFFERS)


def opened(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    is_outside: Callable[[Any], bool],
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A call and its arguments, with plain tuples and dicts for what a graph cannot hold.

    The call makes them itself: a torch.Size, an `OrderedDict`, a tuple of a class of its own, and a
    `functools.partial` that the program makes in every call and that holds tensors of the run.  A
    `torch.autograd.Function` that gets tensors in a partial which require grad may go through what
    made them several times (a reentrant checkpoint does): that is nothing for a compiler's graph.
    """
    own = func is not torch.utils.checkpoint.checkpoint

    def stays(v: Any) -> bool:
        if type(v) is not functools.partial:
            return isinstance(v, (list, dict)) and is_outside(v)
        if vars(v) or is_outside(v):
            return True
        held = tensors((v.args, v.keywords))
        if own and any(t.requires_grad for t in held):
            return True
        return not held and not _containers(v, is_outside)

    given, makers = _opened_all((args, kwargs), stays)
    if makers is None:
        return func, args, kwargs

    return _filled(func, func, makers), *given


def _filled(like: Any, func: Callable[..., Any], makers: Callable[[Any], Any]) -> Any:
    """Calls `func` with the arguments that `makers` makes; to all others it is `like`."""

    def filled(*given: Any, **named: Any) -> Any:
        made, more = makers((given, named))
        return func(*made, **more)

    filled.__name__ = like.__name__
    filled.__magpy_target__ = getattr(like, "__magpy_target__", like)  # type: ignore[attr-defined]
    filled.__magpy_makers__ = makers  # type: ignore[attr-defined]
    return filled


def given_instead(whole: Any, func: Callable[..., Any]) -> Any:
    """What an operation calls, with `func` in place of what it was a call of."""
    filled = _filled(whole, func, getattr(whole, "__magpy_makers__", _as_they_are))
    form = getattr(whole, "__magpy_form__", None)
    return filled if form is None else form.of(filled)


def _as_they_are(given: Any) -> Any:
    return given


def _containers(v: Any, is_outside: Callable[[Any], bool]) -> bool:
    """Whether there is something in there that the run has made and that can be changed."""
    if isinstance(v, functools.partial):
        v = v.func, *v.args, *v.keywords.values()
    if isinstance(v, tuple):
        return any(_containers(x, is_outside) for x in tuple.__iter__(v))
    return isinstance(v, _CHANGED) and not is_outside(v)


_Maker = Callable[[Any], Any] | None


def _opened(v: Any, stays: Callable[[Any], bool]) -> tuple[Any, _Maker]:
    """What stands for an argument, and what makes the argument of it; None: it is it itself."""
    t = type(v)
    if stays(v):
        return v, None
    if t is tuple or t is list:
        return _opened_all(v, stays)
    if t is dict or t is collections.OrderedDict:
        pairs = pairs_of(v)
        values, make = _opened_all([x for _, x in pairs], stays)
        plain = dict(zip([k for k, _ in pairs], values, strict=True))
        if make is None and t is dict:
            return v, None
        return plain, lambda d: t(
            zip(d, make(list(d.values())) if make else d.values(), strict=True)
        )
    if t is torch.Size:
        return tuple(v), torch.Size
    if isinstance(v, tuple):
        # A tuple of named fields that C code makes (a torch.return_types.max) is made by its class.
        make = t if _is_structure(t) else functools.partial(tuple.__new__, t)
        return _made_of(tuple(tuple.__iter__(v)), stays, make)
    if t is functools.partial:
        parts = v.func, v.args, dict(v.keywords)
        return _made_of(parts, stays, lambda x: functools.partial(x[0], *x[1], **x[2]))
    return v, None


def _is_structure(t: type) -> bool:
    """Whether it is a class of tuples with named fields that is written in C."""
    return isinstance(_interp.type_lookup(t, "n_sequence_fields"), int)


def _made_of(
    parts: tuple[Any, ...], stays: Callable[[Any], bool], make: Callable[[Any], Any]
) -> tuple[Any, _Maker]:
    plain, inner = _opened_all(parts, stays)
    return plain, make if inner is None else lambda v: make(inner(v))


def _opened_all(values: Any, stays: Callable[[Any], bool]) -> tuple[Any, _Maker]:
    """The same of the elements of a tuple or a list."""
    both = [_opened(x, stays) for x in values]
    if all(make is None for _, make in both):
        return values, None
    t = type(values)
    makers = [make for _, make in both]

    def make(given: Any) -> Any:
        return t([m(x) if m else x for m, x in zip(makers, given, strict=True)])

    return t([plain for plain, _ in both]), make


# What a function does to its own variables, and to what containers and functions hold.
_ASSIGNS = Touches.STORES_CELL | Touches.DELETES_CELL
_STORES = (
    Touches.STORES_ITEM
    | Touches.DELETES_ITEM
    | Touches.STORES_ATTRIBUTE
    | Touches.DELETES_ATTRIBUTE
)
_METHODS = frozenset(
    [
        *("append", "clear", "extend", "fill", "insert", "move_to_end", "pop", "popitem", "remove"),
        *("reverse", "setdefault", "sort", "update", "__setitem__", "__delitem__"),
        *("__iadd__", "__imul__", "__ior__", "__dict__", "vars", "setattr", "delattr"),
        *("__setattr__", "__delattr__", "iadd", "ior", "imul", "setitem", "delitem"),
    ]
)


def _done_by(code: types.CodeType) -> Iterator[tuple[Touches, Any]]:
    """What a piece of code touches, and what is defined in it, with the names."""
    for done in accesses(code):
        changed = Touches.STORES_ITEM if done.in_place else Touches.NOTHING
        yield done.touches | changed, done.name
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield from _done_by(c)


class Recording(Protocol):
    """What the recorder does for such a call (magpy/capture/tensors/recorder.py)."""

    record: Record
    #: The variables of the tensors.
    tensors: Identity
    #: What something has got that may look at it later.
    given: Given
    observer: _tensor.Observer

    def tracked(self, value: Any) -> Var | None:
        """The variable of a value that differs from call to call, or None."""

    def rely_on(self, v: Any, var: Var) -> None:
        """From here on the run relies on such a value being what it is."""


class Whole:
    """One such call.

    Args:
        recorder: records it.
        is_outside: whether an object existed before the run.
    """

    def __init__(self, recorder: Recording, is_outside: Any) -> None:
        """Nothing is known of it."""
        self._recorder = recorder
        self._is_outside = is_outside
        self._to = ""
        # The tensors that it can reach: version, memory, tensor; None if they are too many.
        self._reached: list[tuple[int, int, Any]] | None = []
        # The memories that operations below it write to.
        self._written: set[int] = set()
        # What was done last, and whether shapes may follow from data since.
        self._last = ""
        self._loose = False
        #: What operators below it did (magpy/_tensor.pyi).
        self.flags = 0
        #: Python below it asks for values of data.
        self.looks = False
        #: It draws from generators of Python or numpy, or takes part in what several processes do.
        self.unrepeatable = False
        self.refusal: Refusal | None = None

    # ------------------------------------------------------------- what it is given

    def given(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Looks at what it is given, and at what is called.

        Raises:
            Refusal: it is another one in every call, or the call cannot make an equal one.
        """
        owner = getattr(target, "__self__", None)
        name = getattr(target, "__name__", "a function")
        self._to = f"{owner.__name__}.{name}" if isinstance(owner, type) else name
        self.keep(target)
        for v in (*args, *kwargs.values()):
            self._contained(v, ())

    def _contained(self, v: Any, around: tuple[Any, ...]) -> None:
        """Looks at the containers of the run in an argument, which are made anew in every call."""
        t = type(v)
        if any(x is v for x in around):
            raise self._another(f"{t.__name__} that holds itself")
        around = *around, v
        if isinstance(v, tuple):
            if t is not torch.Size and c_state.has_dict(v) and vars(v):
                raise self._another(t.__name__)
            if _is_structure(t) and t.n_fields != t.n_sequence_fields:
                raise self._another(t.__name__)
            for x in tuple.__iter__(v):
                self._contained(x, around)
            return
        if not isinstance(v, _CHANGED) or self._is_outside(v):
            return
        if isinstance(v, functools.partial):
            for x in (*v.args, *v.keywords.values()):
                self._contained(x, around)
            return
        if isinstance(v, _BUFFERS):
            self._hold(v, anew=True)
            return
        if t not in (list, dict, collections.OrderedDict):
            raise self._another(t.__name__)
        self._hold(v, anew=True)
        if isinstance(v, dict):
            for k in v:
                self.keep(k)
        for x in v.values() if isinstance(v, dict) else v:
            self._contained(x, around)

    def _hold(self, v: Any, anew: bool = False) -> None:
        if not self._recorder.given.hold(v, self._to, anew):
            raise self._another(f"{type(v).__name__} that such a call gets twice")

    def _another(self, what: str) -> Refusal:
        return refuse(
            f"a {what} is made by the call and given to a function that magpy records "
            "as one operation",
            "Make it outside of the compiled function",
        )

    def keep(self, v: Any) -> None:
        """An object goes to the call, which may keep it.

        Raises:
            Refusal: it is another one in every call.
        """
        t = type(v)
        var = self._recorder.tracked(v)
        if var is not None and t in (int, float, complex):
            self._recorder.rely_on(v, Var(var))
        elif isinstance(v, torch.Tensor) or var is not None:
            raise refuse(
                "a function that the call has made, with a tensor in its closure, is given to a "
                "function that magpy records as one operation",
                "Give it the tensor as an argument",
            )
        elif t not in PLAIN_TYPES and t is not torch.Size:
            for x in self._inside(v, t):
                if x is not v:
                    self.keep(x)

    def _inside(self, v: Any, t: type) -> Any:
        """What there is in something that the run has made."""
        if t is types.MethodType:
            return v.__func__, v.__self__
        if t is functools.partial:
            return v.func, *v.args, *v.keywords.values()
        if t is types.BuiltinFunctionType and (
            v.__self__ is None or isinstance(v.__self__, (types.ModuleType, type))
        ):
            return ()
        if self._is_outside(v):
            self._recorder.record.kept[id(v)] = v, where_text(2)
            return ()
        if t is types.FunctionType:
            cells = [c for c in v.__closure__ or () if not self._is_outside(c)]
            if self._recorder.given.has(v):
                return ()
            for x in (v, *cells):
                self._hold(x)
            inner = [c.cell_contents for c in cells if c != types.CellType()]
            keyed = (v.__kwdefaults__ or {}), v.__dict__
            held = *inner, *(v.__defaults__ or ()), *(x for d in keyed for x in d.values())
            if self._changes(v, any(self._changeable(x) for x in held)):
                raise self._another("function that changes what it holds")
            return held
        if t is tuple:
            return v
        if t in (list, dict):
            known = self._recorder.given.has(v)
            self._hold(v)
            if known:
                return ()
            return v if t is list else [x for pair in v.items() for x in pair]
        if torch_callables.is_value(v):
            return ()
        raise self._another(t.__name__)

    def _changeable(self, v: Any) -> bool:
        return _containers(v, self._is_outside) or (
            type(v) is types.FunctionType and not self._is_outside(v)
        )

    def _changes(self, function: types.FunctionType, held: bool) -> bool:
        """Whether a function of the run may change what is its own, in a later call, too.

        It is one in all calls of an entry; eager makes one in each.

        Args:
            function: the function.
            held: it holds containers or functions of the run.
        """
        own = {
            name
            for name, c in zip(
                function.__code__.co_freevars, function.__closure__ or (), strict=True
            )
            if not self._is_outside(c)
        }
        return any(
            name in own if what & _ASSIGNS else held and (what & _STORES or name in _METHODS)
            for what, name in _done_by(function.__code__)
        )

    # ------------------------------------------------------------- what it changes

    def begin(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The call of `target` is about to be made."""
        cls: Any = getattr(target, "__self__", None)
        roots: list[Any] = [target]
        if isinstance(cls, type) and issubclass(cls, torch.autograd.Function):
            roots = [cls.forward, cls.setup_context, cls]
        found = below.tensors_within([*roots, *args, *kwargs.values()])
        self._reached = found and [
            (_tensor.tensor_version(t), autograd.memory_of(t), t) for t in found
        ]

    def below(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An operation is about to be done below it."""
        accessor = accessor_of(func)
        flags = self._recorder.observer.take()
        self.flags |= flags
        # Into what a mask chooses it only writes.
        self._loose = self._loose or bool(flags & DYNAMIC_SHAPE and self._last != "__setitem__")
        self._last = accessor[1] if accessor is not None else getattr(func, "__name__", "")
        counts = self._loose and self._last in _COUNTS
        self.looks = self.looks or counts or self._last in _LOOKS
        if not would_write(func, accessor, kwargs):
            return
        if accessor is not None and accessor[1] == "data":
            self.refusal = refuse(
                "Tensor.data is assigned in a function that magpy records as one operation",
                "Use Tensor.copy_ there, or assign outside of it",
            )
        self._written |= {autograd.memory_of(t) for t in tensors((args[:1], kwargs.get("out")))}

    def written(self, unseen: bool) -> list[Any]:
        """The tensors that were changed; with `unseen`, also those that may have been.

        Raises:
            Refusal: nobody can tell.
        """
        if self.refusal is not None:
            raise self.refusal
        changed = self._recorder.given.changed()
        if changed is not None:
            raise changed
        if self._reached is None:
            if not (unseen or self._written):
                return []
            raise refuse(
                "a function that magpy records as one operation can reach more objects than magpy "
                "can watch for changes",
                "Give it only the tensors that it needs",
            )
        known = self._recorder.tensors.known
        return [
            t
            for version, memory, t in self._reached
            if _tensor.tensor_version(t) != version
            or memory in self._written
            or (unseen and not t.requires_grad and (self._is_outside(t) or known(t) is not None))
        ]


__all__ = ["Whole", "given_instead", "opened"]
