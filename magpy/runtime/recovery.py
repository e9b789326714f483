"""What becomes of a call whose entry raised, and of an entry whose graph a backend fails for.

Owns what is taken back, and whether the call runs eagerly then or raises.  Does not own what an
entry saves to be taken back (magpy/replay/support.py) nor what is told of a backend's failure
(magpy/runtime/compiled.py).  Entries hold these functions; magpy/runtime/compiled.py and
magpy/runtime/saved.py make them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from magpy import _interp
from magpy.backends.runner import BackendError, EntryInfo
from magpy.frames import signals
from magpy.objects import saved_tensors
from magpy.objects.types import isinstance
from magpy.replay.support import undo
from magpy.runtime.exceptions import as_the_programs


def recover_of(ref: weakref.ref[Any]) -> Callable[..., Any]:
    """What an entry of a callable calls when it raises before its effects."""

    def recover(info: EntryInfo, error: BaseException, saved: Any, early: bool) -> Any:
        """Puts back what it can and has the call run eagerly.

        `saved` is empty if nothing was changed yet, and None if nothing was saved; `early` says
        for the latter that nothing was changed all the same.
        """
        compiled: Any = ref()
        if compiled is None:
            raise error
        if signals.raised_by_handler(error):
            if saved:
                undo(saved)
            return _interp.Raise(as_the_programs(error))
        if saved_tensors.raised_by_hook(error):
            # As in eager, where nothing is taken back: a checkpoint has all that it needs.
            return _interp.Raise(as_the_programs(error))
        if saved:
            undo(saved)
        elif saved is None and info.mutates and not isinstance(error, BackendError) and not early:
            # Part of the call may have happened and cannot be taken back.
            return _interp.Raise(as_the_programs(error))
        if isinstance(error, BackendError):
            compiled._magpy_entries = [e for e in compiled._magpy_entries if e.tag is not info]
            compiled._magpy_options.backend_failed(compiled, error)
        # Eager raises what there is to raise, at the user's line.
        return _interp.MISS

    return recover


def failed_of(ref: weakref.ref[Any]) -> Callable[[BackendError], bool]:
    """What an entry of a callable tells of a failing backend: whether Python may run the graph."""

    def failed(error: BackendError) -> bool:
        compiled: Any = ref()
        if compiled is None or compiled._magpy_options.options.fullgraph:
            return False
        compiled._magpy_options.backend_failed(compiled, error)
        return True

    return failed


__all__ = ["failed_of", "recover_of"]
