"""State in dicts under parameters and modules: what the call replaces there is read again."""

from __future__ import annotations

import collections

import pytest
import torch
from torch import nn

import magpy


def world():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    velocity = {p: torch.zeros_like(p) for p in model.parameters()}
    return model, velocity


def momentum(model, velocity, x):
    loss = model(x).pow(2).mean()
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            velocity[p] = 0.9 * velocity[p] + p.grad
            p -= 0.1 * velocity[p]
    return loss.detach()


def made_when_missing(model, velocity, x):
    y = model(x)
    for p in model.parameters():
        if p in velocity:
            velocity[p] = velocity[p] * 0.5 + p.detach()
        else:
            velocity[p] = p.detach().clone()
    return y.detach() + velocity[model[0].weight].sum()


def by_layer(model, velocity, x):
    for layer in model:
        x = layer(x)
        velocity[layer] = velocity.get(layer, 0) * 0.9 + x.detach().mean(0)
    return x.detach()


def swapped(model, velocity, x):
    first, second = model[0].weight, model[2].weight
    velocity[first], velocity[second] = velocity[second], velocity[first]
    return velocity[first].sum() + model(x).detach()


def taken_out(model, velocity, x):
    kept = velocity.pop(model[0].weight)
    velocity[model[0].weight] = kept + 1
    return model(x).detach() + kept.sum()


def scalars(model, velocity, x):
    counts = velocity.setdefault("counts", {})
    for p in model.parameters():
        counts[p] = counts.get(p, 0) + 1
    return model(x).detach() * counts[model[0].bias]


PROGRAMS = [momentum, made_when_missing, by_layer, swapped, taken_out, scalars]


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_state_under_parameters_and_modules(program, kind):
    (model, velocity), (own, mine) = world(), world()
    velocity, mine = kind(velocity), kind(mine)
    compiled = magpy.compile(lambda x: program(own, mine, x), backend="eager")
    for i in range(10):
        x = torch.rand(4, 3, generator=torch.Generator().manual_seed(i))
        torch.testing.assert_close(compiled(x), program(model, velocity, x))
        torch.testing.assert_close(own.state_dict(), model.state_dict())
        for a, b in zip(mine.values(), velocity.values(), strict=True):
            if isinstance(a, torch.Tensor):
                torch.testing.assert_close(a, b)
            else:
                assert list(a.values()) == list(b.values())
    stats = magpy.stats(compiled)
    assert stats.captures <= (3 if program is not scalars else 10), stats.misses_by


def test_what_is_replaced_between_calls():
    model, velocity = world()
    key = model[0].weight
    compiled = magpy.compile(lambda x: (x * velocity[key]).sum(), backend="eager")
    for i in range(8):
        if i % 2 == 0:
            velocity[key] = torch.full((3, 3), float(i))
        x = torch.ones(3, 3)
        torch.testing.assert_close(compiled(x), (x * velocity[key]).sum())
    velocity[key] = torch.ones(3)
    torch.testing.assert_close(compiled(x), (x * velocity[key]).sum())
    del velocity[key]
    with pytest.raises(KeyError):
        compiled(x)
    assert magpy.stats(compiled).captures <= 5


def test_one_tensor_under_two_keys():
    model, velocity = world()
    first, second = model[0].weight, model[2].weight
    shared = torch.ones(2)
    velocity[first] = velocity[second] = shared

    def f(x):
        velocity[first] = velocity[first] * 2
        return velocity[first] is velocity[second], x + velocity[second]

    compiled = magpy.compile(f, backend="eager")
    same, result = compiled(torch.ones(2))
    assert not same
    torch.testing.assert_close(result, torch.full((2,), 2.0))
    velocity[second] = velocity[first]
    same, result = compiled(torch.ones(2))
    assert not same
    torch.testing.assert_close(velocity[first], torch.full((2,), 4.0))
    torch.testing.assert_close(velocity[second], torch.full((2,), 2.0))
