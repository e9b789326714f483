"""What benchmarks.gpu_code counts; magpy gives a GPU no more to do than torch.compile."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import magpy
from benchmarks import gpu_code

pytestmark = pytest.mark.skipif(
    "CUDA_STUB" not in os.environ, reason="only the stand-in of tests/cuda/stub counts launches"
)


@pytest.fixture(scope="module")
def watch() -> gpu_code.Watch:
    """Counts."""
    return gpu_code.Watch()


def perceptron() -> nn.Module:
    """Two layers."""
    return nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)).cuda()


def called() -> tuple[nn.Module, tuple[Any, ...]]:
    """A model that serves."""
    return perceptron(), (torch.randn(16, 32, device="cuda"),)


def step(optimizer: Callable[..., Any]) -> Any:
    """A whole step of training."""

    def make() -> tuple[Callable[..., Any], tuple[Any, ...]]:
        model = perceptron()
        opt = optimizer(model.parameters())

        def f(x: torch.Tensor) -> torch.Tensor:
            opt.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            opt.step()
            return loss.detach()

        return f, (torch.randn(16, 32, device="cuda"),)

    return make


CASES = (
    gpu_code.Case("called", called),
    gpu_code.Case("AdamW", step(lambda p: torch.optim.AdamW(p, 0.01)), grad=True),
    gpu_code.Case("momentum", step(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)), grad=True),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_magpy_gives_a_gpu_no_more_to_do_than_torch_compile(
    case: gpu_code.Case, watch: gpu_code.Watch
) -> None:
    figures, times = gpu_code.measured(case, watch, rounds=2, budget=0.01)
    ours, theirs = figures["magpy"], figures["torch.compile"]
    assert ours.more_than(theirs) == []
    assert ours.outside == 0
    assert ours.launches.triton >= ours.kinds > 0
    assert ours.launches.library >= 2
    assert ours.nodes >= ours.fused > 0
    assert ours.size >= 4 * 16 * 32
    assert times.keys() == {"eager", "torch.compile", "magpy"}
    assert len(gpu_code.rows(case.name, figures, times)) == 2


def test_work_outside_of_graphs_is_counted(watch: gpu_code.Watch) -> None:
    x = torch.randn(64, device="cuda")
    with watch.compiling():
        compiled = magpy.compile(lambda x: x.sin() + 1)
        for _ in range(3):
            compiled(x)
    inside = watch.count(lambda: compiled(x))
    assert (inside.graphs, inside.launches.triton, inside.outside) == (1, 1, 0)
    assert inside.size == 2 * 4 * 64  # it reads and writes each element once
    both = watch.count(lambda: compiled(x).cos())
    assert (both.launches.total, both.outside, both.size) == (2, 1, inside.size)
    assert both.more_than(inside) == ["launches 2 > 1", "launches outside 1 > 0"]
    copied = watch.count(lambda: x.clone())
    assert (copied.graphs, copied.launches.copies, copied.size) == (0, 1, 2 * 4 * 64)
    multiplied = watch.count(lambda: x.view(8, 8) @ x.view(8, 8))
    assert multiplied.launches.library == 1


def test_what_a_graph_only_comes_after_is_not_counted_as_read(watch: gpu_code.Watch) -> None:
    """An update in place waits for all that was computed from the old values."""
    p, x = torch.randn(64, device="cuda"), torch.randn(64, 64, device="cuda")

    def f() -> torch.Tensor:
        y = (x @ x) * p  # a kernel of its own that reads `p`
        p.add_(1)
        return y

    with watch.compiling(), torch.no_grad():
        compiled = magpy.compile(f)
        for _ in range(3):
            compiled()
    with torch.no_grad():
        found = watch.count(compiled)
    matrix, row = 4 * 64 * 64, 4 * 64
    # The product is written, and read by the next kernel: two matrices each, and `p` three times.
    assert found.size == (2 + 2) * matrix + row + 2 * row
