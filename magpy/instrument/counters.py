"""Counters: names that a piece of code both reads and stores outside its locals.

Owns finding them in a code object. Does not own what a read of one becomes
(csrc/interp/session_state.cpp). Called by magpy/capture/python/native.py, once per code object.
"""

from __future__ import annotations

import collections
import dis
import types
from typing import Any

from magpy.objects.types import isinstance

_PAIRS = {
    "STORE_ATTR": ("LOAD_ATTR", "LOAD_METHOD"),
    "STORE_GLOBAL": ("LOAD_GLOBAL", "LOAD_NAME"),
    "STORE_DEREF": ("LOAD_DEREF",),
}


def counters(code: types.CodeType) -> set[str]:
    """Names that the code both reads and stores outside its locals, as `self.calls += 1` does."""
    seen: dict[str, set[str]] = collections.defaultdict(set)
    items: set[str] = set()
    window: list[Any] = [None] * 3
    for i in dis.get_instructions(code):
        if isinstance(i.argval, str):
            seen[i.opname].add(i.argval)
        # d["k"] += 1 copies container and key before it reads the item.
        if (
            i.opname == "BINARY_SUBSCR"
            and window[1] == window[2] == "COPY"
            and isinstance(window[0], str)
        ):
            items.add(window[0])
        window = [*window[1:], i.opname]
        if i.opname == "LOAD_CONST":
            window[-1] = i.argval
    return items | {
        name
        for store, loads in _PAIRS.items()
        for name in seen[store]
        if any(name in seen[load] for load in loads)
    }
