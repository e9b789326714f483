"""Random generators, autocast, precision and memory on CUDA."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import magpy
from tests.cuda.conftest import Counts
from tests.cuda.programs import same


def _x() -> tuple[Any]:
    return (torch.randn(2, 4, device="cuda"),)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x + torch.randn(2, 4, device="cuda"),
        lambda x: torch.nn.functional.dropout(x, 0.5),
        lambda x: torch.rand_like(x) + torch.rand(4, device="cuda"),
    ],
)
def test_generators_are_where_eager_leaves_them(f: Any) -> None:
    same(f, _x)


def test_a_generator_of_the_programs_own_moves() -> None:
    generator = torch.Generator("cuda")
    compiled = magpy.compile(
        lambda: torch.rand(3, device="cuda", generator=generator), backend="eager"
    )
    seen = []
    for _ in range(4):
        compiled()
        seen.append(generator.get_offset())
    assert [b - a for a, b in zip(seen, seen[1:], strict=False)] == [seen[0]] * 3
    assert magpy.stats(compiled).hits == 3


def test_where_a_generator_is_is_asked_in_each_call() -> None:
    generator = torch.Generator("cuda")

    def f() -> Any:
        before = generator.get_offset()
        drawn = torch.rand(3, device="cuda", generator=generator)
        return before, generator.get_offset(), drawn

    compiled = magpy.compile(f, backend="eager")
    for _ in range(4):
        before = generator.get_offset()
        said = compiled()
        assert said[:2] == (before, generator.get_offset())
        assert said[1] > said[0]
    assert magpy.stats(compiled).hits == 3


def test_a_seed_is_set_in_each_call() -> None:
    def f(x: Any) -> Any:
        torch.cuda.manual_seed(3)
        return torch.rand(3, device="cuda")

    compiled = magpy.compile(f, backend="eager")
    for _ in range(3):
        compiled(None)
        assert torch.cuda.default_generators[0].initial_seed() == 3
        torch.cuda.manual_seed(5)
    assert magpy.stats(compiled).hits == 2


def test_autocast_inside_and_outside(counts: Counts) -> None:
    linear = torch.nn.Linear(4, 4, device="cuda")

    def f(x: Any) -> Any:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return linear(x)

    with torch.no_grad():
        same(f, _x, counts)
        compiled = magpy.compile(linear, backend="eager")
        with torch.autocast("cuda", dtype=torch.float16):
            assert all(compiled(*_x()).dtype is torch.float16 for _ in range(3))
        assert compiled(*_x()).dtype is torch.float32


def test_settings_of_precision_are_guarded_and_switched(counts: Counts) -> None:
    def f(x: Any) -> Any:
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = not before
        y = x @ x.t()
        torch.backends.cuda.matmul.allow_tf32 = before
        return y, before

    same(f, _x, counts)


def test_memory_is_emptied_in_each_call(counts: Counts) -> None:
    def f(x: Any) -> Any:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return x + 1

    same(f, _x, counts)


def test_how_much_memory_is_used_is_not_what_it_was() -> None:
    def f(x: Any) -> Any:
        return x + 1, torch.cuda.memory_allocated() > 0

    same(f, _x, captured=False)


def test_a_training_step_puts_gradients_on_the_device(counts: Counts) -> None:
    linear = torch.nn.Linear(4, 4, device="cuda")
    compiled = magpy.compile(lambda x: linear(x).sum(), backend="eager")
    for _ in range(3):
        compiled(*_x()).backward()
    assert linear.weight.grad is not None
    assert linear.weight.grad.device == torch.device("cuda:0")
    assert magpy.stats(compiled).hits == 2
