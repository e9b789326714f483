"""A function that loops over a DataLoader: what is done with each batch is compiled once."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import magpy


@pytest.fixture(autouse=True)
def regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


class Training:
    """A model that is trained, and asked, for all batches of a loader."""

    def __init__(self):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def train(self, loader):
        self.model.train()
        total = 0.0
        for x, y in loader:
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            total += loss.item() * x.size(0)
        return total / len(loader.dataset)

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        right = 0
        for x, y in loader:
            right += (self.model(x).argmax(1) == y).sum().item()
        return right / len(loader.dataset)


def _loader(shuffle):
    generator = torch.Generator().manual_seed(1)
    data = torch.randn(77, 6, generator=generator), torch.randint(0, 3, (77,), generator=generator)
    return DataLoader(TensorDataset(*data), 8, shuffle=shuffle)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_epochs(shuffle, backend):
    eager = Training()
    training = copy.deepcopy(eager)
    train = magpy.compile(training.train, backend=backend)
    evaluate = magpy.compile(training.evaluate, backend=backend)
    loader = _loader(shuffle)
    for epoch in range(5):
        found = []
        for one, run, ask in [(eager, eager.train, eager.evaluate), (training, train, evaluate)]:
            torch.manual_seed(epoch)
            losses = run(loader), ask(loader)
            found.append((*losses, torch.get_rng_state(), *one.model.parameters()))
        torch.testing.assert_close(*found)
    for compiled in (train, evaluate):
        stats = magpy.stats(compiled)
        assert stats.captures <= 6, stats.misses_by
        assert not any("backend" in reason for reason in stats.reasons)
        # The rest is what the loader does to make a batch of rows.
        assert stats.share > 0.25
        assert stats.in_python


def test_a_loader_is_named():
    loader, layer = _loader(False), nn.Linear(6, 3)

    def means(given):
        return [layer(x).mean().item() for x, _ in given]

    compiled = magpy.compile(means, backend="eager")
    want = means(loader)
    for _ in range(4):
        assert compiled(loader) == want
    assert any("the batches of a DataLoader" in r for r in magpy.stats(compiled).reasons)
