"""Arithmetic of numpy's that fails, of which numpy warns ("divide by zero encountered in log").

Owns which functions may have to warn, and how a step that numpy does leaves its entry where it
would: the call that then runs eagerly warns.  Does not own which steps numpy does.  Called by
magpy/capture/python/arithmetic.py and magpy/replay/codegen.py.

What numpy does then is chosen for each kind of failure (`numpy.seterr`).  Where it would warn, it
raises instead.  Other choices are left alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from magpy import _interp


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def strict(func: Callable[..., Any]) -> Callable[..., Any]:
    """A function that gives what `func` gives, or ABSENT where numpy would warn."""

    def call(*args: Any, **kwargs: Any) -> Any:
        raised = {kind: "raise" for kind, choice in np.geterr().items() if choice == "warn"}
        try:
            with np.errstate(**raised):  # type: ignore[arg-type]
                return func(*args, **kwargs)
        except FloatingPointError:
            return _interp.ABSENT

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


__all__ = ["calls_back", "computes", "strict"]
