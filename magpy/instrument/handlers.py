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
import inspect
import types
from typing import Any, NamedTuple

from magpy import _interp
from magpy.instrument.opcodes import JUMPS
from magpy.objects import contents

_HOLD_BACK = (contextlib.suppress, contextlib.ExitStack, contextlib.AsyncExitStack)
_GENERATORS = (
    contextlib._GeneratorContextManager,
    contextlib._AsyncGeneratorContextManager,
)
_OWN = ("torch", "numpy", "magpy")
# What an `except` clause comes to, and no `finally` clause that raises again.
_CATCHES = ("CHECK_EXC_MATCH", "CHECK_EG_MATCH", "POP_EXCEPT")
_ENDS = ("RERAISE", "RAISE_VARARGS", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")


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
        function = getattr(manager, "func", None)
        scope = getattr(function, "__globals__", {})
        code = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
        if contents.package(scope.get("__name__")) in _OWN:
            return False
        return code is None or any(h.catches or h.by_with for h in _table(code))
    # Of a class that was made without a module, that is "builtins".
    if contents.of_library(module) and contents.package(module) not in ("unittest", "builtins"):
        return issubclass(t, _HOLD_BACK)
    if contents.package(module) in _OWN:
        return False
    leave = _interp.type_lookup(t, "__exit__")
    return not (isinstance(leave, types.FunctionType) and _gives_nothing(leave.__code__))


def _gives_nothing(code: types.CodeType) -> bool:
    """Whether a function surely gives None or False."""
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE):
        return False
    before = None
    for instruction in dis.get_instructions(code):
        given = instruction if instruction.opname == "RETURN_CONST" else before
        if instruction.opname.startswith("RETURN_") and instruction.opname != "RETURN_GENERATOR":
            constant = given is not None and given.opname in ("LOAD_CONST", "RETURN_CONST")
            if not constant or given.argval not in (None, False):  # type: ignore[union-attr]
                return False
        before = instruction
    return True


class Catching:
    """What of the frames of a call handles exceptions."""

    def __init__(self) -> None:
        """No `with` block was entered yet."""
        self._frames: set[int] = set()
        # By the addresses of a code object, which is kept, and of the globals, and by an
        # instruction: whether it may catch one there, where the frame has entered no `with` block
        # that holds exceptions back.
        self._known: dict[tuple[int, int, int], tuple[bool, types.CodeType]] = {}

    def entered(self, manager: Any, frame: types.FrameType | None) -> None:
        """A frame enters a `with` block."""
        if may_hold_back(manager):
            self._frames.add(id(frame))

    def __call__(self, frame: types.FrameType | None) -> bool:
        """Whether a frame of the call, or one that it was called from, may catch an exception."""
        frames, known = self._frames, self._known
        while frame is not None and not _interp.is_caller(frame):
            code, at, names = frame.f_code, frame.f_lasti, frame.f_globals
            holds_back = bool(frames) and id(frame) in frames
            key = id(code), at, id(names)
            found = None if holds_back else known.get(key)
            if found is None:
                own = contents.package(names.get("__name__")) in _OWN
                found = not own and _catches(code, at, holds_back), code
                if not holds_back:
                    known[key] = found
            if found[0]:
                return True
            frame = frame.f_back
        return False


def _catches(code: types.CodeType, at: int, holds_back: bool) -> bool:
    """Whether a frame of this code that is at an instruction may catch an exception."""
    table = _table(code)
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


#: The tables by the addresses of code objects, which are kept: to hash one hashes all that it has.
_tables: dict[int, tuple[types.CodeType, list[Handled]]] = {}
_MOST_KEPT = 4096


def _table(code: types.CodeType) -> list[Handled]:
    found = _tables.get(id(code))
    if found is None:
        if len(_tables) >= _MOST_KEPT:
            _tables.clear()
        found = _tables[id(code)] = code, _read_table(code)
    return found[1]


def _read_table(code: types.CodeType) -> list[Handled]:
    if not code.co_exceptiontable:
        return []
    entries: Any = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    instructions = list(dis.get_instructions(code))
    places = {instruction.offset: i for i, instruction in enumerate(instructions)}
    kinds = {e.target: _kind(instructions, places, e.target) for e in entries}
    return [Handled(e.start, e.end, e.target, *kinds[e.target]) for e in entries]


def _kind(
    instructions: list[dis.Instruction], places: dict[int, int], target: int
) -> tuple[bool, bool]:
    """Whether a handler is that of an `except` clause, and whether that of a `with` block.

    What a `finally` clause does ends by raising the exception again. Where its code goes on in
    another way, from instruction to instruction, the exception is ended.
    """
    first = places[target]
    if instructions[first].opname != "PUSH_EXC_INFO":
        return False, False
    if instructions[first + 1].opname == "WITH_EXCEPT_START":
        return False, True
    todo, seen = [first + 1], set()
    while todo:
        i = todo.pop()
        if i in seen or i >= len(instructions):
            continue
        seen.add(i)
        instruction = instructions[i]
        if instruction.opname in _CATCHES:
            return True, False
        if instruction.opcode in JUMPS and instruction.argval in places:
            todo.append(places[instruction.argval])
        if instruction.opname not in _ENDS:
            todo.append(i + 1)
    return False, False


__all__ = ["Catching", "may_hold_back"]
