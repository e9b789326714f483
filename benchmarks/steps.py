"""Whole training steps: `python -m benchmarks.steps [--backend inductor] [name...]`.

Each program is a step from the forward pass to the optimizer's update, compiled as one function by
magpy and by torch.compile, beside eager: milliseconds of eager, ratios of the medians of
interleaved calls (more than 1 is faster than eager), magpy's graphs for one step, and its captures;
then the memory that a step of eager's needs at most beyond what is held when it begins, as torch's
allocator tells the profiler, and that of the others relative to it. Losses are compared with
eager's.
"""

from __future__ import annotations

import argparse
import copy
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import magpy
from benchmarks import measure

Program = tuple[Callable[[torch.Tensor], Any], torch.Tensor]


def _mlp(width: int = 128, depth: int = 6) -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*layers)


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(self.first(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.mlp(self.second(x))


class _Lm(nn.Module):
    def __init__(self, width: int = 96, words: int = 300) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.Sequential(*(_Block(width) for _ in range(3)))
        self.head = nn.Linear(width, words)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embed(x)))


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.layers(x))


def _resnet() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), _Residual(16), _Residual(16)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)),
    )


class _LowRank(nn.Module):
    """A frozen layer with a trained change of low rank."""

    def __init__(self, layer: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) * 0.1)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + F.linear(F.linear(x, self.down), self.up)


def _square(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return model(x).square().mean()


def _next_word(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())


def _step(
    model: nn.Module,
    x: torch.Tensor,
    optimizer: Callable[..., torch.optim.Optimizer],
    loss: Callable[[nn.Module, torch.Tensor], torch.Tensor] = _square,
    clip: bool = False,
    amp: bool = False,
    average: bool = False,
    **options: Any,
) -> Program:
    trained = [p for p in model.parameters() if p.requires_grad]
    opt = optimizer(trained, **options)
    mean = copy.deepcopy(model)

    def step(x: torch.Tensor) -> float:
        opt.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=amp):
            value = loss(model, x)
        value.backward()
        if clip:
            nn.utils.clip_grad_norm_(trained, 1.0)
        opt.step()
        if average:
            with torch.no_grad():
                for a, p in zip(mean.parameters(), model.parameters(), strict=True):
                    a.lerp_(p, 0.01)
        return value.item()

    return step, x


def _gan() -> Program:
    make, judge = _mlp(64, 3), nn.Sequential(_mlp(64, 3), nn.Linear(64, 1))
    first = torch.optim.Adam(make.parameters(), lr=1e-4)
    second = torch.optim.Adam(judge.parameters(), lr=1e-4)

    def step(x: torch.Tensor) -> float:
        fake = make(x)
        second.zero_grad()
        loss = F.softplus(-judge(x)).mean() + F.softplus(judge(fake.detach())).mean()
        loss.backward()
        second.step()
        first.zero_grad()
        fooled = F.softplus(-judge(fake)).mean()
        fooled.backward()
        first.step()
        return loss.item() + fooled.item()

    return step, torch.randn(64, 64)


def _words() -> torch.Tensor:
    return torch.randint(300, (4, 33))


