"""Entries that can serve no call any more, because an object that they compare with has gone.

Owns: how that is told. Does not own: what happens to such an entry. Called by
magpy/runtime/compiled.py on a miss.

A guard holds the objects that it compares with. Weights that were loaded with
`load_state_dict(assign=True)`, a layer or a configuration that was replaced: nobody else may hold
the old one, so that nobody can bring it back, and the entry only keeps its memory. All references
of an entry are known; an object that has no others is gone for the program.
"""

from __future__ import annotations

import collections
import functools
import gc
import sys
import types
from collections.abc import Iterator, Sequence
from typing import Any

# Py_TPFLAGS_HEAPTYPE (https://docs.python.org/3/c-api/typeobj.html): the class is not a static one.
_HEAP = 1 << 9


def _references(entry: Any) -> Iterator[Any]:
    """Every reference of an entry to an object from outside."""
    info = entry.tag
    yield from gc.get_referents(info.guard)
    tuples: dict[int, tuple[Any, ...]] = {}
    mock = info.mock
    for v in list(mock.__globals__.values()) if mock is not None else ():
        yield v
        if type(v) is functools.partial:
            tuples[id(v.args)] = v.args
    for runner in info.runners:
        tuples[id(runner.fixed)] = runner.fixed
    for number in info.numbers:
        yield number[1]
    for fixed in tuples.values():
        yield from fixed


def _outside(v: Any) -> bool:
    """Whether an object is one that only programs make: magpy's own have no others to hold them."""
    t = type(v)
    if t is types.FunctionType:
        return not str(v.__module__).startswith("magpy.")
    return (
        bool(t.__flags__ & _HEAP)
        and t.__dictoffset__ != 0
        and t is not functools.partial
        and not t.__module__.startswith("magpy.")
    )


def gone(entries: Sequence[Any]) -> list[Any]:
    """Those entries that compare with an object which the program has lost."""
    count: collections.Counter[int] = collections.Counter()
    found: dict[int, Any] = {}
    holders: dict[int, list[Any]] = {}
    for entry in entries:
        for v in _references(entry):
            key = id(v)
            count[key] += 1
            if _outside(v):
                found[key] = v
                if entry not in holders.setdefault(key, []):
                    holders[key].append(entry)
    v = None
    lost: list[Any] = []
    while found:
        key, v = found.popitem()
        if sys.getrefcount(v) - 2 <= count[key]:  # but for `v` and the argument
            lost += [e for e in holders[key] if e not in lost]
    return lost


def release(entry: Any) -> None:
    """Lets an entry die at once, which is in a cycle with what compiles its graphs."""
    entry.tag.mock = None


__all__ = ["gone", "release"]
