"""Per-call cost of a compiled call beyond its graph: `python -m benchmarks.overhead`.

The backend returns results that it computed once, so what is timed is guards, dispatch and the
rebuilding of the result. magpy and torch.compile are timed in turn, in many short rounds: on a
machine that does other work too, the fastest round is what they cost without it.  With
`--model pointwise` TorchInductor compiles a small function: what is timed has its kernel in it;
`keywords-800` and `nested-200` have many arguments.
"""

from __future__ import annotations

import argparse
import copy
from typing import Any

import torch
from torch import nn

from benchmarks import measure, systems
from benchmarks.models.case import STANDARD, Case
from magpy import config

MODELS = ("linear-1", "linear-10", "linear-100", "linear-500", "resnet-50", "bert-base")


class _Pointwise(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x * 2 + 1)


POINTWISE = Case("pointwise", "layers", _Pointwise, lambda batch: (torch.randn(batch, 8),))


class _Keywords(nn.Module):
    def forward(self, **given: torch.Tensor) -> torch.Tensor:
        found = torch.zeros(2)
        for t in given.values():
            found = found + t
        return found


class _Nested(nn.Module):
    def forward(self, given: dict[str, dict[str, torch.Tensor]]) -> torch.Tensor:
        found = torch.zeros(2)
        for inner in given.values():
            for t in inner.values():
                found = found + t
        return found


def _nested(batch: int) -> tuple[Any, ...]:
    inner = {f"b{j}": torch.randn(batch, 2) for j in range(10)}
    return ({f"a{i}": {k: t.clone() for k, t in inner.items()} for i in range(20)},)


#: Calls with many arguments; where these are keywords a case's input is the dict of them.
ARGUMENTS = {
    case.name: case
    for case in (
        Case(
            "keywords-800",
            "layers",
            _Keywords,
            lambda batch: ({f"k{i}": torch.randn(batch, 2) for i in range(800)},),
        ),
        Case("nested-200", "layers", _Nested, _nested),
    )
}


def overhead(name: str, names: list[str], rounds: int, budget: float) -> dict[str, measure.Timing]:
    """Seconds per call of each system on one model."""
    systems.reset()
    case = POINTWISE if name == POINTWISE.name else (STANDARD | ARGUMENTS)[name]
    backend = "inductor" if case is POINTWISE else systems.constant_backend
    example, keywords = case.example(1), {}
    if isinstance(case.make(), _Keywords):
        example, keywords = (), example[0]
    model = case.make()
    calls = {}
    for system in names:
        compiled = systems.compile_with(system, copy.deepcopy(model), backend=backend)
        compiled(*example, **keywords)
        calls[system] = lambda compiled=compiled: compiled(*example, **keywords)
    return measure.interleaved(calls, rounds=rounds, budget=budget)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", action="append", choices=(*MODELS, *ARGUMENTS, POINTWISE.name))
    parser.add_argument("--system", action="append", choices=systems.PAIR)
    parser.add_argument("--rounds", type=int, default=75)
    parser.add_argument("--budget", type=float, default=1.5, help="seconds for each system")
    options = parser.parse_args()
    names = options.system or list(systems.PAIR)
    config.notice_slower = False  # a call that costs more than eager's is what is to be seen
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
