"""The report: a table of the modes side by side, the reasons of refusals, capture times.

Owns: counting records into a table, grouping reasons, Markdown, HTML and the plot.  Does not own:
the records (`protocol`) or their file (`results`).  Called by the command line.
"""

from __future__ import annotations

import base64
import collections
import html
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parity_tests.results import read_results

MODE_ORDER = ("eager", "magpy", "dynamo", "torchscript")

#: How many reasons a report lists for each mode.
REASONS_SHOWN = 40


@dataclass
class Row:
    """One mode's line of the table."""

    mode: str
    cases: int = 0
    left_out: int = 0
    whole: int = 0
    one_graph: int = 0
    refused: int = 0
    counts: dict[str, int] = field(default_factory=lambda: collections.defaultdict(int))
    projects: set[str] = field(default_factory=set)
    projects_not_whole: set[str] = field(default_factory=set)
    projects_not_one_graph: set[str] = field(default_factory=set)
    mutations: int = 0
    seconds: float = 0.0


@dataclass
class Summary:
    """Everything that a report shows, computed once."""

    runs: list[dict[str, Any]]
    rows: list[Row]
    reasons: dict[str, list[tuple[str, int, str]]]
    bad: list[dict[str, Any]]
    left_out: list[tuple[str, int, str]]
    unimportable: list[tuple[str, str]]
    capture: list[tuple[str, float, float]]
    capture_cpu: list[tuple[str, float, float]]


def summarise(paths: Sequence[Path]) -> Summary:
    """Count the records of one or more results files (shards, or one file for each mode)."""
    runs, records, files = [], {}, {}
    for path in paths:
        run, some, complete = read_results(path)
        runs.append(run)
        records.update({(r["file"], r["mode"], r["index"]): r for r in some})
        files.update(complete)
    rows: dict[str, Row] = {}
    for record in records.values():
        _count(rows.setdefault(record["mode"], Row(record["mode"])), record)
    ordered = [rows[mode] for mode in MODE_ORDER if mode in rows]
    mine = records.values()
    return Summary(
        runs=runs,
        rows=ordered,
        reasons={
            row.mode: group(r for r in mine if r["mode"] == row.mode and _needs_reason(r))
            for row in ordered
        },
        bad=[
            r
            for r in mine
            if r["status"] in ("wrong", "stale", "crash", "timeout")
            and r["mode"] in ("magpy", "eager")
        ],
        left_out=group(
            r for r in mine if r["status"] == "left_out" and r["mode"] == ordered[0].mode
        )
        if ordered
        else [],
        unimportable=sorted({(e["complete"], e["error"]) for e in files.values() if e["error"]}),
        capture=capture_times(records, "first_seconds"),
        capture_cpu=capture_times(records, "first_cpu_seconds"),
    )


def _needs_reason(record: dict[str, Any]) -> bool:
    return record["status"] != "left_out" and not (record["whole"] and record["one_graph"])


def _count(row: Row, record: dict[str, Any]) -> None:
    row.seconds += record["seconds"]
    if record["status"] == "left_out":
        row.left_out += 1
        return
    row.cases += 1
    row.projects.add(record["file"])
    row.counts[record["status"]] += 1
    row.mutations += record["mutations"]
    passed = record["status"] == "pass"
    row.whole += passed and record["whole"]
    row.one_graph += passed and record["one_graph"]
    row.refused += record["status"] == "refused" or (passed and not record["whole"])
    if not (passed and record["whole"]):
        row.projects_not_whole.add(record["file"])
    if not (passed and record["one_graph"]):
        row.projects_not_one_graph.add(record["file"])


def capture_times(
    records: dict[tuple[str, str, int], dict[str, Any]], measure: str
) -> list[tuple[str, float, float]]:
    """(case, magpy's seconds, torch.compile's) of compiling and first call, where both capture."""
    pairs = []
    for (file, mode, index), record in records.items():
        other = records.get((file, "dynamo", index))
        if mode == "magpy" and other and record["whole"] and other["whole"]:
            pairs.append((f"{file}:{record['name']}", record[measure], other[measure]))
    return pairs


def normalise(reason: str) -> str:
    """A reason without what is particular to a case: names in quotes, numbers, paths, addresses."""
    text = re.sub(r"(/[\w.\-]+)+/", "", reason)
    text = re.sub(r"test_\w+\.py", "FILE", text)
    text = re.sub(r"0x[0-9a-f]+", "0x..", text)
    text = re.sub(r"(['\"`])[^'\"`]*\1", r"\1..\1", text)
    return re.sub(r"\d+(\.\d+)?(e-?\d+)?", "N", text)[:160]


