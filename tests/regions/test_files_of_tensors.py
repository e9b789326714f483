"""`torch.save` and `torch.load` inside a compiled function: files, and no work for a graph.

What they call (pickling, storages) stays as it is, and what stands around them is compiled.
"""

import os

import pytest
import torch
from torch import nn

import magpy


@pytest.fixture(autouse=True)
def _regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def test_features_that_are_kept_in_files(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).eval()

    def f(x, key):
        path = os.path.join(tmp_path.as_posix(), f"{key}.pt")
        if os.path.exists(path):
            features = torch.load(path)
        else:
            features = model(x)
            torch.save(features, path)
        return model(features).relu()

    compiled = magpy.compile(f, backend="eager")
    with torch.no_grad():
        for i in range(16):
            x = torch.full((2, 8), float(i % 5))
            assert torch.equal(compiled(x, i % 5), model(model(x)).relu())
    stats = magpy.stats(compiled)
    assert stats.captures <= 4
    assert sorted(os.listdir(tmp_path)) == [f"{i}.pt" for i in range(5)]


def test_a_checkpoint_in_each_third_step(tmp_path):
    def world(compile, name):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x, i):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 3 == 2:
                torch.save(model.state_dict(), tmp_path / f"{name}{i}.pt")
            return loss.detach()

        f = compile(step)
        losses = [f(torch.full((4, 4), i / 8), i) for i in range(12)]
        return f, torch.stack(losses), [p.detach() for p in model.parameters()]

    f, losses, weights = world(lambda f: magpy.compile(f, backend="eager"), "c")
    _, wanted, expected = world(lambda f: f, "e")
    assert torch.equal(losses, wanted)
    assert all(map(torch.equal, weights, expected))
    for i in (2, 5, 8, 11):
        kept, there = (torch.load(tmp_path / f"{name}{i}.pt") for name in "ce")
        assert all(torch.equal(kept[k], there[k]) for k in there)
    assert magpy.stats(f).captures <= 8
