"""The checks of a guard that are Python functions, and which values are compared by value.

Owns what such a check does with the objects that it is given.  Does not own which checks a guard
has (magpy/guards/analysis.py) nor those that C++ knows (csrc/interp/program.cpp).  Imports
nothing of the analysis.
"""

from __future__ import annotations

import collections
import functools
import gc
import itertools
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from magpy import _interp
from magpy.ir.ops import Unwatched, class_number
from magpy.models.lru_caches import memory_of
from magpy.objects import jagged
from magpy.objects.buffers import (
    Range,
    dense_form_of,
    form_of,
    layout_of,
    meet,
    of_buffer,
    of_tensor,
)
from magpy.objects.hashing import hashes_quietly
from magpy.objects.types import isinstance

ABSENT = _interp.ABSENT
_C_LEAVES = (int, float, complex, bool, type(None), str, bytes, type(...))


def c_leaf(v: Any) -> bool:
    """Whether the guard program compares the value by type and value."""
    t = type(v)
    if t in _C_LEAVES:
        return True
    if t in (tuple, frozenset):
        return all(c_leaf(x) for x in v)
    if t is slice:
        return c_leaf(v.start) and c_leaf(v.stop) and c_leaf(v.step)
    return t is range


def mode_of(v: Any) -> str:
    """How an anchored value is compared."""
    return "leaf" if v is not ABSENT and c_leaf(v) else "is"


def holds(read: Any, expected: Any) -> Any:
    """A check that an object has this very object where `read` finds it."""
    return lambda v: read(v) is expected


def device_equal(expected: Any) -> Any:
    """A check that a value is the same device or size."""

    def check(v: Any) -> bool:
        return type(v) is type(expected) and bool(v == expected)

    return check


def attribute_equals(obj: Any, name: str, expected: Any) -> bool:
    """Whether an object says the same device of itself (a stream, an event, a generator)."""
    return bool(getattr(obj, name) == expected)


def spec_of(tensor: Any) -> Any:
    """How a DTensor lies on its mesh; None for other tensors."""
    module: Any = sys.modules.get("torch.distributed.tensor")
    return tensor._spec if module is not None and type(tensor) is module.DTensor else None


def placed_as(expected: Any) -> Any:
    """A check that a DTensor lies as another one did: its results lie as those of that did."""
    return lambda tensor: bool(
        tensor._spec.mesh == expected.mesh and tensor._spec.placements == expected.placements
    )


def knows(cached: frozenset[str]) -> Any:
    """A check that of a jagged tensor's sequences is known what was known of another one's."""
    return lambda tensor: jagged.cached(tensor) == cached


def scalar_equal(expected: np.generic) -> Any:
    """A check that a value is a numpy scalar of the same type and bits."""
    bits = expected.tobytes()

    def check(v: Any) -> bool:
        return type(v) is type(expected) and v.dtype == expected.dtype and v.tobytes() == bits

    return check


def array_unchanged(expected: tuple[Any, ...]) -> Any:
    """A check that a numpy array or record has the same dtype, shape and bytes.

    Its class is checked too, elsewhere.
    """
    return lambda v: isinstance(v, (np.ndarray, np.void)) and form_of(v) == expected


def looks_at_contents(check: Any) -> bool:
    """Whether a check is one that `array_unchanged` made."""
    return getattr(check, "__code__", None) in array_unchanged.__code__.co_consts


def array_lies_as(array: Any, sized: bool = False) -> Any:
    """A check that a value is a numpy array of the same dtype, shape and strides.

    Where its sizes are inputs (`sized`), that it has as many dimensions, and lies without gaps in
    the order of C, as this one does. And that it owns its memory, or has it from an object of the
    same class: programs copy what is a view (`if a.base is not None`). A copy of numpy's own dtype,
    as unpickled arrays have it, is equal to that and another object.
    """
    base, dtype = type(array.base), np.dtype(array.dtype.str)
    own, form = array.dtype is dtype, dense_form_of if sized else layout_of
    layout = form(array)
    return lambda v: (
        type(v) is np.ndarray
        and type(v.base) is base
        and form(v) == layout
        and (v.dtype is dtype) is own
    )


