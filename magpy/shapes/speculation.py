"""Which sizes and numbers that a compiled callable is given or reads vary from call to call.

Owns what the calls that were captured were given.  Does not own what follows from it
(magpy/shapes/symbols.py).  Called by magpy/runtime/compiled.py before every capture.

A size, a stride or a number (an argument, or one in an attribute, a global, an item or a closure's
cell) is taken to vary once a call was captured with another one at the same
place, as torch.compile does by default; `dynamic=True` takes all to vary, and `dynamic=False` none.
Where one size varies, others will: with it the first dimension of each tensor, the batch by
convention, and all dimensions of a tensor at a place that no earlier call had (a cache that the
last call filled). Else each of them would be another capture.
Source: https://docs.pytorch.org/docs/stable/torch.compiler_dynamic_shapes.html
"""

from __future__ import annotations

import collections
import re
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch

from magpy import _interp
from magpy.ir.capture import Dims, Varying
from magpy.ir.ops import TUPLES, Part
from magpy.objects.number_lists import form_of
from magpy.objects.plain_values import NUMPY_NUMBERS
from magpy.objects.types import isinstance
from magpy.shapes.places import evaluated

# Sizes of 0 and 1 stand for themselves: operations treat them differently (broadcasting).
_SMALLEST = 2
# How deep containers and objects are looked into, and how many of them.
_DEPTH = 5
_MOST_LOOKED_INTO = 1000
# How many numbers of a list are compared with those before; a longer one is an input at once.
_MOST_COMPARED = 1000
# In how many elements of a list others are looked for.
_MOST_LISTS = 64
#: What a list of numbers has had since it was first seen: other numbers, or another size.
CHANGED, RESIZED = 1, 2
#: What is an input where it differs from call to call.
PLAIN = (int, float, str, bytes)
#: The numbers of longer tuples are compared with the whole; those of a batch (`zip(*batch)`), which
#: are arguments, are a few more.
MOST_PARTS, _MOST_IN_ARGUMENT = 8, 64

# An index in an expression for what a call reached.
_INDEX = re.compile(r"\[\d+\]")
# The kinds of numbers of which arrays are inputs.
_NUMBERS = "biufc"

Place = tuple[Any, ...]
# Sizes and strides of a tensor.
Form = tuple[tuple[int, ...], tuple[int, ...]]


