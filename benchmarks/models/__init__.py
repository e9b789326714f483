"""The suite's models: small, random weights, each in the style of a published one.

Owns: the list of cases. Does not own: timing (`benchmarks/measure.py`). A case builds its model
and, for a batch size, its positional arguments.
"""

from __future__ import annotations

from benchmarks.models import current, dynamic, static
from benchmarks.models.case import Case

SUITE: tuple[Case, ...] = (*static.CASES, *dynamic.CASES, *current.CASES)

__all__ = ["SUITE", "Case"]
