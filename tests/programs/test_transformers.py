"""Thirty transformers models of thirty model types: one graph, served again, and never stale."""

import copy

import pytest
import torch

import magpy
from benchmarks.zoo import ZOO
from tests.comparison import assert_same, difference

#: Its windows are sizes within sizes: a number of its configuration that changes takes minutes.
LONG = ("swin",)

pytestmark = pytest.mark.filterwarnings("ignore")
each = pytest.mark.parametrize("entry", ZOO, ids=lambda m: m.name)


def worlds(entry, train=False):
    """The same model twice: (eager, to be compiled, compiled)."""
    eager = entry.build()
    if entry.settles:
        run(eager, entry.example())
    model = copy.deepcopy(eager)
    if train:
        eager.train()
        model.train()
    return eager, model, magpy.compile(model, backend="eager")


def run(call, inputs, seed=0):
    """One call on its own copies of the inputs, with the generators seeded."""
    torch.manual_seed(seed)
    return call(**{name: value.clone() for name, value in inputs.items()})


def loss_of(output):
    """A number that depends on every floating output tensor."""
    leaves = torch.utils._pytree.tree_leaves(dict(output))
    return sum(
        leaf.float().square().mean()
        for leaf in leaves
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.requires_grad
    )


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters()}


@each
@torch.no_grad()
def test_forward_is_one_graph_and_is_served_by_its_entry(entry):
    eager, _, compiled = worlds(entry)
    inputs = entry.example()
    for _ in range(3):
        assert_same(run(compiled, inputs), run(eager, inputs))
    other = entry.example(seed=1)
    assert_same(run(compiled, other), run(eager, other))
    stats = magpy.stats(compiled)
    assert stats.segments == [1], stats.reasons
    assert (stats.captures, stats.eager_calls) == (1, 0), stats.reasons
    assert stats.hits == 3


@each
def test_training_step_has_eager_gradients(entry):
    eager, model, compiled = worlds(entry, train=True)
    for step in range(3):
        inputs = entry.example(seed=step)
        want = run(eager, inputs, seed=step)
        got = run(compiled, inputs, seed=step)
        assert_same(got, want)
        loss_of(want).backward()
        loss_of(got).backward()
        assert_same(gradients(model), gradients(eager))
    stats = magpy.stats(compiled)
    assert stats.segments == [1], stats.reasons
    assert (stats.captures, stats.eager_calls) == (1, 0), stats.reasons


@pytest.mark.parametrize(
    "entry",
    [pytest.param(m, marks=pytest.mark.long) if m.name in LONG else m for m in ZOO],
    ids=lambda m: m.name,
)
@torch.no_grad()
def test_after_each_change_the_result_is_eager(entry):
    eager, model, compiled = worlds(entry)
    inputs = entry.example()
    run(compiled, inputs)
    assert_same(run(compiled, inputs), run(eager, inputs))

    for m in (eager, model):  # one weight, in place
        p = max(m.parameters(), key=torch.Tensor.numel)
        p.view(-1)[::3] += 0.5
    assert_same(run(compiled, inputs), run(eager, inputs), "after a weight changed")

    before = run(eager, inputs)
    for m in (eager, model):
        entry.turn_knob(m)
    want = run(eager, inputs)
    assert difference(want, before), "the attribute does not change this model's result"
    assert_same(run(compiled, inputs), want, "after a configuration value changed")

    for training in (True, False):
        for m in (eager, model):
            m.train(training)
        for _ in range(2):
            assert_same(run(compiled, inputs), run(eager, inputs), f"after train({training})")

    for which in (1, 1, 0, 1):
        changed = entry.example(which)
        assert_same(run(compiled, changed), run(eager, changed), "after the input's shape changed")
