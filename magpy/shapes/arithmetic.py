"""Arithmetic of numbers that may be symbols: what is computed with them as with plain numbers.

Owns which functions of numbers torch computes with symbols, where that gives what floats give, and
what is asked of a symbol.  Does not own which symbols there are nor their conditions
(magpy/shapes/symbols.py).  Called by that, and by whoever meets a number that may be a symbol.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
from collections.abc import Iterable
from typing import Any

import torch

from magpy.objects.types import isinstance


def total(values: Iterable[Any]) -> Any:
    """The sum of numbers, which may be symbols."""
    return functools.reduce(operator.add, values, 0)


def largest(*values: Any) -> Any:
    """The largest of numbers, given one by one or in a list, which may be symbols."""
    return functools.reduce(torch.sym_max, values[0] if len(values) == 1 else values)


def smallest(*values: Any) -> Any:
    """The smallest of numbers, given one by one or in a list, which may be symbols."""
    return functools.reduce(torch.sym_min, values[0] if len(values) == 1 else values)


def product(values: Iterable[Any]) -> Any:
    """The product of numbers, which may be symbols."""
    return functools.reduce(operator.mul, values, 1)


# What computes with symbols as with numbers; some builtins would ask for the plain value.
_SYMBOLIC: dict[Any, Any] = {
    f: f
    for f in (
        *(
            getattr(operator, name)
            for name in [
                "add",
                "sub",
                "mul",
                "truediv",
                "floordiv",
                "mod",
                "neg",
                "pos",
                "pow",
                "iadd",
                "isub",
                "imul",
                "itruediv",
                "ifloordiv",
                "imod",
                "ipow",
                "eq",
                "ne",
                "lt",
                "le",
                "gt",
                "ge",
            ]
        ),
        abs,
        bool,
        math.floor,
        math.ceil,
    )
} | {
    builtins.float: torch.sym_float,
    builtins.int: torch.sym_int,
    builtins.max: largest,
    builtins.min: smallest,
    builtins.sum: total,
    math.prod: product,
}
_POWERS = (operator.pow, operator.ipow)
_FOLDS = (builtins.sum, math.prod)
_CHOICES = (builtins.max, builtins.min)
_DIVISIONS = tuple(
    getattr(operator, name)
    for name in ["truediv", "floordiv", "mod", "itruediv", "ifloordiv", "imod"]
)
_COMPARISONS = tuple(getattr(operator, n) for n in ["eq", "ne", "lt", "le", "gt", "ge"])
_SUMS = tuple(
    getattr(operator, n) for n in ["add", "sub", "mul", "iadd", "isub", "imul", "neg", "pos"]
)
_MOST_BITS = 8  # of factors: a few of them and a size have a product that a float holds


def has_form(func: Any) -> bool:
    """Whether a function of numbers can be followed, for some numbers."""
    try:
        return func in _SYMBOLIC
    except TypeError:
        return False


def computed(func: Any, values: list[Any]) -> Any:
    """What a function that has a form gives for numbers and symbols, and lists of these.

    Returns:
        A symbol or a plain value that follows; None if it cannot be followed.
    """
    if func in _POWERS and isinstance(values[-1], _SYMBOLS):
        return None
    if func in _CHOICES:
        choices = values[0] if isinstance(values[0], list) else values
        if any(type(hint(v)) is not int for v in choices):
            return None
    if func in _FOLDS and (len(values) > 1 or not isinstance(values[0], (tuple, list))):
        return None
    try:
        if func in _DIVISIONS and values[-1] == 0:
            return None
        if not _exact(func, values):
            return None
        result = _SYMBOLIC[func](*values)
        if isinstance(result, torch.SymFloat) and result.node.expr.is_number:
            return None  # the sign of a zero may not be so
        return bool(result) if isinstance(result, torch.SymBool) else result
    except Exception:  # noqa: BLE001 - torch cannot do this with symbols: the caller fixes them
        return None


def _exact(func: Any, values: list[Any]) -> bool:
    """Whether floats give what the symbols' real numbers give, whatever the symbols are.

    torch computes with reals: `n * 0.1 * 3` is `n * 0.3` there, and `n * 0.0` is 0, of whatever
    sign `n` is. So only what a float holds exactly is followed: integers, and those times or plus
    a small number of halves.
    """
    given = [v for v in values if isinstance(v, (float, torch.SymFloat))]
    if func in (operator.truediv, operator.itruediv):
        return _of_integers(values[0]) and _is_small(values[1]) and _is_power(values[1])
    if not given or func in (abs, bool, *_COMPARISONS):
        return True
    if func in _SUMS:
        return all(_of_integers(v) and (type(v) is not float or _is_small(v)) for v in values)
    if func in (math.floor, math.ceil):
        return _of_integers(values[0])
    # What is below zero it rounds up.
    return func is builtins.int and _of_integers(values[0]) and bool(values[0] >= 0)


def _of_integers(v: Any) -> bool:
    """Whether no symbol in it stands for a float."""
    return not isinstance(v, _SYMBOLS) or all(s.is_integer for s in v.node.expr.free_symbols)


def _is_small(v: Any) -> bool:
    if type(v) not in (int, float) or v == 0 or not math.isfinite(v):
        return False
    return all(abs(part).bit_length() <= _MOST_BITS for part in float(v).as_integer_ratio())


def _is_power(v: Any) -> bool:
    up, down = abs(float(v)).as_integer_ratio()
    return up & (up - 1) == 0 and down & (down - 1) == 0


_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def plain(v: Any) -> Any:
    """The value that a symbol has in this run, on which the run relies from here on."""
    if isinstance(v, torch.SymInt):
        return v.node.guard_int("", 0)
    if isinstance(v, torch.SymFloat):
        return v.node.guard_float("", 0)
    return bool(v) if isinstance(v, torch.SymBool) else v


def is_open(v: Any) -> bool:
    """Whether something is a symbol that may still have several values."""
    return isinstance(v, _SYMBOLS) and not v.node.expr.is_number


def symbolic_form(func: Any) -> Any:
    """The function that a graph calls for a function of numbers."""
    return _SYMBOLIC.get(func, func)


def hint(v: Any) -> Any:
    """The value that a symbol has in this run, without relying on it."""
    return v.node.hint if isinstance(v, _SYMBOLS) else v


__all__ = ["computed", "has_form", "hint", "is_open", "plain", "symbolic_form"]
