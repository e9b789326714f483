"""What is generated for a GPU, counted without one: `python -m benchmarks.gpu_code [--case NAME]`.

    tests/cuda/stub/run.sh .cuda-stub python -m benchmarks.gpu_code

Five models of the suite, called without gradients and differentiated, and whole training steps,
compiled by TorchInductor for CUDA through torch.compile and through magpy, side by side in one
process, over a CUDA that is not there (tests/cuda/stub): Triton makes its kernels, and launches are
counted, but nothing computes.

Of one served call: the graphs that it runs; the Triton kernels that it launches, and how many of
these differ; TorchInductor's nodes before and after it fused them; launches of any kind (those,
calls of cuBLAS, torch's own kernels, copies within a device), and how many come from outside of
graphs, where no compiler sees them; the bytes that the graphs' nodes read and write, by
TorchInductor's own count (`get_read_write_buffer_accesses` in torch/_inductor/scheduler.py), and
those of copies outside; the time, which is the host's alone.

Owns: counting, the cases, the table. Does not own: models (models/, steps.py), timing (measure.py).
The exit status is 1 where a call of magpy's has more kernels, launches, launches outside or bytes
than torch.compile's. In how many ways a kernel is written is not compared: a launch is a launch.

Both draw the random numbers that eager draws, which is magpy's default and torch.compile's
`fallback_random`, except where a case says "own numbers": there both leave that to TorchInductor.
cuDNN is off, which the stand-in does not have: a convolution is torch's own.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import magpy
from benchmarks import measure, steps
from benchmarks.models import SUITE

DEVICE = "cuda"
COMPARED = ("torch.compile", "magpy")
Call = Callable[[], Any]


class Counters:
    """What the stand-in has counted so far."""

    def __init__(self) -> None:
        """Connects to it."""
        folder = Path(os.environ["CUDA_STUB"])
        self._runtime = ctypes.CDLL(str(folder / "libcudashim.so"))
        self._libraries = ctypes.CDLL(str(folder / "libcudalibs.so"))
        self._driver = ctypes.CDLL(str(folder / "driver" / "libcuda.so.1"))
        for function in (
            self._runtime.cudashim_launches,
            self._libraries.cudalibs_computed,
            self._driver.cushim_launched,
        ):
            function.restype = ctypes.c_long

    def __call__(self) -> Launches:
        """All of it."""
        copies = (ctypes.c_long * 2)()
        self._runtime.cudashim_copies(copies)
        return Launches(
            self._driver.cushim_launched(),
            self._libraries.cudalibs_computed(),
            self._runtime.cudashim_launches(),
            *copies,
        )


@dataclass(frozen=True)
class Launches:
    """What a device was told to do.

    Attributes:
        triton: launches of Triton's kernels.
        library: calls of cuBLAS that compute.
        torch: launches of torch's own kernels.
        copies: copies and fills within a device.
        copied: their bytes, those read and those written.
    """

    triton: int = 0
    library: int = 0
    torch: int = 0
    copies: int = 0
    copied: int = 0

    @property
    def total(self) -> int:
        """Launches of any kind."""
        return self.triton + self.library + self.torch + self.copies

    def _with(self, other: Launches, sign: int) -> Launches:
        return Launches(
            self.triton + sign * other.triton,
            self.library + sign * other.library,
            self.torch + sign * other.torch,
            self.copies + sign * other.copies,
            self.copied + sign * other.copied,
        )

    def __add__(self, other: Launches) -> Launches:
        return self._with(other, 1)

    def __sub__(self, other: Launches) -> Launches:
        return self._with(other, -1)


@dataclass(frozen=True)
class Graph:
    """What TorchInductor made of one graph.

    Attributes:
        kernels: the source of each Triton kernel, without its name.
        nodes, fused: its nodes before and after they were fused.
        size: the bytes that they read and write.
    """

    kernels: frozenset[str]
    nodes: int
    fused: int
    size: int


class Watch:
    """Notes the graphs that TorchInductor compiles, and which of them a call runs."""

    def __init__(self) -> None:
        """Nothing is counted yet."""
        self._counters = Counters()
        self._counting = False
        self._ran: list[Graph] = []
        self._inside = Launches()

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Notes what is compiled in the block, where no cache finds what was compiled before."""
        import torch._functorch.config as functorch
        from torch._inductor import config, metrics
        from torch._inductor.graph import GraphLowering
        from torch._inductor.utils import fresh_cache

        lowering: Any = GraphLowering
        inner = lowering.compile_to_module

        @functools.wraps(inner)
        def noted(graph: Any) -> Any:
            before = metrics.ir_nodes_pre_fusion
            module = inner(graph)
            made = _made(graph, metrics.ir_nodes_pre_fusion - before)
            module.call = self._noted(module.call, made)
            return module

        # What hears torch's traces (pytest does) has tensors printed, whose values are garbage.
        trace = logging.getLogger("torch.__trace")
        heard, trace.handlers = trace.handlers, []
        lowering.compile_to_module = noted
        settings: Any = (config, functorch)
        try:
            with (
                fresh_cache(),
                settings[0].patch(fx_graph_cache=False),
                settings[1].patch(enable_autograd_cache=False),
            ):
                yield
        finally:
            lowering.compile_to_module = inner
            trace.handlers = heard

    def _noted(self, run: Callable[..., Any], made: Graph) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if not self._counting:
                return run(*args)
            before = self._counters()
            results = run(*args)
            self._inside += self._counters() - before
            self._ran.append(made)
            return results

        return call

    def count(self, call: Call) -> Figures:
        """What one call does."""
        self._ran, self._inside = [], Launches()
        before = self._counters()
        self._counting = True
        try:
            call()
        finally:
            self._counting = False
        launches = self._counters() - before
        outside = launches - self._inside
        ran = self._ran
        return Figures(
            graphs=len(ran),
            kinds=len(frozenset().union(*(g.kernels for g in ran))),
            nodes=sum(g.nodes for g in ran),
            fused=sum(g.fused for g in ran),
            launches=launches,
            outside=outside.total,
            size=sum(g.size for g in ran) + outside.copied,
        )


