"""Whether the program may catch what an operation raises, and go on.

Owns finding that out from the frames of the call: `try` blocks, by the tables of their code objects
(CPython, InternalDocs/exception_handling.md), and `with` blocks whose manager may hold exceptions
back.  Does not own what follows of it: an entry that may be left there saves what it changes
(magpy/runtime/entry.py).  Called by the recorder.

An operation raises for the data of one call and not of another.  Where nobody catches it, the call
is over; where the program does, it goes on in a way that no entry knows.
"""

from __future__ import annotations

import contextlib
import dis
import types
from typing import Any

from magpy import _interp
from magpy.capture import held

_HOLD_BACK = (contextlib.suppress, contextlib.ExitStack, contextlib.AsyncExitStack)
_GENERATORS = (
    contextlib._GeneratorContextManager,
    contextlib._AsyncGeneratorContextManager,
)
_OWN = ("torch", "numpy", "magpy")

#: Of what bytes of a code object an exception is handled there, and whether by a `with` block (or
#: within a handler).
Table = list[tuple[int, int, bool]]


def may_hold_back(manager: Any) -> bool:
    """Whether a context manager may end an exception: its `__exit__` says so, when it comes."""
    t = type(manager)
    module = t.__module__
    if issubclass(t, _GENERATORS):
        code = getattr(getattr(manager, "gen", None), "gi_code", None)
        scope = getattr(getattr(manager, "func", None), "__globals__", {})
        return code is None or held.package(scope.get("__name__")) not in _OWN
    # Of a class that was made without a module, that is "builtins".
    if held.of_library(module) and held.package(module) not in ("unittest", "builtins"):
        return issubclass(t, _HOLD_BACK)
    return held.package(module) not in _OWN


class Catching:
    """What of the frames of a call handles exceptions."""

    def __init__(self) -> None:
        """No `with` block was entered yet."""
        self._frames: set[int] = set()
        self._tables: dict[types.CodeType, Table] = {}

    def entered(self, manager: Any, frame: types.FrameType | None) -> None:
        """A frame enters a `with` block."""
        if may_hold_back(manager):
            self._frames.add(id(frame))

    def __call__(self, frame: types.FrameType | None) -> bool:
        """Whether a frame of the call, or one that it was called from, may catch an exception."""
        while frame is not None and not _interp.is_caller(frame):
            if held.package(frame.f_globals.get("__name__")) not in _OWN:
                at = frame.f_lasti
                for start, end, by_with in self._table(frame.f_code):
                    if start <= at < end and (not by_with or id(frame) in self._frames):
                        return True
            frame = frame.f_back
        return False

    def _table(self, code: types.CodeType) -> Table:
        found = self._tables.get(code)
        if found is None:
            entries: Any = ()
            if code.co_exceptiontable:
                entries = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
            found = self._tables[code] = [(e.start, e.end, e.lasti) for e in entries]
        return found


__all__ = ["Catching", "may_hold_back"]