class Memory:
    """What the captured calls of one callable were given.

    Args:
        dynamic: as in magpy.compile.
    """

    def __init__(self, dynamic: bool | None) -> None:
        """Nothing was captured yet."""
        self._dynamic = dynamic
        self._seen: dict[Place, Any] = {}
        self._varies: dict[Place, Dims] = {}
        self._numbers: set[Place] = set()
        # The places in tuples of numbers among the arguments, by their classes and lengths.
        self._tuples: dict[Any, frozenset[int]] = {}
        self._followed: set[Place] = set()
        self._sizes_vary = False
        # Rows of tensors that were not equally large in a call that was captured.
        self._uneven: set[Place] = set()
        self._listed: dict[Place, int] = {}
        self._outside: dict[Place, tuple[str | None, dict[str, Any], Any, Any]] = {}
        self._arrays_sized: set[int | str] = set()
        # Expressions for lists that calls read as a whole.
        self._wholes: set[str] = set()
        # By expressions or addresses, lists that calls reached and made tensors of: what the
        # expressions name, and the list where there is none.
        self._made_of: dict[str | int, tuple[dict[str, Any], Any]] = {}
        self._turns: frozenset[int] = frozenset()
        # What small arrays hold that are reached: whether it is an input; None: nothing tells yet.
        self._contents: bool | None = None

    @property
    def follows(self) -> bool:
        """Whether anything can be taken to vary."""
        return self._dynamic is not False

    @property
    def sizes_vary(self) -> bool:
        """Whether a size has varied."""
        return self._sizes_vary

    def expect_other_sizes(self) -> None:
        """From here on all sizes of a tensor that was not seen before are taken to vary."""
        self._sizes_vary = True

    def expect_other_numbers(self, at: Iterable[int]) -> None:
        """From here on the numbers and the lists of numbers at these arguments are inputs."""
        self._numbers.update((i,) for i in at)
        self._listed.update({("list", i): CHANGED for i in at})

    def expect_turns(self, at: Iterable[int]) -> None:
        """These arguments are assigned by a loop: numbers and lists of them are inputs."""
        self._turns = frozenset(at)
        self.expect_other_numbers(self._turns)

    def expect_other_lists(self, at: Iterable[int]) -> None:
        """From here on the lists of numbers at these arguments are taken to differ in length."""
        self._listed.update({("list", i): RESIZED for i in at})

    def numbers_at(self) -> set[int | str]:
        """The arguments that are numbers, or lists of numbers, and have varied."""
        lists = {place[1] for place, how in self._listed.items() if how and len(place) == 2}
        return {place[0] for place in self._numbers if len(place) == 1} | lists

    def stop(self) -> None:
        """From here on nothing is taken to vary."""
        self._dynamic = False

    def contents_vary(self) -> None:
        """A small array that is reached holds something else than in an earlier call."""
        if self._contents is None:
            self._contents = True

    def contents_count(self) -> None:
        """From here on what small arrays hold that are reached is compared: they are written to."""
        self._contents = False

    def look(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        infos: Iterable[Any] = (),
        replaced: dict[Place, tuple[Any, Any]] | None = None,
    ) -> Varying | None:
        """What varies among the arguments of a call that is about to be captured.

        Args:
            args: the positional arguments.
            kwargs: the keyword arguments.
            infos: what is kept about the entries (magpy/runtime/entry.py), the newest first.
            replaced: by place, objects that were anchored and those that are there now.
        """
        if self._dynamic is False:
            return None
        sizes: dict[int, Dims] = {}
        numbers: set[int | str] = set()
        texts: set[int | str] = set()
        given = {f"_a{i}": v for i, v in enumerate(args)}
        given.update((f"_k{i}", v) for i, v in enumerate(kwargs.values()))
        with torch._C.DisableTorchFunction():
            found: list[tuple[Place, Any, Dims | None]] = []
            arrays = _arrays(args, kwargs)
            given_at: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
            sized = {id(v) for i, v in given_at if self._sized(i, v)}
            for place, v in _leaves(args, kwargs):
                if not _may_be_input(v):
                    found.append((place, v, self._dims(place, v)))
                elif self._number(place, v):
                    (numbers if type(v) in (int, float) else texts).add(place[0])
            found += self._reached(given, infos)
            for place, (before, v) in (replaced or {}).items():
                if _has_symbols(before) and _has_symbols(v):
                    self._differ(place, _form(before), _form(v))
                    found.append((place, v, self._varies.get(place, Dims())))
            if any(dims is not None and dims.sizes for *_, dims in found):
                self._sizes_vary = True
            for place, v, dims in found:
                _add(sizes, v, self._with_others(place, v, dims))
            alike = self._rows(found)
            lists = [(v, self._list(place, v)) for place, v in _lists(args, kwargs)]
            lists += self._reached_lists(given, infos)
            resized = {id(v) for v, how in lists if how == RESIZED}
            places = self._read(given, infos, resized)
            tuples = {i: at for i, v in given_at if (at := self._parts(i, v))}
            apart = {id(holder) for holder, *_ in places}
            differing = [
                (v, how == RESIZED or bool(self._dynamic))
                for v, how in lists
                if (how or self._dynamic) and id(v) not in apart
            ]
        # What is computed of a text, its length above all, is of data.
        data = bool(self._dynamic or texts or sized) or any(info.dynamic.pinned for info in infos)
        data, contents = data or bool(differing), bool(self._contents)
        if not any((*(sizes, numbers, places, texts, arrays, differing, tuples), data, contents)):
            return None
        all_found = sizes, numbers, places, data, texts, arrays, differing, tuples, sized, contents
        return Varying(*all_found, alike=alike, turns=self._turns)

    def _rows(self, found: list[tuple[Place, Any, Dims | None]]) -> dict[int, Place]:
        """The rows in which tensors stand that were equally large in each call; see `Varying`."""
        alike: dict[int, Place] = {}
        sizes: dict[Place, torch.Size] = {}
        for place, v, _ in found:
            if (row := _row(place)) != place:
                alike.setdefault(id(v), row)
                if sizes.setdefault(row, v.shape) != v.shape:
                    self._uneven.add(row)
        return {at: row for at, row in alike.items() if row not in self._uneven}

    def _parts(self, at: int | str, v: Any) -> frozenset[int]:
        """Where a tuple of numbers among the arguments has differed from earlier ones."""
        if type(v) not in TUPLES or len(v) > _MOST_IN_ARGUMENT:
            return frozenset()
        if not all(map(_may_be_in_tuple, v)):
            return frozenset()
        place, form = ("tuple", at), (type(v), len(v))
        before, differ = self._seen.get(place, v), self._tuples.get((place, form), frozenset())
        self._seen[place] = v
        if self._dynamic:
            differ = frozenset(range(len(v)))
        elif (type(before), len(before)) == form:
            differ |= {i for i, n in enumerate(v) if n != before[i]}
        # What is not equal to itself is found in containers by its identity.
        differ = frozenset(i for i in differ if type(v[i]) is not bool and v[i] == v[i])
        self._tuples[place, form] = differ
        return differ

    def _list(self, place: Place, v: list[Any]) -> int:
        """How a list of numbers has differed from those that were at its place before."""
        place = ("list", *place)
        form = form_of(v) or ()
        # Rows of numbers are data: they are an input in the first call as well, as arrays are.
        before, kept = self._seen.get(place), len(v) <= _MOST_COMPARED and len(form) < 2
        self._seen[place] = form, list(v) if kept else None
        how = self._listed.get(place, 0)
        if before is None:
            how = how or (0 if kept else CHANGED)
        elif before[0] != form:
            how = RESIZED
        elif before[1] != self._seen[place][1] or not kept:
            how = how or CHANGED
        self._listed[place] = how
        return how

    def _with_others(self, place: Place, v: Any, dims: Dims | None) -> Dims:
        """What is taken to vary of a tensor of which `dims` differed; None: it is a new one."""
        if not self._sizes_vary:
            return dims or Dims()
        if dims is None:
            dims = self._varies[place] = Dims((1 << v.dim()) - 1)
        return Dims(dims.sizes | 1, dims.strides)

    def _read(
        self, given: dict[str, Any], infos: Iterable[Any], resized: set[int]
    ) -> list[tuple[Any, Any, bool]]:
        """Where numbers are that earlier calls read, and that are others now or were before.

        Args:
            given: the arguments by their names in expressions.
            infos: as of `look`.
            resized: the addresses of lists that have other lengths in other calls. One that is read
                as a whole is no row of numbers but one input.

        Returns:
            What holds each, the key, and whether a call relied on what it is though it was an
            input, so that what follows from it has to be followed.
        """
        for info in infos:
            space = info.mock.__globals__
            self._wholes |= info.dynamic.wholes
            for expr, holder, key, before, relied in info.dynamic.numbers:
                place = (id(holder) if expr is None else expr, key)
                if place in (self._followed if relied else self._outside):
                    continue
                now = number_at(holder if expr is None else evaluated(expr, space, given), key)
                if _is_another(before, now):
                    self._outside[place] = expr, space, holder, key
                    at_once = isinstance(key, Part) or (expr is not None and type(key) is int)
                    if (relied or at_once) and type(now) is int:
                        self._followed.add(place)
        found = (
            (holder if expr is None else evaluated(expr, space, given), key, place)
            for place, (expr, space, holder, key) in self._outside.items()
        )
        # Several expressions may be for one number.
        places: dict[tuple[int, Any], tuple[Any, Any, bool]] = {}
        for holder, key, place in found:
            row = id(holder) in resized and place[0] in self._wholes
            if number_at(holder, key) is not None and not row:
                *_, before = places.get((id(holder), key), (None, None, False))
                places[id(holder), key] = holder, key, before or place in self._followed
        return list(places.values())

    def _reached(
        self, given: dict[str, Any], infos: Iterable[Any]
    ) -> Iterator[tuple[Place, Any, Dims]]:
        """Tensors that earlier calls reached through objects, with what varies of their sizes."""
        seen: dict[str, Any] = {}
        for info in infos:
            for expr, meta in info.dynamic.places:
                if expr in given:
                    continue  # an argument
                if expr not in seen:
                    seen[expr] = evaluated(expr, info.mock.__globals__, given)
                v = seen[expr]
                if _has_symbols(v):
                    self._differ((expr,), (meta.shape, meta.strides), _form(v))
        for expr, v in seen.items():
            if _has_symbols(v):
                yield (expr,), v, self._varies.get((expr,), Dims())

    def _reached_lists(
        self, given: dict[str, Any], infos: Iterable[Any]
    ) -> Iterator[tuple[list[Any], int]]:
        """Lists of numbers that calls reached through objects and made tensors of, as `_list`."""
        for info in infos:
            for expr, holder, before in info.dynamic.lists:
                at = id(holder) if expr is None else expr
                if at not in given and at not in self._made_of:
                    self._made_of[at] = info.mock.__globals__, holder
                    self._list((at,), before)
        for at, (space, holder) in self._made_of.items():
            v = evaluated(at, space, given) if isinstance(at, str) else holder
            if type(v) is list and form_of(v):
                yield v, self._list((at,), v)

    def _sized(self, at: int | str, v: Any) -> bool:
        """Whether an argument is an array that has other sizes in other calls."""
        if type(v) is not np.ndarray or v.dtype.kind not in _NUMBERS or not v.ndim:
            return False
        place, now = ("array", at), (v.dtype, v.shape)
        before = self._seen.get(place, now)
        self._seen[place] = now
        differs = before != now and before[0] == now[0] and len(before[1]) == v.ndim
        if differs or self._dynamic:
            self._arrays_sized.add(at)
        # How others lie does not follow from their sizes.
        return at in self._arrays_sized and v.flags.c_contiguous

    def _number(self, place: Place, v: Any) -> bool:
        before = self._seen.get(place)
        self._seen[place] = v
        if self._dynamic or _is_another(before, v):
            self._numbers.add(place)
        return place in self._numbers

    def _dims(self, place: Place, v: Any) -> Dims | None:
        """What has varied of a tensor; None if there was none at this place."""
        now = _form(v)
        before = self._seen.get(place)
        self._seen[place] = now
        if self._dynamic:
            before = ((-1,) * v.dim(),) * 2
        if isinstance(before, tuple):
            self._differ(place, before, now)
            return self._varies.get(place, Dims())
        self._varies.pop(place, None)
        return None if before is None else Dims()

    def _differ(self, place: Place, before: Form, now: Form) -> None:
        """Notes how two tensors at one place differ."""
        if len(before[0]) != len(now[0]):
            self._varies.pop(place, None)
            return
        sizes, strides = self._varies.get(place, Dims())
        self._varies[place] = Dims(
            sizes | _mask(a != b for a, b in zip(before[0], now[0], strict=True)),
            strides | _mask(a != b for a, b in zip(before[1], now[1], strict=True)),
        )