def _made(graph: Any, nodes: int) -> Graph:
    from torch._inductor.scheduler import NopKernelSchedulerNode

    scheduled = [n for n in graph.scheduler.nodes if not isinstance(n, NopKernelSchedulerNode)]
    kernels = frozenset(s for s in graph.wrapper_code.src_to_kernel if "@triton.jit" in s)
    return Graph(kernels, nodes, len(scheduled), sum(_size(n, graph) for n in scheduled))


def _size(node: Any, graph: Any) -> int:
    """The bytes of the device's memory that a node reads and writes.

    TorchInductor's own sum has the buffers, too, that a node only comes after, since it writes over
    what they were computed from; and those that stay within a node, if others come after that.
    """
    from torch._inductor.dependencies import WeakDep

    accesses = node.get_read_write_buffer_accesses(include_reads=True, include_writes=True)
    used = {d.name for d in node.read_writes.reads_and_writes() if not isinstance(d, WeakDep)}
    used -= {d.name for d in node.read_writes.writes if _within(d.name, node)}
    return sum(size for name, size in accesses.items() if name in used and _is_there(name, graph))


def _is_there(name: str, graph: Any) -> bool:
    """Whether a buffer is on the device: numbers of the host's are arguments of kernels."""
    buffer = graph.graph_inputs.get(name) or graph.try_get_buffer(name)
    device = getattr(buffer, "get_device", lambda: None)()
    return device is None or device.type == DEVICE


def _within(name: str, node: Any) -> bool:
    """Whether what a node writes is used there only: then it is a variable of the kernel's."""
    nodes = {n.get_name() for n in node.get_nodes()}
    users = [u for u in node.scheduler.name_to_buf[name].users if not u.is_weak]
    return bool(users) and all(u.node.get_name() in nodes for u in users)


