"""`python -m benchmarks.gpu`: what a GPU tells that no other machine can, in at most nine minutes.

    python -m benchmarks.gpu [--minutes 9] [--out DIR] [--dry]

Owns: the order (cheapest first) and the clock: what there is no time left for is left out, and said
so. A line of JSON is written, and printed, as soon as it is known, so that a run that is cut off
has lost nothing. `--dry` does every stage once with the smallest models and no rounds, also where
kernels are not run (tests/cuda/stub): it finds mistakes of this program, no figures. Does not own:
timing (measure.py), models (models/), systems (systems.py). Needs no network.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import magpy
from benchmarks import measure, systems
from benchmarks.models.case import SMALL, STANDARD, LinearLayers, token_ids, transformers_model

Row = dict[str, Any]
DEVICE = "cuda"
COMPARED = ("eager", "torch.compile", "magpy")
REDUCED = ("torch.compile reduce-overhead", "magpy reduce-overhead")


class Clock:
    """How much of the time is left."""

    def __init__(self, minutes: float) -> None:
        """Starts."""
        self._end = time.monotonic() + 60 * minutes

    def left(self) -> float:
        """Seconds."""
        return self._end - time.monotonic()


def environment() -> Row:
    """The machine and the versions."""
    capability = torch.cuda.get_device_capability()
    return {
        "gpu": torch.cuda.get_device_name(),
        "devices": torch.cuda.device_count(),
        "capability": ".".join(map(str, capability)),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "magpy": magpy.__version__,
    }


# ---------------------------------------------------------------- values against eager


def _side_stream(x: torch.Tensor) -> torch.Tensor:
    main = torch.cuda.current_stream()
    SIDE[0].wait_stream(main)
    with torch.cuda.stream(SIDE[0]):
        y = x @ x.t()
        for _ in range(20):
            y = y @ y.t() / y.norm()
    main.wait_stream(SIDE[0])
    return y + 1


def _events(x: torch.Tensor) -> torch.Tensor:
    event = torch.cuda.Event()
    SIDE[0].wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(SIDE[0]):
        y = x.cos() @ x.t()
        event.record()
    event.wait()
    return y.sin()


def _draws(x: torch.Tensor) -> Any:
    return torch.nn.functional.dropout(x, 0.5), torch.rand(3, device=x.device), x.bernoulli(0.5)


def _half(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return x @ x.t()


def _moved(x: torch.Tensor) -> Any:
    host = x.cpu()
    return (host + 1).cuda(), host.pin_memory().to(x.device, non_blocking=True) * 2


def _decided(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - x.mean().item()


def _written(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[x > 0] = 0
    return y.add_(x[0])


SIDE: list[Any] = []
VALUES: tuple[Callable[[torch.Tensor], Any], ...] = (
    *(_side_stream, _events, _draws, _half, _moved, _decided, _written),
)


def _same(a: Any, b: Any, exact: bool) -> bool:
    pairs = zip(measure.tensors(a), measure.tensors(b), strict=True)
    if exact:
        return all(torch.equal(x, y) for x, y in pairs)
    return all(torch.allclose(x, y, rtol=1e-2, atol=1e-2) for x, y in pairs)


def values(dry: bool) -> Iterator[Row]:
    """Programs with streams, events, draws and copies, each call equal to eager bit for bit."""
    SIDE[:] = [torch.cuda.Stream()]
    for f in VALUES:
        compiled = magpy.compile(f, backend="eager")
        right = 0
        for seed in range(4):
            x = torch.randn(64, 64, device=DEVICE)
            torch.cuda.manual_seed(seed)
            expected = f(x)
            torch.cuda.manual_seed(seed)
            right += _same(compiled(x), expected, exact=True) or dry
        stats = magpy.stats(compiled)
        yield {"program": f.__name__, "right": right, "of": 4, "hits": stats.hits}


# ---------------------------------------------------------------- figures


def _row(times: dict[str, measure.Timing]) -> Row:
    return {name: {"median": t.median, "low": t.low, "high": t.high} for name, t in times.items()}


def overhead(dry: bool) -> Iterator[Row]:
    """Seconds of a compiled call beside its kernels, of many small layers."""
    for n in (1, 100, 500):
        torch.manual_seed(0)
        model = LinearLayers(n).eval().to(DEVICE)
        x = torch.randn(1, 8, device=DEVICE)
        calls: dict[str, Callable[[], Any]] = {}
        with torch.no_grad():
            for name in COMPARED[1:]:
                compiled = systems.compile_with(name, model, systems.constant_backend)
                compiled(x)
                calls[name] = functools.partial(compiled, x)
            rounds, budget = (2, 0.01) if dry else (9, 0.5)
            times = measure.interleaved(calls, rounds=rounds, budget=budget, device=DEVICE)
        yield {"layers": n, **_row(times)}
        systems.reset()


def _tokens(batch: int) -> Any:
    return token_ids(batch, 128)


def _models(dry: bool) -> Iterator[tuple[str, Callable[[], nn.Module], Callable[[int], Any]]]:
    if dry:
        yield "linear-3", lambda: LinearLayers(3, 64), lambda batch: (torch.randn(batch, 64),)
        return
    for name in ("bert-base", "gpt-2", "resnet-50"):
        case = STANDARD[name]
        inputs = case.inputs if name == "resnet-50" else _tokens
        yield name, case.build, inputs
    yield (
        "vit-base",
        lambda: transformers_model("ViTForImageClassification", "ViTConfig"),
        lambda batch: (torch.randn(batch, 3, 224, 224),),
    )


def _on(device: str, dtype: torch.dtype, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(x.to(device, dtype) if x.is_floating_point() else x.to(device) for x in inputs)


def inference(dry: bool, clock: Clock) -> Iterator[Row]:
    """Seconds for a call of each model under each system, and the memory that it needs."""
    grid = [(1, torch.bfloat16), (16, torch.bfloat16), (1, torch.float32), (16, torch.float32)]
    for batch, dtype in grid[:1] if dry else grid:
        for name, build, inputs in _models(dry):
            if clock.left() < 90 and not dry:
                yield {"model": name, "batch": batch, "dtype": str(dtype), "left out": "no time"}
                continue
            yield {"model": name, "batch": batch, "dtype": str(dtype)} | _inference(
                build, inputs(batch), dtype, dry
            )


def _inference(
    build: Callable[[], nn.Module], inputs: tuple[Any, ...], dtype: torch.dtype, dry: bool
) -> Row:
    torch.manual_seed(0)
    model = build().eval().to(DEVICE, dtype)
    x = _on(DEVICE, dtype, inputs)
    calls: dict[str, Callable[[], Any]] = {}
    row: Row = {}
    with torch.no_grad():
        expected = model(*x)
        for name in (*COMPARED, *REDUCED):
            start = time.perf_counter()
            compiled = systems.compile_with(name, model)
            try:
                result = compiled(*x)
                measure.synchronize(DEVICE)
                row[f"{name} first call"] = time.perf_counter() - start
                row[f"{name} right"] = _same(result, expected, exact=False)
                for _ in range(3):
                    compiled(*x)
                row[f"{name} peak bytes"] = measure.peak_memory(lambda c=compiled: c(*x), DEVICE)
            except Exception as e:  # noqa: BLE001 - one system must not end the others
                row[f"{name} error"] = f"{type(e).__name__}: {e}"[:300]
                continue
            calls[name] = lambda c=compiled: c(*x)
        rounds, budget = (2, 0.01) if dry else (7, 0.3)
        times = measure.interleaved(calls, rounds=rounds, budget=budget, device=DEVICE)
    systems.reset()
    return row | _row(times)


def training(dry: bool) -> Iterator[Row]:
    """Seconds and memory of a training step of a small BERT: forward, backward and AdamW."""
    if dry:
        sizes: dict[str, Any] = {**SMALL, "num_hidden_layers": 1}
    else:
        sizes = {"num_hidden_layers": 6}
    ids = token_ids(2 if dry else 16, 64)[0].to(DEVICE)
    calls: dict[str, Callable[[], Any]] = {}
    row: Row = {}
    for name in COMPARED:
        torch.manual_seed(0)
        model = transformers_model("BertForMaskedLM", "BertConfig", **sizes).to(DEVICE)
        optimizer = torch.optim.AdamW(model.parameters(), fused=not dry)
        compiled: Any = systems.compile_with(name, model)

        def step(compiled: Any = compiled, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = compiled(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            return loss

        row[f"{name} losses"] = [float(step().detach()) for _ in range(3)]
        row[f"{name} peak bytes"] = measure.peak_memory(step, DEVICE)
        calls[name] = step
    rounds, budget = (2, 0.01) if dry else (5, 0.5)
    yield row | _row(measure.interleaved(calls, rounds=rounds, budget=budget, device=DEVICE))


# ---------------------------------------------------------------- the run


def run(minutes: float, out: Path, dry: bool) -> bool:
    """Makes all stages; gives whether none of them failed."""
    clock = Clock(minutes)
    torch.set_float32_matmul_precision("high")
    stages: tuple[tuple[str, Callable[[], Iterator[Row]]], ...] = (
        ("environment", lambda: iter([environment()])),
        ("values", lambda: values(dry)),
        ("overhead", lambda: overhead(dry)),
        ("training", lambda: training(dry)),
        ("inference", lambda: inference(dry, clock)),
    )
    out.mkdir(parents=True, exist_ok=True)
    good = True
    with (out / "gpu.jsonl").open("w") as file:
        for stage, rows in stages:
            try:
                for row in rows():
                    line = json.dumps({"stage": stage, "seconds left": round(clock.left())} | row)
                    print(line, flush=True)
                    file.write(line + "\n")
                    file.flush()
            except Exception:  # noqa: BLE001 - the other stages are worth having
                good = False
                line = json.dumps({"stage": stage, "error": traceback.format_exc()})
                print(line, flush=True)
                file.write(line + "\n")
    return good


def main() -> int:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--out", type=Path, default=measure.RESULTS)
    parser.add_argument("--dry", action="store_true")
    chosen = parser.parse_args()
    if not torch.cuda.is_available():
        print("benchmarks.gpu needs a CUDA device (or tests/cuda/stub, with --dry)")
        return 2
    return 0 if run(chosen.minutes, chosen.out, chosen.dry) else 1


if __name__ == "__main__":
    raise SystemExit(main())