def _add(found: dict[int, Dims], v: Any, dims: Dims) -> None:
    """Adds what can be followed of a tensor that varies."""
    dims = Dims(dims.sizes & _mask(n >= _SMALLEST for n in v.shape), dims.strides)
    if any(dims):
        before = found.get(id(v), Dims())
        found[id(v)] = Dims(dims.sizes | before.sizes, dims.strides | before.strides)


def _row(place: Place) -> Place:
    """What is the same of the places of a row's tensors, such as the caches of all layers."""
    first, *keys = place
    if isinstance(first, str):
        first = _INDEX.sub("[]", first)
    return first, *(None if type(k) is int else k for k in keys)


def _form(v: Any) -> Form:
    return tuple(v.shape), v.stride()


def _mask(bits: Iterable[bool]) -> int:
    return sum(bit << i for i, bit in enumerate(bits))


def _may_be_in_tuple(v: Any) -> bool:
    t = type(v)  # whose own class may say what it is equal to
    return t is int or t is float or t is bool


def _may_be_input(v: Any) -> bool:
    """Whether an argument is a number or text; a number may be one of numpy's, of 0 dimensions."""
    return type(v) in PLAIN or type(v) in NUMPY_NUMBERS


def _is_another(before: Any, now: Any) -> bool:
    """Whether a number or text is another one of its kind: a sum begins with an integer 0."""
    kinds = {type(before), type(now)}
    return (len(kinds) == 1 or all(map(is_number, kinds))) and bool(before != now)


