"""The demo: `make demo`, or `python -m demo`.

Compiles four models of transformers (their own code, random weights) and one program that
torch.compile(fullgraph=True) refuses, with TorchInductor, and compares every output with eager's.
Prints a table and draws one model's reference graph. The exit status is 1 when an output differs.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import magpy
from benchmarks import measure, systems
from benchmarks.models.case import Case
from demo.programs import MODELS, REFUSED

#: TorchInductor rounds differently from eager; relative to 1 + |eager's|.
TOLERANCE = 1e-3


@contextlib.contextmanager
def progress(what: str) -> Iterator[None]:
    """Shows what goes on, and for how long: a running clock on a terminal, two lines elsewhere."""
    start, done = time.perf_counter(), threading.Event()

    def clock() -> None:
        while not done.wait(0.5):
            print(f"\r{what} ... {time.perf_counter() - start:.0f} s", end="", flush=True)

    ticking = threading.Thread(target=clock, daemon=True)
    if sys.stdout.isatty():
        ticking.start()
    else:
        print(f"{what} ...", flush=True)
    try:
        yield
    finally:
        done.set()
        if ticking.is_alive():
            ticking.join()
        lead = "\r" if sys.stdout.isatty() else ""
        print(f"{lead}{what} ... {time.perf_counter() - start:.1f} s", flush=True)


def capture_seconds(system: str, model: torch.nn.Module, example: tuple[Any, ...]) -> float:
    """Time of the capture alone: the first call with a backend that does not compile."""
    compiled = systems.compile_with(system, model, backend="eager")
    start = time.perf_counter()
    compiled(*example)
    return time.perf_counter() - start


def compare(case: Case, rounds: int) -> tuple[dict[str, dict[str, str]], bool]:
    """One model under every system: (cells of the table by system, whether all was right)."""
    eager, example, other = case.make(), case.example(1), case.example(1, seed=2)
    want, want_other = eager(*example), eager(*other)
    calls: dict[str, Any] = {"eager": lambda: eager(*example)}
    idle: dict[str, Any] = {}
    cells: dict[str, dict[str, str]] = {"eager": {"graphs": "-", "capture": "-", "guards": "-"}}
    right = True
    for system in ("torch.compile", "magpy"):
        systems.reset()
        capture = capture_seconds(system, copy.deepcopy(eager), example)
        systems.reset()
        compiled = systems.compile_with(system, copy.deepcopy(eager))
        with progress(f"  {case.name}: compiling with {system}"):
            first = compiled(*example)
        worst = max(
            measure.worst_difference(first, want),
            measure.worst_difference(compiled(*example), want),
            measure.worst_difference(compiled(*other), want_other),
        )
        if worst > TOLERANCE:
            right = False
            print(f"  {case.name}: {system}'S RESULT DIFFERS from eager's by {worst:.3g}")
        cells[system] = {
            "graphs": systems.graphs(system, compiled),
            "capture": measure.seconds(capture),
        }
        calls[system] = lambda compiled=compiled: compiled(*example)
        constant = systems.compile_with(
            system, copy.deepcopy(eager), backend=systems.constant_backend
        )
        constant(*example)
        idle[system] = lambda constant=constant: constant(*example)
    times = measure.interleaved(calls, rounds=rounds, budget=2.0)
    guards = measure.interleaved(idle, rounds=rounds, budget=0.3)
    for system, timing in times.items():
        cells[system]["call"] = measure.seconds(timing.median)
        if system in guards:
            cells[system]["guards"] = measure.seconds(guards[system].median)
    return cells, right


def refused_program() -> bool:
    """Shows torch.compile's refusal and magpy's result; whether magpy was right."""
    print(f"\n{REFUSED.name}: a loop whose length depends on the data, a history, Python results")
    example = REFUSED.example(2)
    try:
        torch.compile(REFUSED.make(), fullgraph=True)(*example)
        print("  torch.compile(fullgraph=True): compiled it")
    except Exception as error:  # noqa: BLE001  (the refusal is what is shown)
        reason = next((s for s in str(error).splitlines() if s.strip()), type(error).__name__)
        print(f"  torch.compile(fullgraph=True) refuses: {reason.strip()}")
    systems.reset()
    eager, own = REFUSED.make(), REFUSED.make()
    compiled = magpy.compile(own)
    right = True
    with progress("  compiling with magpy"):
        for k in range(6):
            args = REFUSED.example(2, seed=1 + k % 2)
            (x, info), (want, want_info) = compiled(*args), eager(*args)
            same = measure.worst_difference(x, want) <= TOLERANCE
            same &= info["steps"] == want_info["steps"] and info["settled"] == want_info["settled"]
            same &= abs(info["scale"] - want_info["scale"]) <= TOLERANCE
            right &= same
    right &= own.history == eager.history
    stats = magpy.stats(compiled)
    print(
        f"  magpy: {stats.captures} captures, {stats.hits} calls served compiled, "
        f"{stats.eager_calls} eager; graphs in each entry {list(stats.segments)}; "
        f"results and history {'equal' if right else 'DIFFER FROM'} eager's"
    )
    return right


def draw(folder: Path) -> Path:
    """Draws the reference graph of the first model."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "bert-reference-graph.svg"
    case = MODELS[0]
    magpy.explain(case.make(), *case.example(1)).draw(str(path))
    return path


def main() -> int:
    """Runs the demo."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--model", action="append", choices=[m.name for m in MODELS])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out", type=Path, default=Path("demo_output"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{measure.machine_line()}\n")
    rows, right = [], True
    with torch.no_grad():
        for system in ("torch.compile", "magpy"):  # one-time set-up is no model's capture
            systems.compile_with(system, torch.nn.Identity(), backend="eager")(torch.ones(1))
        for case in MODELS:
            if case.name not in (options.model or [case.name]):
                continue
            cells, good = compare(case, options.rounds)
            right &= good
            for system, row in cells.items():
                name = case.name if system == "eager" else ""
                columns = ("call", "graphs", "capture", "guards")
                rows.append([name, system, *(row[c] for c in columns)])
        right &= refused_program()
        picture = draw(options.out)
    print()
    header = ["model", "system", "time per call", "graphs", "capture", "guards and dispatch"]
    print(measure.table(header, rows))
    print(f"\nReference graph of {MODELS[0].name}: {picture}")
    print("Every output equals eager's." if right else "AN OUTPUT DIFFERS FROM EAGER'S.")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
