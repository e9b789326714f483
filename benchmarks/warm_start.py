"""The time to the first result in a second process: `python -m benchmarks.warm_start [name...]`.

Each program runs in processes of its own, of which the first ones fill TorchInductor's caches in an
empty directory.  Reported are the processes after them: seconds from the compiling call, imports
included, to the first result; to the second, which is the first that magpy's compiled graph gives,
as its first call is eager's; and from there to the same for inputs of another size.  Processor time
is given beside, which a machine that is not quiet changes less.  Results are compared with eager's.

With `--load` it is the time of a whole process to its first result, its start and all imports
included: one that runs eagerly, beside one whose first call is served by an entry that
`magpy.load` has found in a file; the directory for TorchInductor's caches is empty.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

SYSTEMS = ("torch.compile", "magpy")
#: What the tables tell, in the order in which it happens.
TIMES = ("first", "second", "other size")


def _convolution(given: int, made: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(given, made, 3, padding=1), nn.GroupNorm(4, made), nn.SiLU())


class UNet(nn.Module):
    """A small U-Net: two resolutions down, two up, with what was there before put beside."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down = nn.ModuleList([_convolution(3, width), _convolution(width, 2 * width)])
        self.middle = _convolution(2 * width, 2 * width)
        self.up = nn.ModuleList([_convolution(4 * width, width), _convolution(2 * width, width)])
        self.out = nn.Conv2d(width, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """An image of the same size."""
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for block in self.up:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat([x, kept.pop()], 1))
        made: torch.Tensor = self.out(x)
        return made


def _bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bert = BertModel(BertConfig())

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.bert(ids).pooler_output
            return found

    return Pooled()


#: A model, and its input for the n-th size.
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], torch.Tensor]]] = {
    "BERT-base": (_bert, lambda n: torch.randint(3, 1000, (2, 32 + 16 * n))),
    "UNet": (UNet, lambda n: torch.randn(2, 3, 64 + 32 * n, 64)),
    "MLP": (
        lambda: nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)),
        lambda n: torch.randn(8 + n, 16),
    ),
}
PROGRAMS = [f"{model}, {kind}" for model in ("BERT-base", "UNet") for kind in ("served", "trained")]


