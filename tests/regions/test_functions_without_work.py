"""Functions that refused lines call, in which no graph runs, run as they are after some calls.

A driver of each would cost more than all that they do: loggers, metrics, callbacks.
"""

from __future__ import annotations

import sys
import threading

import pytest
import torch
from torch import nn

import magpy
from magpy.runtime import driver

CALLS = 3 * driver._MOST_WITHOUT_WORK
_LOCAL = threading.local()
_LOCAL.n = 0


@pytest.fixture(autouse=True)
def regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def as_is(function):
    """Whether the frame of the caller runs the code of the function, and not that of a driver."""
    return sys._getframe(1).f_code is function.__code__


def leaf(key, seen):
    _LOCAL.n += 1
    seen.append(as_is(leaf))
    return key.upper()


def log(key, seen):
    seen.append(as_is(log))
    for _ in range(3):
        key = leaf(key, seen)
    return key


def recurs(n, seen):
    seen.append(as_is(recurs))
    _LOCAL.n += 1
    return n if n == 0 else recurs(n - 1, seen)


def run(helper, *given):
    """The entries that a helper has written about itself, in the calls of a compiled function."""
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    seen = []

    def f(x):
        h = model(x).relu()
        helper(*given, seen)
        return h * 2

    compiled = magpy.compile(f, backend="eager")
    found = []
    for i in range(CALLS):
        x = torch.rand(2, 4, generator=torch.Generator().manual_seed(i))
        seen.clear()
        torch.testing.assert_close(compiled(x), model(x).relu() * 2)
        found.append(list(seen))
    return magpy.stats(compiled), found


@pytest.mark.parametrize(("helper", "given"), [(log, "loss"), (recurs, 5)])
def test_what_runs_no_graph_runs_as_it_is(helper, given):
    stats, found = run(helper, given)
    assert not found[4][0]
    assert all(found[-1])
    assert len({len(entries) for entries in found}) == 1  # each ran as often in every call
    assert stats.share > 0.9


def test_what_runs_graphs_does_so_for_good():
    weight = torch.rand(4)

    def metric(seen):
        _LOCAL.n += 1
        seen.append(float((weight * 3).sin().sum()))

    stats, found = run(metric)
    assert found[-1] == [float((weight * 3).sin().sum())]
    assert stats.share > 0.9


def test_what_calls_a_module_does_so_for_good():
    inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def probe(seen):
        _LOCAL.n += 1
        seen.append(inner(torch.ones(4)).detach())

    stats, found = run(probe)
    torch.testing.assert_close(found[-1], [inner(torch.ones(4)).detach()])
    assert stats.share > 0.9


def test_what_works_later_is_right():
    state = {"n": 0, "mean": torch.zeros(4)}

    def tracks(seen):
        _LOCAL.n += 1
        state["n"] += 1
        if state["n"] > 2 * driver._MOST_WITHOUT_WORK:
            state["mean"] = state["mean"] * 0.5 + 1
        seen.append(state["mean"])

    _, found = run(tracks)
    mean = torch.zeros(4)
    for _ in range(driver._MOST_WITHOUT_WORK):
        mean = mean * 0.5 + 1
    torch.testing.assert_close(found[-1], [mean])


def test_backward_passes_below_stay_driven():
    weight = nn.Parameter(torch.ones(4))

    def passes(seen):
        _LOCAL.n += 1
        loss = (weight * 2).sum()
        loss.backward()
        seen.append(weight.grad.clone())
        weight.grad = None

    _, found = run(passes)
    torch.testing.assert_close(found[-1], [torch.full((4,), 2.0)])


def test_a_module_that_was_dropped_is_gone():
    import gc
    import weakref

    def call(module, seen):
        _LOCAL.n += 1
        seen.append(module)

    class Module(nn.Module):
        def forward(self, x):
            _LOCAL.n += 1
            return x

    def f(module, x):
        _LOCAL.n += 1
        return module(x) * 2

    compiled = magpy.compile(f, backend="eager")
    module = Module()
    for _ in range(CALLS):
        compiled(module, torch.ones(2))
    gone = weakref.ref(module)
    compiled(Module(), torch.ones(2))
    del module
    gc.collect()
    assert gone() is None
