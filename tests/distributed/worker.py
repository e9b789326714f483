"""Runs the cases on one of two ranks, and compares what compiled programs do with eager.

Owns how a case is run, pictured and measured.  Called by tests/distributed/__main__.py and
test_distributed.py, which start the two processes.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import traceback
import warnings
from typing import Any

import torch
import torch.distributed as dist

import magpy
from tests.distributed.cases import CASES

STEPS = 20
# Steps whose tensor operations are counted, when all is settled.
_COUNTED = 2


class Compiler:
    """What a case compiles with, and what that says of itself."""

    def __init__(self, mode: str) -> None:
        """Takes "eager", "magpy" or "torch"."""
        self.mode = mode
        self.made: list[Any] = []
        if mode == "torch":
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()

    def __call__(self, f: Any) -> Any:
        """Compiles a function or module with graphs that the profiler sees."""
        if self.mode == "eager":
            return f
        compiler: Any = magpy.compile if self.mode == "magpy" else torch.compile
        made = compiler(f, backend=_marked)
        self.made.append(made)
        return made

    def figures(self) -> dict[str, Any]:
        """Captures, hits and eager calls."""
        if self.mode == "magpy":
            stats = [magpy.stats(c) for c in self.made]
            return {
                "captures": sum(s.captures for s in stats),
                "hits": sum(s.hits for s in stats),
                "eager": sum(s.eager_calls for s in stats),
                "segments": [n for s in stats for n in s.segments],
                "share": min((s.share or 0 for s in stats), default=0),
                "reasons": list(dict.fromkeys(str(r) for s in stats for r in s.reasons)),
            }
        counters = torch._dynamo.utils.counters
        return {
            "captures": counters["stats"]["unique_graphs"],
            "hits": 0,
            "eager": 0,
            "reasons": [str(k).splitlines()[0] for k in counters["graph_break"]],
        }


def _marked(gm: Any, inputs: Any) -> Any:
    forward = gm.forward

    def graph(*args: Any) -> Any:
        with torch.profiler.record_function("graph"):
            return forward(*args)

    return graph


def _share(step: Any, start: int) -> tuple[int, int]:
    """How many of the tensor operations of forward passes and updates run in graphs, and of all.

    An operation is one that no other one has called; those of backward passes are autograd's.
    """
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for i in range(start, start + _COUNTED):
            step(i)
    inside = all_of_them = 0
    for event in profile.events():
        if not event.name.startswith(("aten::", "c10d::", "_c10d_functional::")):
            continue
        above = []
        parent = event.cpu_parent
        while parent is not None:
            above.append(parent.name)
            parent = parent.cpu_parent
        if any(n.startswith(("aten::", "c10d::", "autograd::engine")) for n in above):
            continue
        all_of_them += 1
        inside += "graph" in above
    return inside, all_of_them


def _picture(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.detach().clone()
    if isinstance(value, (tuple, list)):
        return [_picture(v) for v in value]
    return value


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and bool(
            torch.equal(
                a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8)
            )
        )
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)


def _run(name: str, mode: str, measured: bool) -> tuple[list[Any], dict[str, Any]]:
    torch.manual_seed(0)
    compiler = Compiler(mode)
    step, state = CASES[name](compiler)
    seen = []
    for i in range(STEPS):
        seen.append((_picture(step(i)), _picture(state())))
    figures = compiler.figures() if mode != "eager" else {}
    if measured and mode != "eager":
        figures["inside"], figures["operations"] = _share(step, STEPS)
    return seen, figures


def compare(name: str, modes: list[str], measured: bool) -> dict[str, Any]:
    """What a case does in each mode beside eager."""
    row: dict[str, Any] = {"case": name}
    try:
        eager, _ = _run(name, "eager", measured)
    except Exception as e:  # noqa: BLE001 - what this torch or machine cannot do is no case
        return {**row, "impossible": f"{type(e).__name__}: {e}"}
    for mode in modes:
        try:
            seen, figures = _run(name, mode, measured)
            figures["right"] = _equal(seen, eager)
            if not figures["right"]:
                figures["first"] = next(
                    i for i, (a, b) in enumerate(zip(seen, eager, strict=True)) if not _equal(a, b)
                )
        except Exception:  # noqa: BLE001 - it is the result
            figures = {"right": False, "error": traceback.format_exc()}
        row[mode] = figures
    return row


def main(rank: int, folder: str, names: list[str], modes: list[str], measured: bool) -> None:
    """Runs cases on one rank; writes a line of JSON for each."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=2,
        timeout=datetime.timedelta(seconds=60),
    )
    with open(os.path.join(folder, f"rank{rank}.jsonl"), "w") as out:
        for name in names:
            out.write(json.dumps(compare(name, modes, measured)) + "\n")
            out.flush()
    sys.stdout.flush()
    os._exit(0)  # a case that went wrong may have left threads that wait for the other rank


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    main(**given)
