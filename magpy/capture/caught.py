"""Whether the program may catch what an operation raises, and go on.

Owns finding that out from the frames of the call: `except` clauses, by the tables of code objects
(CPython, InternalDocs/exception_handling.md), and `with` blocks whose manager may hold exceptions
back.  A `finally` clause passes them on.  Does not own what follows of it: an entry that may be
left there saves what it changes (magpy/runtime/entry.py).  Called by the recorder.

An operation raises for the data of one call and not of another.  Where nobody catches it, the call
is over; where the program does, it goes on in a way that no entry knows.
"""

from __future__ import annotations

import contextlib
import dis
import types
from typing import Any, NamedTuple

from magpy import _interp
from magpy.capture import held

_HOLD_BACK = (contextlib.suppress, contextlib.ExitStack, contextlib.AsyncExitStack)
_GENERATORS = (
    contextlib._GeneratorContextManager,
    contextlib._AsyncGeneratorContextManager,
)
_OWN = ("torch", "numpy", "magpy")
# What comes first in the code of an `except` clause, and never in that of a `finally` clause.
_CATCHES = ("CHECK_EXC_MATCH", "CHECK_EG_MATCH", "POP_EXCEPT")


class Handled(NamedTuple):
    """Bytes of a code object, and the handler of what is raised there."""

    start: int
    end: int
    target: int
    catches: bool
    by_with: bool


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
        self._tables: dict[types.CodeType, list[Handled]] = {}

    def entered(self, manager: Any, frame: types.FrameType | None) -> None:
        """A frame enters a `with` block."""
        if may_hold_back(manager):
            self._frames.add(id(frame))

    def __call__(self, frame: types.FrameType | None) -> bool:
        """Whether a frame of the call, or one that it was called from, may catch an exception."""
        while frame is not None and not _interp.is_caller(frame):
            own = held.package(frame.f_globals.get("__name__")) in _OWN
            if not own and self._catches(frame.f_code, frame.f_lasti, id(frame) in self._frames):
                return True
            frame = frame.f_back
        return False

    def _catches(self, code: types.CodeType, at: int, holds_back: bool) -> bool:
        table = self._tables.get(code)
        if table is None:
            table = self._tables[code] = _table(code) if code.co_exceptiontable else []
        # What a handler passes on goes to the one around it: the table leads from the one to the
        # other, by the place where each begins.
        for _ in table:
            entry = next((e for e in table if e.start <= at < e.end), None)
            if entry is None:
                return False
            if entry.catches or (entry.by_with and holds_back):
                return True
            at = entry.target
        return False


def _table(code: types.CodeType) -> list[Handled]:
    entries: Any = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    targets = {e.target for e in entries}
    instructions = list(dis.get_instructions(code))
    catching: set[int] = set()
    blocks: set[int] = set()
    begun: set[int] = set()
    for i, instruction in enumerate(instructions):
        if instruction.offset in targets and instruction.opname == "PUSH_EXC_INFO":
            begun.add(instruction.offset)
            if instructions[i + 1].opname == "WITH_EXCEPT_START":
                blocks.add(instruction.offset)
                begun.clear()
        elif instruction.opname in _CATCHES:
            catching |= begun
            begun.clear()
        elif instruction.opname == "RERAISE":  # a `finally` clause ends
            begun.clear()
    return [
        Handled(e.start, e.end, e.target, e.target in catching, e.target in blocks) for e in entries
    ]


__all__ = ["Catching", "may_hold_back"]
