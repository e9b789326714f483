"""Timing and reporting that every benchmark shares.

Owns: interleaved timing, medians and spread, the description of the machine, Markdown tables.
Does not own: models, nor what is compared.
"""

from __future__ import annotations

import itertools
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Timing:
    """Seconds per call: the median of the rounds, the quartiles around it, the fastest round."""

    median: float
    low: float
    high: float
    least: float

    def __str__(self) -> str:
        return f"{seconds(self.median)} ({seconds(self.low)}-{seconds(self.high)})"


def seconds(value: float) -> str:
    """A duration with a unit and three digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def size(value: float) -> str:
    """A number of bytes with a unit and three digits."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f} B"


def synchronize(device: str) -> None:
    """Waits for the accelerator, where there is one."""
    if device == "cuda":
        torch.cuda.synchronize()


def interleaved(
    calls: Mapping[str, Callable[[], Any]],
    *,
    rounds: int,
    budget: float,
    device: str = "cpu",
) -> dict[str, Timing]:
    """Times several callables in turn, so that a machine's slow minute hurts all of them alike.

    Args:
        calls: What to time, by name; each is called a few times before.
        rounds: How often each is timed.
        budget: Seconds for each callable, all rounds together.
        device: Where it computes.
    """
    repeats = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        synchronize(device)
        start = time.perf_counter()
        call()
        synchronize(device)
        once = max(time.perf_counter() - start, 1e-7)
        repeats[name] = max(1, min(10_000, int(budget / rounds / once)))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            n = repeats[name]
            start = time.perf_counter()
            for _ in range(n):
                call()
            synchronize(device)
            samples[name].append((time.perf_counter() - start) / n)
    return {name: summary(values) for name, values in samples.items()}


def summary(values: Sequence[float]) -> Timing:
    """Median and quartiles."""
    if len(values) < 2:
        return Timing(values[0], values[0], values[0], values[0])
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Timing(middle, low, high, min(values))


def peak_memory(call: Callable[[], Any], device: str = "cpu") -> int:
    """Bytes that torch's allocator holds at most in one call, beyond what it held before."""
    call()
    synchronize(device)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        synchronize(device)
        return int(torch.cuda.max_memory_allocated()) - before
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = call()
    del result
    recorded: Any = profiler.profiler
    events = recorded.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    return max(itertools.accumulate((n for _, n in changes), initial=0))


def tensors(value: Any, seen: set[int] | None = None) -> list[torch.Tensor]:
    """Every tensor in a result, in order, looking into containers and objects."""
    seen = set() if seen is None else seen
    if isinstance(value, torch.Tensor):
        return [value]
    if id(value) in seen or isinstance(value, (str, bytes, int, float, type(None), type)):
        return []
    seen.add(id(value))
    if isinstance(value, Mapping):
        parts: Iterable[Any] = value.values()
    elif isinstance(value, (list, tuple)):
        parts = value
    else:
        parts = getattr(value, "__dict__", {}).values()
    return [t for part in parts for t in tensors(part, seen)]


def worst_difference(got: Any, want: Any) -> float:
    """The largest difference relative to 1 + |want|; inf where the structure differs."""
    a, b = tensors(got), tensors(want)
    if len(a) != len(b):
        return float("inf")
    worst = 0.0
    for x, y in zip(a, b, strict=True):
        if x.shape != y.shape or x.dtype != y.dtype:
            return float("inf")
        x, y = x.detach().cpu().double(), y.detach().cpu().double()
        error = (x - y).abs() / (1 + y.abs())
        error[(x == y) | (x.isnan() & y.isnan())] = 0.0  # equal infinities would subtract to NaN
        if error.numel():
            worst = max(worst, float(error.nan_to_num(float("inf")).max()))
    return worst


def machine(device: str = "cpu") -> dict[str, str]:
    """What the figures depend on: processor, cores, versions. No host name."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    found = {
        "processor": model,
        "cores": str(cores),
        "threads": str(torch.get_num_threads()),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "magpy": commit(),
    }
    if device == "cuda":
        found["accelerator"] = torch.cuda.get_device_name()
    return found


def commit() -> str:
    """The commit of this checkout, short."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown commit"
    return done.stdout.strip()


def machine_line(device: str = "cpu") -> str:
    """The machine in one line of Markdown."""
    m = machine(device)
    extra = f", {m['accelerator']}" if "accelerator" in m else ""
    return (
        f"{m['processor']}, {m['cores']} cores, {m['threads']} threads{extra}; "
        f"Python {m['python']}, torch {m['torch']}, magpy {m['magpy']}"
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table with aligned columns."""
    grid = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in grid) for i in range(len(header))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in grid
    ]
    rule = "|" + "|".join("-" * (w + 2) for w in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])
