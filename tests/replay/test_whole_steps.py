"""Training steps that are compiled as a whole: eager to the last bit, few graphs, no copies.

Owns what such an entry saves (counted, not timed), its graphs, and the state after a step that goes
another way or raises.  Does not own which programs are served (tests/soundness/autograd).
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import magpy
from magpy.replay import support
from tests.comparison import assert_same

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "sgd_fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adam_amsgrad": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adam_foreach": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
    "adam_tensor_lr": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
}


@pytest.fixture
def copied(monkeypatch):
    """How many elements each call of `support.save` has copied."""
    counts = []
    save = support.save

    def counting(*args):
        saved = save(*args)
        _, copies, grads, *_ = saved
        found = [*(c for *_, c in copies), *(c for *_, c in grads if c is not None)]
        counts.append(sum(t.numel() for t in found))
        return saved

    monkeypatch.setattr(support, "save", counting)
    return counts


class World:
    """A model, its optimizer and a step; what a step may change is compared by `state`."""

    def __init__(self, make, loss=None, *, clip=False, set_to_none=True):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 3))
        self.optimizer = make(self.model.parameters())
        self.seen = []
        loss = loss or (lambda world, x: world.model(x).square().mean())

        def step(x):
            self.optimizer.zero_grad(set_to_none=set_to_none)
            value = loss(self, x)
            value.backward()
            if clip:
                nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
            self.optimizer.step()
            return value.detach()

        self.step = step

    def state(self):
        parameters = list(self.model.parameters())
        values = [p.detach().clone() for p in parameters]
        gradients = [None if p.grad is None else p.grad.clone() for p in parameters]
        return values, gradients, copy.deepcopy(self.optimizer.state_dict()), list(self.seen)


def run(world, step, inputs, change=None):
    found = []
    for i, x in enumerate(inputs):
        if change is not None:
            change(world, i)
        try:
            result = step(x)
        except (ArithmeticError, IndexError) as e:
            result = type(e), str(e)
        found.append((result, world.state()))
    return found


def both(make, inputs, change=None, backend="eager", **more):
    eager, mine = World(make, **more), World(make, **more)
    wanted = run(eager, eager.step, inputs, change)
    compiled = magpy.compile(mine.step, backend=backend)
    return wanted, run(mine, compiled, inputs, change), compiled


def batches(n):
    torch.manual_seed(1)
    return [torch.randn(5, 4) for _ in range(n)]


@pytest.mark.parametrize("clip", [False, True], ids=["", "clipped"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_eagers_to_the_last_bit_in_few_graphs_and_copies_nothing(name, clip, copied):
    wanted, found, compiled = both(OPTIMIZERS[name], batches(7), clip=clip)
    assert_same(found, wanted)
    stats = magpy.stats(compiled)
    assert stats.hits >= 4
    assert stats.segments[0] <= 4
    assert sum(copied) == 0


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw_foreach", "adamw_fused"])
def test_a_rate_that_changes_is_followed(name):
    def change(world, i):
        for group in world.optimizer.param_groups:
            group["lr"] = 0.1 / (i + 1)

    wanted, found, compiled = both(OPTIMIZERS[name], batches(9), change)
    assert_same(found, wanted)
    assert magpy.stats(compiled).hits >= 4


@pytest.mark.parametrize("name", ["sgd", "adamw", "adamw_fused"])
def test_gradients_that_are_set_to_zero_stay_the_same_objects(name, copied):
    wanted, found, compiled = both(OPTIMIZERS[name], batches(7), set_to_none=False)
    assert_same(found, wanted)
    assert magpy.stats(compiled).hits >= 3
    assert sum(copied) == 0


def goes_by_the_loss(world, x):
    """Where the loss is large, another way is taken after the gradients were let go of."""
    value = world.model(x).square().mean()
    if value > 10:
        world.seen.append(float(value.detach()))
        return value * 0.5
    return value


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw_fused"])
def test_a_step_that_goes_another_way_leaves_eagers_state(name, copied):
    inputs = batches(8)
    for i in (3, 6):
        inputs[i] = inputs[i] * 100
    wanted, found, compiled = both(OPTIMIZERS[name], inputs, loss=goes_by_the_loss)
    assert_same(found, wanted)
    assert magpy.stats(compiled).hits >= 3
    assert sum(copied) == 0  # by then only gradients were let go of, which are kept as they are


def looks_at_gradients(make):
    """A step as with a scaler of losses: it is left out where a gradient is not finite."""
    world = World(make)
    parameters = list(world.model.parameters())

    def step(x):
        world.optimizer.zero_grad()
        value = world.model(x).square().mean()
        value.backward()
        norm = nn.utils.clip_grad_norm_(parameters, 1.0)
        if not torch.isfinite(norm):
            world.seen.append("left out")
            return value.detach()
        world.optimizer.step()
        return value.detach()

    world.step = step
    return world


def returns_a_number(model, loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def looks_for_nan_first(model, loss, optimizer):
    optimizer.zero_grad()
    if not torch.isfinite(loss):
        return None
    loss.backward()
    optimizer.step()
    return loss.item()


def clips_and_looks_for_nan(model, loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    if torch.isfinite(nn.utils.clip_grad_norm_(model.parameters(), 1.0)):
        optimizer.step()
    return loss.item()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("end", [returns_a_number, looks_for_nan_first, clips_and_looks_for_nan])
@pytest.mark.parametrize("name", ["sgd", "adam", "adamw_fused"])
def test_what_decides_about_a_step_is_computed_once_and_no_weight_is_saved(
    name, end, backend, copied
):
    def world():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
        optimizer = OPTIMIZERS[name](model.parameters())
        return model, lambda x: end(model, model(x).square().mean(), optimizer)

    (model, step), (twin, eager) = world(), world()
    compiled = magpy.compile(step, backend=backend)
    for i in range(9):
        x = torch.rand(32, 64)
        if i == 4 and end is not returns_a_number:
            x[0, 0] = torch.nan
        found, wanted = compiled(x), eager(x)
        assert (found is None) == (wanted is None)
        assert wanted is None or found == pytest.approx(wanted, rel=1e-6, nan_ok=True)
        if i == 4:
            copied.clear()
        torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))
    info = compiled._magpy_entries[0].tag
    assert magpy.stats(compiled).segments[0] <= 4
    assert magpy.stats(compiled).hits >= 3
    assert not info.outside
    assert sum(copied) <= 8, "single numbers"


@pytest.mark.parametrize("name", ["sgd", "adamw", "adamw_fused"])
def test_what_comes_after_the_last_check_is_not_copied(name, copied):
    inputs = batches(8)
    inputs[4] = inputs[4] * float("inf")
    eager, mine = looks_at_gradients(OPTIMIZERS[name]), looks_at_gradients(OPTIMIZERS[name])
    compiled = magpy.compile(mine.step, backend="eager")
    wanted, found = run(eager, eager.step, inputs), run(mine, compiled, inputs)
    assert_same(found, wanted)
    assert magpy.stats(compiled).hits >= 3
    assert copied  # an entry can be left after the backward pass
    assert max(copied) == 0  # neither parameters nor states, which change later


def decides_after_the_step(make):
    world = World(make)
    inner = world.step

    def step(x):
        value = inner(x)
        if world.model[0].weight.abs().sum() > 1e6:
            world.seen.append("far away")
        return value

    world.step = step
    return world


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_check_after_all_changes_takes_them_back(name, copied):
    def change(world, i):
        if i == 5:
            with torch.no_grad():
                world.model[0].weight.mul_(1e7)

    eager, mine = decides_after_the_step(OPTIMIZERS[name]), decides_after_the_step(OPTIMIZERS[name])
    compiled = magpy.compile(mine.step, backend="eager")
    inputs = batches(8)
    wanted, found = run(eager, eager.step, inputs, change), run(mine, compiled, inputs, change)
    assert_same(found, wanted)
    assert magpy.stats(compiled).hits >= 3
    weights = sum(p.numel() for p in mine.model.parameters())
    assert max(copied) >= weights  # they are changed, and may have to be taken back


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_an_exception_that_the_program_raises_in_the_middle(name):
    def loss(world, x):
        value = world.model(x).square().mean()
        if value.isnan():
            raise ArithmeticError("not a number")
        return value

    inputs = batches(8)
    inputs[3] = inputs[3] * float("nan")
    wanted, found, compiled = both(OPTIMIZERS[name], inputs, loss=loss)
    assert_same(found, wanted)
    assert magpy.stats(compiled).hits >= 3


def test_gradients_of_before_are_let_go_of_as_in_eager():
    """Whoever frees memory by `zero_grad` has it free while the model runs."""
    import weakref

    world = World(OPTIMIZERS["adamw"])
    compiled = magpy.compile(world.step, backend="eager")
    for x in batches(4):
        compiled(x)
    alive = []
    former = [weakref.ref(p.grad) for p in world.model.parameters()]

    def look(graph, inputs):
        def called(*args):
            alive.append(sum(r() is not None for r in former))
            return graph.forward(*args)

        return called

    del compiled
    compiled = magpy.compile(world.step, backend=look)
    for x in batches(3):
        compiled(x)
    former[:] = [weakref.ref(p.grad) for p in world.model.parameters()]
    alive.clear()
    compiled(batches(1)[0])
    assert magpy.stats(compiled).hits >= 2
    assert alive[0] == 6, "a graph that computes single numbers comes first"
    assert alive[1] == 0


def marked(world, x):
    with torch.profiler.record_function("forward"):
        value = world.model(x)
        with torch.profiler.record_function("inner"):
            value = value.square()
    return value.mean()


def test_a_profiler_is_told_of_marks_which_cut_no_graph():
    wanted, found, compiled = both(OPTIMIZERS["adamw"], batches(4), loss=marked)
    assert_same(found, wanted)
    assert magpy.stats(compiled).segments[0] == 2
    hits = magpy.stats(compiled).hits
    with torch.profiler.profile() as p:
        compiled(batches(1)[0])
    assert magpy.stats(compiled).hits == hits + 1
    names = [e.name for e in p.events()]
    for name in ("forward", "inner", "Optimizer.step#AdamW.step"):
        assert names.count(name) == 1


def test_a_mark_around_operations_alone_is_in_no_graph():
    def f(x):
        with torch.profiler.record_function("part"):
            return x.sin() + 1

    seen = []

    def backend(graph, inputs):
        seen.extend(n.name for n in graph.graph.nodes if n.op not in ("placeholder", "output"))
        return graph.forward

    compiled = magpy.compile(f, backend=backend)
    for _ in range(3):
        assert_same(compiled(torch.ones(3)), f(torch.ones(3)))
    assert seen == ["sin", "add"]
    assert magpy.stats(compiled).captures == 1
    assert magpy.stats(compiled).hits == 2


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "adamw_fused", "adagrad"])
def test_a_compiler_gets_the_optimizer_as_few_graphs(name, copied):
    wanted, found, compiled = both(OPTIMIZERS[name], batches(7), backend="aot_eager")
    assert_same(found, wanted)
    stats = magpy.stats(compiled)
    assert stats.hits >= 4
    assert stats.segments[0] <= 4
    assert sum(copied) == 0


def test_a_backend_whose_results_know_nothing_of_autograd_is_left():
    """A pass over them would raise after gradients were let go of."""

    def backend(graph, inputs):
        def run(*args):
            with torch.no_grad():
                return graph.forward(*args)

        return run

    with pytest.warns(magpy.MagpyWarning, match="know nothing of autograd"):
        wanted, found, compiled = both(OPTIMIZERS["adamw"], batches(5), backend=backend)
    assert_same(found, wanted)
    assert magpy.stats(compiled).hits >= 3
    assert magpy.stats(compiled).uncompiled >= 1


def test_a_graph_that_gives_nothing_to_differentiate_is_run_by_python_once():
    runs = []

    def backend(graph, inputs):
        def run(*args):
            runs.append(len(args))
            return graph.forward(*args)

        return run

    wanted, found, compiled = both(OPTIMIZERS["sgd"], batches(6), backend=backend)
    assert_same(found, wanted)
    assert magpy.stats(compiled).uncompiled == 0
    assert len(runs) == magpy.stats(compiled).hits
