"""L-BFGS calls its closure as often as the loss says: it is Python, the closure is compiled."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import magpy


@pytest.fixture(autouse=True)
def regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def world(search):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), 0.5, max_iter=4, line_search_fn=search)
    losses = []

    def step(x, y, weight):
        def closure():
            optimizer.zero_grad()
            loss = (model(x) - y).pow(2).mean() * weight
            loss.backward()
            losses.append(loss.item())
            return loss

        return optimizer.step(closure).detach()

    return model, step, losses


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_closure_is_compiled(search, backend):
    model, step, losses = world(search)
    mine, own, found = world(search)
    compiled = magpy.compile(own, backend=backend)
    for i in range(12):
        generator = torch.Generator().manual_seed(i)
        x = torch.rand(6 + i % 3, 2, generator=generator)
        given = x, x.sum(1, keepdim=True).sin(), 1 + i / 10
        torch.testing.assert_close(compiled(*given), step(*given))
        torch.testing.assert_close(found, losses)
    torch.testing.assert_close(mine.state_dict(), model.state_dict())
    stats = magpy.stats(compiled)
    assert stats.captures <= 10, stats.misses_by
    assert any("LBFGS.step" in reason for reason in stats.reasons)
    # Its own operations are Python's; those of the closure are not.
    assert stats.hits >= 8
    assert 0 < stats.share < 1


def test_an_exception_of_the_closure_is_the_programs():
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.LBFGS([weight])

    def step(fails):
        def closure():
            loss = (weight * 2).sum()
            loss.backward()
            if fails:
                raise ValueError(f"no loss: {loss.item()}")
            return loss

        return optimizer.step(closure)

    compiled = magpy.compile(step, backend="eager")
    for fails in (False, False, True, False, True):
        before = weight.detach().clone()
        weight.grad = None
        if fails:
            with pytest.raises(ValueError, match="no loss"):
                compiled(fails)
            torch.testing.assert_close(weight.detach(), before)
        else:
            compiled(fails)


@pytest.mark.parametrize("given", ["keyword", "none"])
def test_a_closure_is_given_as_in_eager(given):
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.LBFGS([weight], 0.1)

    def step(x):
        def closure():
            optimizer.zero_grad()
            loss = ((weight - x) ** 2).sum()
            loss.backward()
            return loss

        return optimizer.step(closure=closure) if given == "keyword" else optimizer.step()

    compiled = magpy.compile(step, backend="eager")
    for i in range(5):
        if given == "keyword":
            before, state = weight.detach().clone(), copy.deepcopy(optimizer.state_dict())
            want = step(torch.zeros(2)).detach()
            with torch.no_grad():
                weight.copy_(before)
            optimizer.load_state_dict(state)
            torch.testing.assert_close(compiled(torch.zeros(2)).detach(), want)
            continue
        with pytest.raises(TypeError, match=r"LBFGS.step\(\) missing .* 'closure'"):
            compiled(torch.ones(2) * i)
