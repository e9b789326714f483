"""Injected faults: how tests make a stage of magpy fail.

Owns a table of armed stages.  The stages call `check`; nothing but tests arms one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

STAGES = ("instrument", "log", "recorder", "refgraph", "guard", "mock", "backend")
_armed: set[str] = set()


class InjectedFault(RuntimeError):
    """The fault that `inject` makes a stage raise."""


def check(stage: str) -> None:
    """Raises `InjectedFault` when `stage` is armed."""
    if _armed and stage in _armed:
        raise InjectedFault(f"injected into {stage}")


@contextmanager
def inject(stage: str) -> Iterator[None]:
    """Makes `stage` fail inside the block.

    Raises:
        ValueError: there is no such stage.
    """
    if stage not in STAGES:
        raise ValueError(f"unknown stage {stage!r}; known: {', '.join(STAGES)}")
    _armed.add(stage)
    try:
        yield
    finally:
        _armed.discard(stage)
