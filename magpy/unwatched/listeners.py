"""Which Python of a program runs unwatched below a step of an entry: hooks, and what hears effects.

Owns the walk from a call that is made for its effect to the Python functions that run below it (the
methods of a stream, of the handlers, filters and formatters of a logger, what shows warnings, how
an object becomes text), and from tensors to their hooks.  A call below which one of the program's
runs is refused.  Does not own what changes in the call that is captured
(magpy/unwatched/changes.py).  Called by magpy/capture/python/effects.py and
magpy/capture/tensors/engine.py, and by guards (magpy/guards), which ask again: a stream or a hook
may be put in place later.  Nothing of the program runs here: no property, no `__getattr__`.
"""

from __future__ import annotations

import collections
import io
import itertools
import logging
import logging.handlers
import sys
import types
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from magpy import _interp, _tensor
from magpy.frames import call_sites
from magpy.objects import contents
from magpy.objects.types import isinstance
from magpy.unwatched import autograd, changes


@dataclass(slots=True)
class Heard:
    """What a call for its effect, or a pass of autograd's engine, runs.

    Attributes:
        functions: the functions and classes of the program's among it.
        objects: the streams, loggers and handlers that it goes through.
        passes: what decides whether the record of a logger passes.
    """

    functions: list[Any] = field(default_factory=list)
    objects: list[Any] = field(default_factory=list)
    passes: list[str] = field(default_factory=list)

    def add(self, v: Any, deep: int = 6) -> None:
        """Adds what a callable, or a descriptor of a class, comes to, if that is the program's."""
        if isinstance(v, types.FunctionType):
            if not changes.foreign(v):
                self.functions.append(v)
            elif deep and v.__closure__:  # a wrapper of torch's or of Python's
                for cell in v.__closure__:
                    if cell != types.CellType() and callable(cell.cell_contents):
                        self.add(cell.cell_contents, deep - 1)
            return
        if not deep or contents.leaf(v) or isinstance(v, (type, types.ModuleType)):
            return
        if isinstance(v, types.BuiltinFunctionType):
            if isinstance(v.__self__, _STREAMS) and v.__name__ in _OF_STREAMS:
                self.stream(v.__self__, deep - 1)  # a handler's own `flush`, as transformers sets
            elif v.__self__ is not None and not isinstance(v.__self__, (types.ModuleType, type)):
                self.functions.append(v)  # it changes what it is a method of
            return
        call = _interp.type_lookup(type(v), "__call__")
        if isinstance(call, types.FunctionType) and not changes.foreign(call):
            self.functions.append(v)
            return
        # Of C, or a library's: a method, a partial, a property, a cached property.
        if callable(v) or _interp.type_lookup(type(v), "__get__") is not _interp.ABSENT:
            for part in contents.inside(v):
                for x in contents.elements(part) if isinstance(part, (tuple, dict)) else (part,):
                    self.add(x, deep - 1)

    def text(self, shown: Any) -> None:
        """Adds the classes of the program's of which an object, or what it holds, becomes text."""
        todo = collections.deque([shown])
        for _ in range(_SHOWN):
            if not todo:
                break
            v = todo.popleft()
            if contents.leaf(v) or isinstance(v, (types.ModuleType, type)):
                continue
            if contents.made_by_statement(type(v)):
                if not contents.foreign_class(type(v)):
                    self.functions.append(type(v))
                todo += itertools.islice(_own(v), _SHOWN)
            todo += itertools.islice(contents.elements(v), _SHOWN)
            todo += contents.inside(v)
            if isinstance(v, types.SimpleNamespace):
                todo += itertools.islice(_own(v), _SHOWN)

    def methods(self, obj: Any) -> None:
        """Adds an object that logging goes through, and what is called of it."""
        self.objects.append(obj)
        spaces = [c for c in contents.mro(type(obj)) if contents.made_by_statement(c)]
        for space in (*map(contents.space, spaces), contents.own_dict(obj) or {}):
            for n, v in tuple(space.items()):
                if _is_called(n):
                    self.add(v)

    def stream(self, stream: Any, deep: int = 4) -> None:
        """Adds what is called of a stream, and of those that it writes to."""
        self.objects.append(stream)
        own = contents.own_dict(stream) or {}
        for name in _OF_STREAMS:
            v = own.get(name, _interp.ABSENT)
            self.add(_interp.type_lookup(type(stream), name) if v is _interp.ABSENT else v)
        inner = own.get("stream")  # as those of `codecs` have
        for cls, name in ((io.TextIOWrapper, "buffer"), (io.BufferedWriter, "raw")):
            if isinstance(stream, cls):
                try:
                    inner = getattr(cls, name).__get__(stream)
                except ValueError:  # it is detached
                    inner = None
        if inner is not None and deep:
            self.stream(inner, deep - 1)

    def logger(self, logger: logging.Logger, level: int | None = None) -> None:
        """Adds what hears of a logger.

        Args:
            logger: the logger.
            level: that of the record, where it is known: below the logger's, nothing hears of it.
        """
        self.objects += (logging.root.manager, vars(logging))
        self._passes(contents.own_dict(logging.root.manager) or {})
        at: Any = logger
        if level is not None and _is_off(logger, level):
            while isinstance(at, logging.Logger):  # what decides that it is off
                own = contents.own_dict(at) or {}
                self.objects.append(at)
                self._passes(own)
                at = own.get("parent")
            return
        self.add(logging.getLogRecordFactory())
        handled = False
        while isinstance(at, logging.Logger):
            own = contents.own_dict(at) or {}
            self.methods(at)
            self._filters(own)
            self._passes(own)
            for handler in tuple(own.get("handlers", ())):
                handled = True
                self._handler(handler)
            at = own.get("parent") if own.get("propagate") else None
        if not handled and logging.lastResort is not None:
            self._handler(logging.lastResort)

    def _handler(self, handler: Any, deep: int = 4) -> None:
        own = contents.own_dict(handler) or {}
        self.methods(handler)
        self._filters(own)
        self._passes(own)
        if isinstance(handler, type(logging.lastResort)):
            self.stream(sys.stderr)
        for name, v in tuple(own.items()):
            if isinstance(v, logging.Handler) and deep:  # its target
                self._handler(v, deep - 1)
            elif isinstance(v, logging.Formatter):
                self.methods(v)
                for part in _own(v):  # its style
                    self._of_program(part)
            elif name == "stream":
                self.stream(v)
            else:
                self._of_program(v)  # a queue

    def _passes(self, own: dict[str, Any]) -> None:
        """Adds what lets records pass: who did not hear of one while watched may hear later."""
        told = (own.get(name) for name in ("disabled", "level", "_disable"))
        self.passes.append(" ".join(str(v) if type(v) in (int, bool) else "" for v in told))

    def _of_program(self, v: Any) -> None:
        if contents.made_by_statement(type(v)) and not contents.foreign_class(type(v)):
            self.methods(v)

    def _filters(self, own: dict[str, Any]) -> None:
        for f in tuple(own.get("filters", ())):
            if not isinstance(f, types.FunctionType):
                self.methods(f)
            self.add(f)


