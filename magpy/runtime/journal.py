"""What is told of a compiled callable: reasons, lines left to Python, its history, warnings.

Owns the keeping of these texts, how many of them are kept, and that a warning comes once and names
the program's line.  Does not own when something is told (magpy/runtime/compiled.py and what it
consists of) nor how it is shown (magpy/runtime/figures.py, magpy/runtime/report.py).
"""

from __future__ import annotations

import collections
import contextlib
import sys
import warnings

from magpy import config
from magpy.errors import MagpyWarning

_MOST_HISTORY = 500
_MOST_REASONS = 50


class Journal:
    """The journal of one compiled callable.

    Args:
        name: the callable's.
        warned: what users were warned of already.
    """

    def __init__(self, name: str, warned: set[str]) -> None:
        """Nothing has happened."""
        self.name = name
        self.warned = warned
        #: Why something is not compiled, and how often that was so.
        self.reasons: collections.Counter[str] = collections.Counter()
        #: The lines at which capturing ended, with the reasons.
        self.left: dict[str, str] = {}
        #: What happened in calls, by their numbers.
        self.history: list[tuple[int, str]] = []

    def note(self, reason: str) -> None:
        """Keeps a reason why something is not compiled."""
        if reason in self.reasons or len(self.reasons) < _MOST_REASONS:
            self.reasons[reason] += 1

    def happened(self, call: int, topic: str, text: str) -> None:
        """Logs something, and keeps it with the number of the call."""
        config.log(topic, "%s: %s", self.name, text)
        if len(self.history) < _MOST_HISTORY:
            self.history.append((call, text))

    def warn(self, text: str) -> None:
        """Warns once."""
        if text in self.warned:
            return
        self.warned.add(text)
        # A program that turns warnings into errors must not get an exception that eager would not
        # raise.
        with contextlib.suppress(Warning):
            warnings.warn(MagpyWarning(text), stacklevel=_frames_of_magpy())


def _frames_of_magpy() -> int:
    """The `stacklevel` with which a warning of the calling function names the program's line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("magpy."):
        level, frame = level + 1, frame.f_back
    return level


__all__ = ["Journal"]
