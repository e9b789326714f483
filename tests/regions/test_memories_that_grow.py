"""A memory outside that each call adds to: a replay buffer, the losses of the last steps.

What looks at it is Python's, and what is computed before and after is compiled.
"""

import collections
import random

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import magpy


@pytest.fixture(autouse=True)
def _regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


MEMORIES = {"deque": lambda: collections.deque(maxlen=12), "list": list}


def agent(memory):
    """A step of deep Q-learning."""
    torch.manual_seed(0)
    q = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(q.parameters(), 1e-2)

    def step(state, reward):
        with torch.no_grad():
            action = q(state[None]).argmax(1).item()
        memory.append((state, action, reward))
        if len(memory) < 4:
            return action, None
        batch = random.sample(memory, 3) if isinstance(memory, list) else list(memory)[-3:]
        states = torch.stack([s for s, _, _ in batch])
        actions = torch.tensor([a for _, a, _ in batch])
        rewards = torch.tensor([r for _, _, r in batch])
        value = q(states).gather(1, actions[:, None])[:, 0]
        loss = F.smooth_l1_loss(value, rewards * 0.99)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return action, loss.item()

    return q, step


@pytest.mark.parametrize("kind", MEMORIES)
def test_what_is_around_it_is_compiled_in_few_captures(kind):
    worlds = []
    for wrap in (lambda f: f, lambda f: magpy.compile(f, backend="eager")):
        memory = MEMORIES[kind]()
        q, step = agent(memory)
        f, seen = wrap(step), []
        random.seed(0)
        for i in range(24):
            state = torch.randn(4, generator=torch.Generator().manual_seed(i))
            seen.append(f(state, float(i % 3)))
        worlds.append((seen, [p.detach().clone() for p in q.parameters()], len(memory)))
    (wanted, parameters, n), (found, others, m) = worlds
    assert found == wanted
    assert all(map(torch.equal, others, parameters))
    assert m == n
    stats = magpy.stats(f)
    assert stats.captures <= 8
    # The pieces are no single operations: the step that learns is in one.
    assert max(e.tag.operations for e in _entries(f)) > 10


def _entries(compiled):
    regions = compiled._magpy_options.drivers.compiled()
    return [e for r in regions for e in r._magpy_entries]


def test_a_memo_by_sizes_is_left_to_python():
    """Anchors or position tables, made once for each size of an image."""

    def world():
        memo = {}

        def f(x):
            key = tuple(x.shape[-2:])
            if key not in memo:
                rows = torch.meshgrid(torch.arange(key[0]), torch.arange(key[1]), indexing="ij")
                memo[key] = torch.stack(rows)
            return (x + memo[key]).relu().sum(0)

        return f, memo

    (f, own), (g, memo) = world(), world()
    compiled = magpy.compile(f, backend="eager")
    for i in range(40):
        x = torch.rand(2, 2, 4 + i % 5, 4 + i % 3, generator=torch.Generator().manual_seed(i))
        torch.testing.assert_close(compiled(x), g(x))
    assert list(own) == list(memo)
    stats = magpy.stats(compiled)
    assert stats.share > 0.9
    assert stats.eager_calls <= 3
    assert stats.captures <= 24, stats.misses_by
