"""Counters: names outside its locals that a piece of code reads, and stores in most of its calls.

Owns finding them in a code object. Does not own what a read of one becomes
(csrc/interp/session_state.cpp). Called by magpy/capture/python/native.py, once per code object.

A counter is an input of the first entry. Any other number is compared, and becomes an input once it
has differed (magpy/shapes/speculation.py): to miss one here costs a capture. To take another number
for one is worse: where a module clamps its window (`if size < self.window: self.window = size`),
all sizes would follow from it.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from typing import Any

from magpy.objects.types import isinstance

_LOADS = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF")
_STORES = ("STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF")
# A statement, or the test of one, ends with one of these.
_ENDS = ("STORE_", "POP_", "RETURN_", "FOR_ITER")


def counters(code: types.CodeType) -> set[str]:
    """Names that the code stores outside its locals, of themselves or before it reads them.

    So are those of `self.calls += 1`, of `i = self.next` with `self.next = i + 1` below, and of
    `self.loss = loss.item(); log(self.loss)`, but not that of `if self.size > n: self.size = n`.
    """
    found: set[str] = set()
    loaded: set[str] = set()
    # What is stored before it is loaded: what it was before does not matter.
    first: set[str] = set()
    # By the name of a local variable, of which names outside its value was computed.
    of: dict[str, set[str]] = {}
    instructions = list(dis.get_instructions(code))
    for statement in _statements(instructions):
        read: set[str] = set()
        for i in statement:
            names = i.argval if isinstance(i.argval, tuple) else (i.argval,)
            if i.opname in _LOADS:
                read.add(i.argval)
                loaded.add(i.argval)
            elif i.opname.startswith("LOAD_FAST"):
                read.update(*(of.get(name, ()) for name in names))
            elif i.opname.startswith("STORE_FAST"):
                for name in names:
                    of.setdefault(name, set()).update(read)
            elif i.opname in _STORES and i.argval in read:
                found.add(i.argval)
            elif i.opname in _STORES and i.argval not in loaded:
                first.add(i.argval)
    return found | (first & loaded) | _items(instructions)


def _statements(instructions: list[Any]) -> Iterator[list[Any]]:
    """The instructions, cut where the value of one statement is stored or used."""
    part: list[Any] = []
    line = None
    for i in instructions:
        at = i.positions.lineno if i.positions else None
        # `self.a, self.b = ...` stores twice, and loads what it stores to.
        if part and part[-1].opname.startswith(_ENDS) and not (_is_simple(i) and at == line):
            yield part
            part = []
        if i.opname.startswith("STORE_"):
            line = at
        part.append(i)
    yield part


def _is_simple(i: Any) -> bool:
    name: str = i.opname
    return name.startswith(("STORE_", "LOAD_FAST", "SWAP", "COPY", "UNPACK"))


def _items(instructions: list[Any]) -> set[str]:
    """The keys of `d["k"] += 1`, which copies container and key before it reads the item."""
    found: set[str] = set()
    window: list[Any] = [None] * 3
    for i in instructions:
        if i.opname == "BINARY_SUBSCR" and window[1] == window[2] == "COPY":
            found.update(w for w in window[:1] if isinstance(w, str))
        window = [*window[1:], i.argval if i.opname == "LOAD_CONST" else i.opname]
    return found


__all__ = ["counters"]
