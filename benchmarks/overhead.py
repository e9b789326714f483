"""Per-call cost of a compiled call beyond its graph: `python -m benchmarks.overhead`.

The backend returns results that it computed once, so what is timed is guards, dispatch and the
rebuilding of the result. magpy and torch.compile are timed in turn, in many short rounds: on a
machine that does other work too, the fastest round is what they cost without it.  With
`--model pointwise` TorchInductor compiles a small function: what is timed has its kernel in it.
"""

from __future__ import annotations

import argparse
import copy

import torch
from torch import nn

from benchmarks import measure, systems
from benchmarks.models.case import STANDARD, Case

MODELS = ("linear-1", "linear-10", "linear-100", "linear-500", "resnet-50", "bert-base")


class _Pointwise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2 + 1)


POINTWISE = Case("pointwise", "layers", _Pointwise, lambda batch: (torch.randn(batch, 8),))


def overhead(name: str, names: list[str], rounds: int, budget: float) -> dict[str, measure.Timing]:
    """Seconds per call of each system on one model."""
    systems.reset()
    case = POINTWISE if name == POINTWISE.name else STANDARD[name]
    backend = "inductor" if case is POINTWISE else systems.constant_backend
    example = case.example(1)
    model = case.make()
    calls = {}
    for system in names:
        compiled = systems.compile_with(system, copy.deepcopy(model), backend=backend)
        compiled(*example)
        calls[system] = lambda compiled=compiled: compiled(*example)
    return measure.interleaved(calls, rounds=rounds, budget=budget)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", choices=(*MODELS, POINTWISE.name))
    parser.add_argument("--system", action="append", choices=systems.PAIR)
    parser.add_argument("--rounds", type=int, default=75)
    parser.add_argument("--budget", type=float, default=1.5, help="seconds for each system")
    options = parser.parse_args()
    names = options.system or list(systems.PAIR)
    rows = []
    with torch.no_grad():
        for name in options.model or MODELS:
            times = overhead(name, names, options.rounds, options.budget)
            row = [name, *(str(times[s]) for s in names)]
            if len(names) == 2:
                row.append(f"{times['torch.compile'].median / times['magpy'].median:.1f}x")
                row += [measure.seconds(times[s].least) for s in names]
            rows.append(row)
            print(" ".join(row), flush=True)
    header = ["model", *names]
    if len(names) == 2:
        header += ["torch.compile / magpy", *(f"{s}, fastest" for s in names)]
    print(f"\n{measure.machine_line()}; median of {options.rounds} rounds (quartiles)\n")
    print(measure.table(header, rows))


if __name__ == "__main__":
    main()
