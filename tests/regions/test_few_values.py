"""What takes few values (a bool, None, whether a size is 1) is no storm: each is an entry.

A decoder's cache (transformers' encoder-decoder models): in each of the first calls a flag, and
whether a length and a batch are 1, lead another way; six entries then serve all calls.
"""

import pytest
import torch
from torch import nn

import magpy


class Cache:
    """The keys of a layer, which are there after the first token."""

    def __init__(self):
        self.filled, self.keys = False, None

    def update(self, new):
        self.keys = torch.cat([self.keys, new], 1) if self.filled else new
        self.filled = True
        return self.keys


class Layer(nn.Module):
    """Attention to all tokens so far."""

    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x, cache):
        before = cache.keys.shape[1] if cache.filled else 0
        keys = cache.update(self.k(x))
        return torch.relu(self.q(x) @ keys.transpose(1, 2)).sum(-1, keepdim=True) + before + x


@pytest.fixture(autouse=True)
def _regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def decode(layer, batch, tokens):
    torch.manual_seed(batch)
    cache, x, seen = Cache(), torch.randn(batch, 1, 4), []
    with torch.no_grad():
        for _ in range(tokens):
            x = layer(x, cache)
            seen.append(x)
    return seen


def test_a_cache_of_each_batch_and_length_is_served(recwarn):
    layer = Layer()
    compiled = magpy.compile(layer, backend="eager")
    for batch in (1, 2, 1, 3, 4, 1, 5):
        got, wanted = decode(compiled, batch, 5), decode(layer, batch, 5)
        assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
    stats = magpy.stats(compiled)
    assert stats.captures <= 6
    assert not stats.in_python
    assert stats.eager_calls == 0 and not recwarn.list


def test_two_flags_and_an_optional_argument_are_eight_ways(recwarn):
    weight = nn.Linear(4, 4)

    def f(x, scale, upper, mask=None):
        y = weight(x) * (2 if scale else 3)
        y = y.triu() if upper else y.tril()
        return y if mask is None else y.masked_fill(mask, 0)

    compiled = magpy.compile(f, backend="eager")
    x, mask = torch.randn(4, 4), torch.eye(4) > 0
    for _ in range(3):
        for scale in (True, False):
            for upper in (True, False):
                for m in (None, mask):
                    assert torch.equal(compiled(x, scale, upper, m), f(x, scale, upper, m))
    stats = magpy.stats(compiled)
    assert stats.captures == 8
    assert not stats.in_python
    assert stats.eager_calls == 0 and not recwarn.list


def test_numbers_of_data_that_lead_another_way_name_the_line_that_goes_by_them():
    layers = [nn.Linear(4, 4) for _ in range(5)]

    def f(x):
        x = layers[0](x).relu()
        order = torch.randperm(5).tolist()
        for i in order:
            x = layers[i](x)
        return layers[1](x).relu().sum()

    compiled = magpy.compile(f, backend="eager")
    x = torch.randn(3, 4)
    for seed in range(12):
        torch.manual_seed(seed)
        wanted = f(x)
        torch.manual_seed(seed)
        assert torch.equal(compiled(x), wanted)
    stats = magpy.stats(compiled)
    assert any("test_few_values.py" in where for where, _ in stats.in_python)
    before = stats.captures
    for seed in range(12, 16):
        torch.manual_seed(seed)
        compiled(x)
    assert magpy.stats(compiled).captures == before