#: The methods of a logger that ask first whether it is on for their level, as they do so.
_LEVELS = {
    logging.Logger.debug: logging.DEBUG,
    logging.Logger.info: logging.INFO,
    logging.Logger.warning: logging.WARNING,
    logging.Logger.error: logging.ERROR,
    logging.Logger.critical: logging.CRITICAL,
}
_ASKED = {n: vars(logging.Logger)[n] for n in ("isEnabledFor", "getEffectiveLevel")}


def _is_off(logger: Any, level: int) -> bool:
    """Whether a logger makes no record of a level, as `Logger.isEnabledFor` finds it."""
    own = contents.own_dict(logger) or {}
    manager = own.get("manager", logging.Logger.manager)
    if (
        type(logger) not in (logging.Logger, logging.RootLogger)
        or type(manager) is not logging.Manager
        or manager is not logging.root.manager
        or any(
            name in own or _interp.type_lookup(type(logger), name) is not v
            for name, v in _ASKED.items()
        )
    ):
        return False
    if own.get("disabled"):
        return True
    known = own.get("_cache", {}).get(level)
    if known is not None:
        return not known
    if (contents.own_dict(manager) or {}).get("_disable", 0) >= level:
        return True
    at: Any = logger
    while isinstance(at, logging.Logger):
        own = contents.own_dict(at) or {}
        if own.get("level"):
            return bool(level < own["level"])
        at = own.get("parent")
    return False


