"""What is known of a callable as data for one page: its regions, guards, history and source.

Owns collecting it, as text alone: no object of the program is kept.  Does not own the page
(magpy/runtime/page.py) nor the words for guards (magpy/guards/words.py).  Called by
magpy/explaining.py.
"""

from __future__ import annotations

import ast
import functools
import linecache
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from magpy.backends.runner import EntryInfo
from magpy.capture.session import definition
from magpy.guards import words
from magpy.objects.types import attribute, isinstance
from magpy.replay.fx_graphs import WHERE


class Place(NamedTuple):
    """A line of the program, and the function that it is in."""

    file: str
    line: int
    function: str


class Operation(NamedTuple):
    """A node of an operator graph: its name, its call, what it takes but for inputs, its place."""

    name: str
    call: str
    takes: list[str]
    where: Place | None


@dataclass(slots=True)
class Entry:
    """An entry: its graphs, what Python does one by one beside them, the mock code."""

    graphs: list[list[Operation]]
    outside: list[tuple[Place | None, str]]
    mock: str
    hits: int = 0


@dataclass(slots=True)
class Region:
    """A stretch of the program that is compiled on its own, or all of it.

    Attributes:
        first: where it begins; None if there is no source.
        last: its last line; 0 for a whole function.
        entries: the newest first.
        guards: the path of what is looked at, with what is asked of it.
        failed: how often a check failed, by what it looks at.
        history: numbers of calls, with what happened in them.
    """

    first: Place | None
    last: int
    entries: list[Entry] = field(default_factory=list)
    guards: dict[str, list[str]] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    history: list[tuple[int, str]] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """What a page tells of a callable.

    Attributes:
        name: of the callable.
        start: where it is defined.
        figures: of `magpy.stats`, as far as they are known.
        regions: the callable first, then those that a driver calls.
        driven: it is compiled in part, by a driver.
        left: lines that are left to Python, with the reasons.
    """

    name: str
    start: Place | None
    figures: dict[str, str]
    regions: list[Region]
    driven: bool = False
    left: list[tuple[Place | None, str]] = field(default_factory=list)


class Source(NamedTuple):
    """The lines of a function.

    Attributes:
        title: where it is.
        file: its file.
        first: the number of the first line.
        lines: the text of each.
        code: the numbers of those that hold statements.
    """

    title: str
    file: str
    first: int
    lines: list[str]
    code: frozenset[int]

    def holds(self, p: Place | None) -> bool:
        """Whether a place is in it."""
        return p is not None and p.file == self.file and 0 <= p.line - self.first < len(self.lines)


def place(text: str) -> Place | None:
    """The place that "file:line (function)" names."""
    found = re.fullmatch(r"(.+):(\d+) \((.*)\)", text, re.DOTALL)
    return Place(found[1], int(found[2]), found[3]) if found else None


def _operations(graph: Any) -> list[Operation]:
    found = []
    for node in graph.graph.nodes:
        if node.op not in ("placeholder", "output"):
            target = getattr(node.target, "__name__", str(node.target))
            given = [repr(v) for v in node.args] + [f"{k}={v!r}" for k, v in node.kwargs.items()]
            takes = [n.name for n in node.all_input_nodes if n.op != "placeholder"]
            call = f"{target}({', '.join(given)})"
            found.append(Operation(node.name, call, takes, place(node.meta.get(WHERE, ""))))
    return found


def region(
    f: Any, infos: Sequence[EntryInfo], hits: Sequence[int] = (0,), lines: tuple[int, int] = (0, 0)
) -> Region:
    """The region of a function, with its entries.

    Args:
        f: the function.
        infos: its entries.
        hits: how often each served.
        lines: the first and the last line; zeros for a whole function.
    """
    start = place(definition(f))
    if start is not None and lines[0]:
        start = start._replace(line=lines[0])
    made = Region(start, lines[1])
    asked: dict[tuple[str, str], set[int]] = {}
    for i, (info, count) in enumerate(zip(infos, hits, strict=True)):
        outside = [(place(where), name) for where, name, _ in info.outside]
        graphs = [_operations(s.graph) for s in info.segments]
        made.entries.append(Entry(graphs, outside, info.text, count))
        for pair in words.listing(f, info.program) if info.program is not None else ():
            asked.setdefault(pair, set()).add(i)
    for (path, text), where in asked.items():
        of = "" if len(where) == len(infos) else f" (entry {', '.join(map(str, sorted(where)))})"
        made.guards.setdefault(path, []).append(text + of)
    return made


