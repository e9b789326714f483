"""Gradients are outside objects: which they are, what memory they have, and when hooks see them."""

from __future__ import annotations

import sys

import pytest
import torch

import magpy
from magpy import _tensor
from magpy.capture.tensors.gradients import Gradients
from magpy.capture.tensors.identity import Identity
from magpy.ir.ops import Record
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.fuzz import __main__ as fuzz


class World:
    """Two parameters, a bucket that gradients may be views of, and a place that keeps one."""

    def __init__(self):
        self.w = torch.nn.Parameter(torch.ones(2))
        self.v = torch.nn.Parameter(torch.ones(2))
        self.flat = torch.zeros(4)
        self.kept = {"k": torch.zeros(2)}

    def seen(self):
        return [self.w, self.v, self.w.grad, self.v.grad, self.flat, self.kept["k"]]


def _same(world, x):
    w, kept = world.w, world.kept
    return w.grad is kept["k"], w.grad is world.v.grad


def _read(world, x):
    return None if world.w.grad is None else world.w.grad + x, world.kept["k"] * 2


def _in_place(world, x):
    if world.w.grad is not None:
        world.w.grad.add_(x)
    return world.kept["k"] * 2, world.flat.sum().item()


def _in_place_of_the_other(world, x):
    world.kept["k"].add_(x)
    world.flat.mul_(2)
    return None if world.w.grad is None else world.w.grad * 2


def _replaced(world, x):
    if world.w.grad is not None:
        world.w.grad = world.w.grad + x
    return world.kept["k"] * 2


def _taken_away(world, x):
    world.w.grad = None
    return world.kept["k"] * 2


def _added_to(world, x):
    (world.w * x + 3 * world.v * x).sum().backward()
    return world.w.grad + 0, world.v.grad + 0, world.flat.sum().item(), world.kept["k"] * 2


def _accumulated(world, x):
    world.w.grad = None
    (world.w * x).sum().backward()
    world.kept["k"] = world.kept["k"] + world.w.grad
    return world.kept["k"].sum()


def _kept_itself(world, x):
    before = None if world.w.grad is None else (world.w.grad * world.kept["k"]).sum()
    (world.w * x).sum().backward()
    world.kept["k"] = world.w.grad
    return before


def _optimizer(world, x):
    torch.optim.SGD([world.w, world.v], 0.5).step()
    return world.kept["k"] * 2


def _clipped(world, x):
    if world.w.grad is not None and world.v.grad is not None:
        torch.nn.utils.clip_grad_norm_([world.w, world.v], 1.0)
    return world.flat * 2


PROGRAMS = {
    f.__name__: f
    for f in (
        *(_same, _read, _in_place, _in_place_of_the_other, _replaced, _taken_away),
        *(_added_to, _accumulated, _kept_itself, _optimizer, _clipped),
    )
}


def _is_the_kept_one(world):
    world.w.grad = world.kept["k"]


def _are_views(world):
    world.w.grad, world.v.grad = world.flat[:2], world.flat[2:]


def _overlap(world):
    world.w.grad, world.v.grad = world.flat[:2], world.flat[1:3]


def _are_one(world):
    world.w.grad = world.v.grad = torch.full((2,), 3.0)


def _are_new(world):
    world.w.grad, world.v.grad = torch.full((2,), 7.0), torch.full((2,), 5.0)


def _is_gone(world):
    world.w.grad = None


def _the_other_is_gone(world):
    world.v.grad = None


def _something_else_is_kept(world):
    world.kept["k"] = torch.full((2,), 9.0)


CHANGES = (
    *(_are_new, _is_the_kept_one, _something_else_is_kept, _are_views, _is_gone, _are_one),
    *(_overlap, _the_other_is_gone, _is_the_kept_one, _are_new, _are_views, _are_one),
)


