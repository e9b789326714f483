"""What numpy warns of where a step calls it: an effect of its own, in its order among the effects.

Owns which step tells of warnings, and whether it has warned while it was watched.  Does not own
which functions may warn (magpy/models/numpy_warnings.py), nor the effect
(magpy/capture/python/effects.py).  Called by magpy/capture/python/tracked.py and
magpy/capture/python/arrays.py.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from magpy import _interp
from magpy.capture.python import effects as effect_calls
from magpy.capture.python.run import Run
from magpy.errors import Refusal
from magpy.frames import call_sites
from magpy.frames.locations import refuse
from magpy.ir.ops import HostStep, Var
from magpy.models import callables, numpy_warnings
from magpy.objects.types import isinstance

ABSENT = _interp.ABSENT


class ArithmeticWarnings:
    """What numpy warns of in the steps of one run.

    Args:
        run: the state of the run.
    """

    def __init__(self, run: Run) -> None:
        """Nothing was called yet."""
        self._run = run
        #: A store is noted, which is made afterwards.
        self.storing = False

    def telling(
        self,
        write: Callable[..., Any],
        step: tuple[Any, ...],
        f: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """What `write(*step)` gives, which writes a call down.

        What numpy warns of in it is an effect of its own.
        """
        recorder = self._run.recorder
        if not numpy_warnings.computes(f) or not is_of_numpy(f, (*args, *kwargs.values())):
            return write(*step)
        if f is operator.setitem and self._is_small(args[2]):
            return write(*step)
        if numpy_warnings.calls_back():
            raise refuse("numpy calls the program where arithmetic fails (numpy.seterrcall)")
        told, place = recorder.tensors.new(), place_now()
        again = isinstance(f, functools.partial) and f.func is element and f.args[2] > 0
        # A store is noted before it is made.
        shown = not self.storing and self._warns_itself(write, f, args, kwargs)
        recorder.telling, recorder.performer.computed_warns = (told, place), False
        before = len(recorder.record.steps)
        try:
            result = write(*step)
        finally:
            recorder.telling = None
        # Of a function that gives several values each is computed by itself.
        steps = recorder.record.steps[before:]
        made = any(isinstance(s, HostStep) and s.warnings == (told, place) for s in steps)
        if made and not again and not self.storing:
            self.told(told, place, shown)
        return result

    def told(self, told: Var, place: Any, shown: bool) -> None:
        """What a step has told of is an effect of its own, or there was nothing."""
        try:
            effect_calls.arithmetic(self._run, told, place, shown)
        except Refusal as r:
            self._run.refusals.keep(r)
        except Exception as e:  # noqa: BLE001 - a failure of magpy must not reach the program
            self._run.recorder.fail(e)

    def _is_small(self, v: Any) -> bool:
        """Whether a number is the same in every call, and one that every array can take."""
        return (
            type(v) in (bool, int, float) and abs(v) < 100 and self._run.session.tracked(v) is None
        )

    def _warns_itself(
        self, write: Any, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        """Whether the call has warned, which a step does by itself."""
        recorder = self._run.recorder
        if recorder.performer.computed_warns:
            return True
        most = len(recorder.performer.warned[0])
        if most > 1 and write != recorder.note:
            # Some may be those of another call from this line: how many are its own is found out.
            told: list[Any] = []
            numpy_warnings.telling(f)(told, *args, **kwargs)
            most = len(told)
        return recorder.performer.warns_itself(most)


def is_of_numpy(f: Any, given: Iterable[Any]) -> bool:
    """Whether numpy does what a call of `f` with these values does."""
    return callables.is_numpys(f) or any(isinstance(a, (np.ndarray, np.generic)) for a in given)


def place_now() -> call_sites.Site:
    """The line of the program that is done now."""
    frame = call_sites.program_frame()
    assert frame is not None
    return call_sites.site_of(frame)


def element(f: Any, n: int, i: int, *args: Any, **kwargs: Any) -> Any:
    """One of the `n` values in the tuple that a function gives; ABSENT if it gives another."""
    values = f(*args, **kwargs)
    return values[i] if type(values) is tuple and len(values) == n else ABSENT


__all__ = ["ArithmeticWarnings", "element", "is_of_numpy", "place_now"]
