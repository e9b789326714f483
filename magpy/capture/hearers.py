"""Which Python of a program runs unwatched below a step of an entry: hooks, and what hears effects.

Owns the walk from a call that is made for its effect to the Python functions that run below it (the
`write` of a stream, the handlers, filters and formatters of a logger, what shows warnings), and
from tensors to their hooks.  Does not own what these can reach, nor what they change in the call
that is captured (magpy/capture/below.py), nor how the call is redone.  Called by
magpy/capture/effect_calls.py and magpy/capture/recorder.py, and by guards (magpy/refgraph), which
ask again: a stream that is put in place later may change what an entry has looked at already.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import types
import warnings
from typing import Any

from magpy.capture import attribution, below, engine

_OF_LOGGERS = ("isEnabledFor", "_log", "makeRecord", "handle", "filter", "callHandlers")
_OF_HANDLERS = ("handle", "emit", "format", "filter", "acquire", "release", "flush")
_OF_C = (
    *(types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType),
    *(types.MethodWrapperType, types.GetSetDescriptorType, types.MemberDescriptorType),
)
_OF_FORMATTERS = ("format", "formatMessage", "formatTime", "usesTime")


# Functions, and what they are given or are methods of.
Found = tuple[tuple[Any, ...], tuple[Any, ...]]


def hooks(*ends: Any) -> Found:
    """The Python functions that run where a pass of autograd's engine comes to tensors."""
    functions: list[Any] = []
    for end in ends:
        functions += [None, *engine.functions_at(end)]
    plain = [v.__func__ if isinstance(v, types.MethodType) else v for v in functions]
    return tuple(plain), tuple(v.__self__ for v in functions if isinstance(v, types.MethodType))


def hearers(f: Any, target: Any, *given: Any) -> Found:
    """The Python functions, but Python's own, that a call for its effect runs, and what they get.

    Args:
        f: what is called.
        target: the stream that it is given or the logger that it belongs to, or None.
        given: objects among its arguments, which it may make texts of.
    """
    found = _Found()
    for v in given:
        found.methods(v, ("__str__", "__repr__", "__format__"))
    if f is print:
        found.stream(sys.stdout if target is None else target)
    elif attribution.is_warning(f):
        show = warnings._showwarnmsg_impl  # type: ignore[attr-defined]
        found.add(None, [warnings.showwarning, warnings.formatwarning, show])
        found.stream(sys.stderr)
    elif isinstance(target, logging.Logger):
        found.logger(target)
    else:
        found.add(target, [f])
    return tuple(found.functions), tuple(found.given)


class _Found:
    def __init__(self) -> None:
        self.functions: list[Any] = []
        self.given: list[Any] = []

    def add(self, owner: Any, found: list[Any]) -> None:
        """Adds those of what is called that are of the program, and what they are bound to."""
        before = len(self.functions)
        for v in found:
            bound = v.__self__ if isinstance(v, _BOUND) else None
            of_c = isinstance(v, types.BuiltinFunctionType)
            if isinstance(v, (types.MethodType, staticmethod, classmethod)):
                v = v.__func__
            if v is not None and not isinstance(v, _OF_C) and not _foreign(v):
                self.functions.append(v)
            elif not of_c:
                continue
            # C code changes at most what it is a method of.
            if bound is not None and not isinstance(bound, (types.ModuleType, type)):
                self.given.append(bound)
        if owner is not None and len(self.functions) > before:
            self.given.append(owner)

    def methods(self, obj: Any, names: tuple[str, ...]) -> None:
        """Adds methods of an object; none of the program's is run to find them."""
        found: list[Any] = []
        for name in names:
            places: list[Any] = [vars(c) for c in type(obj).__mro__]
            with contextlib.suppress(AttributeError):
                places.insert(0, object.__getattribute__(obj, "__dict__"))
            found.append(next((place[name] for place in places if name in place), None))
        self.add(obj, found)

    def stream(self, stream: Any) -> None:
        self.given.append(stream)
        self.methods(stream, ("write", "flush", "isatty", "__getattribute__", "__getattr__"))

    def logger(self, logger: logging.Logger) -> None:
        self.methods(logger, _OF_LOGGERS)
        self.add(None, [logging.getLogRecordFactory()])
        at: Any = logger
        while at is not None:
            for handler in at.handlers:
                self.methods(handler, _OF_HANDLERS)
                self.methods(handler.formatter, _OF_FORMATTERS)
                self.filters(handler)
                self.stream(getattr(handler, "stream", None))
            self.filters(at)
            at = at.parent if at.propagate else None
        if not logger.hasHandlers():
            self.stream(sys.stderr)

    def filters(self, of: Any) -> None:
        for f in of.filters:
            self.methods(f, ("filter",))
            self.add(None, [f] if callable(f) else [])


_BOUND = (types.MethodType, types.BuiltinFunctionType)


def _foreign(v: Any) -> bool:
    return isinstance(v, (types.FunctionType, type)) and below.foreign(v)
