"""A loop's number that picks a layer is no reason for captures: `layers[i]` is Python's at once.

Loops over layers in calls that are compiled in part (layers dropped at random, a timer in the
loop): a first capture for one index would serve one turn.
"""

import io
import random

import pytest
import torch
from torch import nn

import magpy


@pytest.fixture(autouse=True)
def _regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def odd():
    """Reads a file in memory: nobody knows what its C methods do."""
    return len(io.BytesIO(b"ab").read())


def layers(n):
    torch.manual_seed(0)
    return nn.ModuleList(nn.Linear(4, 4) for _ in range(n)).eval()


def compare(f, calls=6):
    compiled = magpy.compile(f, backend="eager")
    with torch.no_grad():
        for i in range(calls):
            x = torch.full((2, 4), float(i))
            assert torch.equal(compiled(x), f(x))
    return magpy.stats(compiled)


def test_an_index_is_not_captured_turn_by_turn():
    blocks = layers(5)

    def f(x):
        for i in range(5):
            odd()
            x = torch.relu(blocks[i](x))
        return x

    stats = compare(f)
    assert stats.captures <= 2 and stats.share == 1.0, stats
    assert any("differs in every call" in why for _, why in stats.in_python)


def test_indices_that_are_drawn_are_not_captured_one_by_one():
    blocks = layers(8)

    def f(x):
        for i in sorted(random.sample(range(8), 5)):
            x = torch.relu(blocks[i](x))
        return x

    compiled, states = magpy.compile(f, backend="eager"), set()
    with torch.no_grad():
        for i in range(12):
            x = torch.full((2, 4), float(i))
            random.seed(i)
            expected = f(x)
            after = random.getstate()
            random.seed(i)
            assert torch.equal(compiled(x), expected)
            assert random.getstate() == after
            states.add(after)
    stats = magpy.stats(compiled)
    assert len(states) == 12
    assert stats.captures <= 3 and stats.share == 1.0, stats


def test_what_is_computed_with_an_index_stays_in_one_region():
    weight = layers(1)[0]

    def f(x):
        for i in range(5):
            odd()
            x = weight(x) * (i + 1) + x[:, i % 4 : i % 4 + 1]
        return x

    stats = compare(f)
    assert stats.captures <= 2 and stats.share == 1.0, stats
    assert not any("differs in every call" in why for _, why in stats.in_python)


def test_a_first_turn_that_differs_is_right():
    weight = layers(1)[0]

    def f(x):
        for i in range(5):
            odd()
            x = weight(x) if i == 0 else torch.relu(x) - i
        return x

    stats = compare(f)
    assert stats.captures <= 4 and stats.share == 1.0, stats
