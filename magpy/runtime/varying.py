"""Which sizes and numbers among the arguments of a compiled callable vary from call to call.

Owns what the calls that were captured were given.  Does not own what follows from it
(magpy/capture/symbols.py).  Called by magpy/runtime/compiled.py before every capture.

A size or a number is taken to vary once a call was captured with another one at the same place, as
torch.compile does by default; `dynamic=True` takes all to vary, and `dynamic=False` none.
Source: https://docs.pytorch.org/docs/stable/torch.compiler_dynamic_shapes.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from magpy.capture.session import Varying

# Sizes of 0 and 1 stand for themselves: operations treat them differently (broadcasting).
_SMALLEST = 2
_DEPTH = 3

Place = tuple[Any, ...]


class Memory:
    """What the captured calls of one callable were given.

    Args:
        dynamic: as in magpy.compile.
    """

    def __init__(self, dynamic: bool | None) -> None:
        """Nothing was captured yet."""
        self._dynamic = dynamic
        self._seen: dict[Place, Any] = {}
        self._varies: dict[Place, int] = {}

    def stop(self) -> None:
        """From here on nothing is taken to vary."""
        self._dynamic = False

    def look(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Varying | None:
        """What varies among the arguments of a call that is about to be captured."""
        if self._dynamic is False:
            return None
        sizes: dict[int, int] = {}
        numbers: set[int | str] = set()
        for place, v in _leaves(args, kwargs):
            if type(v) in (int, float):
                if self._number(place, v):
                    numbers.add(place[0])
            else:
                mask = self._sizes(place, v)
                if mask:
                    sizes[id(v)] = sizes.get(id(v), 0) | mask
        return Varying(sizes, numbers) if sizes or numbers else None

    def _number(self, place: Place, v: Any) -> bool:
        before = self._seen.get(place)
        self._seen[place] = v
        if self._dynamic or (type(before) is type(v) and before != v):
            self._varies[place] = 1
        return place in self._varies

    def _sizes(self, place: Place, v: Any) -> int:
        shape = tuple(v.shape)
        before = self._seen.get(place)
        self._seen[place] = shape
        if self._dynamic:
            before = (-1,) * len(shape)
        varies = self._varies.get(place, 0)
        if isinstance(before, tuple) and len(before) == len(shape):
            for i, (a, b) in enumerate(zip(before, shape, strict=True)):
                varies |= (a != b) << i
        else:
            varies = 0
        self._varies[place] = varies
        return sum(1 << i for i, n in enumerate(shape) if varies >> i & 1 and n >= _SMALLEST)


def _leaves(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Place, Any]]:
    with torch._C.DisableTorchFunction():
        for i, v in (*enumerate(args), *kwargs.items()):
            if type(v) in (int, float):
                yield (i,), v
            else:
                yield from _tensors((i,), v)


def _tensors(place: Place, v: Any) -> Iterator[tuple[Place, Any]]:
    t = type(v)
    if t is torch.Tensor:
        if v.layout is torch.strided and 0 < v.dim() < 64 and v.is_contiguous():
            yield place, v
    elif len(place) <= _DEPTH:
        items = enumerate(v) if t in (tuple, list) else v.items() if t is dict else ()
        for k, x in items:
            if type(k) in (int, str):
                yield from _tensors((*place, k), x)


__all__ = ["Memory"]
