"""A memo that only the first call fills is no reason to leave the line that fills it to Python."""

from types import SimpleNamespace

import pytest
import torch

import magpy
from magpy.objects.snapshots import ABSENT, only_fills


def session(containers=(), log=(), cells=()):
    return SimpleNamespace(
        containers=lambda: [(*c, False, 0, False) for c in containers],
        log=lambda: list(log),
        written_cells=lambda: list(cells),
    )


@pytest.mark.parametrize(
    "now, before, fills",
    [
        ({"a": 1}, {}, True),
        ({"a": 1}, {"a": None}, True),
        ({"a": 1}, {"a": 1}, True),
        ({"a": 2}, {"a": 1}, False),
        ({}, {"a": 1}, False),
        ([1], (), False),
    ],
)
def test_a_container_is_filled(now, before, fills):
    assert only_fills(session([(now, before)])) is fills


@pytest.mark.parametrize("old, fills", [(None, True), (ABSENT, True), (0, False)])
def test_attributes_and_cells_are_filled(old, fills):
    assert only_fills(session(log=[("write_attr", object(), "x", old)])) is fills
    assert only_fills(session(log=[("write_type", int, "x", old)])) is fills
    assert only_fills(session(cells=[(object(), old)])) is fills


@pytest.fixture(autouse=True)
def regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def test_an_operation_that_fills_a_memo_is_captured_afterwards():
    memo = {}

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if "factor" not in memo:
                memo["factor"] = 3.0
            return x * memo["factor"]

        @staticmethod
        def backward(ctx, g):
            return g * memo["factor"]

    def f(x):
        return Scale.apply(x + 1).sum()

    compiled = magpy.compile(f, backend="eager")
    for i in range(4):
        x = torch.full((3,), float(i), requires_grad=True)
        compiled(x).backward()
        assert torch.equal(x.grad, torch.full((3,), 3.0))
    stats = magpy.stats(compiled)
    assert (stats.captures, stats.hits, stats.in_python) == (1, 2, [])


def test_a_memo_filled_before_is_there_afterwards():
    class Memo:
        table = None

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    def f(x):
        if Memo.table is None:
            Memo.table = torch.arange(3.0)
        return Double.apply(x + Memo.table)

    compiled = magpy.compile(f, backend="eager")
    for _ in range(4):
        assert torch.equal(compiled(torch.ones(3)), torch.tensor([2.0, 4.0, 6.0]))
    stats = magpy.stats(compiled)
    assert (stats.captures, stats.hits, stats.in_python) == (1, 2, [])


def test_an_operation_that_counts_is_left_to_python():
    calls = []

    class Counts(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            calls.append(len(calls))
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    def f(x):
        y = x.sin() + 1
        y = Counts.apply(y)
        return y.cos() * 2

    compiled = magpy.compile(f, backend="eager")
    for i in range(8):
        assert torch.equal(compiled(torch.ones(3)), f(torch.ones(3)))
        assert len(calls) == 2 * i + 2
    stats = magpy.stats(compiled)
    assert stats.captures <= 3
    assert any("Counts.apply" in why for _, why in stats.in_python)
    assert stats.hits > 0