PROGRAMS: dict[str, Callable[[], Program]] = {
    "MLP, SGD": lambda: _step(_mlp(), torch.randn(64, 128), torch.optim.SGD, lr=0.01),
    "MLP, momentum, clipped": lambda: _step(
        _mlp(), torch.randn(64, 128), torch.optim.SGD, clip=True, lr=0.01, momentum=0.9
    ),
    "MLP, Adam": lambda: _step(_mlp(), torch.randn(64, 128), torch.optim.Adam),
    "MLP, AdamW, average": lambda: _step(
        _mlp(), torch.randn(64, 128), torch.optim.AdamW, average=True
    ),
    "MLP, AdamW fused": lambda: _step(_mlp(), torch.randn(64, 128), torch.optim.AdamW, fused=True),
    "LM, AdamW": lambda: _step(_Lm(), _words(), torch.optim.AdamW, loss=_next_word),
    "LM, AdamW, clipped": lambda: _step(
        _Lm(), _words(), torch.optim.AdamW, loss=_next_word, clip=True
    ),
    "LM, SGD, bfloat16": lambda: _step(
        _Lm(), _words(), torch.optim.SGD, loss=_next_word, amp=True, lr=0.01
    ),
    "ResNet, momentum": lambda: _step(
        _resnet(), torch.randn(8, 3, 16, 16), torch.optim.SGD, lr=0.01, momentum=0.9
    ),
    "ResNet, Adam": lambda: _step(_resnet(), torch.randn(8, 3, 16, 16), torch.optim.Adam),
    "LoRA, AdamW": lambda: _step(
        nn.Sequential(*(_LowRank(nn.Linear(128, 128)) for _ in range(6))),
        torch.randn(64, 128),
        torch.optim.AdamW,
    ),
    "GAN, two Adams": _gan,
}


def measured(name: str, backend: str, calls: int) -> list[Any]:
    """A row: the name, eager's ms, ratios of torch.compile and magpy, graphs, captures, memory."""
    steps: dict[str, Callable[[torch.Tensor], Any]] = {}
    for system in ("eager", "torch.compile", "magpy"):
        torch.manual_seed(0)
        step, x = PROGRAMS[name]()
        if system == "torch.compile":
            step = torch.compile(step, backend=backend)
        elif system == "magpy":
            step = magpy.compile(step, backend=backend)
        steps[system] = step
    losses: dict[str, list[float]] = {system: [] for system in steps}
    times: dict[str, list[float]] = {system: [] for system in steps}
    for i in range(calls + 6):
        for system, step in steps.items():
            start = time.perf_counter()
            losses[system].append(step(x))
            if i >= 6:
                times[system].append(time.perf_counter() - start)
    worst = max(abs(a - b) / abs(b) for a, b in zip(losses["magpy"], losses["eager"], strict=True))
    if worst > 0.05:
        raise AssertionError(f"{name}: a loss differs by {worst:.1%} of eager's")
    medians = {system: statistics.median(t) for system, t in times.items()}
    ratios = [medians["eager"] / medians[s] for s in ("torch.compile", "magpy")]
    stats = magpy.stats(steps["magpy"])
    peaks = {s: measure.peak_memory(functools.partial(step, x)) for s, step in steps.items()}
    memory = [peaks["eager"], *(peaks[s] / peaks["eager"] for s in ("torch.compile", "magpy"))]
    return [name, medians["eager"] * 1e3, *ratios, stats.segments[0], stats.captures, *memory]


def main() -> None:
    """Measures the programs that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--calls", type=int, default=60)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in given.names or PROGRAMS:
        torch._dynamo.reset()
        rows.append(measured(name, given.backend, given.calls))
        n, eager, other, ours, *rest = rows[-1]
        print(f"{n}: eager {eager:.2f} ms, torch.compile {other:.2f}x, magpy {ours:.2f}x", *rest)
    cells = [
        [n, f"{e:.2f}", f"{a:.2f}", f"{b:.2f}", str(g), str(c)]
        + [measure.size(m), f"{ma:.2f}", f"{mb:.2f}"]
        for n, e, a, b, g, c, m, ma, mb in rows
    ]
    heads = ["step", "eager, ms", "torch.compile", "magpy", "graphs", "captures"]
    heads += ["eager, memory", "torch.compile, memory", "magpy, memory"]
    print(measure.table(heads, cells))
    print(f"magpy: at most {max(r[-1] for r in rows):.2f} of eager's memory")
    for place, system in ((2, "torch.compile"), (3, "magpy")):
        mean = statistics.geometric_mean(row[place] for row in rows)
        print(
            f"{system}: {mean:.2f}x in the geometric mean, least {min(r[place] for r in rows):.2f}x"
        )


if __name__ == "__main__":
    main()
