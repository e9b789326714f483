"""Which sizes and numbers among the arguments of a compiled callable vary from call to call.

Owns what the calls that were captured were given.  Does not own what follows from it
(magpy/capture/symbols.py).  Called by magpy/runtime/compiled.py before every capture.

A size or a number is taken to vary once a call was captured with another one at the same place, as
torch.compile does by default; `dynamic=True` takes all to vary, and `dynamic=False` none.
Source: https://docs.pytorch.org/docs/stable/torch.compiler_dynamic_shapes.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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

    def look(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], infos: Iterable[Any] = ()
    ) -> Varying | None:
        """What varies among the arguments of a call that is about to be captured.

        Args:
            args: the positional arguments.
            kwargs: the keyword arguments.
            infos: what is kept about the entries (magpy/runtime/entry.py), the newest first.
        """
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
        for v, mask in self._reached(args, kwargs, infos):
            sizes[id(v)] = sizes.get(id(v), 0) | mask
        return Varying(sizes, numbers) if sizes or numbers else None

    def _reached(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], infos: Iterable[Any]
    ) -> Iterator[tuple[Any, int]]:
        """Tensors that earlier calls reached through objects, with what varies of their sizes."""
        given = {f"_a{i}": v for i, v in enumerate(args)}
        given.update((f"_k{i}", v) for i, v in enumerate(kwargs.values()))
        seen: dict[str, Any] = {}
        with torch._C.DisableTorchFunction():
            for info in infos:
                for expr, shape in info.places:
                    if expr in given:
                        continue  # an argument
                    if expr not in seen:
                        seen[expr] = _evaluated(expr, info.mock.__globals__, given)
                    v = seen[expr]
                    if v is None or v.dim() != len(shape):
                        continue
                    varies = self._varies.get((expr,), 0)
                    for i, (a, b) in enumerate(zip(shape, v.shape, strict=True)):
                        varies |= (a != b) << i
                    self._varies[expr,] = varies
        for expr, v in seen.items():
            mask = 0 if v is None else _followable(v.shape, self._varies.get((expr,), 0))
            if mask:
                yield v, mask

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
        return _followable(shape, varies)


def _followable(shape: Any, varies: int) -> int:
    return sum(1 << i for i, n in enumerate(shape) if varies >> i & 1 and n >= _SMALLEST)


def _evaluated(expr: str, space: dict[str, Any], given: dict[str, Any]) -> Any:
    """The tensor at a place in this call, or None."""
    try:
        v = eval(expr, space, given)
    except Exception:  # noqa: BLE001 - this call's objects are of another shape
        return None
    return v if _has_symbols(v) else None


def _has_symbols(v: Any) -> bool:
    """Whether the sizes of something can be symbols."""
    if type(v) is not torch.Tensor or v.layout is not torch.strided or v.is_nested:
        return False
    return 0 < v.dim() < 64 and v.is_contiguous()


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
        if _has_symbols(v):
            yield place, v
    elif len(place) <= _DEPTH:
        items = enumerate(v) if t in (tuple, list) else v.items() if t is dict else ()
        for k, x in items:
            if type(k) in (int, str):
                yield from _tensors((*place, k), x)


__all__ = ["Memory"]
