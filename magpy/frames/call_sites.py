"""Where a call with an effect says it comes from: the frame that warnings and logging look for.

Owns the rules by which `warnings.warn` finds its frame (CPython, Python/_warnings.c).  Does not own
how a frame is imitated when the effect is redone (magpy/replay/support.py).  Called by the session.
"""

from __future__ import annotations

import sys
import types
import warnings
from typing import Any

import torch

from magpy import _interp
from magpy.errors import Refusal
from magpy.frames.locations import is_own
from magpy.objects.types import isinstance

Site = tuple[str, int, str, dict[str, Any]]

_ASKS = torch.overrides.handle_torch_function.__code__
_NOWHERE: Site = ("<magpy>", 1, "<module>", {})

#: The global in which the interpreter notes which warnings a module has issued.
REGISTRY = "__warningregistry__"


def program_frame(frame: types.FrameType | None = None) -> types.FrameType | None:
    """The innermost frame that is not magpy's, from `frame` or the caller's caller on."""
    f = sys._getframe(1) if frame is None else frame
    while f is not None and is_own(f):
        f = f.f_back  # type: ignore[assignment]
    return f


def site_of(frame: types.FrameType) -> Site:
    """(file, line, function name, globals) of a frame."""
    return frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name, frame.f_globals


def place_of(func: Any) -> Site:
    """Where the program calls an operation, of which a mode (the caller's caller) hears.

    Functions of torch's that are written in Python ask for that themselves, in their own frame:
    `torch.overrides.handle_torch_function`.
    """
    f = program_frame(sys._getframe(2))
    if f is not None and f.f_code is _ASKS:
        f = f.f_back
        if f is not None and f.f_code is getattr(func, "__code__", None):
            f = f.f_back
    return site_of(f) if f is not None else _NOWHERE


def _internal(f: types.FrameType | None) -> bool:
    name = f.f_code.co_filename if f is not None else ""
    return "importlib" in name and "_bootstrap" in name


def _external(f: types.FrameType | None) -> types.FrameType | None:
    f = f.f_back if f is not None else None
    while _internal(f):
        f = f.f_back if f is not None else None
    return f


def of_warning(frame: types.FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The message of a call of `warnings.warn` in `frame`.

    Raises:
        Refusal: it is attributed to a frame outside of the watched run, or one that is sought in a
            way that is not known here.
    """
    names = ("message", "category", "stacklevel", "source")
    given = dict(zip(names, args, strict=False)) | kwargs
    level = given.get("stacklevel", 1)
    if not isinstance(level, int) or given.get("skip_file_prefixes") or len(args) > len(names):
        raise Refusal("warnings.warn is called with a choice of frames")
    f: types.FrameType | None = frame
    plain = level <= 0 or _internal(frame)
    for _ in range(level - 1):
        f = (f.f_back if f is not None else None) if plain else _external(f)
        if f is None or _interp.is_caller(f):
            raise Refusal("warnings.warn is called in the name of a caller of the compiled call")
    return given.get("message")


def is_warning(f: Any) -> bool:
    """Whether a function is `warnings.warn`."""
    return f is warnings.warn


# What decides whether and how a warning is shown.
WARNING_STATE = (
    "filters",
    "showwarning",
    "_showwarnmsg",
    "_showwarnmsg_impl",
    "formatwarning",
    "defaultaction",
)


def errors(filters: Any = None) -> tuple[Any, ...]:
    """Which warnings filters, by default those that there are now, make errors of."""
    found = [
        (_pattern(text), str(cls), _pattern(place), line)
        for action, text, cls, place, line in (warnings.filters if filters is None else filters)
        if action == "error"
    ]
    return *found, warnings.defaultaction == "error"  # type: ignore[attr-defined]


def _pattern(expression: Any) -> Any:
    return getattr(expression, "pattern", expression)