def is_number(cls: type) -> bool:
    """Whether it is a class of numbers of which one may stand where another did."""
    return cls in (int, float) or cls in NUMPY_NUMBERS


def number_at(holder: Any, key: Any) -> Any:
    """The number or text at a key of a dict, list or deque, in a cell, class or slot, or None."""
    if isinstance(key, Part):
        whole = _item_at(holder, key.key)
        v = whole[key.at] if type(whole) in TUPLES and key.at < len(whole) else None
    elif type(holder) is types.CellType and key is None:
        try:
            v = holder.cell_contents
        except ValueError:
            return None  # it is empty
    elif isinstance(holder, (dict, list, collections.deque)):
        v = _item_at(holder, key)
    elif isinstance(holder, type):
        v = next((vars(c)[key] for c in holder.__mro__ if key in vars(c)), None)
    else:
        slot = getattr(type(holder), key, None) if isinstance(key, str) else None
        if type(slot) is not types.MemberDescriptorType:
            return None
        try:
            v = slot.__get__(holder)
        except AttributeError:
            return None  # it is empty
    return v if type(v) in PLAIN else None


def _item_at(holder: Any, key: Any) -> Any:
    """What a dict, list or deque has at a key, or None."""
    if isinstance(holder, dict):
        return dict.get(holder, key)
    if not isinstance(holder, (list, collections.deque)) or type(key) is not int:
        return None
    base: Any = list if isinstance(holder, list) else collections.deque
    n = base.__len__(holder)
    return base.__getitem__(holder, key) if -n <= key < n else None


