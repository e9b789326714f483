"""What numpy warns of where floating-point arithmetic fails ("divide by zero encountered in log").

Owns how a step that numpy does keeps such warnings to itself, so that an entry can be left for an
eager call, which warns, or show them in their order among its effects.  Does not own which steps
numpy does (magpy/capture/handler.py), nor how a warning is redone (magpy/capture/effect_calls.py).
Called by both, and by the code that they lead to.

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

from magpy.capture.attribution import REGISTRY, Site, is_ignored, site_of

_KINDS = "divide by zero", "overflow", "underflow", "invalid value"
_ENCOUNTERED = " encountered in "


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
    """Whether numpy calls the program where arithmetic fails."""
    return not {"call", "log"}.isdisjoint(np.geterr().values())


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
    shown = [*site[3].get(REGISTRY, ()), *getattr(warnings, "onceregistry", ())]
    return hidden(site) or any(
        type(key) is tuple
        and isinstance(key[0], str)
        and _ENCOUNTERED in key[0]
        and (len(key) < 3 or key[2] in (0, line))
        for key in shown
    )


def hidden(site: Site) -> bool:
    """Whether the filters say now that such warnings are ignored."""
    return any(is_ignored(f"{kind}{_ENCOUNTERED}", RuntimeWarning, site) for kind in _KINDS)


__all__ = ["calls_back", "hidden", "is_silent", "may_be_unseen", "show", "telling"]
