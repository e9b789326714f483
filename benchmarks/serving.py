"""Requests with a line that no graph holds: `python -m benchmarks.serving`.

Six handlers as people write them around a small transformer, each with a line in it that graph
compilers find hard: a digest per layer, a queue, state of the thread, an iterator from outside, a
file, an exception that is logged. Eager, torch.compile and magpy are timed in turn in one process,
at their default settings, after as many calls as settle them. `--cost` gives what a call costs
beyond its graphs instead: of a function that is captured whole, and of the same with one line for
Python.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import itertools
import logging
import queue
import statistics
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import magpy
from benchmarks import measure, systems

SYSTEMS = ("eager", "torch.compile", "magpy")
#: Calls before anything is timed.
SETTLED = 12
Handler = Callable[[torch.Tensor], Any]


class Layer(nn.Module):
    """Attention and a feed-forward part, (batch, tokens, width) to the same."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, d = x.shape
        parts = self.qkv(self.norms[0](x)).view(b, n, 3, self.heads, d // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


def _stack(width: int) -> nn.Sequential:
    return nn.Sequential(*(Layer(width) for _ in range(3))).eval()


def digests(width: int) -> Handler:
    """The line stands in a loop over layers."""
    layers = nn.ModuleList(Layer(width) for _ in range(6)).eval()

    def handler(x: torch.Tensor) -> Any:
        found = []
        for i, layer in enumerate(layers):
            x = layer(x)
            found.append(hashlib.sha1(b"layer %d" % i).hexdigest())
        return x.mean(1), found

    return handler


def features_queued(width: int) -> Handler:
    """What the first half gives is put into a queue, which is read here as well."""
    before, after = _stack(width), _stack(width)
    features: queue.Queue[torch.Tensor] = queue.Queue()

    def handler(x: torch.Tensor) -> Any:
        h = before(x)
        features.put(h.mean(1))
        y = after(h).softmax(-1)
        return y, features.get()

    return handler


def tenant_of_thread(width: int) -> Handler:
    """The state of a thread leads one way or another."""
    before, after = _stack(width), _stack(width)
    local = threading.local()
    local.tenant, local.served = "a", 0

    def handler(x: torch.Tensor) -> Any:
        h = before(x)
        local.served += 1
        if local.tenant == "b":
            h = h * 2
        return after(h).softmax(-1)

    return handler


def next_of_iterator(width: int) -> Handler:
    """A tensor comes from an iterator that others read, too."""
    before, after = _stack(width), _stack(width)
    salts = itertools.cycle([torch.randn(width) for _ in range(16)])

    def handler(x: torch.Tensor) -> Any:
        return after(before(x) + next(salts)).softmax(-1)

    return handler


def file_read(width: int) -> Handler:
    """A file is opened and read by a method that the handler calls."""
    before, after = _stack(width), _stack(width)

    def header() -> int:
        with io.BytesIO(b"\x02\x00") as file:
            return int.from_bytes(file.read(2), "little")

    def handler(x: torch.Tensor) -> Any:
        h = before(x) * header()
        return after(h).softmax(-1)

    return handler


def exception_logged(width: int) -> Handler:
    """What fails is logged with its traceback, and the request goes on."""
    before, after = _stack(width), _stack(width)
    logger = logging.getLogger("benchmarks.serving")
    logger.addHandler(logging.StreamHandler(io.StringIO()))
    logger.propagate = False
    known: dict[str, float] = {}

    def handler(x: torch.Tensor) -> Any:
        h = before(x)
        try:
            h = h * known["scale"]
        except KeyError:
            logger.exception("no scale")
        return after(h).softmax(-1)

    return handler


HANDLERS = (
    digests,
    features_queued,
    tenant_of_thread,
    next_of_iterator,
    file_read,
    exception_logged,
)


def _compiled(system: str, handler: Handler, backend: Any) -> Handler:
    if system == "torch.compile":
        return torch.compile(handler, backend=backend)
    return magpy.compile(handler, backend=backend) if system == "magpy" else handler


def handled(
    make: Callable[[int], Handler], width: int, rounds: int, budget: float
) -> tuple[dict[str, measure.Timing], float]:
    """Seconds of a call by system, and magpy's share of operations in graphs.

    Raises:
        AssertionError: a result is not eager's within float tolerance.
    """
    systems.reset()
    x = torch.randn(4, 32, width)
    calls, share = {}, 0.0
    wanted: Any = None
    for system in SYSTEMS:
        torch.manual_seed(0)
        c = _compiled(system, make(width), "inductor")
        found = [c(x) for _ in range(SETTLED)][-1]
        wanted = found if wanted is None else wanted
        assert measure.worst_difference(found, wanted) < 1e-3, (make.__name__, system)
        calls[system] = lambda c=c: c(x)
        if system == "magpy":
            share = magpy.stats(c).share or 0.0
    return measure.interleaved(calls, rounds=rounds, budget=budget), share


def cost(rounds: int, budget: float) -> list[list[str]]:
    """Rows: seconds of a call beyond its graphs, whole and with one or two lines for Python."""
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(10))).eval()

    def whole(x: torch.Tensor) -> torch.Tensor:
        h = model(x)
        return h.relu()

    def one_region(x: torch.Tensor) -> torch.Tensor:
        io.BytesIO(b"ab").tell()
        h = model(x)
        return h.relu()

    def two_regions(x: torch.Tensor) -> torch.Tensor:
        h = model(x)
        io.BytesIO(b"ab").tell()
        h = model(h)
        return h.relu()

    x = torch.randn(2, 8)
    calls: dict[str, Callable[[], Any]] = {"the line": lambda: io.BytesIO(b"ab").tell()}
    for f in (whole, one_region, two_regions):
        c = magpy.compile(f, backend=systems.constant_backend)
        for _ in range(SETTLED):
            c(x)
        calls[f.__name__] = lambda c=c: c(x)
    times = measure.interleaved(calls, rounds=rounds, budget=budget)
    line, base = times["the line"].median, times["whole"].median
    rows = [["whole", str(times["whole"]), "1", ""]]
    for name, regions in (("one_region", 1), ("two_regions", 2)):
        each = (times[name].median - line) / regions
        rows.append([name, str(times[name]), f"{each / base:.2f}", measure.seconds(each)])
    return rows


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--budget", type=float, default=3.0, help="seconds for each system")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("names", nargs="*", metavar="handler")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    magpy.config.notice_slower = False
    with torch.no_grad():
        if options.cost:
            print(f"{measure.machine_line()}; median of {options.rounds} rounds (quartiles)\n")
            header = ["call", "time", "a region, of a whole call", "a region"]
            print(measure.table(header, cost(options.rounds, options.budget)))
            return
        rows, ratios = [], []
        for make in HANDLERS:
            if options.names and make.__name__ not in options.names:
                continue
            times, share = handled(make, options.width, options.rounds, options.budget)
            eager, dynamo, ours = (times[s].median for s in SYSTEMS)
            ratios.append((eager / ours, dynamo / ours))
            speedups = [f"{eager / dynamo:.2f}x", f"{eager / ours:.2f}x", f"{dynamo / ours:.2f}x"]
            rows.append([make.__name__, measure.seconds(eager), *speedups, f"{share:.2f}"])
            print(" ".join(rows[-1]), flush=True)
    means = [statistics.geometric_mean(r) for r in zip(*ratios, strict=True)]
    rows.append(["geometric mean", "", "", *(f"{m:.2f}x" for m in means), ""])
    header = ["handler", "eager", "torch.compile", "magpy", "magpy over torch.compile", "share"]
    print(f"\n{measure.machine_line()}; width {options.width}; median of {options.rounds} rounds\n")
    print(measure.table(header, rows))


if __name__ == "__main__":
    main()
