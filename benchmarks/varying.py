"""Sizes that vary from call to call: `python -m benchmarks.varying [--device cuda]`.

A batch, a sequence length, a height and a width that change in every call, and a decoder whose
cache grows by one token a call. Each system sees a first series of sizes, for which it compiles,
and then a second one with other sizes. Given are the seconds of the first series, compiling
included, the graphs that were compiled for both, and the second series' time as a ratio to
eager's, one call of each system in turn. Results are compared with eager's throughout.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from benchmarks import measure, systems
from benchmarks.models.case import SMALL, transformers_model

SYSTEMS = ("eager", *systems.PAIR)
TOKENS = 100
_SIZES = {**SMALL, "vocab_size": TOKENS, "hidden_size": 256, "intermediate_size": 1024}


def _bert() -> nn.Module:
    return transformers_model("BertModel", "BertConfig", **_SIZES).eval()


def _llama() -> nn.Module:
    options = {"num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2}
    return transformers_model("LlamaForCausalLM", "LlamaConfig", **_SIZES, **options).eval()


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 256))


def _cnn() -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return nn.Sequential(*layers).eval().to(memory_format=torch.channels_last)


def _image(height: int, width: int, device: str) -> tuple[torch.Tensor]:
    image = torch.randn(4, 3, height, width, device=device)
    return (image.to(memory_format=torch.channels_last),)


def _timed(call: Callable[[], Any], device: str) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    measure.synchronize(device)
    return time.perf_counter() - start, result


class Batches:
    """Calls with inputs of these sizes."""

    def __init__(self, make: Callable[..., Any], first: list[Any], second: list[Any]) -> None:
        """Keeps the sizes of both series."""
        self.labels = ["x".join(map(str, size)) for size in second]
        self.series = [[make(*size) for size in sizes] for sizes in (first, second)]

    def steps(self, model: Any, series: int, device: str) -> Iterable[tuple[float, Any]]:
        """One call after the other: the seconds it took and its result."""
        for args in self.series[series]:
            yield _timed(lambda given=args: model(*given), device)  # type: ignore[misc]


class Decoding:
    """Greedy decoding, in which a cache grows by one token a call."""

    def __init__(self, lengths: tuple[int, int]) -> None:
        """Keeps how many tokens each series decodes."""
        self.labels = [str(i) for i in range(lengths[1])]
        self.lengths = lengths

    def steps(self, model: Any, series: int, device: str) -> Iterable[tuple[float, Any]]:
        """As of `Batches`."""
        from transformers import DynamicCache

        cache = DynamicCache()
        ids = torch.arange(4 + series, device=device)[None]
        for _ in range(self.lengths[series]):
            given = {"input_ids": ids, "past_key_values": cache, "use_cache": True}
            seconds, out = _timed(lambda given=given: model(**given), device)  # type: ignore[misc]
            cache, ids = out.past_key_values, out.logits[:, -1:].argmax(-1)
            yield seconds, out.logits


def cases(device: str) -> dict[str, tuple[Callable[[], nn.Module], Any]]:
    """Model and calls by name."""
    pairs = [(2, 16), (2, 24), (3, 31), (4, 40), (5, 12), (6, 52)]
    others = [(3, 18), (7, 21), (2, 45), (5, 33), (8, 14), (4, 27)]
    return {
        "MLP, batch": (
            _mlp,
            Batches(
                lambda n: (torch.randn(n, 256, device=device),),
                [(n,) for n in (8, 12, 17, 25, 32, 40)],
                [(n,) for n in (9, 15, 21, 30, 37, 44)],
            ),
        ),
        "BERT, batch and length": (
            _bert,
            Batches(
                lambda n, m: (
                    torch.randint(0, TOKENS, (n, m), device=device),
                    torch.ones(n, m, dtype=torch.long, device=device),
                ),
                pairs,
                others,
            ),
        ),
        "CNN, height and width, channels last": (
            _cnn,
            Batches(
                lambda n, m: _image(n, m, device),
                [(32, 32), (40, 32), (48, 56), (36, 64), (33, 47), (64, 64)],
                [(38, 34), (56, 48), (41, 60), (50, 50), (35, 45), (62, 40)],
            ),
        ),
        "Llama, growing cache": (_llama, Decoding((12, 24))),
    }


def measured(name: str, device: str, backend: str, rounds: int = 7) -> dict[str, Any]:
    """The record of one case.

    For each system: `first` (seconds of the first series, compiling included), `graphs` (compiled
    for both series), `steps` (each call's median in the second series), `difference` to eager.
    """
    make, calls = cases(device)[name]
    torch.manual_seed(0)
    model = make().to(device)
    rows: dict[str, dict[str, Any]] = {}
    compiled: dict[str, Any] = {}
    wanted: list[Any] = []
    systems.reset()
    for system in SYSTEMS:
        compiled[system] = systems.compile_with(system, model, backend=backend)
        results = list(calls.steps(compiled[system], 0, device))
        wanted = [out for _, out in results] if system == "eager" else wanted
        worst = max(
            measure.worst_difference(out, want)
            for (_, out), want in zip(results, wanted, strict=True)
        )
        # The second series once, so that what it is compiled for is not in its time.
        list(calls.steps(compiled[system], 1, device))
        rows[system] = {
            "first": sum(s for s, _ in results),
            "graphs": _graphs(system, compiled[system]),
            "difference": worst,
        }
    samples: dict[str, list[list[float]]] = {system: [] for system in SYSTEMS}
    for _ in range(rounds):
        running = [calls.steps(compiled[system], 1, device) for system in SYSTEMS]
        for i, steps in enumerate(zip(*running, strict=True)):
            for system, (seconds, out) in zip(SYSTEMS, steps, strict=True):
                if i == len(samples[system]):
                    samples[system].append([])
                samples[system][i].append(seconds)
                row, difference = rows[system], measure.worst_difference(out, steps[0][1])
                row["difference"] = max(row["difference"], difference)
    for system in SYSTEMS:
        rows[system]["steps"] = [statistics.median(s) for s in samples[system]]
    return {"varying": name, "device": device, "labels": calls.labels, "systems": rows}


def table(records: list[dict[str, Any]]) -> str:
    """The records in Markdown."""
    lines = []
    for record in records:
        eager = sum(record["systems"]["eager"]["steps"])
        lines += [
            [
                record["varying"],
                system,
                measure.seconds(row["first"]),
                row["graphs"],
                f"{eager / sum(row['steps']):.2f}x",
                f"{row['difference']:.1e}",
            ]
            for system, row in record["systems"].items()
        ]
    header = ["sizes", "system", "first series", "graphs", "speed-up over eager", "difference"]
    return measure.table(header, lines)


def _graphs(system: str, compiled: Any) -> str:
    if system == "magpy":
        import magpy

        return str(sum(magpy.stats(compiled).segments))
    return systems.graphs(system, compiled)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--backend", default="inductor")
    arguments = parser.parse_args()
    with torch.no_grad():
        found = [
            measured(name, arguments.device, arguments.backend) for name in cases(arguments.device)
        ]
    print(f"{measure.machine_line(arguments.device)}; backend {arguments.backend}\n")
    print(table(found))


if __name__ == "__main__":
    main()
