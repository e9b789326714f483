"""Operations that a run does again on tensors of the same forms, such as those of each layer.

Owns the memory of what they gave for fake tensors: torch needs milliseconds for an operation with
symbols.  Does not own the fake tensors of a run nor how operations are done with them
(magpy/shapes/symbols.py, which calls this).

The same function, under the same modes, of tensors with the same sizes (as expressions), strides,
and kinds, and of equal other arguments, gives tensors of one form, and asks nothing of sizes that
it has not asked before.  What writes to its arguments is done each time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from magpy.ir.ops import Ref, Var
from magpy.ir.torch_modes import current_modes
from magpy.ir.trees import variables
from magpy.models.torch_ops import resizable, would_write
from magpy.objects.types import isinstance
from magpy.shapes.loop_indices import Indices

_SYMBOLS = (torch.SymInt, torch.SymFloat)
_PLAIN = frozenset(
    [
        *(int, bool, str, type(None), type(Ellipsis)),
        *(torch.dtype, torch.device, torch.layout, torch.memory_format),
    ]
)


class UnknownError(Exception):
    """What an operation gives is not remembered."""


class Repeated:
    """What the operations of one run gave for fake tensors.

    Args:
        indices: of the run's loops.
    """

    def __init__(self, indices: Indices) -> None:
        """None was done yet."""
        self._indices = indices
        self._given: dict[Any, Any] = {}
        # What stands for several variables, by identity.
        self._shared: dict[int, Any] = {}

    def key(self, func: Any, args: Any, kwargs: Any, value: Callable[[Var], Any]) -> Any:
        """What tells an operation from others that give something else; None if nothing does.

        Args:
            func: the operation.
            args: its arguments, with variables for tensors and for numbers that are followed.
            kwargs: likewise.
            value: gives what stands for a variable: a tensor, or a number.
        """
        if would_write(func, None, kwargs) or variables(resizable(func, args, kwargs)):
            return None
        if in_transform():
            return None  # what it gives belongs to that
        try:
            found = self._form(args, value), self._form(tuple(kwargs.items()), value)
            return func, found, current_modes(), torch.get_default_dtype()
        except UnknownError:
            return None

    def find(self, key: Any) -> Any:
        """What an operation gave, or None."""
        return None if key is None else self._given.get(key)

    def keep(self, key: Any, result: Any, given: list[Any]) -> None:
        """Remembers what an operation gave.

        Args:
            key: what `key` said.
            result: what it gave.
            given: the fake tensors that it was given.
        """
        found = result if type(result) in (tuple, list) else (result,)
        tensors = [x for x in found if x is not None]
        if key is None or not all(isinstance(x, torch.Tensor) for x in tensors):
            return
        if self._indices.counts(tensors):
            return
        if tensors and not any(x is y for x in tensors for y in given):
            self._given[key] = result
            self._shared.update((id(x), x) for x in tensors)

    def own(self, fake: Any) -> Any:
        """A fake tensor that may be changed: another one if it stands for several variables."""
        if id(fake) not in self._shared:
            return fake
        with torch._C._DisableFuncTorch():
            own = fake.detach()
            if fake.is_leaf or not fake.requires_grad:
                return requiring(own, fake.requires_grad)
            # Neither a leaf that requires grad nor a view of one is changed in place.
            with torch.enable_grad():
                return own.add_(requiring(own.new_zeros(()), True))

    def _form(self, v: Any, value: Callable[[Var], Any]) -> Any:
        t = type(v)
        if t in _PLAIN:
            return t, v
        if t is float:
            return repr(v)
        if t is Ref:
            return self._of_variable(value(v.var))
        if t in (tuple, list):
            return (t, *(self._form(x, value) for x in v))
        if t is slice:
            return t, *(self._form(x, value) for x in (v.start, v.stop, v.step))
        raise UnknownError

    def _of_variable(self, v: Any) -> Any:
        if isinstance(v, _SYMBOLS):
            return type(v), self._indices.canonical(v.node.expr)
        if type(v) in (int, float):
            return type(v), repr(v)
        if not isinstance(v, torch.Tensor) or v.layout is not torch.strided or v.is_nested:
            raise UnknownError
        with torch._C.DisableTorchFunction():
            numbers = (*v.shape, None, *v.stride(), v.storage_offset())
            return (
                tuple(n.node.expr if isinstance(n, torch.SymInt) else n for n in numbers),
                (v.dtype, v.device, v.requires_grad, v.is_inference(), v.is_conj(), v.is_neg()),
            )


def requiring(fake: Any, required: bool) -> Any:
    """A leaf of autograd's graph, which requires grad or does not, in a transform as well."""
    if fake.requires_grad == required:
        return fake
    functorch: Any = torch._C._functorch
    allowed = functorch.get_inplace_requires_grad_allowed()
    functorch.set_inplace_requires_grad_allowed(True)
    try:
        return fake.requires_grad_(required)
    finally:
        functorch.set_inplace_requires_grad_allowed(allowed)


def in_transform() -> bool:
    """Whether a transform of torch.func is active, or a level of duals."""
    depth: int = torch._C._functorch.get_dynamic_layer_stack_depth()
    return depth > 0 or forward_ad._current_level >= 0


__all__ = ["Repeated", "in_transform", "requiring"]
