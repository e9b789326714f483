"""mode="auto": calls are measured and the fastest way of serving them stays."""

import time

import pytest
import torch
from torch import nn

import magpy
from magpy.api import find
from magpy.runtime import auto
from tests.comparison import difference

ENOUGH = 2 * (auto.WARM + auto.SAMPLES) + 1


def slow(gm, inputs):
    def run(*args):
        time.sleep(0.2)
        return gm.forward(*args)

    return run


def constant(gm, inputs):
    results = gm.forward(*inputs)
    return lambda *args: results


def same(gm, inputs):
    return gm.forward


def heavy(x):
    for _ in range(30):
        x = (x @ x).tanh()
    return x


BIG = torch.randn(128, 128)


def test_eager_stays_where_it_is_the_fastest():
    c = magpy.compile(heavy, backend=slow, mode="auto")
    want = heavy(BIG)
    for _ in range(ENOUGH):
        assert torch.equal(c(BIG), want)
    stats = magpy.stats(c)
    assert (stats.pending, stats.choices, stats.captures) == (0, ["eager"], 1)
    assert find(c)._magpy_entries[0].tag.runners == []
    calls = []
    segment = find(c)._magpy_entries[0].tag.segments[0]
    segment.operations = segment._module = None  # nobody needs it
    for _ in range(3):
        calls.append(c(BIG))
    assert all(torch.equal(x, want) for x in calls)


def test_a_guard_that_costs_more_than_it_saves_is_left_out():
    def f(x, *rest):
        return x

    c = magpy.compile(f, backend=slow, mode="auto")
    many = [torch.ones(1) for _ in range(300)]
    for _ in range(ENOUGH):
        c(*many)
    # There is no graph here, so there is nothing to measure either.
    assert magpy.stats(c).entries == 1

    def g(*rest):
        return rest[0] + 1

    c = magpy.compile(g, backend=slow, mode="auto")
    for _ in range(ENOUGH):
        c(*many)
    stats = magpy.stats(c)
    assert find(c)._magpy_plain
    assert "eager is the fastest" in stats.reasons[0]
    assert torch.equal(c(*many), many[0] + 1)


def test_the_compiled_graph_stays_where_it_is_the_fastest():
    c = magpy.compile(heavy, backend=constant, mode="auto")
    want = heavy(BIG)
    for _ in range(ENOUGH):
        assert torch.equal(c(BIG), want)
    stats = magpy.stats(c)
    assert (stats.pending, stats.choices, stats.hits) == (0, ["compiled"], 0)
    c(BIG)
    assert magpy.stats(c).hits == 1


def test_nothing_happens_twice():
    log = []

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = nn.Buffer(torch.zeros(()))

        def forward(self, x):
            log.append("called")
            self.count.add_(1)
            return x * torch.rand(3) + self.count

    net, ref = Net(), Net()
    c = magpy.compile(net, backend=same, mode="auto")
    x = torch.ones(3)
    calls = ENOUGH + 5
    torch.manual_seed(3)
    got = [c(x) for _ in range(calls)]
    after = torch.rand(1)
    torch.manual_seed(3)
    want = [ref(x) for _ in range(calls)]
    assert not difference(got, want)
    assert torch.equal(after, torch.rand(1))
    assert net.count == calls
    assert len(log) == 2 * calls


def test_every_entry_is_measured_by_itself():
    c = magpy.compile(heavy, backend=constant, mode="auto")
    for x in (BIG, torch.randn(64, 64)):
        for _ in range(ENOUGH):
            assert torch.equal(c(x), heavy(x))
    assert magpy.stats(c).choices == ["compiled", "compiled"]
    magpy.reset(c)
    assert magpy.stats(c).choices == []
    assert torch.equal(c(BIG), heavy(BIG))


def test_calls_within_a_call_that_is_measured():
    def f(x, n):
        return c(x, n - 1) + x if n else x * 2

    c = magpy.compile(f, backend=same, mode="auto")
    x = torch.ones(2)
    for _ in range(ENOUGH + 3):
        for n in (0, 1, 2):
            assert torch.equal(c(x, n), x * (n + 2))


def test_a_failure_of_the_backend():
    def fails(gm, inputs):
        raise ValueError("no")

    c = magpy.compile(heavy, backend=fails, mode="auto")
    with pytest.warns(magpy.MagpyWarning, match="ValueError: no") as found:
        for _ in range(ENOUGH):
            assert torch.equal(c(BIG), heavy(BIG))
    assert len([w for w in found if w.category is magpy.MagpyWarning]) == 1
    assert magpy.stats(c).uncompiled == 1


@pytest.mark.slow
def test_with_inductor():
    net = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))
    c = magpy.compile(net, mode="auto")
    x = torch.randn(4, 8)
    want = net(x)
    for _ in range(ENOUGH + 2):
        torch.testing.assert_close(c(x), want)
    stats = magpy.stats(c)
    assert stats.pending == 0
    assert find(c)._magpy_plain or stats.choices[0] in ("eager", "compiled")


def test_results_that_are_owned():
    buffer = torch.zeros(4)
    other = torch.zeros(2)
    x = torch.ones(2)

    def run(x):
        buffer.add_(1)
        other.add_(1)
        return buffer[1:], buffer.view(2, 2), other, x, x[:1], 5

    call = auto.owned(run)
    first = call(x)
    call(x)
    assert torch.equal(first[0], torch.ones(3))
    assert torch.equal(first[2], torch.ones(2))
    first[1][0, 1] = 7.0
    assert first[0][0] == 7.0, "what shared memory goes on sharing it"
    assert buffer[1] == 2.0
    assert first[3] is x
    assert first[4].data_ptr() == x.data_ptr()
    assert first[5] == 5
    assert first[1].shape == (2, 2)


@pytest.mark.slow
def test_reduce_overhead_knows_the_parameters_and_the_steps(monkeypatch):
    from torch._dynamo.mutation_guard import GenerationTracker
    from torch._inductor import compile_fx

    static = []
    ask = compile_fx.get_static_input_idxs

    def asked(fixed):
        static.append(list(ask(fixed)))
        return ask(fixed)

    monkeypatch.setattr(compile_fx, "get_static_input_idxs", asked)
    net = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    x = torch.randn(2, 3)
    with torch.no_grad(), torch._inductor.config.patch(force_disable_caches=True):
        c = magpy.compile(net, mode="reduce-overhead")
        torch.testing.assert_close(c(x), net(x))
        assert static == [[0, 1, 2, 3]]
        before = GenerationTracker.generation
        for _ in range(3):
            torch.testing.assert_close(c(x), net(x))
        assert GenerationTracker.generation == before + 3
        assert magpy.stats(c).hits == 3
