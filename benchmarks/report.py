"""Turns the suite's records into JSON, Markdown and plots.

Owns: the files that the suite leaves in `benchmarks/results/`. Does not own: measuring. Called by
`benchmarks.__main__`. A record is what `benchmarks.suite.measured` or `benchmarks.varying.measured`
returns, or a case's name with an `error`.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import measure, systems, varying

Record = dict[str, Any]


def title(record: Record) -> str:
    """What a record is about."""
    if "varying" in record:
        return str(record["varying"])
    return f"{record['case']} batch {record['batch']}"


def one_line(record: Record) -> str:
    """A case's outcome for the progress display."""
    if "error" in record:
        return f"{title(record)}: {record['error']}"
    cells = []
    for system, row in record["systems"].items():
        if "steps" in row:
            cells.append(f"{system} {measure.seconds(statistics.median(row['steps']))}")
        else:
            text = measure.seconds(row["seconds"]) if "seconds" in row else row.get("error")
            cells.append(f"{system} {text}")
    return f"{title(record)}: " + ", ".join(cells)


def cell(row: Record | None, eager: float | None) -> str:
    """One system's entry in the table: time, spread, speed relative to eager."""
    if row is None:
        return "-"
    if "seconds" not in row:
        reason = row.get("error", "not run")
        return "wrong result" if reason == "wrong result" else f"fails: {reason.split(':')[0]}"
    text = measure.seconds(row["seconds"])
    text += f" ±{(row['high'] - row['low']) / 2 / row['seconds']:.0%}"
    return f"{text}, {eager / row['seconds']:.2f}x" if eager else text


def speedups(records: list[Record], system: str, over: str = "eager") -> dict[str, float]:
    """The time of `over` divided by the system's, for each case that both ran."""
    found = {}
    for record in records:
        rows = record["systems"]
        if "seconds" in rows.get(over, {}) and "seconds" in rows.get(system, {}):
            found[title(record)] = rows[over]["seconds"] / rows[system]["seconds"]
    return found


def _means(records: list[Record], names: list[str]) -> list[str]:
    """Geometric means over eager, and magpy's over torch.compile's way that is alike."""
    pairs = [(system, "eager") for system in names if system != "eager"]
    for system in names:
        other = system.replace("magpy", "torch.compile").replace(" auto", "")
        if system.startswith("magpy") and other in names:
            pairs.append((system, other))
    lines = []
    for system, over in pairs:
        found = speedups(records, system, over)
        if not found:
            continue
        least = min(found, key=lambda k: found[k])
        lines.append(
            f"- {system}: {statistics.geometric_mean(found.values()):.2f}x {over} (geometric mean, "
            f"{len(found)} of {len(records)} cases; least {found[least]:.2f}x, {least}; most "
            f"{max(found.values()):.2f}x)"
        )
    return lines


def _costs(records: list[Record], names: list[str]) -> list[str]:
    """The table of what comes with compiling."""
    own = [s for s in systems.PAIR if s in names]
    measured = [s for s in names if any("memory" in r["systems"].get(s, {}) for r in records)]

    def values(record: Record, key: str, of: list[str], show: Callable[[float], str]) -> list[str]:
        rows = [record["systems"].get(s, {}) for s in of]
        return [show(row[key]) if key in row else "-" for row in rows]

    rows = []
    for r in records:
        capture = [
            {**row, "capture": max(row["start"] - row["backend"], 0.0)}
            if "start" in row and "backend" in row
            else {}
            for row in (r["systems"].get(s, {}) for s in own)
        ]
        rows.append(
            [
                r["case"],
                str(r["batch"]),
                *(measure.seconds(row["capture"]) if row else "-" for row in capture),
                *values(r, "backend", own, measure.seconds),
                *values(r, "overhead", own, measure.seconds),
                *values(r, "memory", measured, measure.size),
            ]
        )
    header = ["model", "batch"]
    for key, of in (("capture", own), ("backend", own), ("overhead", own), ("memory", measured)):
        header += [f"{key}, {s}" for s in of]
    return [
        "## What compiling costs, and what a call needs",
        "",
        "Capture: the first two calls beyond two of eager's and beyond what TorchInductor took. "
        "Backend: TorchInductor (magpy is measured after torch.compile, and may find kernels that "
        "are alike in the cache on disk). Overhead: a call whose graphs give constants. Memory: "
        "what torch's allocator holds at most in a call, beyond weights and inputs.",
        "",
        measure.table(header, rows),
        "",
    ]


