"""Imports of torch's compilers, by one thread at a time.

Their modules import each other.  Python locks each module on its own: of two threads that begin
with different ones each waits for the other, and finds modules of which half is there (a server
whose first requests come on several threads).  Owns the lock for that.  Called by what imports them
first: magpy/shapes/symbols.py and magpy/backends.

Source: `_ModuleLock` in CPython's Lib/importlib/_bootstrap.py
"""

from __future__ import annotations

import importlib
import threading

_lock = threading.RLock()


def imported(*names: str) -> None:
    """Imports modules, while no other thread does so here.

    Raises:
        ImportError: one cannot be imported.
    """
    with _lock:
        for name in names:
            importlib.import_module(name)


__all__ = ["imported"]
