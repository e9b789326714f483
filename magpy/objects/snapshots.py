"""What outside containers, attributes and cells held when a watched run first looked at them.

Owns the comparison of the session's snapshots with what is there now.  Does not own the snapshots
(csrc/interp/session_state.cpp) nor what an entry does about a difference
(magpy/capture/end_state.py). Called while a run is watched and at its end.
"""

from __future__ import annotations

import collections
import types
from typing import Any

from magpy import _interp
from magpy.objects.hashing import pairs_of
from magpy.objects.types import isinstance

# A class of the program's may iterate as it likes.
_ITERATED = (set, frozenset, list, tuple, collections.deque)

ABSENT = _interp.ABSENT


def at_start(session: Any, module: Any, name: str) -> Any:
    """What a module's attribute was when the run began, or ABSENT."""
    for obj, pre, *_ in session.containers():
        if obj is vars(module):
            return pre.get(name, ABSENT)
    return vars(module).get(name, ABSENT)


#: What an outside container is, whose changes an entry can make again.
CONTAINERS = (dict, list, set, collections.deque, bytearray)


def container_states(session: Any) -> dict[int, Any]:
    """What outside containers that were looked at hold now; None for those left as they were."""
    picture: dict[int, Any] = {}
    for obj, pre, *_ in session.containers():
        now, old = content_of(obj), content_of(pre)
        picture[id(obj)] = None if now == old else now
    return picture


def is_changed(session: Any, container: Any) -> bool:
    """Whether an outside container holds something else than when the run first looked at it."""
    return any(
        obj is container and content_of(obj) != content_of(pre)
        for obj, pre, *_ in session.containers()
    )


def only_fills(session: Any) -> bool:
    """Whether all that a run has changed by now was missing, or None, before.

    A memo is filled, something is made when it is first needed: the next call finds it there.
    """
    for obj, pre, *_ in session.containers():
        if content_of(obj) == content_of(pre):
            continue
        if not isinstance(obj, dict):
            return False
        now = {id(k): v for k, v in pairs_of(obj)}
        if any(v is not None and now.get(id(k), ABSENT) is not v for k, v in pre.items()):
            return False
    olds = [old for kind, _, _, old in session.log() if kind in ("write_attr", "write_type")]
    olds += [old for _, old in session.written_cells()]
    return all(old is None or old is ABSENT for old in olds)


def written_places(session: Any) -> dict[tuple[int, str | None], Any]:
    """What attributes without a dict, those of classes, and cells hold that the run has written."""
    places: dict[tuple[int, str | None], Any] = {}
    for kind, obj, name, _ in session.log():
        if kind == "write_attr":
            places[id(obj), name] = getattr(obj, name, ABSENT)
        elif kind == "write_type":
            places[id(obj), name] = obj.__dict__.get(name, ABSENT)
    for cell, _ in session.written_cells():
        places[id(cell), None] = ABSENT if cell == types.CellType() else cell.cell_contents
    return places


def content_of(container: Any) -> Any:
    """What a container or its snapshot holds, by identity."""
    if isinstance(container, (bytes, bytearray)):
        return bytes(container)
    if isinstance(container, dict):
        return [id(x) for pair in pairs_of(container) for x in pair]
    base: Any = next(c for c in _ITERATED if isinstance(container, c))
    found = [id(x) for x in base.__iter__(container)]
    return frozenset(found) if base in (set, frozenset) else found
