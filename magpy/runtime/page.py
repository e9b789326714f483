"""A report as one page of HTML that needs nothing beside it.

Owns the page: its order, marks and search.  Does not own what it tells (magpy/runtime/report.py).
Called by magpy/explaining.py.

The source comes first, each line with its mark, then the regions with their graphs, guards, code
and history.  Lines and operations lead to each other.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

from magpy.runtime.report import Entry, Operation, Place, Region, Report, Source, sources

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 0 auto; max-width: 110em;
  padding: 0 1.5em 4em; color: #1d2433; background: #fff }
header { position: sticky; top: 0; background: #fff; padding: .6em 0;
  border-bottom: 1px solid #d5dae3 }
h1 { font-size: 1.25em; margin: 0 0 .3em } h2 { font-size: 1.1em; margin: 1.6em 0 .4em }
input { font: inherit; width: 24em; padding: .25em .5em }
summary { cursor: pointer; padding: .15em 0 }
details > details, details > div { margin-left: 1.2em }
.code, code, pre { font: 12.5px/1.5 ui-monospace, monospace } .code { overflow-x: auto }
.row { white-space: pre-wrap; overflow-wrap: anywhere; border-left: 4px solid transparent;
  padding-left: .5em } .row.line { white-space: pre; overflow-wrap: normal }
.row:target { background: #fff3c4 } .hit { background: #fff8dc }
.number { color: #8a93a5; display: inline-block; min-width: 3.5em; text-align: right;
  margin-right: 1em } .note { color: #5b6579; font: 12px system-ui, sans-serif; margin-left: 1.5em }
.graph { border-color: #2f9e5b } .python { border-color: #e0a100 } .left { border-color: #d1383d }
.mock { border-color: #c3cad6 } .failed { color: #d1383d; font-weight: 600 }
table { border-collapse: collapse } td { padding: 0 1.2em .1em 0 } a { color: #2257bf }
.searching .row:not(.hit), .searching details:not(:has(.hit)) { display: none }
"""

_SCRIPT = """
const field = document.getElementById("search"), count = document.getElementById("count");
const rows = [...document.querySelectorAll("div.row")];
const all = [...document.querySelectorAll("details")];
let before = null;
const open = e => { for (; e; e = e.parentElement) if (e.tagName === "DETAILS") e.open = true; };
field.addEventListener("input", () => {
  const text = field.value.trim().toLowerCase();
  if (text && !before) before = all.map(d => d.open);
  let n = 0;
  for (const r of rows) {
    const hit = text !== "" && r.textContent.toLowerCase().includes(text);
    r.classList.toggle("hit", hit);
    if (hit) { n++; open(r); }
  }
  document.body.classList.toggle("searching", text !== "");
  count.textContent = text ? n + (n === 1 ? " line" : " lines") : "";
  if (!text && before) { all.forEach((d, i) => d.open = before[i]); before = null; }
});
const reveal = () => {
  const e = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!e) return;
  if (field.value) { field.value = ""; field.dispatchEvent(new Event("input")); }
  open(e);
  e.scrollIntoView({block: "center"});
};
addEventListener("hashchange", reveal);
reveal();
"""

_LEGEND = (
    ("graph", "in a graph"),
    ("mock", "no tensor operation: implied by the guards, or redone by mock code"),
    ("python", "run by Python one by one, between graphs or ahead of them"),
    ("left", "left to Python"),
)


def html(report: Report) -> str:
    """The page of a report."""
    found = list(sources(report))
    anchors = {
        (s.file, s.first + i): f"s{n}l{s.first + i}"
        for n, s in enumerate(found)
        for i in range(len(s.lines))
    }
    page = _Page(report, anchors)
    figures = "".join(
        f"<td>{escape(k)}: <b>{escape(v)}</b></td>" for k, v in report.figures.items()
    )
    legend = " ".join(f'<span class="row {kind}">{text}</span>' for kind, text in _LEGEND)
    left = "".join(page.row(f"{page.link(p)} {escape(why)}", "left") for p, why in report.left)
    body = [
        f'<header><h1>{escape(report.name)}</h1><table id="figures"><tr>{figures}</tr></table>'
        '<input id="search" type="search" placeholder="search" autofocus> <span id="count"></span>'
        "</header>",
        f'<section id="source"><h2>Source</h2><p>{legend}</p>',
        *(page.source(s) for s in found),
        "</section>",
        f'<section id="left"><h2>Left to Python</h2>{left}</section>' if left else "",
        *(page.region(i, r) for i, r in enumerate(report.regions)),
    ]
    title = escape(f"magpy: {report.name}")
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body>{''.join(body)}<script>{_SCRIPT}</script>"
        "</body></html>\n"
    )