def _has_symbols(v: Any) -> bool:
    """Whether the sizes of something can be symbols."""
    if type(v) is not torch.Tensor or v.layout is not torch.strided or v.is_nested:
        return False
    return 0 < v.dim() < 64


def _leaves(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Place, Any]]:
    seen: set[int] = set()
    for i, v in (*enumerate(args), *kwargs.items()):
        if _may_be_input(v):
            yield (i,), v
        else:
            yield from _tensors((i,), v, seen)


def _arrays(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """The numpy arrays of numbers among the arguments, each once.

    What they hold is an input in the first call as well: to compare it would take as long as to
    copy it.
    """
    given = (*args, *kwargs.values())
    found = {id(v): v for v in given if type(v) is np.ndarray and v.dtype.kind in _NUMBERS}
    return list(found.values())


def _lists(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Place, list[Any]]]:
    """The lists of numbers in the arguments, and lists of such lists, with their places."""
    todo: list[tuple[Place, Any]] = [((i,), v) for i, v in (*enumerate(args), *kwargs.items())]
    for place, v in todo:
        if type(v) is list and form_of(v):
            yield place, v
        if len(place) <= _DEPTH and len(todo) < _MOST_LOOKED_INTO:
            inner = [] if type(v) is list and not _may_hold_lists(v) else _items(v)
            todo += [((*place, k), x) for k, x in inner if type(k) in (int, str)]


def _may_hold_lists(v: list[Any]) -> bool:
    return 0 < len(v) <= _MOST_LISTS and type(v[0]) not in PLAIN


def _tensors(place: Place, v: Any, seen: set[int]) -> Iterator[tuple[Place, Any]]:
    """The tensors in containers and objects, but for modules, with their places."""
    if type(v) is torch.Tensor:
        if _has_symbols(v):
            yield place, v
    elif len(place) <= _DEPTH and id(v) not in seen and len(seen) < _MOST_LOOKED_INTO:
        items = _items(v)
        if items:
            seen.add(id(v))
        for k, x in items:
            if type(k) in (int, str):
                yield from _tensors((*place, k), x, seen)


def _items(v: Any) -> list[tuple[Any, Any]]:
    t = type(v)
    if t in (tuple, list):
        return list(enumerate(v))
    if t is dict:
        return list(v.items())
    # Its own dict, as far as it is an object of a class written in Python.
    if not t.__flags__ & (1 << 9) or isinstance(v, (type, torch.nn.Module)):
        return []
    return list((_interp.own_dict(v) or {}).items())


__all__ = ["MOST_PARTS", "PLAIN", "Memory", "is_number", "number_at"]
