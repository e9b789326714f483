"""The suite: `python -m benchmarks [--quick] [--part I/N] [--device cpu|cuda] [--dtype ...]`.

Sixteen models, batch sizes 1 and 16, under eager, torch.compile, magpy (both with TorchInductor),
TorchScript and LazyTensor, on CUDA with CUDA graphs too; and sizes that vary from call to call.
Each case runs in a process of its own, where the systems are timed in turn and every output is
compared with eager's. Writes JSON, Markdown and plots to `benchmarks/results/`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from benchmarks import measure, report, suite, systems, varying
from benchmarks.models import SUITE

#: What `--quick` runs: one of each kind.
QUICK = ("ResNet", "BERT", "LSTM", "Llama")
#: The batch size that stands for "sizes that vary" in a job.
VARYING = 0


def jobs(options: argparse.Namespace) -> list[tuple[str, int]]:
    """The cases of this part: (name, batch size)."""
    names = options.case or (QUICK if options.quick else [c.name for c in SUITE])
    batches = (1,) if options.quick else tuple(options.batch or (1, 16))
    found = [(name, batch) for name in names for batch in batches]
    if not options.case and not options.quick:
        found += [(name, VARYING) for name in varying.cases("cpu")]
    index, _, count = options.part.partition("/")
    if not (index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        raise ValueError(f"--part {options.part!r} is not I/N with 1 <= I <= N")
    return found[int(index) - 1 :: int(count)]


def here(name: str, batch: int, options: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    """The record of a case, measured in this process."""
    if batch == VARYING:
        with torch.no_grad():
            return varying.measured(name, options.device, "inductor")
    settings = suite.Settings(tuple(names), options.device, options.dtype)
    if options.quick:
        settings = suite.Settings(tuple(names), options.device, options.dtype, 7, 0.5)
    return suite.measured(name, batch, settings)


def in_process(name: str, batch: int, options: argparse.Namespace) -> dict[str, Any]:
    """Runs a case in a child, so that a crash or an endless compilation costs only that case."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks", "--child", name, str(batch)]
    command += ["--device", options.device, "--dtype", options.dtype]
    command += ["--quick"] if options.quick else []
    for system in options.system or []:
        command += ["--system", system]
    what = {"varying": name} if batch == VARYING else {"case": name, "batch": batch}
    failed: dict[str, Any] = {**what, "device": options.device, "systems": {}}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=options.timeout
        )
    except subprocess.TimeoutExpired:
        return {**failed, "error": f"not done after {options.timeout} s"}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {**failed, "error": f"exit status {done.returncode}: {last}"}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> int:
    """Runs the command line; the exit status tells whether every magpy result was right."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="four models, batch 1, few rounds")
    parser.add_argument("--part", default="1/1", metavar="I/N", help="the I-th of N parts")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="float32", choices=tuple(suite.TOLERANCE))
    parser.add_argument("--batch", action="append", type=int, help="default: 1 and 16")
    parser.add_argument("--system", action="append", choices=systems.SYSTEMS, help="default: all")
    parser.add_argument("--case", action="append", choices=[c.name for c in SUITE])
    parser.add_argument("--out", type=Path, default=measure.RESULTS)
    parser.add_argument(
        "--update", action="store_true", help="keep the other cases of the results that are there"
    )
    parser.add_argument("--timeout", type=int, default=600, help="seconds for a case")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: torch sees no CUDA device")
    if any(batch < 1 for batch in options.batch or ()):
        parser.error("--batch must be at least 1")
    names = list(dict.fromkeys(["eager", *(options.system or systems.usable(options.device))]))
    if options.child:
        print(json.dumps(here(options.child[0], int(options.child[1]), options, names)))
        return 0
    try:
        todo = jobs(options)
    except ValueError as error:
        parser.error(str(error))
    found = report.read(options.out, _stem(options)) if options.update else []
    for i, (name, batch) in enumerate(todo, 1):
        record = in_process(name, batch, options) | {"magpy": measure.commit()}
        report.put(found, record)
        print(f"[{i}/{len(todo)}] {report.one_line(record)}", file=sys.stderr, flush=True)
        report.write(found, names, options.out, _stem(options), options.device)
    print((options.out / f"{_stem(options)}.md").read_text())
    bad = [
        record
        for record in found
        if "error" in record
        or any("error" in row for s, row in record["systems"].items() if s.startswith("magpy"))
    ]
    return 1 if bad else 0


def _stem(options: argparse.Namespace) -> str:
    parts = ["suite", options.device]
    parts += [options.dtype] if options.dtype != "float32" else []
    parts += ["quick"] if options.quick else []
    parts += [options.part.replace("/", "of")] if options.part != "1/1" else []
    return "-".join(parts)


if __name__ == "__main__":
    sys.exit(main())
