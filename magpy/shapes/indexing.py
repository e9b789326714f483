"""Indexing with numbers that vary, as the views that it stands for.

Owns the taking apart of an index.  Does not own the operations that come of it, nor which numbers
vary (magpy/capture/tensors/recorder.py, the only caller).

torch's Python bindings ask every integer in an index for its plain value; `Tensor.select` takes one
that is followed.  The views are those that the bindings make, in their order, so that autograd's
graph and the errors for what is stored are the same.
Source: https://docs.pytorch.org/cppdocs/notes/tensor_indexing.html
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_ALL = slice(None)
# Other elements count as several dimensions, or as a mask.
_PLACES = frozenset([torch.int64, torch.int32, torch.int16, torch.int8])


def taken_apart(
    tensor: torch.Tensor,
    index: Any,
    varies: Callable[[int], bool],
    operate: Callable[[Any, tuple[Any, ...]], Any],
) -> tuple[Any, Any] | None:
    """The view of a tensor that an index stands for, as far as it is one.

    Args:
        tensor: what is indexed.
        index: the index.
        varies: whether an integer in it varies from call to call.
        operate: does an operation: a function and its arguments.

    Returns:
        The view, and what is left of the index: tensors, with `slice(None)` between them, or
        Ellipsis if there are none.  None, and no operation was done, if no number in the index
        varies, or if it holds something else than integers, slices, None, Ellipsis and tensors of
        integers, or is one that the tensor does not have.
    """
    items = index if type(index) is tuple else (index,)
    if not any(type(i) is int and varies(i) for i in items):
        return None
    ahead = _dimensions(tensor, items)
    if ahead is None:
        return None
    view: Any = tensor
    left: list[Any] = []
    for item in items:
        if item is None:
            view = operate(torch.Tensor.unsqueeze, (view, len(left)))
            left.append(_ALL)
        elif item is Ellipsis:
            left += [_ALL] * (tensor.dim() - ahead)
        elif type(item) is int:
            view = operate(torch.Tensor.select, (view, len(left), item))
        elif type(item) is slice:
            if not item.start is item.stop is item.step is None:
                view = operate(torch.Tensor.__getitem__, (view, (*[_ALL] * len(left), item)))
            left.append(_ALL)
        else:
            left.append(item)
    only_views = all(type(item) is slice for item in left)
    return view, Ellipsis if only_views else tuple(left)


def _dimensions(tensor: torch.Tensor, items: tuple[Any, ...]) -> int | None:
    """How many dimensions the items of an index are for, or None for an index not taken apart."""
    counting = [i for i in items if i is not None and i is not Ellipsis]
    if sum(i is Ellipsis for i in items) > 1 or len(counting) > tensor.dim():
        return None
    dim = 0
    for item in items:
        if item is None:
            continue
        if item is Ellipsis:
            dim += tensor.dim() - len(counting)
            continue
        if type(item) is int:
            if not -tensor.shape[dim] <= item < tensor.shape[dim]:
                return None
        elif type(item) is torch.Tensor:
            if item.dtype not in _PLACES or item.dim() == 0:
                return None
        elif type(item) is not slice:
            return None
        dim += 1
    return len(counting)


__all__ = ["taken_apart"]
