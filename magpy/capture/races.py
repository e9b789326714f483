"""What a run itself has changed, told from what other threads changed while it was watched.

Owns the content that an outside object would have if nobody but the run had written to it. Does not
own the log of what the run stores (csrc/interp/session_state.cpp, `note_store`), nor what becomes
of a change (end_state.py), which calls this.

Torch lets other threads run in each of its operations, so in a server with a pool of threads
another one has nearly always run meanwhile. Where none has, what is there at the end is the run's.
"""

from __future__ import annotations

import collections
import itertools
from typing import Any, Final

import torch

from magpy import _interp
from magpy.errors import Refusal
from magpy.objects.hashing import hashes_quietly, pairs_of
from magpy.objects.snapshots import ABSENT, content_of
from magpy.objects.types import isinstance

_SEQUENCES: Final = (list, collections.deque)


def race(holder: Any) -> Refusal:
    """Another thread has changed something that the call changes, or reads."""
    what = type(holder).__name__
    return Refusal(
        f"another thread changes a {what} while a call that uses it is captured", passing=True
    )


def _is_known_by_identity(key: Any) -> bool:
    """Whether it is found in a dict without a comparison: so is a tensor, whose hash is its own."""
    if not isinstance(key, torch.Tensor):
        return hashes_quietly(key)
    return all(
        _interp.type_lookup(type(key), name) is _interp.type_lookup(torch.Tensor, name)
        for name in ("__hash__", "__eq__")
    )


class OwnChanges:
    """What a run has put into outside objects, by its own log.

    Args:
        session: what watched the run.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._stores: dict[int, list[tuple[Any, Any, int]]] = {}
        for holder, key, value, address in session.stores():
            self._stores.setdefault(id(holder), []).append((key, value, address))

    def _others(self) -> bool:
        """Whether another thread may have changed what was read before this question.

        It may run while the changes are gathered, too: whoever asks has read the content first.
        """
        others_ran: bool = self._session.others_ran
        return others_ran

    def content(self, obj: Any, pre: Any, unknown: bool) -> Any:
        """What an outside container holds, or would if no other thread had changed it.

        Args:
            obj: the container.
            pre: what it held before the call, as `session.containers` has it.
            unknown: whether the run has used it in ways that its log does not tell: it was read as
                a whole, or given to C code.

        Returns:
            The pairs of a dict; the elements of a list, a deque or a set; the bytes.

        Raises:
            Refusal: passing, where that is not known.
        """
        now: Any
        if isinstance(obj, dict):
            now = pairs_of(obj)
        elif isinstance(obj, _SEQUENCES):
            now = _elements(obj)
        else:
            now = obj.copy() if isinstance(obj, bytearray) else set.copy(obj)
            if content_of(now) != content_of(pre) and self._others():
                raise race(obj)
            return now
        if not self._others():
            return now
        own = self._own_pairs(obj, pre, now) if isinstance(obj, dict) else self._own(obj, pre)
        if unknown and not _alike(now, own):
            raise race(obj)
        return own

    def places(self, obj: list[Any]) -> list[int]:
        """The places of a list at which the run has stored something, in the order of the last."""
        places = [key for key, *_ in self._stores.get(id(obj), ()) if key is not None]
        return list(dict.fromkeys(reversed(places)))[::-1]

    def at(self, holder: Any, name: Any, now: Any) -> Any:
        """What the run has put into a cell (name: None) or an attribute, in which `now` is."""
        if not self._others():
            return now
        stores = [s for s in self._stores.get(id(holder), ()) if name is None or s[0] == name]
        if not stores:
            return now
        _, value, address = stores[-1]
        return _stored(holder, value, address, [now])

    def _own_pairs(
        self, obj: dict[Any, Any], pre: dict[Any, Any], now: list[tuple[Any, Any]]
    ) -> list[tuple[Any, Any]]:
        stores = self._stores.get(id(obj), [])
        keys = [*pre, *(k for k, _ in now), *(k for k, *_ in stores)]
        if not all(map(_is_known_by_identity, keys)):
            if not _alike(now, list(pre.items())):
                raise race(obj)
            return now
        shown = dict(now)
        own = dict(pre)
        for key, value, address in stores:
            if address == 0:
                own.pop(key, None)
            else:
                own[key] = _Pending(value, address)
        return [
            (k, _stored(obj, v.value, v.address, [shown.get(k, ABSENT)]))
            if type(v) is _Pending
            else (k, v)
            for k, v in own.items()
        ]

    def _own(self, obj: Any, pre: tuple[Any, ...]) -> tuple[Any, ...]:
        stores = self._stores.get(id(obj), ())
        now = _elements(obj)
        made: list[Any] = list(pre)
        for place, value, address in stores:
            if place is None:
                made.append(_Pending(value, address))
            elif place < len(made):
                made[place] = _Pending(value, address)
            else:
                raise race(obj)
        own = tuple(
            _stored(obj, v.value, v.address, itertools.chain(now[i : i + 1], now))
            if type(v) is _Pending
            else v
            for i, v in enumerate(made)
        )
        most = getattr(obj, "maxlen", None)
        return own if most is None else own[max(len(own) - most, 0) :]


class _Pending:
    """A value that was stored: itself if it is a plain one, and its address."""

    __slots__ = ("address", "value")

    def __init__(self, value: Any, address: int) -> None:
        self.value = value
        self.address = address


def _stored(holder: Any, value: Any, address: int, found: Any) -> Any:
    """A value that the run has stored, which is among those that are there now or a plain one."""
    if address == 0:
        return ABSENT
    for candidate in found:
        if id(candidate) == address:
            return candidate
    if value is None and address != id(None):
        raise race(holder)
    return value


def _elements(obj: Any) -> tuple[Any, ...]:
    base: Any = list if isinstance(obj, list) else collections.deque
    return tuple(base.__iter__(obj))


def _alike(a: Any, b: Any) -> bool:
    """Whether two contents are the same objects: pairs of a dict, or elements."""

    def objects(content: Any) -> list[int]:
        if isinstance(content, list):
            return [id(x) for pair in content for x in pair]
        return list(map(id, content))

    return objects(a) == objects(b)
