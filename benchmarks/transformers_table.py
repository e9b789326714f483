"""One graph or not, and capture time, for thirty transformers models.

`python -m benchmarks.transformers_table [--model NAME]`: each model is captured by magpy and by
torch.compile(backend="eager"), cold code objects on both sides (a process for each model).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

import torch

from benchmarks import measure, systems
from benchmarks.zoo import ZOO


def captured(name: str) -> dict[str, Any]:
    """Captures one model by both systems in this process."""
    entry = next(m for m in ZOO if m.name == name)
    found: dict[str, Any] = {"model": name, "kind": entry.kind}
    inputs = entry.example()
    for system in systems.PAIR:
        model = entry.build()
        with torch.no_grad():
            warm_up = systems.compile_with(system, torch.nn.Identity(), backend="eager")
            warm_up(torch.ones(1))
            torch._dynamo.utils.counters.clear()
            want = model(**inputs)
            compiled = systems.compile_with(system, model, backend="eager")
            start = time.perf_counter()
            try:
                compiled(**inputs)
                found[f"{system} seconds"] = time.perf_counter() - start
                found[f"{system} right"] = measure.worst_difference(compiled(**inputs), want) == 0
                found[f"{system} graphs"] = systems.graphs(system, compiled)
            except Exception as error:  # noqa: BLE001  (a system's failure is a result)
                found[f"{system} error"] = f"{type(error).__name__}: {error}"[:200]
        if system == "magpy":
            found["reasons"] = [str(r) for r in sys.modules["magpy"].stats(compiled).reasons]
    return found


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", choices=[m.name for m in ZOO])
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(captured(options.child)))
        return
    rows, ratios, whole, reasons = [], [], 0, []
    names = options.model or [m.name for m in ZOO]
    for name in names:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.transformers_table"]
        done = subprocess.run(
            [*command, "--child", name], capture_output=True, text=True, check=False
        )
        if done.returncode:
            rows.append([name, "", "crash", "", "", ""])
            reasons.append(f"{name}: {done.stderr.strip().splitlines()[-1:]}")
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        one = found.get("magpy graphs") == "1" and found.get("magpy right")
        whole += bool(one)
        reasons += [f"{name}: {r}" for r in found.get("reasons", [])]
        a, b = found.get("magpy seconds"), found.get("torch.compile seconds")
        if a and b:
            ratios.append(b / a)
        rows.append(
            [
                name,
                found["kind"],
                "yes" if one else f"no ({found.get('magpy error') or found['magpy graphs']})",
                measure.seconds(a) if a else "-",
                measure.seconds(b) if b else "-",
                f"{b / a:.1f}x" if a and b else "-",
            ]
        )
        print(" ".join(rows[-1]), file=sys.stderr, flush=True)
    header = ["model", "kind", "one graph", "magpy", "torch.compile", "ratio"]
    print(f"{measure.machine_line()}; capture with backend eager, cold\n")
    print(measure.table(header, rows))
    print(f"\none graph: {whole} of {len(names)}")
    if ratios:
        print(f"torch.compile / magpy, median: {sorted(ratios)[len(ratios) // 2]:.1f}x")
    for reason in reasons:
        print(f"- {reason}")


if __name__ == "__main__":
    main()