def _identities(tensors):
    return [next(i for i, o in enumerate(tensors) if o is t) for t in tensors]


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("first", range(0, len(CHANGES), 3))
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_gradients_are_told_from_other_tensors(name, first, backend):
    program, outcomes = PROGRAMS[name], []
    for compiled in (False, True):
        world, outcome = World(), []

        def call(x, world=world):
            return program(world, x)

        f = magpy.compile(call, backend=backend) if compiled else call
        for change in (*CHANGES[first:], *CHANGES[:first]):
            with torch.no_grad():
                change(world)
            for _ in range(2):
                try:
                    result = f(torch.ones(2))
                except Exception as error:
                    result = type(error)
                seen = world.seen()
                outcome.append((repr(result), repr(seen), _identities(seen)))
        outcomes.append(outcome)
    assert outcomes[1] == outcomes[0]


def test_gradients_of_every_kind_are_served():
    world = World()
    f = magpy.compile(lambda x: _read(world, x), backend="eager")
    for i in range(6):
        world.w.grad = torch.full((2,), float(i))
        assert f(torch.ones(2))[0].tolist() == [i + 1.0, i + 1.0]
    assert (magpy.stats(f).captures, magpy.stats(f).hits) == (1, 5)


def test_a_training_step_settles():
    torch.manual_seed(0)
    # torch keeps in caches of the process what its optimizers ask of devices: the first call of all
    # that fills one is not captured.
    torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], 0.1).step()
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    f = magpy.compile(step, backend="eager")
    for _ in range(8):
        f(torch.ones(3, 2))
    assert magpy.stats(f).captures == 2
    assert magpy.stats(f).hits == 6


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_run_in_the_order_of_eager(register, backend):
    def make():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
        order = []
        for name, p in model.named_parameters():
            getattr(p, register)(lambda g, name=name: order.append(name))
        return (lambda x: model(x).sum().backward()), order

    (eager, wanted), (call, got) = make(), make()
    f = magpy.compile(call, backend=backend)
    for _ in range(3):
        eager(torch.ones(1, 2))
        f(torch.ones(1, 2))
        assert got == wanted
    assert "a backward pass runs" in magpy.stats(f).reasons[0]


def test_a_hook_draws_where_eager_draws():
    def make():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
        for p in model.parameters():
            p.register_hook(lambda g: g + torch.rand(1))
        return model, lambda x: model(x).sum().backward()

    (one, eager), (two, call) = make(), make()
    f = magpy.compile(call, backend="aot_eager")
    for i in range(3):
        for g, model in ((eager, one), (f, two)):
            model.zero_grad()
            torch.manual_seed(i)
            g(torch.ones(1, 2))
        for p, q in zip(one.parameters(), two.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)
    assert "a backward pass runs" in magpy.stats(f).reasons[0]


# ---------------------------------------------------------------- the mechanism alone


def _gradients(*outside):
    record = Record()
    reached = list(outside)
    known = lambda v: any(v is t for t in reached)  # noqa: E731 - two lines would say no more
    return Gradients(record, Identity(record, known, None), known, reached.append), record


def test_the_first_read_notes_what_guards_look_at():
    w = torch.ones(2, requires_grad=True)
    w.grad = torch.zeros(2)
    gradients, record = _gradients(w)
    assert gradients.read(w)
    assert gradients.read(w)
    assert record.gradients == [(w, w.grad)]
    assert [t is w.grad for t in record.inputs.values()] == [True]


def test_no_gradient_is_noted_too():
    w = torch.ones(2, requires_grad=True)
    gradients, record = _gradients(w)
    assert gradients.read(w)
    assert record.gradients == [(w, None)]
    assert not record.inputs


def test_what_was_assigned_before_is_not_the_calls_beginning():
    w = torch.ones(2, requires_grad=True)
    gradients, record = _gradients(w)
    gradients.assigned(w)
    w.grad = torch.zeros(2)
    assert not gradients.read(w)
    assert record.gradients == []


