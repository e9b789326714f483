"""Steps with sparse gradients: how many rows a batch has is data, and no reason for a capture."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS

ROWS = 20


@pytest.fixture(autouse=True)
def regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


class Recommends(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(ROWS, 4, sparse=True)
        self.bags = nn.EmbeddingBag(ROWS, 4, sparse=True, mode="sum")

    def forward(self, i):
        return (self.items(i) * self.bags(i)[:, None]).pow(2).mean()


class Embeds(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(ROWS, 4, sparse=True)

    def forward(self, i):
        return self.items(i).pow(2).mean()


OPTIMIZERS = {
    "SparseAdam": lambda p: torch.optim.SparseAdam(list(p), lr=0.1),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}


def _step_of(model, make):
    optimizer = make(model.parameters())

    def step(i):
        optimizer.zero_grad()
        loss = model(i)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@pytest.mark.filterwarnings("ignore")  # torch warns once; where warnings are recorded, that is cut
@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("cls", [Embeds, Recommends], ids=lambda c: c.__name__)
@pytest.mark.parametrize("seed", [2, 7])
def test_two_captures_serve_all_batches(cls, make, backend, seed):
    torch.manual_seed(seed)
    eager = cls()
    model = copy.deepcopy(eager)
    expected, compiled = (
        _step_of(eager, make),
        magpy.compile(_step_of(model, make), backend=backend),
    )
    for k in range(14):
        i = torch.randint(0, ROWS, (3, 4) if k < 8 else (4, 3))
        torch.testing.assert_close(compiled(i), expected(i))
    for a, b in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    stats = magpy.stats(compiled)
    assert stats.captures <= 3, (stats.misses_by, stats.reasons)
    assert stats.hits >= 11