class _Page:
    """Writes the parts of the page of one report.

    Args:
        report: what is told.
        anchors: the ids of the lines of source that are shown.
    """

    def __init__(self, report: Report, anchors: dict[tuple[str, int], str]) -> None:
        self.report = report
        self.anchors = anchors
        #: Lines of the functions that run by drivers.
        self._driven_at = [
            report.start,
            *(p for p, _ in report.left),
            *(r.first for r in report.regions if r.last),
        ]
        #: The marks of lines: how they run, with what is said of that and the graph's id.
        self.marks: dict[tuple[str, int], dict[str, dict[str, str]]] = {}
        for i, region in enumerate(report.regions):
            for j, entry in enumerate(region.entries):
                self._mark_entry(i, j, entry)
        for p, why in report.left:
            self._mark(p, "left", why)

    def _mark(self, p: Place | None, kind: str, text: str, graph: str = "") -> None:
        if p is not None:
            kinds = self.marks.setdefault((p.file, p.line), {})
            kinds.setdefault(kind, {}).setdefault(text, graph)

    def _mark_entry(self, i: int, j: int, entry: Entry) -> None:
        region = f"region {i}, " if self.report.driven else ""
        for k, graph in enumerate(entry.graphs):
            for operation in graph:
                self._mark(operation.where, "graph", f"{region}graph {k}", f"r{i}e{j}g{k}")
        for p, function in entry.outside:
            self._mark(p, "python", f"{region}{function} by Python")

    @staticmethod
    def row(inside: str, kind: str = "", name: str = "") -> str:
        """A line that the search looks at."""
        of = f' id="{name}"' if name else ""
        return f'<div class="row {kind}"{of}>{inside}</div>'

    def link(self, p: Place | None) -> str:
        """A place, which leads to its line where that is shown."""
        if p is None:
            return ""
        text = escape(f"{p.file.rpartition('/')[2]}:{p.line} ({p.function})")
        anchor = self.anchors.get((p.file, p.line))
        return f'<a href="#{anchor}">{text}</a>' if anchor else f"<span>{text}</span>"

    @staticmethod
    def fold(title: str, inside: str, *, name: str = "", shown: bool = False) -> str:
        """A part that can be opened and closed; its title is HTML."""
        of = f' id="{name}"' if name else ""
        return f"<details{of}{' open' * shown}><summary>{title}</summary>{inside}</details>"

    # ------------------------------------------------------------- source

    def source(self, source: Source) -> str:
        """A function, each line with its mark."""
        lines = []
        driven = not any(r.entries for r in self.report.regions) or (
            self.report.driven and any(map(source.holds, self._driven_at))
        )
        for i, text in enumerate(source.lines):
            at = (source.file, source.first + i)
            kind, notes = self._marked(at)
            if not kind and at[1] in source.code:
                kind = "left" if driven and not self._in_region(at) else "mock"
            note = f'<span class="note">{" · ".join(notes)}</span>' if notes else ""
            number = f'<span class="number">{at[1]}</span>'
            lines.append(
                self.row(
                    number + escape(text.rstrip("\n")) + note, f"line {kind}", self.anchors[at]
                )
            )
        inside = f'<div class="code">{"".join(lines)}</div>'
        marked = any((source.file, source.first + i) in self.marks for i in range(len(lines)))
        return self.fold(f"<code>{escape(source.title)}</code>", inside, shown=marked)

    def _marked(self, at: tuple[str, int]) -> tuple[str, list[str]]:
        marks = self.marks.get(at, {})
        kinds: list[str] = [k for k in ("left", "python", "graph") if k in marks]
        notes = [
            f'<a href="#{graph}">{escape(text)}</a>' if graph else escape(text)
            for k in reversed(kinds)
            for text, graph in marks[k].items()
        ]
        return (kinds or [""])[0], notes

    def _in_region(self, at: tuple[str, int]) -> bool:
        return any(
            r.first is not None and r.first.file == at[0] and r.first.line <= at[1] <= r.last
            for r in self.report.regions
            if r.entries
        )

    # ------------------------------------------------------------- regions

    def region(self, i: int, region: Region) -> str:
        """A region: its entries, guards and history."""
        what = f"Region {i}:" if region.last else "The callable"
        end = f" to line {region.last}" if region.last else ""
        history = "".join(
            self.row(f'<span class="number">call {n}</span>{escape(text)}', "event")
            for n, text in region.history
        )
        entries = [self.entry(f"r{i}e{j}", j, e) for j, e in enumerate(region.entries)]
        guards = _tree(region) if region.guards or region.failed else ""
        return (
            f'<section id="r{i}"><h2>{what} {self.link(region.first)}{end}</h2>'
            + self.fold("history of captures and misses", history, shown=True) * bool(history)
            + self.fold("guards", guards, shown=True) * bool(guards)
            + "".join(entries)
            + "</section>"
        )

    def entry(self, name: str, j: int, entry: Entry) -> str:
        """An entry: its graphs and the generated code."""
        inside = ""
        for k, graph in enumerate(entry.graphs):
            of, title = f"{name}g{k}", f"operator graph {k}, {len(graph)} nodes"
            rows = "".join(self.operation(of, o) for o in graph)
            inside += self.fold(title, f'<div class="code">{rows}</div>', name=of, shown=True)
        code = "".join(map(self.row, map(escape, entry.mock.splitlines())))
        inside += self.fold("generated code", f'<div class="code">{code}</div>')
        hits = f", served {entry.hits} calls" if entry.hits else ""
        return self.fold(f"entry {j}{hits}", f"<div>{inside}</div>", name=name, shown=True)

    def operation(self, graph: str, o: Operation) -> str:
        """A node, which leads to those that it takes and to its line."""
        # By words, before they are escaped: a node may have the name of an entity of HTML.
        call = "".join(
            f'<a href="#{graph}-{word}">{word}</a>' if word in o.takes else escape(word)
            for word in re.split(r"(\w+)", o.call)
        )
        text = f'{escape(o.name)} = {call}<span class="note">{self.link(o.where)}</span>'
        return self.row(text, "node", f"{graph}-{escape(o.name)}")