def test_a_pass_notes_what_it_adds_to():
    w, v = (torch.ones(2, requires_grad=True) for _ in range(2))
    gradients, record = _gradients(w, v)
    gradients.added([w])
    w.grad = torch.ones(2)
    assert not gradients.read(w)
    assert not gradients.read(v)  # whose gradient a hook may have set
    assert record.gradients == [(w, None), (v, None)]


def test_what_something_unseen_may_have_changed_is_not_noted():
    w, v = (torch.ones(2, requires_grad=True) for _ in range(2))
    gradients, record = _gradients(w, v)
    assert gradients.read(w)
    gradients.unseen()
    v.grad = torch.ones(2)
    assert not gradients.read(v)
    assert not gradients.read(w)
    assert record.gradients == [(w, None)]


def test_a_leaf_of_the_calls_own_is_not_noted():
    gradients, record = _gradients()
    w = torch.ones(2, requires_grad=True)
    gradients.added([w])
    assert not gradients.read(w)
    assert record.gradients == []


def test_the_gradient_that_nobody_hears_of():
    heard = []

    class Heard(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            heard.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    t = torch.ones(2).as_subclass(Heard).requires_grad_()
    del heard[:]
    assert _tensor.gradient(t) is None
    w = torch.ones(2, requires_grad=True)
    w.grad = torch.zeros(2)
    assert _tensor.gradient(w) is w.grad
    assert _tensor.gradient(w * 2) is None
    assert heard == []
    with pytest.raises(TypeError, match="a tensor is needed, not int"):
        _tensor.gradient(1)


def test_a_gradient_is_put_where_torch_would_refuse_it():
    w = torch.ones(3, requires_grad=True)
    short = torch.zeros(2, dtype=torch.float64)
    _tensor.put_gradient(w, short)
    assert w.grad is short
    _tensor.put_gradient(w, None)
    assert w.grad is None
    never = torch.ones(1)
    _tensor.put_gradient(never, None)
    assert never.grad is None
    counts = sys.getrefcount(w), sys.getrefcount(short)
    for _ in range(50):
        _tensor.put_gradient(w, short)
        _tensor.put_gradient(w, None)
    assert (sys.getrefcount(w), sys.getrefcount(short)) == counts
    for wrong in ((1, short), (w, 1)):
        with pytest.raises(TypeError, match="a tensor is needed, not int"):
            _tensor.put_gradient(*wrong)


@pytest.mark.parametrize("taken", ["None", "torch.ones(3)"])
def test_a_gradient_of_another_size_than_its_leaf_is_put_back(taken):
    program = f"""
import torch
w = torch.nn.Parameter(torch.tensor(2.0))
results = (w * 1.0).sum()
w.data = torch.ones(3)
results.backward()
count = 0

def f(x):
    global count
    w.grad = {taken}
    w.data = torch.ones(3) * x.sum()
    count += 1
    return w.detach() + x if count < 4 else x * 2

target = f

def steps(f):
    for i in range(6):
        yield attempt(f, torch.ones(3)), w.grad
        if i == 2:
            total = (w * 3.0).sum()
            w.data = torch.ones(2)
            total.backward()
            yield w.grad
"""
    report = fuzz.report_on(program, 0)
    assert report.finding is None
    assert report.hits


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (2,), (1, 1), (3, 1), (1, 3), (2, 0)])
def test_a_gradient_that_is_expanded_lies_as_its_leaf(shape, backend):
    def made(compile):
        w = torch.zeros(shape, requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.1)

        def step():
            optimizer.zero_grad()
            w.sum().backward()

        return w, compile(step)

    w, step = made(lambda f: magpy.compile(f, backend=backend))
    expected, eager = made(lambda f: f)
    for _ in range(5):
        step()
        eager()
        assert torch.equal(w.grad, expected.grad)
        assert w.grad.stride() == expected.grad.stride()
