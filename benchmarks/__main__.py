"""The suite: `python -m benchmarks [--quick] [--part I/N] [--device cpu|cuda]`.

Seventeen models, batch sizes 1 and 16, under eager, torch.compile, magpy (both with TorchInductor)
and TorchScript. Each case runs in a process of its own, where the systems are timed in turn and
every output is compared with eager's. Writes JSON, Markdown and plots to `benchmarks/results/`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks import measure, report, systems
from benchmarks.models import SUITE

#: A compiled result may differ by rounding: relative to 1 + |eager's|.
TOLERANCE = 1e-3


def run_case(name: str, batch: int, names: list[str], device: str, quick: bool) -> dict[str, Any]:
    """Compiles, checks and times one case under every system, in this process."""
    case = next(c for c in SUITE if c.name == name)
    example = tuple(x.to(device) for x in case.example(batch))
    model = case.make().to(device)
    found: dict[str, Any] = {
        "case": name,
        "group": case.group,
        "batch": batch,
        "device": device,
        "systems": {},
    }
    calls = {}
    with torch.no_grad():
        want = model(*example)
        for system in names:
            row: dict[str, Any] = {}
            found["systems"][system] = row
            try:
                own = case.make().to(device)
                start = time.perf_counter()
                compiled = systems.compile_with(system, own, "inductor", example)
                compiled(*example)
                measure.synchronize(device)
                row["first"] = time.perf_counter() - start
                compiled(*example)
                row["difference"] = measure.worst_difference(compiled(*example), want)
                # The same path must be right for other values: a branch may have been baked in.
                other = tuple(x.to(device) for x in case.example(batch, seed=2))
                row["difference"] = max(
                    row["difference"],
                    measure.worst_difference(compiled(*other), model(*other)),
                )
                row["graphs"] = systems.graphs(system, compiled)
                if row["difference"] > TOLERANCE:
                    row["error"] = "wrong result"
                else:
                    calls[system] = lambda compiled=compiled: compiled(*example)
            except Exception as error:  # noqa: BLE001  (a system's failure is a result)
                row["error"] = f"{type(error).__name__}: {error}".strip().splitlines()[0][:160]
        timings = measure.interleaved(
            calls, rounds=7 if quick else 25, budget=0.5 if quick else 3.0, device=device
        )
    for system, timing in timings.items():
        found["systems"][system]["seconds"] = timing.median
        found["systems"][system]["low"] = timing.low
        found["systems"][system]["high"] = timing.high
    return found


def in_process(name: str, batch: int, options: argparse.Namespace) -> dict[str, Any]:
    """Runs a case in a child, so that a crash or an endless compilation costs only that case."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks", "--child", name, str(batch)]
    command += ["--device", options.device] + (["--quick"] if options.quick else [])
    for system in options.system or []:
        command += ["--system", system]
    failed: dict[str, Any] = {"case": name, "batch": batch, "device": options.device}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=options.timeout
        )
    except subprocess.TimeoutExpired:
        return {**failed, "error": f"not done after {options.timeout} s", "systems": {}}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {**failed, "error": f"exit status {done.returncode}: {last}", "systems": {}}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> int:
    """Runs the command line; the exit status tells whether every magpy result was right."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="batch 1, few rounds")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="the I-th of N parts")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--system", action="append", choices=systems.SYSTEMS, help="default: all")
    parser.add_argument("--case", action="append", choices=[c.name for c in SUITE])
    parser.add_argument("--out", type=Path, default=measure.RESULTS)
    parser.add_argument("--timeout", type=int, default=900, help="seconds for a case")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device")
    names = list(dict.fromkeys(["eager", *(options.system or systems.SYSTEMS)]))
    if options.child:
        name, batch = options.child
        print(json.dumps(run_case(name, int(batch), names, options.device, options.quick)))
        return 0
    index, _, count = options.part.partition("/")
    if not (index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        parser.error(f"--part {options.part!r} is not I/N with 1 <= I <= N")
    batches = (1,) if options.quick else (1, 16)
    jobs = [(c.name, b) for c in SUITE if c.name in (options.case or [c.name]) for b in batches]
    jobs = jobs[int(index) - 1 :: int(count)]
    found = []
    for i, (name, batch) in enumerate(jobs, 1):
        found.append(in_process(name, batch, options))
        print(f"[{i}/{len(jobs)}] {report.one_line(found[-1])}", file=sys.stderr, flush=True)
    part = "" if options.part == "1/1" else f"-{index}of{count}"
    stem = f"suite-{options.device}{'-quick' if options.quick else ''}{part}"
    report.write(found, names, options.out, stem, options.device)
    print((options.out / f"{stem}.md").read_text())
    bad = [r for r in found if "error" in r or "error" in r["systems"].get("magpy", {})]
    return 1 if bad and "magpy" in names else 0


if __name__ == "__main__":
    sys.exit(main())