def markdown(records: list[Record], names: list[str], device: str) -> str:
    """The report's text."""
    cases = [r for r in records if "case" in r]
    series = [r for r in records if "varying" in r and "error" not in r]
    rows = []
    counted = [s for s in names if s in systems.PAIR]
    for r in cases:
        eager = r["systems"].get("eager", {}).get("seconds")
        rows.append(
            [
                r["case"],
                str(r["batch"]),
                *(cell(r["systems"].get(s), None if s == "eager" else eager) for s in names),
                *(f"{r['systems'].get(s, {}).get('graphs', '-')}" for s in counted),
            ]
        )
    header = ["model", "batch", *names, *(f"graphs {s}" for s in counted)]
    if "magpy auto" in names:
        header.append("auto chose")
        for r, row in zip(cases, rows, strict=True):
            row.append(r["systems"].get("magpy auto", {}).get("graphs", "-"))
    dtypes = sorted({r["dtype"] for r in cases if "dtype" in r})
    lines = [
        "# Speed of the suite",
        "",
        f"{measure.machine_line(device)}; {', '.join(dtypes)}.",
        "",
        *_commits(records),
        "Median time of a call, half the distance of the quartiles, and the speed relative to "
        "eager. All systems are timed in turn in one process per case; no gradients. A result "
        "that differs from eager's by more than rounding is not timed.",
        "",
        measure.table(header, rows),
        "",
        *_means(cases, names),
        "",
        *_costs(cases, names),
    ]
    if series:
        lines += ["## Sizes that vary from call to call", "", varying.table(series), ""]
    failures = [
        f"- {title(r)}, {system}: {row['error']}"
        for r in records
        for system, row in r["systems"].items()
        if "error" in row
    ]
    failures += [f"- {title(r)}: {r['error']}" for r in records if "error" in r]
    if failures:
        lines += ["## What did not run", "", *failures]
    return "\n".join(lines).rstrip() + "\n"


def _speed_plot(pyplot: Any, records: list[Record], names: list[str]) -> Any:
    """Bars of the speed relative to eager, one panel for each batch size."""
    shown = [s for s in names if s != "eager"]
    batches = sorted({r["batch"] for r in records})
    figure, panels = pyplot.subplots(len(batches), 1, figsize=(11, 3.2 * len(batches)))
    for batch, axes in zip(batches, panels if len(batches) > 1 else [panels], strict=True):
        usable = [r for r in records if r["batch"] == batch and "seconds" in r["systems"]["eager"]]
        width = 0.8 / max(1, len(shown))
        for k, system in enumerate(shown):
            found = speedups(usable, system)
            heights = [found.get(title(r), 0.0) for r in usable]
            axes.bar([i + k * width for i in range(len(usable))], heights, width, label=system)
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xticks([i + 0.4 - width / 2 for i in range(len(usable))])
        axes.set_xticklabels([r["case"] for r in usable], rotation=45, ha="right", fontsize=8)
        axes.set_ylabel(f"speed over eager, batch {batch}")
    figure.axes[0].legend(fontsize=8)
    return figure


