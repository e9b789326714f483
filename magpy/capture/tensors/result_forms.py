"""What a call that is recorded as one operation gives, beside the sizes of its tensors.

Python of the program runs in such a call (a checkpointed block, an `autograd.Function`), and may go
by sizes: it gives a number of rows, another dtype, as many tensors as there are rows, or its
argument in place of new memory.  Owns the form of a result, and what compares it in each call where
sizes vary.  Does not own the sizes (magpy/shapes/data_dependent.py).  Called by
magpy/capture/tensors/unseen_calls.py.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

from magpy.ir.trees import tensors
from magpy.objects.plain_values import PLAIN_TYPES
from magpy.objects.types import isinstance


class UnknownFormError(Exception):
    """An object is given of which nobody knows what it holds."""


class Form:
    """The form that the result of a call must have.

    Args:
        result: what the call gave when it was watched.
        given: its arguments as its step gives them.

    Raises:
        UnknownFormError: it gave something that cannot be compared.
    """

    def __init__(self, result: Any, given: Any) -> None:
        """Looks at it."""
        self._form = _form_of(result, given)
        self._last = threading.local()

    def of(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """`func`, whose result is compared."""

        def formed(*args: Any, **kwargs: Any) -> Any:
            result = func(*args, **kwargs)
            with torch._C.DisableTorchFunction():
                self._last.same = self._is(result, (args, kwargs))
            return result

        functools.update_wrapper(formed, func)  # which takes what magpy knows of it along
        formed.__magpy_form__ = self  # type: ignore[attr-defined]
        return formed

    def holds(self, *_: torch.Tensor) -> bool:
        """Whether the last result on this thread had the form; it is given tensors of that."""
        same: bool = self._last.same
        return same

    def _is(self, result: Any, given: Any) -> bool:
        try:
            return bool(_form_of(result, given) == self._form)
        except UnknownFormError:
            return False


def _form_of(result: Any, given: Any) -> Any:
    seen = tensors(given)

    def form(v: Any) -> Any:
        t = type(v)
        if isinstance(v, torch.Tensor):
            for i, x in enumerate(seen):
                if x is v:
                    return i
            shared = next((i for i, x in enumerate(seen) if _memory(x) == _memory(v)), -1)
            seen.append(v)
            what = t, v.dtype, v.device, v.layout, v.dim(), v.requires_grad, v.is_leaf
            return *what, -1 if _memory(v) is None else shared
        if isinstance(v, (tuple, list)):
            return t, [form(x) for x in v]
        if t is dict:
            return t, [(form(k), form(x)) for k, x in v.items()]
        if t in PLAIN_TYPES:
            return t, repr(v)
        raise UnknownFormError

    return form(result)


def _memory(tensor: torch.Tensor) -> int | None:
    if tensor.layout is not torch.strided or tensor.is_nested:
        return None
    found: int = tensor.untyped_storage()._cdata
    return found


__all__ = ["Form", "UnknownFormError"]
