"""What torch's transforms of functions (torch.func, forward-mode AD) are made of.

Owns the table of their primitives, in C, how a watched run performs them, and from where to where
in the run a transform is active.  Does not own the rest of the transforms, which is Python that is
watched like the program's, nor what becomes of the steps in between
(magpy/replay/passes/transform_regions.py). Called by magpy/capture/tensors/recorder.py and
magpy/capture/python/c_calls.py.

Source: https://docs.pytorch.org/docs/stable/func.ux_limitations.html
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._functorch.vmap
from torch._functorch import predispatch
from torch.autograd import forward_ad

from magpy import _tensor
from magpy.ir.ops import Var
from magpy.models import callables
from magpy.models.c_function_tables import Effect
from magpy.objects.types import isinstance

_functorch: Any = torch._C._functorch

wrapped: Callable[[Any], bool] = _functorch.is_functorch_wrapped_tensor


def _of(modules: tuple[Any, ...], names: str) -> frozenset[Any]:
    found = (getattr(m, name, None) for m in modules for name in names.split())
    return frozenset(f for f in found if f is not None)


# Where the primitives are: in C, and as functions of Python around those, which ask for a mode that
# only torch.export enters.
_PLACES = (_functorch, torch._C, predispatch)
# They change what the thread makes of every operation, until they are taken back.
_SWITCHES = _of(
    _PLACES,
    """
    _vmap_increment_nesting _vmap_decrement_nesting _grad_increment_nesting _grad_decrement_nesting
    _jvp_increment_nesting _jvp_decrement_nesting set_inplace_requires_grad_allowed
    _enter_dual_level _exit_dual_level _set_fwd_grad_enabled
    """,
)
# What these give follows from tensors, and from what the others have done.
_OPERATIONS = _of(
    (_functorch, predispatch),
    "_add_batch_dim _remove_batch_dim _wrap_for_grad _unwrap_for_grad _make_dual _unpack_dual",
)
_READS = _of(
    (_functorch, torch._C),
    """
    get_inplace_requires_grad_allowed maybe_current_level get_dynamic_layer_stack_depth
    is_functorch_wrapped_tensor is_batchedtensor is_gradtrackingtensor _is_fwd_grad_enabled
    """,
)
_DUALS = {"_enter_dual_level": 1, "_exit_dual_level": -1}


def state() -> tuple[Any, ...]:
    """What of a thread's state the primitives change: a transform is active where it differs."""
    return (
        _functorch.get_dynamic_layer_stack_depth(),
        _functorch.get_inplace_requires_grad_allowed(),
        torch._C._is_fwd_grad_enabled(),
        forward_ad._current_level,
    )


def load(func: Any) -> None:
    """Imports what a transform is about to import, which takes long enough unwatched."""
    if func is _functorch._grad_increment_nesting and "torch._dynamo" not in sys.modules:
        importlib.import_module("torch._dynamo.compiled_autograd")


def restore(before: tuple[Any, ...]) -> None:
    """Puts that state back where transforms were left in the middle."""
    _functorch.pop_dynamic_layer_stack_and_undo_to_depth(before[0])
    _functorch.set_inplace_requires_grad_allowed(before[1])
    torch._C._set_fwd_grad_enabled(before[2])
    if before[3] < 0:
        try:
            torch._C._exit_dual_level(level=0)
        except RuntimeError:
            return  # it was not entered


@dataclass(slots=True)
class Span:
    """The steps of a run during which a transform was active.

    Attributes:
        start: the first of them.
        end: the first one after them.
        changed: the tensors that were changed through what a transform made of them.
    """

    start: int
    end: int = -1
    changed: set[Var] = field(default_factory=set)


class Transforms:
    """Where in a run transforms are active."""

    def __init__(self) -> None:
        """None was."""
        self.spans: list[Span] = []
        self._outside: tuple[Any, ...] | None = None
        self._duals = 0
        # Tensors that a transform was given, with their versions.
        self._given: list[tuple[Var, Any, int]] = []

    @property
    def active(self) -> bool:
        """Whether one is."""
        return bool(self.spans) and self.spans[-1].end < 0

    def before(self) -> None:
        """A primitive is about to be performed."""
        if not self.active:
            self._outside = state()[:3]

    def given(self, var: Var, tensor: Any) -> None:
        """A primitive takes a tensor, which the program may change through what that gives."""
        if not wrapped(tensor):
            self._given.append((var, tensor, _tensor.tensor_version(tensor)))

    def after(self, func: Any, at: int) -> bool:
        """A primitive was performed; whether it is a step, which would have this number."""
        self._duals += _DUALS.get(func.__name__, 0)
        active = bool(self._duals) or state()[:3] != self._outside
        was_active = self.active
        if active and not was_active:
            self.spans.append(Span(at))
        elif was_active and not active:
            span = self.spans[-1]
            span.end = at + 1
            for var, tensor, version in self._given:
                if version < 0 or _tensor.tensor_version(tensor) != version:
                    span.changed.add(var)
            self._given.clear()
        return active or was_active


def table() -> Iterator[tuple[Any, Effect]]:
    """How calls of torch's functions that transforms are made of are treated."""
    for f in _SWITCHES | _OPERATIONS:
        yield f, Effect.TRANSFORM
    for f in _READS:
        yield f, Effect.TRANSFORM_READ
    # These build a graph of their own while the function runs.
    yield torch.func.linearize, Effect.REFUSE
    yield torch.func.functionalize, Effect.REFUSE
    # These see to what torch itself needs, once.
    for module, name in (
        (torch._functorch.vmap, "lazy_load_decompositions"),
        (forward_ad, "_maybe_load_decompositions"),
    ):
        found = getattr(module, name, None)
        if found is not None:
            yield found, Effect.ASIDE


def register() -> None:
    """Tells the table of leaves."""
    for f, effect in table():
        if isinstance(f, types.FunctionType):
            callables.register_python(f, effect)
        else:
            callables.set_effect(f, effect)


def switches(func: Any) -> bool:
    """Whether a primitive changes what the thread makes of operations."""
    return func in _SWITCHES


__all__ = ["Span", "Transforms", "load", "register", "restore", "state", "switches", "wrapped"]