@dataclass(frozen=True)
class Figures:
    """What one served call is.

    Attributes:
        graphs: how many compiled graphs it runs, forward and backward.
        kinds: how many Triton kernels there are that differ.
        nodes, fused: TorchInductor's nodes of these graphs, before and after fusion.
        launches: what the device is told to do.
        outside: how many of these launches come from outside of the graphs.
        size: bytes that are read and written, without those of kernels outside of the graphs.
    """

    graphs: int
    kinds: int
    nodes: int
    fused: int
    launches: Launches
    outside: int
    size: int

    def more_than(self, other: Figures) -> list[str]:
        """In what it exceeds another."""
        pairs = {
            "Triton kernels": (self.launches.triton, other.launches.triton),
            "launches": (self.launches.total, other.launches.total),
            "launches outside": (self.outside, other.outside),
            "bytes": (self.size, other.size),
        }
        return [f"{name} {a} > {b}" for name, (a, b) in pairs.items() if a > b]


# ---------------------------------------------------------------- cases


@dataclass(frozen=True)
class Case:
    """A program to compile.

    Attributes:
        name: printed in the table.
        make: makes a function, a module or a step, and its arguments.
        grad: it is differentiated, or differentiates itself.
        own: TorchInductor draws random numbers of its own.
    """

    name: str
    make: Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]
    grad: bool = False
    own: bool = False


class Loss(nn.Module):
    """A number that all results of a model are in."""

    def __init__(self, model: nn.Module, results: Callable[[Any], list[torch.Tensor]]) -> None:
        super().__init__()
        self.model, self.results = model, results

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        """The loss."""
        found = [t.square().mean() for t in self.results(self.model(*args))]
        return torch.stack(found).sum()


#: The models, and what is differentiated of their results.
MODELS: dict[str, Callable[[Any], list[torch.Tensor]]] = {
    "ResNet": lambda y: [y],
    "MonoDepth": lambda y: list(y.values()),
    "BERT": lambda y: [y.last_hidden_state, y.pooler_output],
    "Llama": lambda y: [y.logits],
    "CLIP": lambda y: [y.logits_per_image],
}
BATCH = 4
#: The whole steps, of benchmarks/steps.py.
STEPS = ("MLP, SGD", "ResNet, momentum", "LM, AdamW")


def _model(name: str, trained: bool) -> tuple[nn.Module, tuple[Any, ...]]:
    case = next(c for c in SUITE if c.name == name)
    model: nn.Module = case.make()
    if trained:
        model = Loss(model, MODELS[name])
    x = tuple(t.to(DEVICE) for t in case.example(BATCH))
    return model.to(DEVICE).train(trained), x


