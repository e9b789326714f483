"""Keeps compilers from drawing once where a program draws twice.

Owns what AOTAutograd takes for random when it looks for operations that are done twice on the same
inputs.  Does not own random generators.  Called by magpy/runtime/entry.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


class _Drawing:
    """Contains every operator of which an overload draws: torch's own list leaves some out.

    `torch.randn_like(x) - torch.randn_like(x)` would be 0.
    """

    def __init__(self, known: Any) -> None:
        self._known = known

    def __contains__(self, target: Any) -> bool:
        if target in self._known:
            return True
        overloads: list[str] = getattr(target, "overloads", list)()
        return any(
            torch.Tag.nondeterministic_seeded in getattr(target, name).tags for name in overloads
        )


@contextlib.contextmanager
def told_apart() -> Iterator[None]:
    """Every draw is one of its own while a compiler runs in the block."""
    from torch._functorch import compile_utils

    known: Any = compile_utils.rand_ops
    utils: Any = compile_utils
    utils.rand_ops = _Drawing(known)
    try:
        yield
    finally:
        utils.rand_ops = known


def are_told_apart() -> bool:
    """Whether `told_apart` is in force."""
    from torch._functorch import compile_utils

    known: Any = compile_utils.rand_ops
    return type(known) is _Drawing


__all__ = ["are_told_apart", "told_apart"]