def _eager(model: nn.Module, trained: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    def step(x: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss.detach()

    def serve(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = model(x)
        return found

    return step if trained else serve


def child(name: str, system: str, backend: str) -> dict[str, Any]:
    """What one process finds: wall and processor seconds by the names in `TIMES`, and counters."""
    model_name, kind = name.split(", ")
    make, example = MODELS[model_name]
    torch.manual_seed(0)
    model = make().train(kind == "trained")
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0  # what is drawn is not the subject
    step = _eager(model, kind == "trained")
    inputs = [example(0), example(1)]
    wanted = [step(x) for x in inputs]
    times = [(time.perf_counter(), time.process_time())]
    if system == "magpy":
        import magpy

        compiled = magpy.compile(step, backend=backend)
    else:
        compiled = torch.compile(step, backend=backend)
    for x, want in zip(inputs, wanted, strict=True):
        for _ in range(2):
            found = compiled(x)
            times.append((time.perf_counter(), time.process_time()))
            torch.testing.assert_close(found, want, rtol=1e-3, atol=1e-3)
    begin, first, second, _, last = times
    spans = zip(TIMES, ((begin, first), (begin, second), (second, last)), strict=True)
    from torch._dynamo.utils import counters

    return {
        "seconds": {title: [b - a for a, b in zip(*span, strict=True)] for title, span in spans},
        "found": counters["aot_autograd"]["autograd_cache_hit"],
        "not found": sum(
            n
            for kind in ("aot_autograd", "inductor")
            for k, n in counters[kind].items()
            if k.endswith(("cache_miss", "cache_bypass"))
        ),
    }


def start(name: str, system: str, backend: str, path: str, began: float) -> dict[str, Any]:
    """What a process finds that begins by eager, saves entries, or begins with loaded ones."""
    make, example = MODELS[name]
    torch.manual_seed(0)
    model, x = make().eval(), example(0)
    call, served = model, 0
    with torch.no_grad():
        if system == "save":
            import magpy

            magpy.config.saving = True
            call = magpy.compile(model, backend=backend)
            for _ in range(2):
                call(x)
            return {"saved": magpy.save(call, path)}
        if system == "magpy.load":
            import magpy

            call = magpy.load(model, path)
        found = call(x)
        seconds = time.time() - began, time.process_time()
        if system == "magpy.load":
            served = magpy.stats(call).hits
            torch.testing.assert_close(found, model(x), rtol=1e-3, atol=1e-3)
    return {"seconds": seconds, "served": served}


def started(name: str, backend: str, rounds: int) -> list[str]:
    """A row: the medians of eager's start and of one with loaded entries, and their ratios."""
    found: dict[str, list[dict[str, Any]]] = {"eager": [], "magpy.load": []}
    with tempfile.TemporaryDirectory() as place:
        path = os.path.join(place, "entries")
        for system in ("save", *(s for _ in range(rounds) for s in found)):
            with tempfile.TemporaryDirectory() as cache:
                more = "--start", name, system, path, repr(time.time())
                told = _told(("--backend", backend, *more), cache)
            if system != "save":
                found[system].append(told)
    if not all(run["served"] for run in found["magpy.load"]):
        raise AssertionError(f"{name}: no loaded entry has served the first call")
    medians = [
        [statistics.median(r["seconds"][i] for r in runs) for i in (0, 1)]
        for runs in found.values()
    ]
    cells = [f"{wall:.1f} s ({processor:.1f} s)" for wall, processor in medians]
    ratios = [b / a for a, b in zip(*medians, strict=True)]
    return [name, *cells, f"{ratios[0]:.2f}x ({ratios[1]:.2f}x)"]


def _told(arguments: Sequence[str], cache: str) -> dict[str, Any]:
    """What a process tells whose caches are in a directory."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.warm_start", *arguments],
        env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": cache},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def process(name: str, system: str, backend: str, cache: str) -> dict[str, Any]:
    """What `child` finds in a process whose caches are in a directory."""
    return _told(("--backend", backend, "--child", name, system), cache)


def measured(name: str, backend: str, rounds: int, cache: str) -> dict[str, list[dict[str, Any]]]:
    """What the warm processes of each system find; they run in turn."""
    caches = {system: os.path.join(cache, system) for system in SYSTEMS}
    for system in SYSTEMS:
        process(name, system, backend, caches[system])
    found: dict[str, list[dict[str, Any]]] = {system: [] for system in SYSTEMS}
    for _ in range(rounds):
        for system in SYSTEMS:
            found[system].append(process(name, system, backend, caches[system]))
    return found


def row(name: str, system: str, runs: list[dict[str, Any]]) -> list[str]:
    """The medians of wall seconds, with those of processor seconds beside; what was found."""

    def cell(title: str) -> str:
        wall, processor = (statistics.median(r["seconds"][title][i] for r in runs) for i in (0, 1))
        return f"{wall:.1f} s ({processor:.1f} s)"

    last = runs[-1]
    return [name, system, *map(cell, TIMES), str(last["found"]), str(last["not found"])]


def main() -> None:
    """Measures the programs that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cache", help="a directory that is kept, for the caches of each system")
    parser.add_argument("--load", action="store_true", help="measure magpy.load")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--start", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.child:
        print(json.dumps(child(*given.child, given.backend)))
        return
    if given.start:
        name, system, path, began = given.start
        print(json.dumps(start(name, system, given.backend, path, float(began))))
        return
    from benchmarks import measure

    rows = []
    if given.load:
        for name in given.names or ("BERT-base", "UNet"):
            rows.append(started(name, given.backend, given.rounds))
            print(*rows[-1], flush=True)
        print(f"\n{measure.machine_line('cpu')}; wall time (processor time)\n")
        print(measure.table(["program", "eager", "magpy.load", "magpy.load / eager"], rows))
        return
    with contextlib.ExitStack() as stack:
        cache = given.cache or stack.enter_context(tempfile.TemporaryDirectory())
        for name in given.names or PROGRAMS:
            for system, runs in measured(name, given.backend, given.rounds, cache).items():
                rows.append(row(name, system, runs))
                print(*rows[-1], flush=True)
    print(f"\n{measure.machine_line('cpu')}; wall time (processor time)\n")
    print(measure.table(["program", "system", *TIMES, "found", "not found"], rows))


if __name__ == "__main__":
    main()
