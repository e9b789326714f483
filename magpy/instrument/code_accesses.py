"""What a code object reads, changes and calls, by its instructions alone.

Owns: the reading of bytecode that is not run, alike for all versions of CPython.  Does not own:
what an opcode touches (`magpy/instrument/opcode_table.py`), nor what follows of it: a function that
changes things may not be given to an opaque call (`magpy/capture/tensors/opaque_calls.py`).
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

from magpy.instrument.opcode_table import Touches
from magpy.instrument.opcodes import TABLE, VERSION


class Access(NamedTuple):
    """What one instruction does.

    Args:
        touches: what it reads or changes outside the frame, by the table of opcodes.
        name: its argument: the name of an attribute or of a variable, a constant or a number.
        in_place: an operator that may change its left operand, as `+=` does.
    """

    touches: Touches
    name: Any
    in_place: bool


def accesses(code: types.CodeType) -> Iterator[Access]:
    """What the instructions of a code object do, in order; not those of functions defined in it."""
    for i in dis.get_instructions(code):
        row = TABLE.get(i.opcode)
        touches = Touches.NOTHING if row is None else row.touches
        in_place = i.opname == "BINARY_OP" and i.argrepr.endswith("=")
        yield Access(touches, i.argval, in_place)


# What computes nothing, whatever the values are.
_HARMLESS = (
    Touches.READS_CELL
    | Touches.STORES_CELL
    | Touches.READS_GLOBAL
    | Touches.READS_IDENTITY
    | Touches.MAKES_FUNCTION
)


def may_compute(code: types.CodeType, plain: bool) -> bool:
    """Whether what runs in a code object may compute with a tensor.

    Args:
        code: the code.
        plain: its arguments are numbers, text and containers: to take one item of them is no work.
    """
    taken = False
    outside = False
    for access in accesses(code):
        if not access.touches & ~_HARMLESS:
            outside |= bool(access.touches & (Touches.READS_GLOBAL | Touches.READS_CELL))
        elif plain and not taken and access.touches in _TAKES_ITEM:
            taken = True
        else:
            return True
    return taken and outside


_TAKES_ITEM = (Touches.READS_ITEM, Touches.READS_ITEM | Touches.OPERATES)


def looked_up(code: types.CodeType) -> set[str] | None:
    """The names that code, and code within it, looks up outside of it; None where it imports."""
    found: set[str] = set()
    for i in dis.get_instructions(code):
        if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            found.add(i.argval)
        elif i.opname in ("IMPORT_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            return None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = looked_up(constant)
            if inner is None:
                return None
            found |= inner
    return found


_STORES_OUTSIDE = frozenset(["STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR"])


def called_methods(code: types.CodeType) -> set[str] | None:
    """The methods that code, and code within it, calls.

    None where it stores outside of itself (what it stores in containers is not among that), or
    calls what has no name (an argument).
    """
    found: set[str] = set()
    for i in dis.get_instructions(code):
        if i.opname in _STORES_OUTSIDE or i.opname == "PUSH_NULL":
            return None
        if i.opname != "LOAD_GLOBAL" and _pushes_callable(i):
            found.add(i.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = called_methods(constant)
            if inner is None:
                return None
            found |= inner
    return found


_STORES_LOCALS = frozenset(
    ["STORE_FAST", "STORE_DEREF", "STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST"]
)


def loop_names(code: types.CodeType) -> set[str]:
    """The locals that `for` statements assign in each turn."""
    found: set[str] = set()
    wanted = 0
    for i in dis.get_instructions(code):
        if i.opname == "FOR_ITER":
            wanted = 1
        elif wanted and i.opname == "UNPACK_SEQUENCE":
            wanted += i.argval - 1
        elif wanted and i.opname in _STORES_LOCALS:
            # Two instructions in one, from 3.13 on, have both names.
            names = i.argval if isinstance(i.argval, tuple) else (i.argval,)
            stored = names[: i.opname.count("STORE")]
            found.update(stored)
            wanted = max(0, wanted - len(stored))
        elif i.opname not in ("CACHE", "EXTENDED_ARG", "NOP"):
            wanted = 0
    return found


def _pushes_callable(i: dis.Instruction) -> bool:
    """Whether a callable is looked up; beside it stands a NULL, or the object of a method."""
    if i.opname in ("PUSH_NULL", "LOAD_METHOD"):
        return True
    with_null = i.opname == "LOAD_GLOBAL" or (
        VERSION >= (3, 12) and i.opname in ("LOAD_ATTR", "LOAD_SUPER_ATTR")
    )
    return with_null and i.arg is not None and bool(i.arg & 1)


__all__ = [
    "Access",
    "Touches",
    "accesses",
    "called_methods",
    "looked_up",
    "loop_names",
    "may_compute",
]
