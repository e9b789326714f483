"""Plain values: immutable values of built-in types, which a guard compares by value.

Owns which types those are.  Does not own how they are compared (csrc/interp/leaf.cpp).  Called
wherever a value of the program is looked at.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

PLAIN_TYPES = (
    int,
    float,
    complex,
    bool,
    str,
    bytes,
    type(None),
    type(...),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)

#: The classes of numpy's numbers.  A class that derives from one may do otherwise.
NUMPY_NUMBERS = frozenset(t for t in np.sctypeDict.values() if np.dtype(t).kind in "iufc")


def is_plain(v: Any) -> bool:
    """Whether the value is compared by type and value: an immutable one, or a new list of such."""
    t = type(v)
    if t in (tuple, list, torch.Size, frozenset):
        return all(is_plain(x) for x in v)
    if t is slice:
        return is_plain(v.start) and is_plain(v.stop) and is_plain(v.step)
    return t in PLAIN_TYPES or t is range


def is_immutable(v: Any) -> bool:
    """Whether it does not matter which object it is: a leaf, and no list."""
    if type(v) in (tuple, torch.Size, frozenset):
        return all(map(is_immutable, v))
    return type(v) is not list and is_plain(v)
