"""Which Python of a program runs unwatched below a step of an entry: hooks, and what hears effects.

Owns the walk from a call that is made for its effect to the Python functions that run below it (the
methods of a stream, of the handlers, filters and formatters of a logger, what shows warnings, how
an object becomes text), and from tensors to their hooks.  Does not own what these can reach
(magpy/unwatched/reachability.py), nor what they change in the call that is captured
(magpy/unwatched/changes.py).  Called by magpy/capture/python/effects.py and
magpy/capture/tensors/recorder.py, and by guards (magpy/guards), which ask again: a stream that is
put in place later may change what an entry has looked at already.  Nothing of the program runs
here: no property, no `__getattr__`.
"""

from __future__ import annotations

import collections
import io
import itertools
import logging
import sys
import types
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from magpy import _interp
from magpy.frames import call_sites
from magpy.objects import contents
from magpy.objects.types import isinstance
from magpy.unwatched import autograd, changes
from magpy.unwatched.reachability import TEXTS, Reach, within_reach


@dataclass(slots=True)
class Heard:
    """Python that runs unwatched.

    Attributes:
        codes: what tells one function from another: its code object (a function may be made anew
            in each call), or the type or the name of what is no function.
        functions: the functions.
        given: objects that they are methods of, or that their callers give them.
        arguments: objects that the call gives them.
    """

    codes: list[Any] = field(default_factory=list)
    functions: list[types.FunctionType] = field(default_factory=list)
    given: list[Any] = field(default_factory=list)
    arguments: list[Any] = field(default_factory=list)

    def reach(self) -> Reach:
        """What they have within reach."""
        return within_reach(self.functions, self.given, self.arguments)

    def add(self, v: Any, deep: int = 6) -> None:
        """Adds what a callable, or a descriptor of a class, comes to, if that is the program's."""
        if isinstance(v, types.FunctionType):
            if not changes.foreign(v):
                self.codes.append(v.__code__)
                self.functions.append(v)
            elif deep and v.__closure__:  # a wrapper of torch's or of Python's
                for cell in v.__closure__:
                    if cell != types.CellType() and callable(cell.cell_contents):
                        self.add(cell.cell_contents, deep - 1)
            return
        if not deep or contents.leaf(v) or isinstance(v, (type, types.ModuleType)):
            return
        if isinstance(v, types.BuiltinFunctionType):
            bound = v.__self__
            if bound is not None and not isinstance(bound, (types.ModuleType, type)):
                self.given.append(bound)  # C code changes at most what it is a method of
                self.codes.append(v.__name__)
                self._generator(bound)
            return
        if isinstance(v, types.MethodType):
            self._bound(v.__self__)
            self.add(v.__func__, deep - 1)
            return
        call = _interp.type_lookup(type(v), "__call__")
        if isinstance(call, types.FunctionType) and not changes.foreign(call):
            self.codes.append(type(v))
            self.given.append(v)
            self.add(call, deep - 1)
            return
        # Of C, or a library's: a partial, a property, a static method, a cached property.
        if not callable(v) and _interp.type_lookup(type(v), "__get__") is _interp.ABSENT:
            return
        inner = contents.inside(v)
        if contents.made_by_statement(type(v)) and contents.foreign_class(type(v)):
            inner += _own(v) if call is _interp.ABSENT else ()
        for part in inner:
            for x in contents.elements(part) if isinstance(part, (tuple, dict)) else (part,):
                self._bound(x)
                self.add(x, deep - 1)

    def _generator(self, v: Any) -> None:
        if isinstance(v, contents.GENERATORS):
            inside = contents.inside(v)
            self.functions += [f for f in inside if isinstance(f, types.FunctionType)]
            self.given += inside

    def _bound(self, v: Any) -> None:
        if not contents.leaf(v) and not isinstance(v, (type, types.ModuleType)):
            self.given.append(v)

    def text(self, shown: Any) -> None:
        """Adds how an object, and what it holds that is shown with it, becomes text."""
        todo = collections.deque([shown])
        classes: set[int] = set()
        for _ in range(_SHOWN):
            if not todo:
                break
            v = todo.popleft()
            if contents.leaf(v) or isinstance(v, (types.ModuleType, type)):
                continue
            methods = [_interp.type_lookup(type(v), name) for name in TEXTS]
            names = frozenset[str]()
            for m in methods:
                if isinstance(m, types.FunctionType) and changes.foreign(m):
                    names |= changes.names_of(m.__code__)  # as torch.nn.Module's asks `extra_repr`
            if names:
                methods += [_interp.type_lookup(type(v), name) for name in names]
                todo += itertools.islice((contents.own_dict(v) or {}).values(), _SHOWN)
            before = len(self.codes)
            for m in methods:
                if isinstance(m, _METHODS):
                    self.add(m)
            if len(self.codes) > before:
                self.given.append(v)
                if id(type(v)) in classes:
                    del self.codes[before:]  # how many there are is not told
                classes.add(id(type(v)))
            todo += itertools.islice(contents.elements(v), _SHOWN)
            todo += contents.inside(v)
            if _interp.type_lookup(type(v), "__repr__") is _OF_NAMESPACE:
                todo += itertools.islice((contents.own_dict(v) or {}).values(), _SHOWN)

    def methods(self, obj: Any) -> None:
        """Adds the methods that a program's classes, or a program, have given an object."""
        before = len(self.codes)
        for c in contents.mro(obj if isinstance(obj, type) else type(obj)):
            if not contents.made_by_statement(c):
                continue
            own = not contents.foreign_class(c)
            for n, v in tuple(contents.space(c).items()):
                if own or isinstance(v, _METHODS):
                    self._as(n, v)
        for n, v in tuple((contents.own_dict(obj) or {}).items()):
            if callable(v) and not isinstance(v, type):
                self._as(n, v)
        if len(self.codes) > before:
            self.given.append(obj)

    def _as(self, name: Any, v: Any) -> None:
        """Adds what a name stands for: another name may stand for the same."""
        before = len(self.codes)
        self.add(v)
        if type(name) is str:
            self.codes[before:] = [(name, c) for c in self.codes[before:]]

    def stream(self, stream: Any, deep: int = 4) -> None:
        """Adds the methods of a stream, and of those that it writes to."""
        self.given.append(stream)
        self.methods(stream)
        inner = (contents.own_dict(stream) or {}).get("stream")  # as those of `codecs` have
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
        self._passes(contents.own_dict(logging.root.manager) or {})
        at: Any = logger
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
        self.codes.append(" ".join(str(v) if type(v) in (int, bool) else "" for v in told))

    def _of_program(self, v: Any) -> None:
        if contents.made_by_statement(type(v)) and not contents.foreign_class(type(v)):
            self.methods(v)

    def _filters(self, own: dict[str, Any]) -> None:
        for f in tuple(own.get("filters", ())):
            if not isinstance(f, types.FunctionType):
                self.methods(f)
            self.add(f)


