"""A fault in any stage of magpy costs the compilation and never the program."""

import warnings

import pytest
import torch
from torch import nn

import magpy
from magpy import faults
from tests.comparison import assert_same

STAGES = ("instrument", "log", "recorder", "refgraph", "guard", "mock", "backend")


@pytest.fixture(scope="module", autouse=True)
def torch_is_instrumented():
    """What cannot be instrumented is not tried again: the faults must not hit torch's own code."""
    c = magpy.compile(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), backend="eager")
    for _ in range(2):
        c(torch.ones(1, 3))
    assert magpy.stats(c).hits == 1


def fresh(f):
    """The function with a code object of its own, which nothing has instrumented yet."""
    f.__code__ = f.__code__.replace()
    return f


def program():
    """A function with effects, so that a second run of the same call would show."""
    net = nn.Linear(3, 3)
    log = []

    def f(x, n):
        log.append(n)
        x.add_(1)
        if n == 3:
            raise KeyError(n)
        return net(x).relu() + torch.rand(3), len(log)

    return fresh(f), log, net


def run(f, log):
    torch.manual_seed(1)
    seen = []
    for n in (0, 1, 1, 2, 3, 1):
        x = torch.arange(6.0).reshape(2, 3)
        try:
            seen.append(f(x, n))
        except KeyError as error:
            seen.append(error)
        seen.append((x, list(log), torch.get_rng_state()))
    return seen


@pytest.mark.parametrize("stage", STAGES)
def test_fault_in_a_stage_leaves_the_program_as_eager(stage):
    torch.manual_seed(0)
    f, log, _ = program()
    want = run(f, log)
    torch.manual_seed(0)
    f, log, _ = program()
    c = magpy.compile(f, backend="eager")
    with warnings.catch_warnings(record=True) as caught, faults.inject(stage):
        warnings.simplefilter("always")
        got = run(c, log)
    assert_same(got, want)
    assert caught, "a fault is reported"
    texts = [str(w.message) for w in caught]
    assert len(texts) == len(set(texts)), "each thing is warned about once"
    assert magpy.stats(c).reasons


@pytest.mark.parametrize("stage", STAGES)
def test_fault_in_one_function_does_not_touch_another(stage):
    x = torch.ones(3)
    bad = magpy.compile(fresh(lambda x: x * 2), backend="eager")
    with warnings.catch_warnings(), faults.inject(stage):
        warnings.simplefilter("ignore")
        assert_same(bad(x), x * 2)
    good = magpy.compile(lambda x: x * 3, backend="eager")
    for _ in range(2):
        assert_same(good(x), x * 3)
    assert (magpy.stats(good).captures, magpy.stats(good).hits) == (1, 1)


@pytest.mark.parametrize("stage", STAGES[:-1])
def test_fault_with_fullgraph_raises_capture_error(stage):
    c = magpy.compile(fresh(lambda x: x * 2), backend="eager", fullgraph=True)
    with faults.inject(stage), pytest.raises(magpy.CaptureError):
        c(torch.ones(3))


def test_unknown_stage_is_refused():
    with pytest.raises(ValueError, match="known"), faults.inject("nowhere"):
        pass


def test_a_backend_that_fails_after_a_change_costs_no_change():
    """The second graph fails when the first has already written: Python does the rest."""
    graphs = []

    def backend(graph, inputs):
        if len(graphs) == 1:
            raise RuntimeError("no second graph")
        graphs.append(graph)
        return graph.forward

    total, leaf = torch.zeros(2), torch.ones(2, requires_grad=True)

    def f(x):
        total.add_(x)
        leaf.requires_grad_()  # no graph holds it
        return total * leaf

    c = magpy.compile(f, backend=backend)
    with pytest.warns(magpy.MagpyWarning, match="no second graph"):
        for i in range(1, 4):
            assert torch.equal(c(torch.ones(2)), total * 1)
            assert total.tolist() == [i, i]
    assert len(graphs) == 1
    stats = magpy.stats(c)
    assert (stats.entries, stats.hits, stats.uncompiled) == (1, 2, 1)