def runs_below(unwatched: Unwatched) -> Any:
    """A check that still no Python of the program's runs unwatched below a step."""
    ask, passes = unwatched.ask, unwatched.passes  # and not the objects, which may be let go

    def check(*objects: Any) -> bool:
        try:
            heard = ask(*objects)
        except Exception:  # noqa: BLE001 - what is there now is not what it goes through
            return False
        return not heard.functions and heard.passes == passes

    return check


def addresses(objects: Iterable[Any]) -> list[Range | None]:
    """The addresses of the data of tensors and of buffers."""
    return [of_tensor(v) if isinstance(v, torch.Tensor) else of_buffer(v) for v in objects]


def sharing(count: int, places: list[Range | None]) -> list[bool]:
    """Which of the later places each place meets; the first `count` are not compared."""
    return [
        meet(places[i], places[j])
        for i in range(len(places))
        for j in range(max(i + 1, count), len(places))
    ]


def lie_as_before(count: int, places: list[Range | None]) -> Any:
    """A check that objects share memory as they did, of which the first `count` are tensors."""
    before = sharing(count, places)
    return lambda *objects: sharing(count, addresses(objects)) == before


def answers(parts: tuple[Any, ...], places: tuple[int, ...], value: Any) -> Any:
    """A check that a call gives this value.

    Args:
        parts: the function and its arguments; at some places nothing, or an unbound method.
        places: where the objects that are checked go: there, or to the method.
        value: what it gave.
    """
    exact = mode_of(value) == "leaf"

    def check(*objects: Any) -> bool:
        call = list(parts)
        for i, v in zip(places, objects, strict=True):
            call[i] = v if call[i] is None else functools.partial(call[i], v)
        try:
            found = call[0](*call[1:])
        except Exception:  # noqa: BLE001 - it did not raise
            return False
        return _interp.leaf_equal(found, value) if exact else found is value

    return check


def item_is_number(i: int, kind: type) -> Any:
    """A check that a deque has a number of a type at a place."""

    def check(v: Any) -> bool:
        same = len(v) > i and type(v[i]) is kind
        return same and (kind is float or -_SMALL < v[i] < _SMALL)

    return check


def class_holds(name: str, kind: type) -> Any:
    """A check that a class or one of its bases has a number of a type under a name."""

    def holds(cls: type) -> bool:
        try:
            v: Any = class_number(cls, name)
        except AttributeError:
            return False
        same = type(v) is kind
        return same and (kind is float or -_SMALL < v < _SMALL)

    return holds


# As integers are that the guard `small_int` admits.
_SMALL = 1 << 48


def still_remembers(key: Any, value: Any, result: Any) -> Any:
    """A check that an lru_cache still keeps what it kept under a key.

    The look by identity runs no code of the program, such as the key's `__eq__`.  A cache with a
    size keeps links, and uses that of what it forgets for another result.
    """
    linked = value is not result

    def keeps(memo: Any, found: Any) -> bool:
        if found is not value or not linked:
            return found is value
        own = [k for k, v in memory_of(memo).items() if v is value]
        # The collector is told of keys and results one after the other.
        pairs = itertools.pairwise(gc.get_referents(memo))
        return any(a is own[0] and b is result for a, b in pairs)

    if hashes_quietly(key):
        return lambda memo: keeps(memo, memory_of(memo).get(key))
    return lambda memo: any(k is key and keeps(memo, v) for k, v in memory_of(memo).items())


def bytearray_equal(expected: bytes) -> Any:
    """A check that a bytearray has these bytes."""
    return lambda v: isinstance(v, bytearray) and bytes(v) == expected


maxlen_of: Any = vars(collections.deque)["maxlen"].__get__  # whatever a subclass says


def maxlen_equal(expected: int | None) -> Any:
    """A check that a deque takes so many elements at most."""
    return lambda d: maxlen_of(d) == expected


def deque_equal(expected: tuple[Any, ...]) -> Any:
    """A check that a deque holds these objects."""

    def check(v: Any) -> bool:
        held = tuple(collections.deque.__iter__(v))  # whatever a subclass says
        return len(held) == len(expected) and all(
            a is b or (c_leaf(b) and type(a) is type(b) and a == b)
            for a, b in zip(held, expected, strict=True)
        )

    return check
