"""What a `functools.lru_cache` keeps, found as its own lookup finds it.

Owns the dict of a cache and the keys that it makes of the arguments of a call.  Does not own what a
run makes of a remembered result (magpy/capture/python/memos.py) nor its guard
(magpy/guards/checks.py); these call it.
"""

from __future__ import annotations

import functools
import gc
import operator
from typing import Any

from magpy.objects.hashing import hashes_quietly


def memory_of(memo: Any) -> dict[Any, Any]:
    """The dict in which an lru_cache keeps its results; clearing the cache empties it."""
    return next((x for x in gc.get_referents(memo) if type(x) is dict and x is not vars(memo)), {})


@functools.cache
def _keyword_mark() -> Any:
    """What stands before the names in the keys of lru_caches, all of which have the same one."""

    def probe(**names: Any) -> None: ...

    cached = functools.lru_cache(maxsize=None)(probe)
    cached(name=None)
    return next(iter(memory_of(cached)))[0]


def _memo_key(memo: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an lru_cache makes of the arguments of a call (`lru_cache_make_key` in CPython)."""
    typed = memo.cache_parameters()["typed"]
    if not typed and not kwargs:
        return args[0] if len(args) == 1 and type(args[0]) in (int, str) else args
    key = args
    if kwargs:
        key += (_keyword_mark(), *(part for item in kwargs.items() for part in item))
    if typed:
        key += (*map(type, args), *map(type, kwargs.values()))
    return key


def remembered(memo: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any] | None:
    """The key and what an lru_cache keeps under it for a call, or None if that is not known.

    A cache with a size keeps links that hold the results; a result that is forgotten and found
    again has another link.
    """
    memory, key = memory_of(memo), _memo_key(memo, args, kwargs)
    if hashes_quietly((*args, *kwargs.values())):
        return (key, memory[key]) if key in memory else None
    # No code of the program runs to find it: only one whose parts are these very objects is known.
    parts = key if type(key) is tuple else (key,)
    for k, v in memory.items():
        if type(k) is tuple and len(k) == len(parts) and all(map(operator.is_, k, parts)):
            return k, v
    return None
