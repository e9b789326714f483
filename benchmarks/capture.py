"""Time to capture a model with backend "eager": `python -m benchmarks.capture [--profile]`.

Cold: the first capture in a process, when no code object has been seen before. Warm: another
instance of the same class afterwards. Every (model, system) runs in processes of its own, several
times, in turn; medians are printed. A capturing call runs the program too: what an eager call takes
is measured before and taken off.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from typing import Any

import torch

from benchmarks import measure, systems
from benchmarks.models.case import STANDARD

MODELS = ("bert-base", "resnet-50", "gpt-2", "linear-500")


def first_call(system: str, name: str, seed: int) -> tuple[float, float]:
    """Seconds for a new instance: (first call under `system` beyond an eager call, eager call)."""
    case = STANDARD[name]
    model, example = case.make(seed), case.example(1)
    model(*example)
    eager = statistics.median(timed(lambda: model(*example)) for _ in range(5))
    compiled = systems.compile_with(system, model, backend="eager")
    return max(timed(lambda: compiled(*example)) - eager, 1e-6), eager


def timed(call: Any) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def child(system: str, name: str) -> None:
    """Measures in this process and prints one JSON line."""
    with torch.no_grad():
        # Imports and one-time set-up of the system are not the model's capture.
        warm_up = systems.compile_with(system, torch.nn.Identity(), backend="eager")
        warm_up(torch.ones(1))
        cold, eager = first_call(system, name, 0)
        warm = []
        for seed in (1, 2, 3):
            if system == "torch.compile":
                systems.reset()  # else it would count as a recompilation of the same code
            warm.append(first_call(system, name, seed)[0])
    print(json.dumps({"cold": cold, "warm": statistics.median(warm), "eager": eager}))


def measure_all(
    models: list[str], names: list[str], repeats: int
) -> dict[str, dict[str, dict[str, float]]]:
    """Medians over `repeats` processes, for each model and system."""
    runs: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    for model in models:
        for _ in range(repeats):
            for system in names:
                done = subprocess.run(
                    [sys.executable, "-m", "benchmarks.capture", "--child", system, model],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if done.returncode:
                    sys.exit(f"{system} on {model} failed:\n{done.stderr[-2000:]}")
                runs[model, system].append(json.loads(done.stdout.splitlines()[-1]))
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return {
        model: {
            system: {
                key: statistics.median(run[key] for run in runs[model, system])
                for key in ("cold", "warm", "eager")
            }
            for system in names
        }
        for model in models
    }


def profile(name: str) -> None:
    """Prints where one cold capture spends its time, by file and by function."""
    with torch.no_grad():
        case = STANDARD[name]
        model, example = case.make(), case.example(1)
        model(*example)
        compiled = systems.compile_with("magpy", model, backend="eager")
        profiler = cProfile.Profile()
        profiler.enable()
        compiled(*example)
        profiler.disable()
    stats = pstats.Stats(profiler)
    by_file: dict[str, float] = defaultdict(float)
    for (file, _, _), (_, _, own, _, _) in stats.stats.items():  # type: ignore[attr-defined]
        by_file["/".join(file.split("/")[-3:])] += own
    print(f"\n{name}: seconds inside each file (profiler on, so slower than without)")
    for file, own in sorted(by_file.items(), key=lambda item: -item[1])[:15]:
        print(f"  {own:8.4f}  {file}")
    stats.sort_stats("cumulative").print_stats(25)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", choices=list(STANDARD), help="default: four")
    parser.add_argument("--system", action="append", choices=systems.PAIR)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="also print a profile of magpy")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    models = options.model or list(MODELS)
    names = options.system or list(systems.PAIR)
    found = measure_all(models, names, options.repeats)
    rows = []
    for model in models:
        row = [model, measure.seconds(min(found[model][s]["eager"] for s in names))]
        for key in ("cold", "warm"):
            row += [measure.seconds(found[model][s][key]) for s in names]
            if len(names) == 2:
                ratio = found[model]["torch.compile"][key] / found[model]["magpy"][key]
                row.append(f"{ratio:.1f}x")
        rows.append(row)
    header = ["model", "eager call"]
    for key in ("cold", "warm"):
        header += [f"{key} {s}" for s in names] + (["ratio"] if len(names) == 2 else [])
    what = f"first call beyond an eager call, backend eager, median of {options.repeats}"
    print(f"{measure.machine_line()}; {what}\n")
    print(measure.table(header, rows))
    if options.profile:
        for model in models:
            profile(model)


if __name__ == "__main__":
    main()
