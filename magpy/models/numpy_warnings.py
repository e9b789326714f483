"""What numpy warns of where floating-point arithmetic fails ("divide by zero encountered in log").

Owns how a step that numpy does keeps such warnings to itself, so that an entry can be left for an
eager call, which warns, or show them in their order among its effects.  Does not own which steps
numpy does (magpy/capture/python/arithmetic.py), nor how a warning is redone
(magpy/capture/python/effects.py). Called by both, and by the code that they lead to.

What numpy does then is chosen for each kind of failure (`numpy.seterr`).  Where it would warn, it
writes to a log instead, which is given the same text.  Other choices are left alone.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from magpy.frames.call_sites import REGISTRY, Site, is_ignored, site_of

_KINDS = "divide by zero", "overflow", "underflow", "invalid value"
_ENCOUNTERED = " encountered in "


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: A text, and the line that it is attributed to: the innermost one, which may be numpy's own.
Told = tuple[str, Site]


class _Log:
    """What numpy writes to (`numpy.seterrcall`)."""

    __slots__ = ("told",)

    def __init__(self, told: list[Told]) -> None:
        self.told = told

    def write(self, text: str) -> None:
        """Takes a line "Warning: ... encountered in ...", written instead of a warning."""
        text = text.removeprefix("Warning: ").rstrip("\n")
        self.told.append((text, site_of(sys._getframe(1))))


def telling(func: Callable[..., Any]) -> Callable[..., Any]:
    """A function `call(told, ...)`: `func(...)`, which adds to a list what it would warn of."""

    def call(told: list[Told], *args: Any, **kwargs: Any) -> Any:
        choices = np.geterr()
        logged = {kind: "log" for kind, choice in choices.items() if choice == "warn"}
        if not logged or calls_back():
            return func(*args, **kwargs)
        with np.errstate(call=_Log(told), **logged):  # type: ignore[arg-type]
            return func(*args, **kwargs)

    return functools.update_wrapper(call, func, ("__name__",), ())


def calls_back() -> bool:
    """Whether numpy calls the program where arithmetic fails, or prints at once."""
    return not {"call", "log", "print"}.isdisjoint(np.geterr().values())


#: What moves elements, looks at them or passes them on, and does no arithmetic that could fail.
_MOVES = _names(
    """
    getattr getitem delitem is_ is_not bool int float str repr len list tuple iter hash isinstance
    format format_value identity item tolist reshape view transpose ravel flatten squeeze swapaxes
    copy tobytes setflags byteswap repeat take diagonal nonzero argmax argmin argsort sort all any
    searchsorted resize choose compress partition argpartition newbyteorder dump dumps __copy__
    __deepcopy__ __len__ __contains__ __iter__ contains shape ndim size atleast_1d atleast_2d
    broadcast_to expand_dims moveaxis where isnan isinf isfinite array_equal frombuffer zeros_like
    ones_like empty_like eq ne
    """
)


def computes(f: Callable[..., Any]) -> bool:
    """Whether numpy may have to warn of arithmetic in a call of this function."""
    return getattr(f, "__name__", "") not in _MOVES


def is_silent(told: list[Told]) -> bool:
    """Whether a step has nothing to warn of."""
    return not told


def show(told: list[Told]) -> None:
    """Shows what a step has to warn of, as numpy does."""
    for text, (filename, line, _, names) in told:
        module = names.get("__name__") or "<unknown>"
        registry = names.setdefault(REGISTRY, {})
        warnings.warn_explicit(text, RuntimeWarning, filename, line, module, registry)


def may_be_unseen(site: Site) -> bool:
    """Whether a line may have such warnings that are not shown now, or not again."""
    line = site[1]
    # What numpy's own Python computes warns from there (`np.var`).
    own = vars(sys.modules.get("numpy._core._methods", sys)).get(REGISTRY, ())
    if any(map(_of_arithmetic, [*own, *getattr(warnings, "onceregistry", ())])):
        return True
    if any(_of_arithmetic(key) and key[2] in (0, line) for key in site[3].get(REGISTRY, ())):
        return True
    return _some("ignore")


def may_be_errors() -> bool:
    """Whether the filters make errors of some such warnings, which the program may catch."""
    return _some("error") or warnings.defaultaction == "error"  # type: ignore[attr-defined]


def _some(wanted: str) -> bool:
    found = ((action, category) for action, _, category, _, _ in warnings.filters)
    return any(action == wanted and issubclass(RuntimeWarning, c) for action, c in found)


def _of_arithmetic(key: Any) -> bool:
    return type(key) is tuple and isinstance(key[0], str) and _ENCOUNTERED in key[0]


def hidden(site: Site) -> bool:
    """Whether the filters say now that all such warnings are ignored."""
    return all(is_ignored(f"{kind}{_ENCOUNTERED}", RuntimeWarning, site) for kind in _KINDS)


__all__ = [
    "calls_back",
    "computes",
    "hidden",
    "is_silent",
    "may_be_errors",
    "may_be_unseen",
    "show",
    "telling",
]
