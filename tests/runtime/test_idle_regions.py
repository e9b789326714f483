"""Regions of a driver that hold no tensor operation: known ahead of a capture, or by its end."""

from __future__ import annotations

import hashlib
import io
import math
import os
import random
from typing import Any

import pytest
import torch
from torch import nn

import magpy
from magpy.runtime.idle_regions import is_idle

WEIGHT = torch.ones(2)
LAYER = nn.Linear(2, 2)


def helper(v: Any) -> Any:
    return v


CASES = [
    (lambda a: hashlib.md5(a).hexdigest(), b"text", True),
    (lambda a: os.path.join("/tmp", a), "name", True),
    (lambda a: sorted(random.sample(range(10), a)), 3, True),
    (lambda a: a.write("x"), io.StringIO(), True),
    (lambda a: a(1), [].append, True),
    (lambda a: [math.sqrt(v) for v in a], [1.0, 2.0], True),
    (lambda a: a, WEIGHT, True),
    (lambda a: a.sum(), WEIGHT, False),
    (lambda a: a(WEIGHT), WEIGHT.add, False),
    (lambda a: a[0] * 2, [WEIGHT], False),
    (lambda a: a * WEIGHT, 2, False),
    (lambda a: [v * WEIGHT for v in range(a)], 2, False),
    (lambda a: torch.zeros(a), 2, False),
    (lambda a: helper(a), 2, False),
    (lambda a: LAYER(a), 2, False),
    (lambda a: sum(a), list(range(100)), False),
]


@pytest.mark.parametrize(("f", "given", "expected"), CASES)
def test_what_reaches_no_tensor_is_idle(f: Any, given: Any, expected: bool) -> None:
    assert is_idle(f, (given,)) is expected


def test_what_is_imported_is_not_known() -> None:
    def f(n: int) -> Any:
        import torch

        return torch.zeros(n)

    assert not is_idle(f, (2,))


def test_cells_are_looked_into() -> None:
    def of(held: Any) -> Any:
        return lambda a: held, lambda a: a + len(held)

    assert is_idle(of("text")[1], (1,))
    assert not is_idle(of(LAYER)[1], (1,))


def digests(layers: Any, x: Any, request: bytes) -> Any:
    made = []
    for i, layer in enumerate(layers):
        x = layer(x)
        made.append(hashlib.md5(request + bytes([i])).hexdigest()[:6])
    return x, made


def test_what_a_refused_line_leaves_over_is_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(magpy.config, "regions", True)
    layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3)).eval()
    compiled = magpy.compile(digests, backend="eager")
    for i in range(8):
        given = layers, torch.randn(2, 4), b"request %d" % i
        got, wanted = compiled(*given), digests(*given)
        assert torch.equal(got[0], wanted[0])
        assert got[1] == wanted[1]
    stats = magpy.stats(compiled)
    # Two of the whole, since the request varies; then a layer, without and with a gradient.
    assert stats.captures <= 4
    assert stats.share == 1.0


def test_idle_stretches_of_other_modules_are_counted_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(magpy.config, "regions", True)

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.seen = nn.Linear(4, 4), []

        def forward(self, x: Any, verbose: bool) -> Any:
            y = self.layer(x)
            if verbose:
                self.seen.append(tuple(y.shape))
            self.tag = os.urandom(2)
            open(os.devnull).close()
            return torch.relu(y)

    model = nn.ModuleList(Block() for _ in range(8))

    def f(x: Any) -> Any:
        for block in model:
            x = block(x, False)
        return x

    compiled = magpy.compile(f, backend="eager")
    x = torch.randn(2, 4)
    for _ in range(6):
        assert torch.equal(compiled(x), f(x))
    assert magpy.stats(compiled).share == 1.0