def of_compiled(compiled: Any) -> Report:
    """The report of a compiled callable, as it is now."""
    manager = compiled._magpy_options
    drivers = manager.drivers
    regions = []
    for c in [compiled, *(drivers.compiled() if drivers is not None else ())]:
        m, entries = c._magpy_options, c._magpy_entries
        made = region(
            c._magpy_wrapped,
            [e.tag for e in entries],
            [e.hits for e in entries],
            m.part.region.lines if m.part is not None else (0, 0),
        )
        made.failed, made.history = dict(m.missed.counts), list(m.journal.history)
        if c is compiled or made.entries or made.history:
            regions.append(made)
    stats = manager.stats(compiled)
    left = [(place(where), why) for where, why in stats.in_python]
    share = "not known" if stats.share is None else f"{stats.share:.1%}"
    figures = {"operations in graphs": share} | {
        name: str(stats[name])
        for name in ("regions", "captures", "entries", "hits", "misses", "eager_calls")
    }
    start = place(definition(compiled._magpy_wrapped))
    return Report(manager.name, start, figures, regions, drivers is not None, left)


def of_call(f: Any, info: EntryInfo | None, reason: str) -> Report:
    """The report of one watched call.

    Args:
        f: what was called.
        info: of the entry that was made of it; None if it was refused.
        reason: why it was refused.
    """
    made = region(f, [info] if info is not None else [], [0] * (info is not None))
    where, _, why = reason.partition(": ")
    named = place(where)
    left = [(named or made.first, why if named else reason)] if info is None else []
    figures = {} if info is None else {"operations": str(info.operations)}
    figures["captured"] = "no" if info is None else "yes"
    name = attribute(f, "__qualname__") or type(f).__name__
    return Report(name, made.first, figures, [made], left=left)


def sources(report: Report) -> Iterator[Source]:
    """The functions of the program that the report tells of, that of the callable first."""
    places = [report.start] + [r.first for r in report.regions] + [p for p, _ in report.left]
    for r in report.regions:
        for e in r.entries:
            places += [p for p, _ in e.outside] + [o.where for g in e.graphs for o in g]
    done: set[tuple[str, int]] = set()
    for p in dict.fromkeys(places):
        lines = linecache.getlines(p.file) if p is not None else []
        if p is None or not 0 < p.line <= len(lines):
            continue
        first, last, code = _around(p, "".join(lines))
        if (p.file, first) not in done:
            done.add((p.file, first))
            title = f"{p.file}:{first} ({p.function})"
            yield Source(title, p.file, first, lines[first - 1 : last], code)


@functools.lru_cache(maxsize=64)
def _functions(text: str) -> list[tuple[int, int, frozenset[int]]]:
    """The functions in a source: their first and last lines, and those that hold statements."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    found = []
    for n in ast.walk(tree):
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([n.lineno, *(d.lineno for d in n.decorator_list)])
            code = {i for s in ast.walk(n) if s is not n for i in _lines(s)}
            found.append((first, n.end_lineno or n.lineno, frozenset(code)))
    return found


def _lines(s: ast.AST) -> range:
    """The lines of a statement, of one with a block the first."""
    text = isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)
    if not isinstance(s, ast.stmt) or text:
        return range(0)
    return range(s.lineno, (s.lineno if hasattr(s, "body") else s.end_lineno or s.lineno) + 1)


def _around(p: Place, text: str) -> tuple[int, int, frozenset[int]]:
    """The innermost function around a place; without one, its line."""
    around = [f for f in _functions(text) if f[0] <= p.line <= f[1]]
    here = (p.line, p.line, frozenset([p.line]))
    return max(around, key=lambda f: f[0], default=here)


__all__ = ["Entry", "Operation", "Place", "Region", "Report", "of_compiled", "place", "sources"]
