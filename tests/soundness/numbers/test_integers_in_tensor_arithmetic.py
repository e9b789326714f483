"""Counters and offsets in the arithmetic of tensors whose sizes vary, as compilers are given it."""

import operator
import types

import pytest
import torch

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same

ONE_GRAPH = {
    "sum": lambda t, k: t + k,
    "in front": lambda t, k: k - t,
    "product": lambda t, k: k * t,
    "quotient": lambda t, k: t / (k + 1),
    "of one": lambda t, k: k / (t + 1),
    "floor": lambda t, k: t // (k + 1),
    "remainder": lambda t, k: t % (k + 2),
    "comparison": lambda t, k: t > k,
    "integers": lambda t, k: t.long() * k,
    "offset": lambda t, k: torch.arange(t.shape[0]) + k,
    "half": lambda t, k: t.half() * k,
    "in place": lambda t, k: (t * 2).add_(k),
}
BY_PYTHON = {
    "power": lambda t, k: t**k,
    "clamp": lambda t, k: t.clamp(max=k),
    "filled": torch.full_like,
    "alpha": lambda t, k: t.add(t, alpha=k),
    "where": lambda t, k: torch.where(t > k, t, k),
    "other integers": lambda t, k: t.int() + k,
    "floor of integers": lambda t, k: t.long() // (k + 1),
    "in place, of numpy": lambda t, k: operator.iadd(t * 2, t.numpy().mean() * k),
    "the argument itself": lambda t, k: t.pow_(k),
    "truth values": lambda t, k: (t > 1) * k,
    "one element": lambda t, k: t.sum() + k,
    "roll": torch.roll,
    "part": lambda t, k: t[k % 2 :] * 2,
    "longer": lambda t, k: t.repeat(k % 3 + 1),
}
SIZES = (3, 4, 4, 5, 6, 7, 8, 3, 9, 10)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("counts_before", [False, True])
@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("name", [*ONE_GRAPH, *BY_PYTHON])
def test_a_counter(name, backend, counts_before):
    operation = ONE_GRAPH.get(name) or BY_PYTHON[name]

    def world(wrap):
        state = types.SimpleNamespace(n=0, seen=torch.zeros(1))

        @wrap
        def f(t):
            state.n += 1
            if counts_before:
                state.seen += 1  # no check may fail after this
            return operation(torch.relu(t), state.n)

        return [(f(torch.arange(n) * 1.5), state.n, state.seen.clone()) for n in SIZES], f

    wanted, _ = world(lambda f: f)
    found, compiled = world(lambda f: magpy.compile(f, backend=backend))
    assert_same(found, wanted)
    stats = magpy.stats(compiled)
    if name in ONE_GRAPH:
        assert stats.captures <= 3 and stats.share == 1.0
    else:
        assert stats.hits or stats.in_python


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("operation", [operator.floordiv, operator.mod, operator.truediv])
def test_a_counter_that_comes_to_zero(operation, backend):
    def world(wrap):
        state = types.SimpleNamespace(n=4)

        @wrap
        def f(t):
            state.n -= 1
            return operation(t * 1, state.n) + 1

        seen = []
        for _ in range(6):
            try:
                seen.append(f(torch.arange(5)))
            except RuntimeError as error:
                seen.append(str(error))
        return seen

    assert_same(world(lambda f: magpy.compile(f, backend=backend)), world(lambda f: f))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_integers_as_large_as_there_are(backend):
    def world(wrap):
        state = types.SimpleNamespace(n=2**61)

        @wrap
        def f(t, u):
            state.n *= 2
            return t + state.n, u * state.n, u == state.n

        seen = []
        for _ in range(6):
            try:
                seen.append(f(torch.arange(3) - 5, torch.ones(3)))
            except (RuntimeError, OverflowError) as error:
                seen.append(type(error))
        return seen

    assert_same(world(lambda f: magpy.compile(f, backend=backend)), world(lambda f: f))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_argument_that_is_changed_by_a_number_of_its_own(backend):
    def f(x):
        x += x.detach().numpy().mean()
        return x * 1

    compiled = magpy.compile(f, backend=backend)
    for n in SIZES:
        x, y = torch.arange(float(n)), torch.arange(float(n))
        assert_same((compiled(x), x), (f(y), y))
    stats = magpy.stats(compiled)
    assert stats.hits or stats.in_python
