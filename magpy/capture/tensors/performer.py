"""How operations are performed: as if from the line of the program, with the warnings they show.

Owns the frame that stands for the program's line, and which operations show warnings.  Does not own
what an operation is and does (magpy/capture/tensors/recorder.py), nor warnings of the program's own
(magpy/capture/python/effects.py).  Called by magpy/capture/tensors/recorder.py, and by the answers
to the session (magpy/capture/python), which hear of each warning.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

from magpy import _interp
from magpy.capture.tensors.operation import Operation
from magpy.errors import hide_frames
from magpy.frames import call_sites
from magpy.frames.synthetic import SILENT, Operations
from magpy.ir.ops import Record

# The filter of `warnings.simplefilter("ignore")`.
_IGNORES_ALL = ("ignore", None, Warning, None, 0)

# The names of operations that have warned: another time the interpreter may have found that it has
# shown that already.
_HAVE_WARNED: set[str] = set()


class Performer:
    """Performs the operations of one run.

    Args:
        record: the record of the run.
        session: the C++ session.
    """

    def __init__(self, record: Record, session: Any) -> None:
        """Nothing was performed yet."""
        self._record = record
        self._session = session
        self._watched = session is not None
        self._calls = Operations()
        self._filters = warnings.filters
        #: A function of numpy's is called, of which the step is still to be written down.
        self.computing = False

    def perform(
        self, op: Operation, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Performs an operation that is recorded, from the line of the program."""
        # What warns says where it was called, and what raises; that is not here.
        op.place = call_sites.place_of(func)
        # Below an operation the program may run (modes, hooks, operators of its own), and wait.
        at_place = self._calls.at(op.place)
        call = functools.partial(
            _interp.let_signals_in, functools.partial(at_place, func, args, kwargs)
        )
        if op.reach is None:
            return call()
        # Autograd's engine may run Python of the program on this thread.
        watched = _interp.below(self._watched)
        try:
            return call()
        finally:
            _interp.below(watched)

    def unrecorded(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs an operation that is not recorded, as if from the line of the program."""
        try:
            return self._calls.at(call_sites.place_of(func))(func, args, kwargs)
        except BaseException as e:
            hide_frames(e)
            del args, kwargs
            raise

    def compute(
        self,
        place: call_sites.Site,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Calls a function of numpy's from a line of the program, as `perform` does operations."""
        self.computing = True
        try:
            return self._calls.at(place)(func, args, kwargs)
        finally:
            self.computing = False

    def performs(self, function: Any) -> bool:
        """Whether it is no function of the program, but one that stands for its lines."""
        return self._calls.made(function)

    def warns(self, op: Operation) -> None:
        """The operation shows a warning: an entry does it as if from the same place."""
        op.warns = True

    def warning_site(self, op: Operation, name: str) -> Any:
        """Where the program is, if the operation may warn; `SILENT` where that shows nothing."""
        filters = warnings.filters
        if filters is not self._filters and filters and tuple(filters[0]) == _IGNORES_ALL:
            return SILENT
        if op.warns:
            _HAVE_WARNED.add(name)
        return op.place if name in _HAVE_WARNED else None


__all__ = ["Performer"]
