"""A region as a compiled callable sees itself: what it tells its driver, and asks of it.

Owns when a region is left to Python since captures of it hold no tensor operation, or since no
guard can compare what it is given.  Does not own the driver (magpy/runtime/driver.py) nor what code
tells of that ahead of a capture (magpy/runtime/idle_regions.py).  Called by
magpy/runtime/compiled.py and magpy/runtime/repeated_misses.py.
"""

from __future__ import annotations

from typing import Any

import torch

from magpy.capture import session
from magpy.errors import Refusal
from magpy.instrument.regions import Region
from magpy.objects.types import isinstance
from magpy.runtime.driver import Driver, argument_names
from magpy.runtime.figures import NO_OPERATION
from magpy.runtime.idle_regions import is_idle
from magpy.runtime.journal import Journal
from magpy.runtime.misses import is_unlike_any

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
        self,
        compiled: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        journal: Journal,
        new: bool,
    ) -> bool:
        """Whether the region is left to Python from here on, without a capture.

        It surely computes with no tensor, or it is given what no guard can compare.

        Args:
            compiled: the region's callable.
            args: what it is given, with `kwargs`.
            kwargs: see `args`.
            journal: the callable's.
            new: nothing of it was captured.
        """
        if new and is_idle(compiled._magpy_wrapped, (*args, *kwargs.values())):
            self.leave_for_no_work(compiled, journal)
            return True
        names = argument_names(compiled, args, kwargs)
        given = zip(names, (*args, *kwargs.values()), strict=True)
        found = {n for n, v in given if n and isinstance(v, torch.Tensor) and is_unlike_any(v)}
        if not found:
            return False
        why = f"no guard can compare the tensors that are asked here ({', '.join(sorted(found))})"
        # Where they are asked in the middle of an expression it takes a smaller region.
        if not self.driver.vary(found, opaque=True) and not self.separate(why):
            return False
        journal.left[session.definition(compiled._magpy_wrapped)] = why
        return True


__all__ = ["Part"]