def _step(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    with torch.device(DEVICE):
        step, x = steps.PROGRAMS[name]()
    return step, (x,)


CASES = (
    *(Case(f"{name}, called", functools.partial(_model, name, False)) for name in MODELS),
    *(
        Case(f"{name}, trained", functools.partial(_model, name, True), grad=True)
        for name in MODELS
    ),
    Case(
        "BERT, trained, own numbers", functools.partial(_model, "BERT", True), grad=True, own=True
    ),
    *(Case(f"step: {name}", functools.partial(_step, name), grad=True) for name in STEPS),
)


def _compiled(system: str, f: Callable[..., Any], own: bool) -> Callable[..., Any]:
    options: dict[str, Any] = {"fallback_random": not own}
    if system == "torch.compile":
        return torch.compile(f, options=options)
    return magpy.compile(f, options=options)


def _call(f: Any, compiled: Callable[..., Any], x: tuple[Any, ...]) -> Call:
    """What is counted and timed: a call, with the backward pass if that is the caller's."""
    if not isinstance(f, Loss):
        return lambda: compiled(*x)

    def trained() -> Any:
        f.zero_grad()
        loss = compiled(*x)
        loss.backward()
        return loss.detach()

    return trained


def measured(
    case: Case, watch: Watch, rounds: int = 11, budget: float = 1.0
) -> tuple[dict[str, Figures], dict[str, measure.Timing]]:
    """The figures of both systems, and the time of a call of each and of eager.

    Args:
        case: the program.
        watch: what counts.
        rounds: how often each is timed.
        budget: seconds for each, all rounds together.
    """
    torch._dynamo.reset()
    magpy.reset()
    calls: dict[str, Call] = {}
    figures: dict[str, Figures] = {}
    with torch.set_grad_enabled(case.grad):
        for system in ("eager", *COMPARED):
            torch.manual_seed(0)
            f, x = case.make()
            if system == "eager":
                calls[system] = _call(f, f, x)
                continue
            call = _call(f, _compiled(system, f, case.own), x)
            with watch.compiling():
                for _ in range(5):
                    call()
            figures[system] = watch.count(call)
            calls[system] = call
        times = measure.interleaved(calls, rounds=rounds, budget=budget, device=DEVICE)
    return figures, times


# ---------------------------------------------------------------- the report

_HEADS = ("case", "system", "graphs", "Triton kernels", "differ", "nodes", "fused", "launches")
_MORE = ("cuBLAS", "torch", "copies", "outside", "bytes", "host time", "of eager")


def rows(
    name: str, figures: dict[str, Figures], times: dict[str, measure.Timing]
) -> list[list[str]]:
    """The table's rows of one case."""
    found = []
    for system, f in figures.items():
        n, time = f.launches, times[system].median
        numbers = (f.graphs, n.triton, f.kinds, f.nodes, f.fused, n.total)
        found.append(
            [
                *(name, system, *map(str, numbers)),
                *map(str, (n.library, n.torch, n.copies, f.outside)),
                *(measure.size(f.size), measure.seconds(time)),
                f"{time / times['eager'].median:.2f}",
            ]
        )
    return found


def markdown(table: list[list[str]], exceeding: list[str]) -> str:
    """The report's text."""
    lines = [
        "# What is generated for a GPU",
        "",
        "`tests/cuda/stub/run.sh .cuda-stub python -m benchmarks.gpu_code`, over a CUDA that is "
        f"not there: {measure.machine_line()}. Batch {BATCH}, float32, cuDNN off.",
        "",
        "Of one served call (see [benchmarks/gpu_code.py](../gpu_code.py)): compiled graphs, "
        "Triton kernels launched and how many of them differ, TorchInductor's nodes and what is "
        "left of them after fusion, launches in all (Triton, cuBLAS, torch's own kernels, copies), "
        "launches outside of graphs, bytes that the graphs read and write, the host's time (median "
        "of interleaved rounds) and its ratio to eager's. Nothing is computed: where a model looks "
        "at values (Llama asks whether its sequences are packed, unless torch.compile traces it), "
        "it goes by what memory held.",
        "",
        measure.table((*_HEADS, *_MORE), table),
        "",
    ]
    if exceeding:
        lines += ["More than torch.compile:", "", *(f"- {line}" for line in exceeding)]
    else:
        lines += ["In no case has magpy more Triton kernels, launches or bytes than torch.compile."]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measures the cases that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", choices=[c.name for c in CASES])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--out", type=Path, default=measure.RESULTS)
    chosen = parser.parse_args()
    if "CUDA_STUB" not in os.environ:
        print("benchmarks.gpu_code counts over tests/cuda/stub: start it with its run.sh")
        return 2
    torch.backends.cudnn.enabled = False
    watch = Watch()
    table: list[list[str]] = []
    exceeding: list[str] = []
    for case in CASES:
        if chosen.case and case.name not in chosen.case:
            continue
        figures, times = measured(case, watch, chosen.rounds)
        found = rows(case.name, figures, times)
        print("\n".join("  ".join(row) for row in found), flush=True)
        table += found
        ours, theirs = (figures[system] for system in ("magpy", "torch.compile"))
        exceeding += [f"{case.name}: {more}" for more in ours.more_than(theirs)]
    text = markdown(table, exceeding)
    print(text)
    if not chosen.case:
        (chosen.out / "gpu_code.md").write_text(text)
    return 1 if exceeding else 0


if __name__ == "__main__":
    raise SystemExit(main())
