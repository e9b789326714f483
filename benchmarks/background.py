"""What calls cost while the backend compiles elsewhere: `python -m benchmarks.background`.

A model is called without pause, first as it is, then compiled with `background=True` until the
compiled graph serves the calls. Reported are the calls in between, as ratios to eager's median in
the same process: the median, the 99th percentile and the longest. The first call, which is watched,
is given apart. Results are compared with eager's throughout.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import magpy
from benchmarks import measure
from benchmarks.models.case import STANDARD

MODELS = ("linear-10", "linear-100", "resnet-50", "bert-base")


def _time(call: Callable[[], Any], device: str) -> float:
    start = time.perf_counter()
    call()
    measure.synchronize(device)
    return time.perf_counter() - start


def during(name: str, device: str, seconds: float, limit: float) -> list[str]:
    """One row of the table."""
    case = STANDARD[name]
    model = case.make().to(device)
    example = tuple(x.to(device) for x in case.example(1))
    want = model(*example)
    for _ in range(3):
        model(*example)
    eager = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(eager) < 20:
        eager.append(_time(lambda: model(*example), device))
    median = statistics.median(eager)
    compiled = magpy.compile(model, background=True)
    first = _time(lambda: compiled(*example), device)
    calls: list[float] = []
    worst = 0.0
    start = time.perf_counter()
    while magpy.stats(compiled).pending and time.perf_counter() - start < limit:
        kept: list[Any] = []
        calls.append(_time(lambda kept=kept: kept.append(compiled(*example)), device))
        if len(calls) % 20 == 1:
            worst = max(worst, measure.worst_difference(kept[0], want))
    waited = time.perf_counter() - start
    after = [_time(lambda: compiled(*example), device) for _ in range(20)]
    stats = magpy.stats(compiled)
    if stats.pending or not stats.entries or stats.reasons:
        raise RuntimeError(f"{name} was not compiled in the background: {stats}")
    worst = max(worst, measure.worst_difference(compiled(*example), want))
    calls.sort()
    eager.sort()

    def ratio(values: list[float], part: float) -> str:
        return f"{values[min(len(values) - 1, int(part * len(values)))] / median:.2f}x"

    return [
        name,
        measure.seconds(median),
        ratio(eager, 0.99),
        f"{len(calls)} in {measure.seconds(waited)}",
        ratio(calls, 0.5),
        ratio(calls, 0.99),
        ratio(calls, 1.0),
        f"{first / median:.1f}x",
        f"{statistics.median(after) / median:.2f}x",
        f"{worst:.0e}",
    ]


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", choices=MODELS, help="default: all")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--seconds", type=float, default=5, help="for eager's figures")
    parser.add_argument("--limit", type=float, default=900, help="seconds to wait for a graph")
    options = parser.parse_args()
    rows = []
    with torch.no_grad():
        for name in options.model or MODELS:
            rows.append(during(name, options.device, options.seconds, options.limit))
            print(" ".join(rows[-1]), flush=True)
            magpy.reset()
    header = [
        "model",
        "eager",
        "eager p99",
        "calls while compiling",
        "p50",
        "p99",
        "max",
        "first call",
        "compiled",
        "difference",
    ]
    print(f"\n{measure.machine_line(options.device)}; ratios to eager's median\n")
    print(measure.table(header, rows))


if __name__ == "__main__":
    main()
