"""`copy.deepcopy` of a tensor: what a step keeps of it, which is no address.

Owns what stands for `Tensor.__deepcopy__` in an entry.  Does not own the Python of `copy.deepcopy`
itself, which is watched, nor the attributes of the copy, which are made again like those of other
objects (magpy/capture/rebuild.py).  Called by the recorder.

`copy.deepcopy` notes in `memo` what it has copied, by the address of the object and of the storage
(https://docs.python.org/3/library/copy.html; torch/_tensor.py and torch/storage.py). In the next
call something else may lie there. So a step names the copies that this one is to share with.
"""

from __future__ import annotations

from typing import Any

import torch

from magpy.frames.locations import refuse
from magpy.objects.types import isinstance


def deep_copied(
    tensor: torch.Tensor,
    storage: torch.Tensor | None,
    gradient: torch.Tensor | None,
    gradient_storage: torch.Tensor | None,
) -> torch.Tensor:
    """A deep copy of a tensor.

    Args:
        tensor: of any shape and dtype.
        storage: a copy of a tensor that shares the tensor's storage; the result shares the copy's.
        gradient: the copy that was made of the tensor's gradient.
        gradient_storage: likewise as `storage`, for the gradient.

    Returns:
        The copy, of the tensor's shape, strides and dtype.

    Raises:
        RuntimeError: the tensor is no leaf.
    """
    memo: dict[Any, Any] = {}
    if storage is not None:
        _storage_in(memo, tensor, storage)
    own = tensor.grad if gradient is not None or gradient_storage is not None else None
    if own is not None and gradient is not None:
        memo[id(own)] = gradient
    if own is not None and gradient_storage is not None:
        _storage_in(memo, own, gradient_storage)
    return torch.Tensor.__deepcopy__(tensor, memo)  # type: ignore[no-any-return, no-untyped-call]


def _storage_in(memo: dict[Any, Any], tensor: torch.Tensor, copy: torch.Tensor) -> None:
    memo.setdefault("torch", {})[tensor.untyped_storage()._cdata] = copy.untyped_storage()


def shared(tensor: torch.Tensor, memo: Any) -> tuple[Any, ...]:
    """The arguments of `deep_copied` that stand for what `memo` holds.

    Args:
        tensor: the tensor that is about to be copied.
        memo: what `copy.deepcopy` has copied so far.

    Raises:
        Refusal: the copy takes over something that no tensor stands for.
    """
    if type(memo) is not dict:
        raise refuse("a tensor is copied with a memo that is no dict")
    if id(tensor) in memo:
        raise refuse("Tensor.__deepcopy__ is given a memo that holds the copy already")
    gradient = tensor.grad if tensor.is_leaf else None
    known = None if gradient is None else memo.get(id(gradient))
    return (
        tensor,
        _sharing(tensor, memo),
        known,
        _sharing(gradient, memo) if gradient is not None and known is None else None,
    )


def _sharing(tensor: torch.Tensor, memo: dict[Any, Any]) -> torch.Tensor | None:
    """A copy in `memo` that has the storage which the copy of a tensor is to have."""
    copies = memo.get("torch")
    if type(copies) is not dict or tensor.layout is not torch.strided:
        return None
    storage = copies.get(tensor.untyped_storage()._cdata)
    if storage is None:
        return None
    for made in memo.values():
        if (
            isinstance(made, torch.Tensor)
            and made.layout is torch.strided
            and made.untyped_storage()._cdata == storage._cdata
        ):
            return made
    raise refuse("a tensor is copied whose storage was copied by itself")


__all__ = ["deep_copied", "shared"]