def _start_plot(pyplot: Any, records: list[Record], names: list[str]) -> Any:
    """Where the time until a compiled call goes: capture and TorchInductor."""
    own = [s for s in systems.PAIR if s in names]
    usable = [
        r
        for r in records
        if all("backend" in r["systems"].get(s, {}) for s in own) and r["batch"] == 1
    ]
    figure, axes = pyplot.subplots(figsize=(11, 3.6))
    width = 0.8 / max(1, len(own))
    for k, system in enumerate(own):
        at = [i + k * width for i in range(len(usable))]
        rows = [r["systems"][system] for r in usable]
        backend = [row["backend"] for row in rows]
        capture = [max(row["start"] - row["backend"], 0.0) for row in rows]
        axes.bar(at, backend, width, label=f"{system}: TorchInductor", alpha=0.5, color=f"C{k}")
        axes.bar(at, capture, width, bottom=backend, label=f"{system}: capture", color=f"C{k}")
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(usable))])
    axes.set_xticklabels([r["case"] for r in usable], rotation=45, ha="right", fontsize=8)
    axes.set_ylabel("seconds until compiled, batch 1")
    axes.legend(fontsize=8)
    return figure


def _varying_plot(pyplot: Any, records: list[Record]) -> Any:
    """Each call's time in a series of sizes."""
    figure, panels = pyplot.subplots(1, len(records), figsize=(4 * len(records), 3.4))
    for record, axes in zip(records, panels if len(records) > 1 else [panels], strict=True):
        for system, row in record["systems"].items():
            axes.plot(range(len(row["steps"])), [s * 1e3 for s in row["steps"]], label=system)
        step = max(1, len(record["labels"]) // 6)
        axes.set_xticks(range(0, len(record["labels"]), step))
        axes.set_xticklabels(record["labels"][::step], fontsize=8)
        axes.set_title(record["varying"], fontsize=9)
        axes.set_ylim(bottom=0)
    figure.axes[0].set_ylabel("ms for a call")
    figure.axes[0].legend(fontsize=8)
    return figure


def plots(records: list[Record], names: list[str], folder: Path, stem: str) -> None:
    """The paper's figures as `stem`-speed, -start and -varying.svg; none without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = [r for r in records if "case" in r and "seconds" in r["systems"].get("eager", {})]
    series = [r for r in records if "varying" in r and r["systems"]]
    drawn: dict[str, Callable[[], Any]] = {}
    if cases:
        drawn["speed"] = lambda: _speed_plot(pyplot, cases, names)
        drawn["start"] = lambda: _start_plot(pyplot, cases, names)
    if series:
        drawn["varying"] = lambda: _varying_plot(pyplot, series)
    for kind, draw in drawn.items():
        figure = draw()
        figure.tight_layout()
        figure.savefig(folder / f"{stem}-{kind}.svg")
        pyplot.close(figure)


def read(folder: Path, stem: str) -> list[Record]:
    """The records that `write` has left in `folder`; none if there are none."""
    path = folder / f"{stem}.json"
    if not path.exists():
        return []
    data = json.loads(path.read_text())
    cases: list[Record] = data["cases"]
    for record in cases:
        record.setdefault("magpy", data["machine"]["magpy"])
    return cases


def put(records: list[Record], record: Record) -> None:
    """Adds a record, in the place of an older one of the same case."""
    for i, old in enumerate(records):
        if title(old) == title(record):
            records[i] = record
            return
    records.append(record)


def _commits(records: list[Record]) -> list[str]:
    """Which commit measured what, unless one measured all."""
    found: dict[str, list[str]] = {}
    for r in records:
        found.setdefault(r.get("magpy", "unknown commit"), []).append(title(r))
    if len(found) < 2:
        return []
    most = max(found, key=lambda c: len(found[c]))
    others = "; ".join(f"{c}: {', '.join(t)}" for c, t in found.items() if c != most)
    return [f"Measured at commit {most}, except at {others}.", ""]


def write(records: list[Record], names: list[str], folder: Path, stem: str, device: str) -> None:
    """Writes `stem`.json, .md and the plots into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {"machine": measure.machine(device), "cases": records}
    (folder / f"{stem}.json").write_text(json.dumps(data, indent=1) + "\n")
    (folder / f"{stem}.md").write_text(markdown(records, names, device))
    plots(records, names, folder, stem)