def group(records: Iterable[dict[str, Any]]) -> list[tuple[str, int, str]]:
    """(reason, count, an example with its own reason) by falling count."""
    groups: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for record in records:
        prefix = "" if record["status"] in ("pass", "left_out") else f"{record['status']}: "
        groups[prefix + normalise(record["reason"])].append(record)
    listed = []
    for reason, members in groups.items():
        example = min(members, key=lambda r: (r["seconds"], r["file"], r["index"]))
        listed.append(
            (reason, len(members), f"{example['file']}:{example['name']} - {example['reason']}")
        )
    return sorted(listed, key=lambda entry: (-entry[1], entry[0]))


HEADERS = (
    "mode",
    "cases",
    "projects",
    "whole",
    "whole projects",
    "one graph",
    "one-graph projects",
    "refused",
    "wrong",
    "stale",
    "crash",
    "time-out",
    "left out",
    "changes tried",
    "seconds",
)


def cells(row: Row) -> list[str]:
    """One mode's line of the table, as text."""
    projects = len(row.projects)
    return [
        row.mode,
        f"{row.cases:,}",
        f"{projects:,}",
        _share(row.whole, row.cases),
        _share(projects - len(row.projects_not_whole), projects),
        _share(row.one_graph, row.cases),
        _share(projects - len(row.projects_not_one_graph), projects),
        str(row.refused),
        *(str(row.counts[name]) for name in ("wrong", "stale", "crash", "timeout")),
        f"{row.left_out:,}",
        f"{row.mutations:,}",
        f"{row.seconds:,.0f}",
    ]


def _share(part: int, of: int) -> str:
    return f"{part:,} ({100 * part / of:.2f}%)" if of else "0"


def _markdown_lines(summary: Summary) -> list[str]:
    lines = [
        "# ParityBench",
        "",
        "Made by `python -m parity_tests --paritybench PATH --report docs`.",
    ]
    lines += [*_describe_runs(summary), "", *_table(summary)]
    lines += [
        "",
        "*whole*: every call equals eager and no call after the first ran eagerly.  *One graph*:",
        "whole, with one operator graph.  *Left out*: eager cannot run the case or does not repeat",
        "it.  A project counts when all its cases do.",
        "",
        "*Changes tried* (`--mutate`): after a case passes, what a program could change between",
        "calls is changed, one thing at a time, in eager's world and in the compiled one, and both",
        "are called and compared again.  `--changes N` tries N in each case, a fixed sample that",
        "takes the kinds of change in turn and, within a kind, the types of submodules; without",
        "it, all are tried.",
    ]
    lines += ["", "## Capture time", "", capture_text(summary)]
    if summary.bad:
        lines += ["", "## Wrong, stale, crashed, timed out", ""]
        lines += [
            f"- {r['mode']} **{r['status']}** `{r['file']}:{r['name']}` {_escape(r['reason'])}"
            for r in summary.bad
        ]
    for mode, reasons in summary.reasons.items():
        lines += _reason_table(f"What {mode} did not take whole or in one graph", reasons)
    lines += _reason_table("Left out", summary.left_out)
    if summary.unimportable:
        lines += ["", "## Files that cannot be imported", ""]
        lines += [f"- `{file}`: {_escape(error)}" for file, error in summary.unimportable]
    return lines


def _table(summary: Summary) -> list[str]:
    lines = ["| " + " | ".join(HEADERS) + " |", "|" + " --- |" * len(HEADERS)]
    return lines + ["| " + " | ".join(cells(row)) + " |" for row in summary.rows]


def as_table(paths: Sequence[Path]) -> str:
    """Only the table and the capture times, for the end of a run."""
    summary = summarise(paths)
    return "\n".join([*_table(summary), "", capture_text(summary)])


def _describe_runs(summary: Summary) -> list[str]:
    """One line for each distinct setting and machine among the runs."""
    texts = []
    for run in summary.runs:
        text = (
            f"Backend {run.get('backend')}, {run.get('device')}; "
            f"torch {run.get('torch')}, Python {run.get('python')}, "
            f"magpy {run.get('magpy') or '-'}; {run.get('machine')}; {run.get('started')} UTC."
        )
        if text not in texts:
            texts.append(text)
    return texts


def capture_text(summary: Summary) -> str:
    """Capture times on the wall clock and in processor time."""
    if not summary.capture:
        return "Needs results of both magpy and dynamo."
    wall, processor = capture_sentence(summary.capture), capture_sentence(summary.capture_cpu)
    return f"{wall}  In processor time: {processor}"


def capture_sentence(pairs: Sequence[tuple[str, float, float]]) -> str:
    """How magpy's time for compiling and the first call compares with torch.compile's."""
    mine, other = sum(pair[1] for pair in pairs), sum(pair[2] for pair in pairs)
    median = statistics.median(pair[1] / pair[2] for pair in pairs if pair[2])
    return (
        f"{len(pairs):,} cases that both take whole: compiling and first call "
        f"{mine:.1f} s under magpy, {other:.1f} s under torch.compile, "
        f"ratio {mine / max(other, 1e-9):.3f} (median of the cases' ratios {median:.3f})."
    )


