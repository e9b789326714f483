"""What the suite measures of one case, in the process that it is called in.

Owns: the order of checks and measurements of a case, the record that comes of it. Does not own:
processes and the command line (`benchmarks.__main__`), how each system compiles
(`benchmarks/systems.py`), tables and plots (`benchmarks/report.py`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks import measure, systems
from benchmarks.models import SUITE

#: A compiled result may differ by rounding: relative to 1 + |eager's|.
TOLERANCE = {"float32": 1e-3, "bfloat16": 1e-1}

Record = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """How a case is measured.

    Attributes:
        systems: Names of `benchmarks.systems.SYSTEMS`; eager is among them.
        device: "cpu" or "cuda".
        dtype: "float32" or "bfloat16", of weights and inputs.
        rounds: How often each system is timed.
        budget: Seconds for each system, all rounds together.
    """

    systems: tuple[str, ...]
    device: str = "cpu"
    dtype: str = "float32"
    rounds: int = 15
    budget: float = 1.5


def measured(name: str, batch: int, settings: Settings) -> Record:
    """The record of one model at one batch size.

    For each system: `start` (seconds of the first two calls beyond two of eager's), `backend` (how
    many of those TorchInductor took), `seconds` of a call (median) with `low` and `high`
    (quartiles), `memory` (bytes at most in a call), `overhead` (seconds of a call whose graphs give
    constants), `graphs`, `difference` to eager, or `error`.
    """
    case = next(c for c in SUITE if c.name == name)
    device, dtype = settings.device, getattr(torch, settings.dtype)

    def made() -> torch.nn.Module:
        return case.make().to(device, dtype)

    def example(seed: int) -> tuple[Any, ...]:
        return tuple(
            x.to(device, dtype if x.is_floating_point() else None)
            for x in case.example(batch, seed)
        )

    given, other = example(1), example(2)
    found: Record = {"case": name, "group": case.group, "batch": batch, "systems": {}}
    found |= {"device": device, "dtype": settings.dtype}
    calls = {}
    with torch.no_grad():
        model = made()
        want, want_other = model(*given), model(*other)
        start = time.perf_counter()
        model(*given)
        measure.synchronize(device)
        eager = time.perf_counter() - start
        for system in settings.systems:
            row: Record = {}
            found["systems"][system] = row
            try:
                compiled = _compiled(system, made(), given, eager, device, row)
                got = measure.worst_difference(compiled(*given), want)
                # The same path must be right for other values: a branch may have been baked in.
                got = max(got, measure.worst_difference(compiled(*other), want_other))
                row["difference"] = got
                if got > TOLERANCE[settings.dtype]:
                    row["error"] = "wrong result"
                    continue
                chosen = systems.settle(system, compiled, given)
                row["graphs"] = chosen or systems.graphs(system, compiled)
                calls[system] = lambda compiled=compiled: compiled(*given)
            except Exception as error:  # noqa: BLE001  (a system's failure is a result)
                row["error"] = f"{type(error).__name__}: {error}".strip().splitlines()[0][:160]
        timings = measure.interleaved(
            calls, rounds=settings.rounds, budget=settings.budget, device=device
        )
        for system, call in calls.items():
            found["systems"][system]["memory"] = measure.peak_memory(call, device)
        own = [s for s in systems.PAIR if s in calls]
        overheads = _overheads(own, made, given, device)
    for system, timing in timings.items():
        row = found["systems"][system]
        row |= {"seconds": timing.median, "low": timing.low, "high": timing.high}
        if system in overheads:
            row["overhead"] = overheads[system]
    return found


def _compiled(
    system: str,
    model: torch.nn.Module,
    example: tuple[Any, ...],
    eager: float,
    device: str,
    row: Record,
) -> systems.Compiled:
    """The compiled model after two calls, whose seconds are noted in `row`."""
    with systems.backend_seconds() as spent:
        start = time.perf_counter()
        compiled = systems.compile_with(system, model, "inductor", example)
        for _ in range(2):
            compiled(*example)
        measure.synchronize(device)
        took = time.perf_counter() - start
    if system != "eager":
        row["start"] = max(took - 2 * eager, 0.0)
    if systems.compiles(system):
        row["backend"] = sum(spent)
    return compiled


def _overheads(
    names: list[str], made: Any, example: tuple[Any, ...], device: str
) -> dict[str, float]:
    """Seconds of a call, by system, when its graphs give what they gave once."""
    systems.reset()
    calls = {}
    for system in names:
        compiled = systems.compile_with(system, made(), systems.constant_backend)
        try:
            for _ in range(2):
                compiled(*example)
        except Exception:  # noqa: BLE001  (said where it is timed)
            continue
        calls[system] = lambda compiled=compiled: compiled(*example)
    timings = measure.interleaved(calls, rounds=9, budget=0.2, device=device)
    return {system: timing.median for system, timing in timings.items()}
