"""What an operation with fake tensors needs around it, and what is asked of fake tensors.

Owns what torch must not do meanwhile (log, remember casts, spoil dispatch keys), what fake tensors
do not ask themselves (masks that fit, sizes that `vmap` hides), and the errors for what cannot be
done.  Does not own the fake tensors nor the symbols in them (magpy/shapes/symbols.py, which calls
this, as magpy/shapes/propagate.py does).
"""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch

from magpy.ir.ops import OutsideRef, Ref, Var
from magpy.objects.types import isinstance

_LOGGERS = (
    "torch._subclasses.fake_tensor",
    "torch.fx.experimental.symbolic_shapes",
    "torch.fx.experimental.sym_node",
)
_functorch: Any = torch._C._functorch
#: Whether something is a tensor of a transform of torch.func.
wrapped: Callable[[Any], bool] = _functorch.is_functorch_wrapped_tensor


class CannotFollowError(Exception):
    """An operation cannot be done with fake tensors."""


class SizedByDataError(CannotFollowError):
    """An operation gives what depends on data; what it asks of sizes is a condition by now."""


def strides_of(fake: Any) -> tuple[Any, ...]:
    """The strides of a fake tensor, if it has any."""
    return tuple(fake.stride()) if fake.layout is torch.strided else ()


@contextlib.contextmanager
def unlogged() -> Iterator[None]:
    """Keeps torch from logging what fails for fake tensors.

    The program's own operation says what there is to say.
    """
    enabled = [x for x in map(logging.getLogger, _LOGGERS) if not x.disabled]
    try:
        for logger in enabled:
            logger.disabled = True
        yield
    finally:
        for logger in enabled:
            logger.disabled = False


@contextlib.contextmanager
def keys_kept(transformed: bool) -> Iterator[None]:
    """Keeps the dispatch keys of the thread, which an operation that fails in a transform spoils.

    What puts them back at its end lives in frames that the exception holds: these end here.
    """
    if not transformed:
        yield
        return
    c: Any = torch._C
    include, exclude = c._dispatch_tls_local_include_set(), c._dispatch_tls_local_exclude_set()
    with c._ForceDispatchKeyGuard(include, exclude):
        try:
            yield
        except Exception as e:
            error: BaseException | None = e
            while error is not None:
                traceback.clear_frames(error.__traceback__)
                error = error.__cause__ or error.__context__
            raise


@contextlib.contextmanager
def uncached() -> Iterator[None]:
    """Keeps torch from remembering what autocast makes of fake weights.

    All threads have one memory, locked while a tensor in it is made or dies: a fake tensor needs
    the interpreter for that, which a thread that waits for the memory may hold.
    """
    cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(cached)


_MASKS = (torch.bool, torch.uint8)


def masks_fit(tensor: Any, index: Any) -> None:
    """Makes it a condition that the masks in an index have the sizes of what they are for."""
    items = index if isinstance(index, (tuple, list)) else (index,)
    spans = [
        i.dim() if isinstance(i, torch.Tensor) and i.dtype in _MASKS else int(i is not None)
        for i in items
    ]
    dim = 0
    for item, span in zip(items, spans, strict=True):
        if item is Ellipsis:
            dim += tensor.dim() - sum(spans) + 1
            continue
        if isinstance(item, torch.Tensor) and item.dtype in _MASKS:
            for i in range(span):
                if item.shape[i] != tensor.shape[dim + i]:
                    raise CannotFollowError("a mask does not fit")
        dim += span


def sizes_of(fake: Any) -> list[Any]:
    """The symbols in a fake tensor's sizes, those included that `vmap` hides."""
    while wrapped(fake):
        fake = _functorch.get_unwrapped(fake)
    return [n for n in (*fake.shape, *strides_of(fake)) if isinstance(n, torch.SymInt)]


def hides_a_number(fake: Any) -> bool:
    """Whether `vmap` hides a size of a fake tensor's that is no symbol."""
    while wrapped(fake):
        inner = _functorch.get_unwrapped(fake)
        if (
            _functorch.is_batchedtensor(fake)
            and type(inner.shape[_functorch.maybe_get_bdim(fake)]) is int
        ):
            return True
        fake = inner
    return False


def inference_of(tensor: Any) -> Any:
    """Inference mode, on for a tensor that was made in it."""
    return torch.inference_mode(tensor.is_inference())


def is_generator(v: Any, static: Callable[[Var], Any]) -> bool:
    """Whether an argument, or what `static` gives for a variable, is a random generator."""
    given = static(v.var) if isinstance(v, Ref) else v.obj if isinstance(v, OutsideRef) else v
    return isinstance(given, torch.Generator)


__all__ = [
    "CannotFollowError",
    "SizedByDataError",
    "hides_a_number",
    "inference_of",
    "is_generator",
    "keys_kept",
    "masks_fit",
    "sizes_of",
    "strides_of",
    "uncached",
    "unlogged",
    "wrapped",
]
