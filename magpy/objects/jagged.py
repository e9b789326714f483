"""Nested tensors of jagged layout, and what one consists of.

Owns how such a tensor is told from others, its parts, and what a guard compares of it beside what
it compares of every tensor.  Does not own how operations on one are recorded
(magpy/capture/tensors) nor how its parts are compared (csrc/tensor).

A jagged tensor is a tensor of values, in which the sequences lie one after the other, and one of
offsets, where each begins.  Its ragged size is a symbol that stands for the very object that holds
the offsets, or the lengths: two tensors fit each other if they share that.  How many sequences
there are, and how long all are together, is data, as what `nonzero` finds is.
Source: torch/nested/_internal/nested_tensor.py
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nested._internal.nested_tensor import NestedTensor

__all__ = [
    "FORMING",
    "FUNCTIONS",
    "NestedTensor",
    "attributes",
    "cached",
    "held",
    "is_jagged",
    "is_ragged_size",
    "laid_out",
    "parts",
]


def is_jagged(obj: Any) -> bool:
    """Whether an object is a nested tensor of jagged layout, of torch's own class."""
    return type(obj) is NestedTensor


def is_ragged_size(obj: Any) -> bool:
    """Whether a number is the size of a ragged dimension, or a multiple of one."""
    return type(obj) is torch.SymInt and obj.node.is_nested_int()


def parts(tensor: Any) -> list[tuple[str, Any, int]]:
    """What a tensor consists of: names, values, and for tensors the dimension whose size is data.

    Empty for tensors that are not jagged.
    """
    if not is_jagged(tensor):
        return []
    ragged = tensor._ragged_idx
    return [
        ("_ragged_idx", ragged, -1),
        ("_values", tensor._values, ragged - 1),
        ("_offsets", tensor._offsets, 0),
        ("_lengths", tensor._lengths, 0),
    ]


def held(tensor: Any) -> Any:
    """The tensor that has the elements of a tensor: the values of a jagged one."""
    return tensor._values if is_jagged(tensor) else tensor


def attributes(tensor: Any) -> set[str]:
    """The attributes that the program has given to a tensor, jagged or not."""
    names = set(vars(tensor))
    if not is_jagged(tensor):
        return names
    return {n for n in names - _STATE if not n.startswith(("_dynamo_", "_sym_"))}


def cached(tensor: Any) -> frozenset[str]:
    """What is known of the lengths of a jagged tensor's sequences: what is made of it knows it."""
    return frozenset(name for name, v in tensor._metadata_cache.items() if v is not None)


def laid_out(tensor: Any) -> tuple[bool, bool]:
    """What decides whether an operation gives a jagged tensor back (`contiguous`, `dropout`)."""
    values = tensor._values
    return values.is_contiguous(), values.numel() == 0


# What torch keeps in such a tensor, with names of its own caches.
_STATE = frozenset(
    ["_values", "_offsets", "_lengths", "_ragged_idx", "_size", "_strides", "_metadata_cache"]
)
#: Those that go by sizes and data which dimension is ragged, and whether there are lengths.
FORMING = (torch.nested.nested_tensor, torch.nested.as_nested_tensor, torch.nested.narrow)
#: Python functions of torch's that make such tensors or read of them: each is one operation.
FUNCTIONS = (
    *FORMING,
    *(torch.nested.nested_tensor_from_jagged, torch.nested.masked_select),
    *(NestedTensor.values, NestedTensor.offsets, NestedTensor.lengths),
    *(NestedTensor._get_max_seqlen, NestedTensor._get_min_seqlen),
)