def told(codes: Iterable[Any], reach: Reach) -> frozenset[Any]:
    """What tells Python from other Python, with what it can call; neither order nor number."""
    named: list[Any] = [*reach.codes]
    tensor = 0
    for c in codes:
        if c is None:
            tensor += 1
        name, code = c if type(c) is tuple else ("", c)
        named.append((tensor, name, code if type(code) is str else id(code)))
    return frozenset(named)


_METHODS = (types.FunctionType, staticmethod, classmethod, property, types.BuiltinFunctionType)
_OF_NAMESPACE = vars(types.SimpleNamespace)["__repr__"]
_SHOWN = 200  # objects that are looked at


def _own(obj: Any) -> tuple[Any, ...]:
    return tuple((contents.own_dict(obj) or {}).values())


def hooks(*ends: Any) -> Heard:
    """The Python functions that run where a pass of autograd's engine comes to tensors."""
    heard = Heard()
    for end in ends:
        heard.codes.append(None)  # of which tensor they are, is told apart
        for hook in autograd.functions_at(end):
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
    elif call_sites.is_warning(f):
        show = warnings._showwarnmsg_impl  # type: ignore[attr-defined]
        for v in (warnings.showwarning, warnings.formatwarning, show):
            heard.add(v)
        if warnings.showwarning is _captures:
            own = logging.root.manager.loggerDict.get("py.warnings")
            heard.logger(own if isinstance(own, logging.Logger) else logging.root)
        heard.stream(sys.stderr)
    elif isinstance(target, logging.Logger):
        heard.logger(target)
        heard.arguments += given  # the record has them
    else:
        heard.add(f)
        heard.given += () if target is None else (target,)
        heard.arguments += given
    return heard


_captures = logging._showwarning  # type: ignore[attr-defined]  # of `logging.captureWarnings`


def containers(heard: Heard) -> list[Any]:
    """Containers, and generators, whose C methods a stream or `warnings` has for functions."""
    kinds = (list, set, dict, bytearray, collections.deque, *contents.GENERATORS)
    return [v for v in heard.given if isinstance(v, kinds)]


__all__ = ["Heard", "containers", "hearers", "hooks", "told"]
