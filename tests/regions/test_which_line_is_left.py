"""Which line is left to Python when a region, and not a whole call, turns out to be no entry."""

import pytest
import torch
from torch import nn

import magpy


@pytest.fixture(autouse=True)
def _regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def left(compiled):
    return {
        int(where.rpartition(":")[2].split()[0]) for where, _ in magpy.stats(compiled).in_python
    }


def test_a_pass_over_an_older_graph_alone_is_pythons():
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    kept, numbers, seen = [], iter(range(1000)), []

    def finish(x):
        seen.append(len(kept))
        scale = 2.0
        values = [v * scale for v in kept]
        penalty = x.square().mean() + x.sum() * 0.1
        loss = torch.stack(values).sum() + penalty
        loss.backward()
        next(numbers)
        del kept[:]
        return loss.detach() + 1

    first = finish.__code__.co_firstlineno
    compiled = magpy.compile(finish, backend="eager")
    for i in range(10):
        outcomes = []
        for f in (compiled, finish):
            net.zero_grad()
            kept[:] = [net(torch.full((3,), float(k + i))) for k in range(3)]
            outcomes.append((f(torch.full((4,), float(i))), net.weight.grad.clone()))
        (a, g), (b, h) = outcomes
        assert torch.equal(a, b)
        assert torch.equal(g, h)
        assert not kept
    assert first + 6 in left(compiled), "the pass"
    assert left(compiled).isdisjoint({first + 3, first + 4, first + 5})
    assert magpy.stats(compiled).share > 0.5


def test_a_loop_over_what_python_makes_has_a_compiled_body_from_the_second_call():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))

    def batches(n):
        for i in range(n):
            yield torch.full((2, 4), float(i))

    def epoch(loader):
        total = 0
        for i, x in enumerate(loader):
            total += net(x).square().mean().item() * (i + 1)
        return total

    compiled = magpy.compile(epoch, backend="eager")
    for n in (3, 3, 4, 5):
        assert compiled(batches(n)) == pytest.approx(epoch(batches(n)), rel=1e-6)
    stats = magpy.stats(compiled)
    assert stats.eager_calls == 1
    assert stats.captures <= 4
    assert stats.share > 0.75
