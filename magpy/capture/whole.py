"""Calls that are recorded as one operation although Python of the program runs in them.

They are `torch.autograd.Function.apply`, checkpointed blocks and what the user allows in graphs.
Owns what such a call may be given and what it changes beside that.  Does not own the recording
(magpy/capture/recorder.py), nor what it changes of Python's objects (magpy/capture/calls.py).

What it is given it may keep and look at later: when a backward pass comes.  So an object has to be
the very one that eager gives.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.checkpoint

from magpy import _tensor
from magpy._tensor import DYNAMIC_SHAPE
from magpy.capture import below, engine
from magpy.capture.operations import SHAPE_READS, accessor_of, would_write
from magpy.capture.steps import LEAF_TYPES, Var
from magpy.capture.trees import leaves, tensors
from magpy.capture.where import refuse, where_text
from magpy.errors import Refusal
from magpy.kinds import isinstance

if TYPE_CHECKING:
    from magpy.capture.recorder import Recorder


# They read memory that no operator is asked for.
_LOOKS = frozenset(["tolist", "numpy", "__array__"])
# They tell how many there are.
_COUNTS = SHAPE_READS | {"__len__", "__iter__", "unbind"}


def opened(
    func: Callable[..., Any], args: tuple[Any, ...], is_outside: Callable[[Any], bool]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A call and its positional arguments, where those that are partials with tensors are open.

    A `functools.partial` that the program makes in every call may hold tensors of the run: what it
    consists of are arguments, and the call makes it itself.  A `torch.autograd.Function` that gets
    tensors in this way which require grad may go through what made them several times (a reentrant
    checkpoint does): that is nothing for a compiler's graph.
    """
    own = func is not torch.utils.checkpoint.checkpoint
    places = frozenset(
        i
        for i, v in enumerate(args)
        if type(v) is functools.partial
        and not vars(v)
        and not is_outside(v)
        and (held := tensors((v.args, v.keywords)))
        and not (own and any(t.requires_grad for t in held))
    )
    if not places:
        return func, args

    def filled(*given: Any, **kwargs: Any) -> Any:
        made = (
            functools.partial(v[0], *v[1], **v[2]) if i in places else v
            for i, v in enumerate(given)
        )
        return func(*made, **kwargs)

    filled.__name__ = func.__name__
    filled.__magpy_target__ = getattr(func, "__magpy_target__", func)  # type: ignore[attr-defined]
    return filled, tuple(
        (v.func, v.args, dict(v.keywords)) if i in places else v for i, v in enumerate(args)
    )


class Whole:
    """One such call.

    Args:
        recorder: records it.
        is_outside: whether an object existed before the run.
    """

    def __init__(self, recorder: Recorder, is_outside: Any) -> None:
        """Nothing is known of it."""
        self._recorder = recorder
        self._is_outside = is_outside
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
        #: It draws from generators of Python or numpy.
        self.draws = False
        self.refusal: Refusal | None = None

    # ------------------------------------------------------------- what it is given

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
                "function that is called as a whole",
                "Give it the tensor as an argument",
            )
        elif t not in LEAF_TYPES and t is not torch.Size:
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
            cells = (c.cell_contents for c in v.__closure__ or () if c != types.CellType())
            return *cells, *(v.__defaults__ or ()), *(v.__kwdefaults__ or {}).values()
        if t in (tuple, list, dict):
            return leaves(v)
        raise refuse(
            f"a {t.__name__} that the call has made is given to a function that is called as a "
            "whole",
            "Make it outside of the compiled function",
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
            (_tensor.tensor_version(t), engine.memory_of(t), t) for t in found
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
            self.refusal = refuse("Tensor.data is assigned in a function that is called as a whole")
        self._written |= {engine.memory_of(t) for t in tensors((args[:1], kwargs.get("out")))}

    def written(self, unseen: bool) -> list[Any]:
        """The tensors that were changed; with `unseen`, also those that may have been.

        Raises:
            Refusal: nobody can tell.
        """
        if self.refusal is not None:
            raise self.refusal
        if self._reached is None:
            if not (unseen or self._written):
                return []
            raise refuse("a function that is called as a whole reaches too much that it may change")
        known = self._recorder.tensors.known
        return [
            t
            for version, memory, t in self._reached
            if _tensor.tensor_version(t) != version
            or memory in self._written
            or (unseen and not t.requires_grad and (self._is_outside(t) or known(t) is not None))
        ]


__all__ = ["Whole", "opened"]
