"""Layers that a driver calls one by one share their entries, as layers compiled alone do."""

import pytest
import torch
from torch import nn

import magpy

DEPTH = 8


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.wide, self.narrow = nn.Linear(4, width), nn.Linear(width, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x + self.narrow(torch.relu(self.wide(x)))


class Model(nn.Module):
    """A hook that one call sets keeps it from being one graph."""

    def __init__(self, widths):
        super().__init__()
        self.layers = nn.Sequential(*map(Layer, widths))

    def forward(self, x):
        seen = []
        handle = self.layers[2].register_forward_hook(lambda *a: seen.append(a[2]))
        try:
            y = self.layers(x)
        finally:
            handle.remove()
        return y, seen[0]


@pytest.fixture(autouse=True)
def regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def both(widths, backend, calls=10):
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(Model(widths))
    compiled = magpy.compile(models[1], backend=backend)
    for i in range(calls):
        x = torch.full((2, 4), i / 10)
        for a, b in zip(compiled(x), models[0](x), strict=True):
            torch.testing.assert_close(a, b)
            a.sum().backward(retain_graph=True)
            b.sum().backward(retain_graph=True)
        for p, q in zip(*(m.parameters() for m in models), strict=True):
            torch.testing.assert_close(p.grad, q.grad)
        assert [m.calls for m in models[0].layers] == [m.calls for m in models[1].layers]
    return magpy.stats(compiled)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_layers_share_entries(backend):
    stats = both([8] * DEPTH, backend)
    assert stats.captures < DEPTH + 5, stats
    assert stats.share == 1.0


def test_layers_that_differ_are_not_confused():
    stats = both([8, 16, 8, 5, 16, 3, 8, 9], "eager")
    assert stats.share > 0.5
