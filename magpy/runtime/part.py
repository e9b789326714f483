"""A region as a compiled callable sees itself: what it tells its driver, and asks of it.

Owns when a region is left to Python since captures of it hold no tensor operation.  Does not own
the driver (magpy/runtime/driver.py) nor what code tells of that ahead of a capture
(magpy/runtime/idle_regions.py).  Called by magpy/runtime/compiled.py and
magpy/runtime/repeated_misses.py.
"""

from __future__ import annotations

from typing import Any

from magpy.errors import Refusal
from magpy.instrument.regions import Region
from magpy.runtime.driver import Driver
from magpy.runtime.figures import NO_OPERATION
from magpy.runtime.idle_regions import is_idle
from magpy.runtime.journal import Journal

#: A region of several statements is left to Python after so many more captures without operations.
_MOST_IDLE = 2


class Part:
    """One region of a driver.

    Args:
        driver: the driver.
        region: the region.
    """

    def __init__(self, driver: Driver, region: Region) -> None:
        """Keeps both."""
        self.driver = driver
        self.region = region

    def learn(self, refusal: Refusal) -> bool:
        """Leaves to Python what was refused in the region; whether anything was learnt."""
        return self.driver.learn(refusal, self.region)

    def separate(self, why: str) -> bool:
        """Makes regions of single statements; whether anything changes by that."""
        return self.driver.separate(self.region, why)

    def leave(self, why: str) -> None:
        """Leaves the whole region to Python."""
        self.driver.leave(self.region, why)

    def is_without_operations(self, some: bool) -> bool:
        """Whether captures of the region have no tensor operation.

        Where there are statements within its statements, another call may go another way.

        Args:
            some: the last capture has such operations.
        """
        idle, places = self.driver.lines.idle, self.region.places
        idle[places] = -1 if some or idle[places] < 0 else idle[places] + 1
        return idle[places] > (_MOST_IDLE if self.region.compound else 0)

    def leave_for_no_work(self, compiled: Any, journal: Journal) -> None:
        """Leaves a region to Python that computes with no tensor."""
        code = compiled._magpy_wrapped.__code__
        place = f"{code.co_filename}:{self.region.lines[0]} ({code.co_name})"
        journal.left.setdefault(place, NO_OPERATION)
        self.leave("")

    def is_pythons(
        self, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any], journal: Journal
    ) -> bool:
        """Whether the region, of which nothing was captured, surely computes with no tensor.

        It is left to Python from here on, without a capture.
        """
        idle = is_idle(compiled._magpy_wrapped, (*args, *kwargs.values()))
        if idle:
            self.leave_for_no_work(compiled, journal)
        return idle


__all__ = ["Part"]
