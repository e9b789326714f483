"""The figures of a compiled callable: what `magpy.stats` tells.

Owns `Stats`, the sums over a callable and its regions, and the share of its tensor operations that
ran in graphs.  Does not own what is counted in each call (csrc/interp/dispatch.cpp, figures.cpp)
nor what happens in one (magpy/runtime/compiled.py, which calls this).

The share is of single calls, every operation of which is counted: the second, the seventh, and so
on, ever more rarely; where that one is watched, the next.  What Python calls one by one is counted
as torch's dispatcher meets it, on the thread of the call; what an entry does is known from its
graphs.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from magpy.backends import eager
from magpy.backends.runner import EntryInfo

#: The first call that is counted: the one before is watched.
FIRST = 2
#: Why a stretch of the program is left to Python in which nothing was refused.
NO_OPERATION = "no tensor operation"


@dataclass(slots=True)
class Stats(Mapping[str, Any]):
    """What a compiled callable did so far: attributes, and a mapping from their names.

    Of a callable that is compiled in part the figures are those of all its regions together, but
    for `hits`, `misses`, `eager_calls` and `share`, which tell of calls of the callable, and not of
    what a generator or a coroutine does after its call.

    Attributes:
        captures: runs of the callable, or of a region, that were watched and became entries.
        hits: calls that entries served: one, or one for each region that ran.
        misses: all other calls.
        misses_by: how often the closest entry did not fit by what it looks at ("x.shape[0]",
            "self.training"), the most frequent first.  Counted while there are entries, until they
            are as many as there may be.
        eager_calls: calls of which nothing ran in an entry, and nothing became one.
        share: the part of the tensor operations that ran in graphs of the backend, from 0 to 1, in
            calls that were counted since anything was captured last; None if none was.  Not in
            graphs are those that Python runs one by one: on lines that are left to it, between
            graphs, and in graphs that the backend cannot have.  Reading a number (`item`, `bool`)
            and what autograd's engine runs are not counted.  With the backend "eager" the graphs
            count, though Python runs them.
        regions: stretches of the program that have entries: 1 where the callable is captured
            whole, 0 where nothing is compiled.
        in_python: the lines that are left to Python, as "file:line (function)", each with the
            reason: where capturing ended, and the first lines of stretches without an operation.
        entries: entries kept now.
        pending: entries whose graphs are being compiled in the background, or which are being
            measured (`mode="auto"`).
        choices: what serves the calls of each entry, where that was measured.
        segments: graphs in each entry.
        uncompiled: graphs for which the backend failed; Python runs them.
        reasons: why calls ran eagerly and graphs were not compiled, oldest first, each once.
        capture_seconds: time spent in capturing and building entries, without the backend.
        compile_seconds: time spent in the backend.
    """

    captures: int = 0
    hits: int = 0
    misses: int = 0
    eager_calls: int = 0
    share: float | None = None
    regions: int = 0
    in_python: list[tuple[str, str]] = field(default_factory=list)
    entries: int = 0
    pending: int = 0
    choices: list[str] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    uncompiled: int = 0
    misses_by: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)
    capture_seconds: float = 0.0
    compile_seconds: float = 0.0

    def __getitem__(self, name: str) -> Any:
        """A figure by its name.

        Raises:
            KeyError: there is no such figure.
        """
        if name not in self.__dataclass_fields__:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        """The names of the figures, in the order in which they are documented."""
        return iter(self.__dataclass_fields__)

    def __len__(self) -> int:
        """How many figures there are."""
        return len(self.__dataclass_fields__)


class Share:
    """The share of a callable's tensor operations that ran in graphs."""

    def __init__(self) -> None:
        """No call was counted yet."""
        self._state: object = None
        self.in_graphs = 0
        self.one_by_one = 0

    def add(self, state: object, backend: Any, operators: int, served: Iterable[EntryInfo]) -> None:
        """Adds a call that was counted; others count no more if the callable was another then.

        Args:
            state: what changes where something is captured.
            backend: the backend of the callable.
            operators: how many operators ran outside of entries.
            served: the entries that served the call and calls within it, each as often as it did.
        """
        if state != self._state:
            self._state, self.in_graphs, self.one_by_one = state, 0, 0
        self.one_by_one += operators
        for info in served:
            in_graphs = _in_graphs(info, backend)
            self.in_graphs += in_graphs
            self.one_by_one += info.operations - in_graphs

    @property
    def value(self) -> float | None:
        """The share, or None as long as nothing was counted."""
        operations = self.in_graphs + self.one_by_one
        return self.in_graphs / operations if operations else None


def _in_graphs(info: EntryInfo, backend: Any) -> int:
    """How many of an entry's operations its graphs do, and nobody does again."""
    nodes: int = sum(
        r.segment.nodes
        for r in info.runners
        if not r.segment.native and (r.backend is not eager or backend is eager)
    )
    return max(0, nodes - info.repeated)


def sums(parts: Sequence[Any], kept: Sequence[Any]) -> dict[str, Any]:
    """The figures that are sums over a callable and its regions.

    Args:
        parts: the compiled callable, and those of all the regions that it ever had.
        kept: the compiled callable, and those of the regions that it has now.
    """
    managers = [c._magpy_options for c in parts]
    entries = [e for c in kept for e in c._magpy_entries]
    misses = collections.Counter[str]()
    left: dict[str, str] = {}
    for m in managers:
        misses.update(m.missed.counts)
        for place, why in m.journal.left.items():
            if place not in left or why != NO_OPERATION:  # a refusal there says more
                left[place] = why
    return {
        "captures": sum(m.captures for m in managers),
        "regions": sum(bool(c._magpy_entries) for c in kept),
        "in_python": list(left.items()),
        "entries": len(entries),
        "pending": sum(len(m.waiting) for m in managers),
        "choices": [e.tag.choice for e in entries],
        "segments": [len(e.tag.segments) for e in entries],
        "uncompiled": sum(m.uncompiled for m in managers),
        "misses_by": dict(misses.most_common()),
        "reasons": list(dict.fromkeys(r for m in managers for r in m.journal.reasons)),
        "capture_seconds": sum(m.capture_seconds for m in managers),
        "compile_seconds": sum(m.compile_seconds for m in managers),
    }


def stats_of(compiled: Any) -> Stats:
    """The figures of a compiled callable, with those of its regions."""
    manager = compiled._magpy_options
    hits = compiled._magpy_hits - manager.base_hits
    calls = compiled._magpy_calls - manager.base_calls
    watched = manager.captures + compiled._magpy_mixed - manager.base_mixed
    return Stats(
        hits=hits,
        misses=calls - hits,
        eager_calls=max(0, calls - hits - watched),
        share=manager.share.value,
        **sums_of(compiled),
    )


def sums_of(compiled: Any) -> dict[str, Any]:
    """Those of them that are sums."""
    manager = compiled._magpy_options
    if manager.family is not None and compiled._magpy_driver is not None:
        found = sums([compiled], [compiled, manager.family.shared])
        return found | {"captures": manager.captures + manager.shared_captures}
    return sums(*parts_of(compiled))


def parts_of(compiled: Any) -> tuple[list[Any], list[Any]]:
    """All parts that a callable ever had, and those that it has now."""
    manager = compiled._magpy_options
    made, kept = [compiled], [compiled]
    if manager.drivers is not None:
        made += manager.drivers.made
        kept += manager.drivers.compiled()
    for block in manager.blocks.made:
        more = parts_of(block)
        made += more[0]
        kept += more[1]
    return made, kept


__all__ = ["FIRST", "NO_OPERATION", "Share", "Stats", "parts_of", "stats_of", "sums", "sums_of"]
