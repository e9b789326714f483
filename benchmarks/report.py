"""Turns the suite's records into JSON, Markdown and plots.

Owns: the files in `benchmarks/results/`. Does not own: measuring. Called by `benchmarks.__main__`.
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from benchmarks import measure

Record = dict[str, Any]


def one_line(record: Record) -> str:
    """A case's outcome for the progress display."""
    head = f"{record['case']} batch {record['batch']}"
    if "error" in record:
        return f"{head}: {record['error']}"
    cells = [
        f"{system} {measure.seconds(row['seconds']) if 'seconds' in row else row.get('error')}"
        for system, row in record["systems"].items()
    ]
    return f"{head}: " + ", ".join(cells)


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


def speedups(records: list[Record], system: str) -> list[float]:
    """Eager's time over the system's, for each case that both ran."""
    found = []
    for record in records:
        rows = record["systems"]
        if "seconds" in rows.get("eager", {}) and "seconds" in rows.get(system, {}):
            found.append(rows["eager"]["seconds"] / rows[system]["seconds"])
    return found


def markdown(records: list[Record], names: list[str], device: str) -> str:
    """The report's text."""
    rows = []
    for r in records:
        eager = r["systems"].get("eager", {}).get("seconds")
        graphs = [
            f"{r['systems'].get(s, {}).get('graphs', '-')}"
            for s in ("torch.compile", "magpy")
            if s in names
        ]
        rows.append(
            [
                r["case"],
                str(r["batch"]),
                *(cell(r["systems"].get(s), None if s == "eager" else eager) for s in names),
                *graphs,
            ]
        )
    header = ["model", "batch", *names]
    header += [f"graphs {s}" for s in ("torch.compile", "magpy") if s in names]
    lines = [
        "# Speed of the suite",
        "",
        f"{measure.machine_line(device)}.",
        "",
        "Median time of a call, half the distance of the quartiles, and the speed relative to "
        "eager. All systems are timed in turn in one process per case; no gradients. A result "
        "that differs from eager's by more than rounding is not timed.",
        "",
        measure.table(header, rows),
        "",
    ]
    for system in names:
        found = speedups(records, system)
        if system != "eager" and found:
            mean = statistics.geometric_mean(found)
            lines.append(
                f"- {system}: {mean:.2f}x eager (geometric mean, {len(found)} of {len(records)})"
            )
    failures = [
        f"- {r['case']} batch {r['batch']}, {system}: {row['error']}"
        for r in records
        for system, row in r["systems"].items()
        if "error" in row
    ]
    failures += [f"- {r['case']} batch {r['batch']}: {r['error']}" for r in records if "error" in r]
    if failures:
        lines += ["", "## What did not run", "", *failures]
    return "\n".join(lines) + "\n"


def plot(records: list[Record], names: list[str], path: Path) -> None:
    """Bars of the speed relative to eager; nothing where matplotlib is missing."""
    try:
        import matplotlib
    except ImportError:
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    systems = [s for s in names if s != "eager"]
    usable = [r for r in records if "seconds" in r["systems"].get("eager", {})]
    figure, axes = pyplot.subplots(figsize=(max(6, 0.6 * len(usable) + 2), 4))
    width = 0.8 / max(1, len(systems))
    for k, system in enumerate(systems):
        heights = []
        for r in usable:
            row = r["systems"].get(system, {})
            eager = r["systems"]["eager"]["seconds"]
            heights.append(eager / row["seconds"] if "seconds" in row else 0.0)
        axes.bar([i + k * width for i in range(len(usable))], heights, width, label=system)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(usable))])
    axes.set_xticklabels(
        [f"{r['case']} {r['batch']}" for r in usable], rotation=60, ha="right", fontsize=8
    )
    axes.set_ylabel("speed relative to eager")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def write(records: list[Record], names: list[str], folder: Path, stem: str, device: str) -> None:
    """Writes `stem`.json, .md and .svg into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {"machine": measure.machine(device), "cases": records}
    (folder / f"{stem}.json").write_text(json.dumps(data, indent=1) + "\n")
    (folder / f"{stem}.md").write_text(markdown(records, names, device))
    plot(records, names, folder / f"{stem}.svg")
