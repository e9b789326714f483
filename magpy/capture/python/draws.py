"""Draws from Python's and numpy's random generators, redone in order in every call.

Owns how a draw is performed and what its values are in the run: inputs that differ from call to
call, and, where integers choose among plain numbers, the numbers that they choose.  Does not own
which functions draw (magpy/models/callables.py), nor that a generator is put back where an entry is
left (magpy/replay/support.py). Called by magpy/capture/python/c_calls.py.
"""

from __future__ import annotations

import _random
import operator
import random
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from magpy import _interp
from magpy.capture.python.run import Run
from magpy.errors import Refusal
from magpy.ir.ops import Bind, CheckValue, Ref
from magpy.models import callables
from magpy.objects.types import isinstance

ABSENT = _interp.ABSENT
# Among so many elements integers choose that are followed one by one.
_MOST = 64
_NUMBERS = {int, float}


_METHODS_OF_RANDOM = {n: x for c in (_random.Random, random.Random) for n, x in vars(c).items()}


def _draws_otherwise(generator: Any) -> bool:
    """Whether Python of the program's decides what methods of `random.Random` draw."""
    names = {n for n in _METHODS_OF_RANDOM if n[:2] != "__"}
    if not names.isdisjoint(vars(generator)):
        return True
    return any(_interp.type_lookup(type(generator), n) is not _METHODS_OF_RANDOM[n] for n in names)


def draw(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A draw from Python's or numpy's generator: redone in order, its value bound."""
    name = f.__name__
    if args and getattr(type(args[0]), name, None) == f:
        f, args = types.MethodType(f, args[0]), args[1:]  # called with its receiver first
    owner = getattr(f, "__self__", None)
    recorder = run.recorder
    if recorder.whole is not None:
        recorder.whole.unrepeatable = True
    if recorder.depth or run.refusals.first is not None:
        return ABSENT
    if owner is None or isinstance(owner, type) or not _outside_generator(run, owner):
        run.refuse(f"{callables.name_of(f)} draws from a generator that the call made")
        return ABSENT
    if (
        isinstance(f, types.MethodType)
        and isinstance(owner, random.Random)
        and _draws_otherwise(owner)
    ):
        run.refuse(
            f"{callables.name_of(f)} draws from a generator with methods of the program's own",
            "Call its own methods directly",
        )
        return ABSENT
    if name in _CHOOSE and isinstance(owner, random.Random) and not kwargs:
        found = _CHOOSE[name](run, owner, *args)
        if found is not ABSENT:
            return found
    if name in ("shuffle", "seed", "setstate", "set_state", "getstate", "get_state"):
        run.refuse(f"{callables.name_of(f)} is called")
        return ABSENT
    for a in (*args, *kwargs.values()):
        run.session.touch(a)
    try:
        converted = recorder.convert_all(args), recorder.convert_all(kwargs)
    except Refusal as r:
        run.refusals.keep(r)
        return ABSENT
    result = run.tracked.sure(lambda f, a, k: f(*a, **k), f, args, kwargs)
    try:
        return recorder.track(f, converted[0], converted[1], result, owner)
    except Refusal as r:
        run.refusals.keep(r)
        return result


def order_drawn(owner: Any, n: int) -> list[int]:
    """The order into which a generator shuffles `n` elements."""
    order = list(range(n))
    owner.shuffle(order)
    return order


def _choice(run: Run, owner: Any, *args: Any) -> Any:
    """One of the elements of a sequence."""
    if len(args) != 1 or not len(args[0]):
        return ABSENT
    elements, recorder = args[0], run.recorder
    draw = owner._randbelow
    n = len(elements)
    if not _are_numbers(run, elements):
        run.session.touch(elements)
        i = draw(n)
        recorder.note(draw, (n,), {}, CheckValue, i, owner=owner)
        return elements[i]
    run.session.touch(elements)
    return _chosen(run, elements, recorder.track(draw, (n,), {}, draw(n), owner))


def _sample(run: Run, owner: Any, *args: Any) -> Any:
    """Some of the elements of a sequence, each at most once."""
    if len(args) != 2 or type(args[1]) is not int or not _are_numbers(run, args[0]):
        return ABSENT
    elements, k = args
    if not 0 < k <= len(elements) or run.session.tracked(k) is not None:
        return ABSENT
    run.session.touch(elements)
    draw, places = owner.sample, range(len(elements))
    return _all_chosen(run, elements, draw, (places, k), draw(places, k), owner)


def _shuffle(run: Run, owner: Any, *args: Any) -> Any:
    """A list of numbers is put into another order."""
    if len(args) != 1 or type(args[0]) is not list:
        return ABSENT
    elements = args[0]
    if not _are_numbers(run, elements):
        if len(elements) > 1:
            return ABSENT
        run.session.touch(elements)
    if len(elements) < 2:
        return None  # nothing is drawn
    if run.session.is_outside(elements):
        run.session.touch(elements)  # it keeps what there was
    draw = types.MethodType(order_drawn, owner)
    n = len(elements)
    elements[:] = _all_chosen(run, list(elements), draw, (n,), draw(n), owner)
    return None


def _are_numbers(run: Run, elements: Any) -> bool:
    """Whether a sequence holds a few plain numbers, which are the same in other calls."""
    if type(elements) not in (list, tuple, range) or not 0 < len(elements) <= _MOST:
        return False
    tracked = run.session.tracked
    return {*map(type, elements)} <= _NUMBERS and all(tracked(v) is None for v in elements)


def _all_chosen(
    run: Run, elements: Any, draw: Any, args: tuple[Any, ...], drawn: list[int], owner: Any
) -> list[Any]:
    """The numbers that the integers choose that a generator gives in a list."""
    recorder = run.recorder
    var = recorder.tensors.new()
    recorder.note(draw, args, {}, Bind, list, result=var, owner=owner)
    return [
        _chosen(run, elements, recorder.track(operator.getitem, (Ref(var), i), {}, at))
        for i, at in enumerate(drawn)
    ]


def _chosen(run: Run, elements: Sequence[Any], at: int) -> Any:
    """The number at a place that was drawn."""
    values = tuple(elements)
    if values == tuple(range(len(values))) and {*map(type, values)} == {int}:
        return at
    return run.tracked.derive(operator.getitem, (values, at), {}, values[at])


_CHOOSE = {"choice": _choice, "sample": _sample, "shuffle": _shuffle}


def _outside_generator(run: Run, owner: Any) -> bool:
    return (
        run.session.is_outside(owner)
        or owner is getattr(random.random, "__self__", None)
        or _is_numpy_global(owner)
    )


def _is_numpy_global(owner: Any) -> bool:
    return owner is np.random.mtrand._rand


__all__ = ["draw", "order_drawn"]
