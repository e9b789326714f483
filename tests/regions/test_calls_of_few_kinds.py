"""Calls that differ in few ways, which come again: each way is captured whole, and nothing is cut.

What differs in every call is an input, or Python's; a few ways are a few entries.
"""

from __future__ import annotations

import functools
import random
import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import magpy

WEIGHT = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def rows(n):
    return [torch.full((8,), 1.0 + i) for i in range(n)]


def stacked(xs):
    return torch.stack([x @ WEIGHT for x in xs]).relu().mean(0).sum()


def features(xs):
    named = dict(zip("abcdefgh", xs, strict=False))
    return sum((v @ WEIGHT).relu().mean() for _, v in sorted(named.items()))


def padded(xs):
    n = max(len(x) for x in xs)
    p = torch.stack([F.pad(x, (0, n - len(x))) for x in xs])
    return (p @ WEIGHT).relu().amax(1)


def chain(xs):
    h = torch.zeros(8)
    for x in xs:
        h = F.layer_norm(torch.tanh(h @ WEIGHT + x @ WEIGHT), (8,))
    return h


@pytest.mark.parametrize("f", [stacked, features, padded, chain])
def test_lists_of_few_lengths(f):
    compiled = magpy.compile(f, backend="eager")
    for i in range(40):
        xs = rows(1 + i % 3)
        assert torch.equal(compiled(xs), f(xs))
    stats = magpy.stats(compiled)
    assert (stats.captures, stats.share) == (3, 1.0)
    assert stats.hits >= 34


def branch(x, kind):
    y = x @ WEIGHT
    if kind == "relu":
        y = y.relu()
    elif kind == "gelu":
        y = F.gelu(y)
    elif kind == "silu":
        y = F.silu(y)
    else:
        y = y.exp()
    return (y * 2).sum()


def request(x, kind):
    asked = types.SimpleNamespace(x=x, kind=kind)
    y = asked.x @ WEIGHT
    if asked.kind == "embed":
        return y.mean(0)
    if asked.kind == "rank":
        return (y @ WEIGHT).topk(2).values
    return y[-1].softmax(-1)


@pytest.mark.parametrize(
    ("f", "kinds"),
    [
        (branch, ["relu", "gelu", "silu", "exp"]),
        (request, ["embed", "rank", "generate"]),
        (lambda x, k: (x.to(k) @ WEIGHT.to(k)).sum(), [torch.float32, torch.float64, torch.half]),
        (lambda x, k: (x.reshape(*(1,) * k, 4, 8) @ WEIGHT).relu().flatten(), [0, 1, 2, 3]),
    ],
    ids=["branch", "request", "dtype", "rank"],
)
def test_a_few_kinds_of_requests(f, kinds):
    compiled = magpy.compile(f, backend="eager")
    x = torch.linspace(-1, 1, 32).reshape(4, 8)
    for i in range(10 * len(kinds)):
        kind = kinds[i % len(kinds)]
        assert torch.equal(compiled(x, kind), f(x, kind))
    stats = magpy.stats(compiled)
    assert stats.captures <= len(kinds) + 1
    assert stats.share == 1.0


def test_many_lengths_in_no_order_are_not_captured_for_ever():
    compiled = magpy.compile(features, backend="eager")
    dice = random.Random(1)
    for _ in range(60):
        xs = rows(dice.randint(1, 8))
        assert torch.equal(compiled(xs), features(xs))
    stats = magpy.stats(compiled)
    assert stats.captures <= 8
    assert stats.share == 1.0


@pytest.mark.parametrize("make", [torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_heads_trained_in_turn(make):
    """The optimizer's state grows in the first steps of each head; that is no storm."""

    def trained():
        torch.manual_seed(0)
        body, heads = nn.Linear(6, 8), nn.ModuleDict({k: nn.Linear(8, 2) for k in "abc"})
        optimizer = make([*body.parameters(), *heads.parameters()], 1e-2)

        def step(x, names):
            h = body(x).relu()
            loss = sum(heads[k](h).pow(2).mean() for k in names)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step, [*body.parameters(), *heads.parameters()]

    (eager, expected), (step, parameters) = trained(), trained()
    compiled = magpy.compile(step, backend="eager")
    for i in range(24):
        x = torch.full((4, 6), 0.1 * i)
        names = ("a",) if i % 2 else ("b", "c")
        assert torch.equal(compiled(x, names), eager(x, names))
    for a, b in zip(parameters, expected, strict=True):
        assert torch.equal(a, b)
    stats = magpy.stats(compiled)
    assert stats.captures <= 5
    assert stats.share == 1.0


class Cache:
    def __init__(self):
        self.k = None

    def update(self, k):
        self.k = k if self.k is None else torch.cat([self.k, k], 1)
        return self.k


def test_a_cache_that_is_empty_first_for_prompts_of_one_token_and_more():
    def step(x, cache):
        k = cache.update(x @ WEIGHT)
        mask = torch.arange(k.shape[1])[None] < torch.arange(1, 1 + x.shape[1])[:, None]
        return F.scaled_dot_product_attention(x, k, k, attn_mask=mask) @ WEIGHT

    compiled = magpy.compile(step, backend="eager")
    with torch.no_grad():
        for i in range(48):
            caches = Cache(), Cache()
            x = torch.randn((1, 2, 3)[i % 3], (3, 1, 4, 5)[i % 4], 8)
            for _ in range(4):
                result, expected = compiled(x, caches[0]), step(x, caches[1])
                assert torch.equal(result, expected)
                x = result[:, -1:]
            assert torch.equal(caches[0].k, caches[1].k)
    stats = magpy.stats(compiled)
    assert stats.captures <= 14
    assert stats.share == 1.0
    assert stats.in_python == []


def test_functions_that_are_chosen_by_the_class_of_an_argument():
    """`functools.singledispatch` keeps what it found for a class, weakly, in the first call."""

    @functools.singledispatch
    def encode(value, x):
        return x + 1

    @encode.register
    def _(value: str, x):
        return x * 2

    @encode.register
    def _(value: list, x):
        return x * 3

    def f(value, x):
        y = encode(value, x @ WEIGHT)
        return (y @ WEIGHT).relu()

    compiled = magpy.compile(f, backend="eager")
    for i in range(60):
        value, x = ("a", [1], 2.5)[i % 3], torch.full((2, 8), 0.1 * i)
        assert torch.equal(compiled(value, x), f(value, x))
    stats = magpy.stats(compiled)
    assert stats.in_python == []
    assert stats.share == 1.0


def test_a_rate_that_drops_at_every_fifth_step():
    # The first step of that kind finds the rate that there was before any other, and serves none.
    def trained(compile):
        torch.manual_seed(0)
        model = nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5, gamma=0.5)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss.detach()

        compiled = compile(step)
        losses = [compiled(torch.full((2, 8), 0.1 * (i % 3))) for i in range(40)]
        return compiled, losses, optimizer.param_groups[0]["lr"]

    _, want, rate = trained(lambda f: f)
    compiled, got, found = trained(functools.partial(magpy.compile, backend="eager"))
    assert found == rate
    assert all(map(torch.equal, got, want))
    stats = magpy.stats(compiled)
    assert stats.captures <= 5
    assert stats.hits >= 35
    assert stats.in_python == []
