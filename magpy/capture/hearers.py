"""Which Python of a program runs unwatched below a step of an entry: hooks, and what hears effects.

Owns the walk from a call that is made for its effect to the Python functions that run below it (the
methods of a stream, of the handlers, filters and formatters of a logger, what shows warnings, how
an object becomes text), and from tensors to their hooks.  Does not own what these can reach
(magpy/capture/within_reach.py), nor what they change in the call that is captured
(magpy/capture/below.py).  Called by magpy/capture/effect_calls.py and magpy/capture/recorder.py,
and by guards (magpy/refgraph), which ask again: a stream that is put in place later may change what
an entry has looked at already.  Nothing of the program runs here: no property, no `__getattr__`.
"""

from __future__ import annotations

import collections
import functools
import io
import itertools
import logging
import sys
import types
import warnings
from dataclasses import dataclass, field
from typing import Any

from magpy import _interp
from magpy.capture import attribution, below, engine
from magpy.capture.within_reach import TEXTS, elements
from magpy.kinds import isinstance


@dataclass(slots=True)
class Heard:
    """Python that runs unwatched.

    Attributes:
        codes: what tells one function from another: its code object (a function may be made anew
            in each call), or the type or the name of what is no function.
        functions: the functions.
        given: objects that they are given, or are methods of.
    """

    codes: list[Any] = field(default_factory=list)
    functions: list[types.FunctionType] = field(default_factory=list)
    given: list[Any] = field(default_factory=list)

    def add(self, v: Any, deep: int = 6) -> None:
        """Adds what a callable comes to, if that is Python of the program."""
        if isinstance(v, (types.MethodType, types.BuiltinFunctionType)):
            # C code changes at most what it is a method of.
            bound = v.__self__
            if bound is not None and not isinstance(bound, (types.ModuleType, type)):
                self.given.append(bound)
                self.codes += [v.__name__] if isinstance(v, types.BuiltinFunctionType) else []
        if not deep or isinstance(v, (types.BuiltinFunctionType, type)):
            return
        if isinstance(v, functools.partial):
            self.given += [*v.args, *v.keywords.values()]
            self.add(v.func, deep - 1)
        elif isinstance(v, (types.MethodType, staticmethod, classmethod)):
            self.add(v.__func__, deep - 1)
        elif isinstance(v, property):
            self.add(v.fget, deep - 1)
        elif isinstance(v, types.FunctionType):
            if not below.foreign(v):
                self.codes.append(v.__code__)
                self.functions.append(v)
            else:  # a wrapper of torch's or of Python's
                for cell in v.__closure__ or ():
                    if cell != types.CellType() and callable(cell.cell_contents):
                        self.add(cell.cell_contents, deep - 1)
        else:
            call = _interp.type_lookup(type(v), "__call__")
            if isinstance(call, types.FunctionType) and not below.foreign(call):
                self.codes.append(type(v))
                self.given.append(v)
                self.add(call, deep - 1)

    def text(self, shown: Any) -> None:
        """Adds how an object, and what a container holds, becomes text."""
        todo = collections.deque([shown])
        for _ in range(_SHOWN):
            if not todo:
                break
            v = todo.popleft()
            if isinstance(v, below.LEAVES):
                continue
            before = len(self.codes)
            for name in TEXTS:
                self.add(_interp.type_lookup(type(v), name))
            if len(self.codes) > before:
                self.given.append(v)
            todo += itertools.islice(elements(v), _SHOWN)

    def methods(self, obj: Any) -> None:
        """Adds the methods that a program's classes, or a program, have given an object."""
        before = len(self.codes)
        for c in obj.__mro__ if isinstance(obj, type) else type(obj).__mro__:
            for v in tuple(vars(c).values()):
                if isinstance(v, _METHODS):
                    self.add(v)
        for v in _own(obj).values():
            if callable(v) and not isinstance(v, type):
                self.add(v)
        if len(self.codes) > before:
            self.given.append(obj)

    def stream(self, stream: Any, deep: int = 4) -> None:
        """Adds the methods of a stream, and of those that it writes to."""
        self.given.append(stream)
        self.methods(stream)
        inner = _own(stream).get("stream")  # as those of `codecs` have
        for cls, name in ((io.TextIOWrapper, "buffer"), (io.BufferedWriter, "raw")):
            if isinstance(stream, cls):
                try:
                    inner = getattr(cls, name).__get__(stream)
                except ValueError:  # it is detached
                    inner = None
        if inner is not None and deep:
            self.stream(inner, deep - 1)

    def logger(self, logger: logging.Logger) -> None:
        """Adds what hears of a logger."""
        self.add(logging.getLogRecordFactory())
        at: Any = logger
        handled = False
        while isinstance(at, logging.Logger):
            own = _own(at)
            self.methods(at)
            self._filters(own)
            for handler in own.get("handlers", ()):
                handled = True
                self._handler(handler)
            at = own.get("parent") if own.get("propagate") else None
        if not handled and logging.lastResort is not None:
            self._handler(logging.lastResort)

    def _handler(self, handler: Any, deep: int = 4) -> None:
        own = _own(handler)
        self.methods(handler)
        self._filters(own)
        if isinstance(handler, type(logging.lastResort)):
            self.stream(sys.stderr)
        for name, v in own.items():
            if isinstance(v, logging.Handler) and deep:  # its target
                self._handler(v, deep - 1)
            elif isinstance(v, logging.Formatter):
                self.methods(v)
            elif name == "stream":
                self.stream(v)

    def _filters(self, own: dict[str, Any]) -> None:
        for f in own.get("filters", ()):
            if not isinstance(f, types.FunctionType):
                self.methods(f)
            self.add(f)


_METHODS = (types.FunctionType, staticmethod, classmethod, property, types.BuiltinFunctionType)
_SHOWN = 200  # objects that are looked at


def _own(obj: Any) -> dict[str, Any]:
    try:
        own = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return {}
    return own if type(own) is dict else {}


def hooks(*ends: Any) -> Heard:
    """The Python functions that run where a pass of autograd's engine comes to tensors."""
    heard = Heard()
    for end in ends:
        heard.codes.append(None)  # of which tensor they are, is told apart
        for hook in engine.functions_at(end):
            heard.add(hook)
    return heard


def hearers(f: Any, target: Any, *given: Any) -> Heard:
    """The Python functions that a call for its effect runs, and what they get.

    Args:
        f: what is called.
        target: the stream that it is given or the logger that it belongs to, or None; or the class
            of one that the call makes.
        given: objects among its arguments, which it may make texts of.
    """
    heard = Heard()
    for v in given:
        heard.text(v)
    if f is print:
        heard.stream(sys.stdout if target is None else target)
    elif attribution.is_warning(f):
        show = warnings._showwarnmsg_impl  # type: ignore[attr-defined]
        for v in (warnings.showwarning, warnings.formatwarning, show):
            heard.add(v)
        heard.stream(sys.stderr)
    elif isinstance(target, logging.Logger):
        heard.logger(target)
    else:
        heard.add(f)
        heard.given += [] if target is None else [target]
    return heard


def containers(heard: Heard) -> list[Any]:
    """Containers whose methods of C are called where a stream or `warnings` has a function."""
    return [
        v for v in heard.given if isinstance(v, (list, set, dict, bytearray, collections.deque))
    ]


__all__ = ["Heard", "containers", "hearers", "hooks"]
