"""The refusal of one watched run, or magpy's own failure in it.

Owns which refusal counts: the first one, whoever found it.  Does not own why something is refused.
Shared by the recorder (magpy/capture/tensors), the answers to the session (magpy/capture/python)
and magpy/capture/session.py; what it has kept stops the recording, and the program runs on.
"""

from __future__ import annotations

from magpy.errors import Refusal
from magpy.frames.locations import where_text

_MOST = 16


class RefusalBox:
    """Keeps the first refusal of a run, and no later one."""

    __slots__ = ("failure", "first")

    def __init__(self) -> None:
        """Nothing is refused yet."""
        self.first: Refusal | None = None
        #: The first failure of magpy's own.
        self.failure: Exception | None = None

    def keep(self, refusal: Refusal | None) -> None:
        """Keeps a refusal, if there is one and it is the first."""
        if self.first is None and refusal is not None:
            self.first = refusal.without_frames()

    def refuse(self, reason: str, remedy: str = "", passing: bool = False) -> None:
        """Keeps a refusal at the user's current line: the first, and with it some later ones.

        These may follow from the first; but most are refused for themselves, and what runs in part
        need not meet them one by one.
        """
        if self.first is None:
            self.first = Refusal(reason, where_text(2), remedy, passing)
        elif not passing and not self.first.passing and len(self.first.more) < _MOST:
            self.first.more.append(Refusal(reason, where_text(2), remedy))

    def fail(self, error: Exception) -> None:
        """Keeps a refusal, or a failure of magpy's own, which refuses the run."""
        if isinstance(error, Refusal):
            self.keep(error)
        else:
            self.failure = self.failure or error
            self.keep(Refusal("magpy failed while it recorded an operation"))


__all__ = ["RefusalBox"]
