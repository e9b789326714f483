"""Dicts and sets from outside that the program asks and changes at keys that are inputs.

Owns the steps that ask a table again (a counter for each user, what has been seen, a histogram),
and what the run has put into it, which entries put there in the same order: no guard is on what
such a table holds.  Does not own which operations are done again (csrc/interp/tables.cpp), nor the
statements that change the table (magpy/capture/end_state.py).  Asked by csrc/interp through
magpy/capture/python/callbacks.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magpy import _interp
from magpy.capture.python.run import Run
from magpy.errors import Refusal
from magpy.ir.ops import OutsideRef

ABSENT = _interp.ABSENT

#: What a table may give: values that are compared and built anew.
_VALUES = (int, float, str, bool, type(None))
#: What the run has put at keys of a table, in order.
Stores = tuple[tuple[Any, Any], ...]


class Tables:
    """The tables of one run.

    Args:
        run: the state of the run.
    """

    def __init__(self, run: Run) -> None:
        """No table was changed yet."""
        self._run = run
        # By address; the session holds them.
        self._stores: dict[int, list[tuple[Any, Any]]] = {}
        # Where the run has put something at keys at which there was nothing.
        self._new: dict[int, list[tuple[Any, Any]]] = {}

    def item(self, op: int, table: Any, key: Any, result: Any) -> Any:
        """`table[key]` gave a plain value."""
        return self._asked(item_of, table, (key,), result)

    def has(self, table: Any, key: Any, outcome: bool) -> None:
        """`key in table` was asked."""
        self._asked(key_in, table, (key,), outcome)

    def new_key(self, table: Any, key: Any) -> bool:
        """A value is about to be put at a key of an OrderedDict that it does not have.

        Returns:
            Whether each call asks that it has not, and that keys of the run are other ones.
        """
        if self._run.refusals.first is not None or self._run.recorder.depth:
            return False
        known = self._new.setdefault(id(table), [])
        self._asked(key_in, table, (key,), False, known)
        known.append((key, ABSENT))
        return self._run.refusals.first is None

    def store(self, table: Any, key: Any, value: Any) -> None:
        """A value is about to be put at a key of a table; of a set it is True."""
        self._stores.setdefault(id(table), []).append((key, value))

    def left(self, table: Any) -> None:
        """The table is looked into otherwise: its keys are what they are in this run."""
        for key, _ in self._stores.pop(id(table), ()):
            self._run.session.rely_on(key)

    def call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`dict.get` with such a key, or `len` of a table, is called; ABSENT if it is not that."""
        if kwargs or not args:
            return ABSENT
        if f is len and len(args) == 1 and self._run.session.asks_length(args[0]):
            return self._asked(length_of, args[0], (), len(args[0]))
        table = getattr(f, "__self__", None)
        if type(table) is not dict or getattr(f, "__name__", "") != "get" or len(args) > 2:
            return ABSENT
        key, default = (*args, None)[:2]
        if not self._run.session.asks_table(table, key):
            return ABSENT
        found = table.get(key, default)
        if type(found) not in _VALUES or type(default) not in _VALUES:
            return ABSENT
        return self._asked(item_of, table, (key, default), found)

    def stores(self) -> dict[int, list[tuple[Any, Any]]]:
        """What has been put into tables that were not looked into, by their addresses."""
        return self._stores

    def _asked(
        self,
        f: Any,
        table: Any,
        args: tuple[Any, ...],
        result: Any,
        known: Sequence[tuple[Any, Any]] | None = None,
    ) -> Any:
        """Notes that `f` of a table gives `result`; what the program gets for it."""
        recorder = self._run.recorder
        if self._run.refusals.first is not None or recorder.depth:
            return result
        stores = [
            # What is no plain value is an object of this run, which no other call gets.
            (k, v if type(v) in _VALUES else ABSENT)
            for k, v in (self._stores.get(id(table), ()) if known is None else known)
        ]
        try:
            given = recorder.convert_all(tuple(stores)), *recorder.convert_all(args)
            return recorder.track(f, (type(table), OutsideRef(table), *given), {}, result)
        except Refusal as r:
            self._run.refusals.keep(r)
        except Exception as e:  # noqa: BLE001 - a failure of magpy must not reach the program
            recorder.fail(e)
        return result


def item_of(cls: Any, table: Any, stores: Stores, key: Any, *default: Any) -> Any:
    """What a dict gives for a key after these stores; ABSENT where it has none and no default."""
    if type(table) is not cls:
        return ABSENT
    for k, v in reversed(stores):
        if k == key:
            return v
    return table.get(key, *(default or (ABSENT,)))


def key_in(cls: Any, table: Any, stores: Stores, key: Any) -> Any:
    """Whether a dict or set has a key after these stores."""
    if type(table) is not cls:
        return ABSENT
    return key in table or any(k == key for k, _ in stores)


def length_of(cls: Any, table: Any, stores: Stores) -> Any:
    """How many keys a dict or set has after these stores."""
    if type(table) is not cls:
        return ABSENT
    return len(table) + len({k for k, _ in stores if k not in table})


__all__ = ["Tables", "item_of", "key_in", "length_of"]