def _reason_table(title: str, reasons: Sequence[tuple[str, int, str]]) -> list[str]:
    if not reasons:
        return []
    lines = ["", f"## {title}", "", "| count | reason | example |", "| --- | --- | --- |"]
    for reason, count, example in reasons[:REASONS_SHOWN]:
        lines.append(f"| {count} | {_escape(reason)} | {_escape(example[:240])} |")
    if len(reasons) > REASONS_SHOWN:
        rest = sum(entry[1] for entry in reasons[REASONS_SHOWN:])
        lines.append(f"| {rest} | {len(reasons) - REASONS_SHOWN} further reasons | |")
    return lines


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def write_report(paths: Sequence[Path], directory: Path) -> None:
    """Write parity.md, parity.html and, with matplotlib, parity_capture.svg into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    summary = summarise(paths)
    lines = _markdown_lines(summary)
    plot = plot_capture(summary.capture, directory / "parity_capture.svg")
    if plot is not None:
        at = lines.index("## Capture time") + 3
        lines[at:at] = ["", f"![Capture time against torch.compile]({plot.name})"]
    (directory / "parity.md").write_text("\n".join(lines) + "\n")
    (directory / "parity.html").write_text(as_html(summary, plot))


def plot_capture(pairs: Sequence[tuple[str, float, float]], path: Path) -> Path | None:
    """A scatter of capture times on logarithmic axes; None without matplotlib or pairs."""
    if not pairs:
        return None
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "magpy"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 5))
    theirs, mine = [pair[2] for pair in pairs], [pair[1] for pair in pairs]
    axes.scatter(theirs, mine, s=4, alpha=0.4, linewidths=0, rasterized=True)
    low, high = min(theirs + mine), max(theirs + mine)
    for share, style in ((1, "-"), (1 / 3, "--")):
        label = "equal" if share == 1 else "a third"
        axes.plot(
            [low, high], [low * share, high * share], style, color="grey", linewidth=1, label=label
        )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="torch.compile: compile and first call, s",
        ylabel="magpy: compile and first call, s",
        title=f"Capture time, {len(pairs):,} cases",
    )
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150, metadata={"Date": None})
    pyplot.close(figure)
    return path


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1f24 }
body { max-width: 76rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto }
th, td { border-bottom: 1px solid #d8dee4; padding: .35rem .7rem }
th, td { text-align: left; vertical-align: top }
th { background: #f3f5f7 } td.n { text-align: right; font-variant-numeric: tabular-nums }
.bad { color: #b3261e; font-weight: 600 } code { background: #f3f5f7; padding: .1rem .3rem }
"""


def as_html(summary: Summary, plot: Path | None = None) -> str:
    """The report as one HTML page that needs nothing beside it."""
    body = [
        "<h1>ParityBench</h1>",
        *(f"<p>{html.escape(text)}</p>" for text in _describe_runs(summary)),
    ]
    rows = []
    for row in summary.rows:
        columns = []
        for header, text in zip(HEADERS, cells(row), strict=True):
            bad = (
                " bad" if header in ("wrong", "stale", "crash", "time-out") and text != "0" else ""
            )
            columns.append(
                f'<td class="{"" if header == "mode" else "n"}{bad}">{html.escape(text)}</td>'
            )
        rows.append("".join(columns))
    body.append(_html_table(HEADERS, rows))
    body.append(f"<h2>Capture time</h2><p>{html.escape(capture_text(summary))}</p>")
    if plot is not None:
        data = base64.b64encode(plot.read_bytes()).decode()
        body.append(
            f'<img alt="capture time against torch.compile" src="data:image/svg+xml;base64,{data}">'
        )
    if summary.bad:
        items = (
            f"<li><b class=bad>{r['status']}</b> {r['mode']} "
            f"<code>{html.escape(r['file'] + ':' + r['name'])}</code> "
            f"{html.escape(r['reason'])}</li>"
            for r in summary.bad
        )
        body.append("<h2>Wrong, stale, crashed, timed out</h2><ul>" + "".join(items) + "</ul>")
    named = {
        f"What {mode} did not take whole or in one graph": reasons
        for mode, reasons in summary.reasons.items()
    }
    for title, reasons in {**named, "Left out": summary.left_out}.items():
        if reasons:
            body.append(f"<h2>{html.escape(title)}</h2>")
            body.append(
                _html_table(
                    ("count", "reason", "example"), [_html_reason(*entry) for entry in reasons]
                )
            )
    page = "\n".join(body)
    head = f'<meta charset="utf-8"><title>ParityBench</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en">{head}{page}</html>\n'


def _html_reason(reason: str, count: int, example: str) -> str:
    return (
        f'<td class="n">{count}</td><td>{html.escape(reason)}</td><td>{html.escape(example)}</td>'
    )


def _html_table(headers: Sequence[str], rows: Sequence[str]) -> str:
    head = "".join(f"<th>{html.escape(header)}</th>" for header in headers)
    return f"<table><tr>{head}</tr>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table>"