def _names_in(space: Any) -> Iterator[str]:
    """The names in the code of functions, and of the methods of classes."""
    for v in tuple(space.values()):
        if isinstance(v, types.FunctionType):
            yield from changes.names_in(v.__code__)
        elif isinstance(v, type) and contents.foreign_class(v):
            yield from _names_in({n: x for n, x in vars(v).items() if not isinstance(x, type)})


#: What logging may call; a library may have added methods of other names to its classes.
_OF_LOGGING = frozenset((*_names_in(vars(logging)), *_names_in(vars(logging.handlers))))
_MADE = ("__init__", "__new__", "__init_subclass__", "__class_getitem__", "__set_name__")


def _is_called(name: Any) -> bool:
    return name in _OF_LOGGING or (type(name) is str and name[:2] == "__" and name not in _MADE)


_STREAMS = (io.TextIOWrapper, io.StringIO, io.BufferedWriter, io.FileIO)
_OF_STREAMS = ("write", "flush", "__getattr__", "__getattribute__")
_SHOWN = 200  # objects that are looked at


def _own(obj: Any) -> tuple[Any, ...]:
    return tuple((contents.own_dict(obj) or {}).values())


def runs(functions: Iterable[Any]) -> Heard:
    """What Python functions that torch calls come to."""
    heard = Heard()
    for f in functions:
        if isinstance(f, type):
            heard.functions.append(f)
        heard.add(f)
    return heard


def name_of(v: Any) -> str:
    """How a refusal calls what would run unwatched."""
    return f"{v.__module__}.{getattr(v, '__qualname__', type(v).__qualname__)}"


def hooks(*ends: Any) -> Heard:
    """The Python functions that run where a pass of autograd's engine comes to tensors."""
    if _tensor.unheard(*ends):
        return Heard()
    return runs(hook for end in ends for hook in autograd.functions_at(end))


def native_hooks(*leaves: Any) -> Heard:
    """The leaves of which hooks hear that are not Python's: the reducer of a model in processes."""
    return Heard([leaf for leaf in leaves if _tensor.has_native_hooks(leaf)])


def hearers(f: Any, target: Any, *given: Any) -> Heard:
    """What a call for its effect runs.

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
    elif call_sites.is_warning(f):
        show = warnings._showwarnmsg_impl  # type: ignore[attr-defined]
        for v in (warnings.showwarning, warnings.formatwarning, show):
            heard.add(v)
        if warnings.showwarning is _captures:
            own = logging.root.manager.loggerDict.get("py.warnings")
            heard.logger(own if isinstance(own, logging.Logger) else logging.root)
        heard.stream(sys.stderr)
    elif isinstance(target, logging.Logger):
        heard.logger(target, _LEVELS.get(f) if type(f) is types.FunctionType else None)
    elif isinstance(f, types.BuiltinFunctionType) or not contents.foreign_class(type(f)):
        heard.objects += () if target is None else (target,)
    if not isinstance(f, types.BuiltinFunctionType):
        heard.add(f)
    return heard


_captures = logging._showwarning  # type: ignore[attr-defined]  # of `logging.captureWarnings`

__all__ = ["Heard", "hearers", "hooks", "name_of", "native_hooks", "runs"]
