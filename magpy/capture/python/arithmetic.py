"""Arithmetic of numpy's with values that follow from data, which may fail: numpy warns then.

Owns which steps leave their entry in that case.  Does not own which functions may warn
(magpy/models/numpy_warnings.py), nor what a watched call does that warns
(magpy/capture/python/callbacks.py, which refuses it).  Called by magpy/capture/python/tracked.py
and magpy/capture/python/arrays.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from magpy import _interp
from magpy.capture.tensors.recorder import Recorder
from magpy.frames import call_sites
from magpy.frames.locations import refuse
from magpy.models import callables, numpy_warnings
from magpy.objects.types import isinstance


def noted(
    recorder: Recorder,
    write: Callable[..., Any],
    step: tuple[Any, ...],
    f: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """What `write(*step)` gives, which writes a call of `f` down."""
    if not numpy_warnings.computes(f) or not is_of_numpy(f, (*args, *kwargs.values())):
        return write(*step)
    if numpy_warnings.calls_back():
        raise refuse("numpy calls the program where arithmetic fails (numpy.seterrcall)")
    recorder.arithmetic = place_now()
    try:
        return write(*step)
    finally:
        recorder.arithmetic = None


def is_of_numpy(f: Any, given: Iterable[Any]) -> bool:
    """Whether numpy does what a call of `f` with these values does."""
    return callables.is_numpys(f) or any(isinstance(a, (np.ndarray, np.generic)) for a in given)


def place_now() -> call_sites.Site:
    """The line of the program that is done now."""
    frame = call_sites.program_frame()
    assert frame is not None
    return call_sites.site_of(frame)


def element(f: Any, n: int, i: int, *args: Any, **kwargs: Any) -> Any:
    """One of the `n` values in the tuple or list that a function gives; ABSENT for another one."""
    values = f(*args, **kwargs)
    return values[i] if type(values) in (tuple, list) and len(values) == n else _interp.ABSENT


__all__ = ["element", "is_of_numpy", "noted", "place_now"]