def _tree(region: Region) -> str:
    """What the guards ask for, by the paths of what they look at, with the failures."""
    root: dict[str, Any] = {}
    for path in dict.fromkeys((*region.guards, *region.failed)):
        node = root
        for part in re.findall(r"\[.*?\](?=[.\[]|$)|\.?[^.\[]+", path) or [path]:
            node = node.setdefault(part, {})
        node[""] = path
    return _branches(root, region)


def _branches(node: dict[str, Any], region: Region) -> str:
    return "".join(_branch(part, below, region) for part, below in node.items() if part)


def _branch(part: str, node: dict[str, Any], region: Region) -> str:
    path = node.get("")
    asked = region.guards.get(path, []) if path is not None else []
    failed = region.failed.get(path, 0) if path is not None else 0
    times = f"failed {failed} time{'s' * (failed > 1)}" if failed else ""
    count = f' <span class="failed">{times}</span>' if failed else ""
    below = _branches(node, region)
    title = f"<code>{escape(part)}</code>"
    if not below and len(asked) <= 1:
        return _Page.row(f"{title} {escape(''.join(asked))}".rstrip() + count, "guard")
    said = [*asked, times] if failed else asked
    full = f"<code>{escape(path or '')}</code>"
    rows = "".join(_Page.row(f"{full} {escape(a)}", "guard") for a in said)
    shown = 'class="failed"' in below
    return _Page.fold(title + count, f"<div>{rows}{below}</div>", shown=shown)


__all__ = ["html"]
