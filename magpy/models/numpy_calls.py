"""What a function of numpy does to the arrays that it is given.

Owns finding out whether a call writes to one, without knowing numpy's functions by name.  Does not
own which arrays differ from call to call, nor how a call is done again
(magpy/capture/python/arrays.py and tracked.py, the users).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from magpy.objects.buffers import is_writeable
from magpy.objects.types import isinstance


class Writes(Exception):
    """The call has not been made: it would write to an array."""


#: How deep containers are of which a call can be done again.
DEPTH = 32


def arrays_in(v: Any) -> list[Any]:
    """The arrays in an argument tree."""
    return [x for x in _inside(v) if isinstance(x, np.ndarray)]


def holds_objects(v: Any) -> bool:
    """Whether numpy computes with Python objects, which run code of their own."""
    found = (x for x in _inside(v) if isinstance(x, (np.ndarray, np.generic)))
    return any(x.dtype.hasobject for x in found)


def _inside(v: Any) -> Iterator[Any]:
    """What an argument tree holds; the program's containers may hold themselves."""
    seen: set[int] = set()
    todo = [v]
    while todo:
        x = todo.pop()
        if type(x) not in (tuple, list, dict):
            yield x
        elif id(x) not in seen:
            seen.add(id(x))
            todo.extend(x.values() if type(x) is dict else x)


def unbound(
    f: Callable[..., Any], args: tuple[Any, ...]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A method of an array, as a function that takes the array first."""
    owner = getattr(f, "__self__", None)
    if isinstance(owner, np.ndarray):
        return getattr(type(owner), f.__name__), (owner, *args)
    return f, args


def call_without_writing(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    call: Callable[..., Any],
) -> Any:
    """What the call gives, made by `call(f, args, kwargs)`.

    Its arrays are given as views that cannot be written to: numpy looks at that before it computes.

    Raises:
        Writes: it writes to an array, or raises.
    """
    f, args = unbound(f, args)
    if not arrays_in((args, kwargs)):
        return call(f, args, kwargs)
    if isinstance(getattr(f, "__self__", None), np.ufunc) and f.__name__ == "at":
        raise Writes  # it writes to what cannot be written to
    with contextlib.suppress(Exception):  # this one is raised again below
        result = call(f, _read_only(args), _read_only(kwargs))
        if result is None:
            raise Writes  # if only to what an array is
        if not holds_objects(result) and all(map(is_writeable, arrays_in(result))):
            return result
        # One of the arrays, a view of one, or what holds them: it must be the program's own.
        return call(f, args, kwargs)
    raise Writes


def _read_only(v: Any) -> Any:
    if isinstance(v, np.ndarray):
        view = v.view()
        view.flags.writeable = False
        return view
    if type(v) in (tuple, list):
        return type(v)(map(_read_only, v))
    if type(v) is dict:
        return {k: _read_only(x) for k, x in v.items()}
    return v


__all__ = ["Writes", "arrays_in", "call_without_writing", "holds_objects", "unbound"]
