"""The progress bar of a run, on standard error.

Owns: how far a run is, what it found so far, when it will end.  Does not own: the counting of
results (`report`).
"""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

BAR_WIDTH = 24


class Progress:
    """One line that is rewritten on a terminal, and a line every 30 seconds elsewhere."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total = total
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self.done = 0
        self.counts: dict[str, int] = {}
        self.whole = 0
        self.start = self.shown = time.monotonic()

    def record(self, record: dict[str, Any]) -> None:
        self.counts[record["status"]] = self.counts.get(record["status"], 0) + 1
        self.whole += bool(record["whole"])

    def file(self) -> None:
        self.done += 1

    def tick(self) -> None:
        """Show the line when it is time to."""
        now = time.monotonic()
        if now - self.shown >= (0.5 if self.live else 30):
            self.shown = now
            self.show()

    def show(self, end: str = "") -> None:
        text = self.line()
        self.stream.write(f"\r\x1b[2K{text}{end}" if self.live else f"{text}\n")
        self.stream.flush()

    def line(self) -> str:
        filled = BAR_WIDTH * self.done // max(self.total, 1)
        elapsed = time.monotonic() - self.start
        left = elapsed / self.done * (self.total - self.done) if self.done else 0
        judged = sum(count for status, count in self.counts.items() if status != "left_out")
        bad = " ".join(
            f"{name} {self.counts.get(name, 0)}" for name in ("wrong", "stale", "crash", "timeout")
        )
        return (
            f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] "
            f"{self.done}/{self.total} files, {judged} cases, "
            f"whole {self.whole}, {bad}, {_clock(elapsed)} gone, {_clock(left)} left"
        )


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
