"""`torch.autograd.grad` and leaves that the call makes, in one graph with what follows of them.

Owns gradient penalties, equations with derivatives, forces, adversarial examples, weights that are
adapted in the call: values, gradients, what requires gradients, errors of later passes.  Does not
own passes over leaves from outside (test_passes_in_graphs.py).
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same

BACKENDS = ["eager", "aot_eager"]


class World:
    """A network, an optimizer and a step."""

    def __init__(self, step, inputs):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, 1))
        self.optimizer = torch.optim.Adam(self.net.parameters(), 1e-2)
        self.step = step

    def update(self, loss):
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def gradient_penalty(w, real, fake):
    mixed = (0.3 * real + 0.7 * fake).requires_grad_()
    (g,) = torch.autograd.grad(w.net(mixed).sum(), mixed, create_graph=True)
    loss = w.net(fake).mean() - w.net(real).mean() + 10 * ((g.norm(2, 1) - 1) ** 2).mean()
    w.update(loss)
    return loss.item(), g.detach()


def equation_with_derivatives(w, x, t):
    x, t = x.clone().requires_grad_(True), t.clone()
    t.requires_grad = True
    u = w.net(torch.cat([x, t], 1))
    ones = torch.ones_like(u)
    ux, ut = torch.autograd.grad(u, [x, t], ones, create_graph=True)
    uxx = torch.autograd.grad(ux, x, torch.ones_like(ux), create_graph=True)[0]
    loss = ((ut.sum(1) + u[:, 0] * ux.sum(1) - 0.01 * uxx.sum(1)) ** 2).mean()
    w.update(loss)
    return loss.detach()


def trained_forces(w, positions, wanted):
    positions = positions.clone().requires_grad_(True)
    energy = w.net(positions).sum()
    forces = -torch.autograd.grad(energy, positions, create_graph=True)[0]
    loss = (forces - wanted).square().mean() + energy**2
    w.update(loss)
    return energy.detach(), forces.detach()


def served_forces(w, positions, _):
    positions = positions.detach().requires_grad_(True)
    energy = w.net(positions).sum()
    return energy.detach(), -torch.autograd.grad(energy, positions)[0]


def adversarial_examples(w, x, y):
    for _ in range(2):
        x = x.detach().requires_grad_()
        loss = F.mse_loss(w.net(x), y[:, :1])
        x = x + 0.1 * torch.autograd.grad(loss, x)[0].sign()
    w.update(F.mse_loss(w.net(x.detach()), y[:, :1]))
    return x.detach()


def gradient_of_a_leaf_of_the_call(w, x, y):
    moved = x.clone().requires_grad_()
    loss = F.mse_loss(w.net(moved), y[:, :1])
    w.update(loss)
    return moved.grad * 2, loss.detach()


def adapted_weights(w, x, y):
    first = [p.clone() for p in w.net.parameters()]
    for _ in range(2):
        weights = first
        h = torch.tanh(F.linear(x, weights[0], weights[1]))
        loss = F.mse_loss(F.linear(h, weights[2], weights[3]), y[:, :1])
        found = torch.autograd.grad(loss, weights, create_graph=True)
        first = [p - 0.1 * g for p, g in zip(weights, found, strict=True)]
    h = torch.tanh(F.linear(y, first[0], first[1]))
    w.update(F.mse_loss(F.linear(h, first[2], first[3]), x[:, :1]))
    return loss.item()


def product_with_a_hessian(w, x, y):
    loss = F.mse_loss(w.net(x), y[:, :1])
    parameters = list(w.net.parameters())
    found = torch.autograd.grad(loss, parameters, create_graph=True)
    along = sum((g * p.detach()).sum() for g, p in zip(found, parameters, strict=True))
    w.update(along)
    return [p.grad.clone() for p in parameters]


def one_that_is_not_used(w, x, y):
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    loss = w.net(x).sum()
    a, b = torch.autograd.grad(loss, [x, y], allow_unused=True)
    assert b is None
    c = torch.autograd.grad(w.net(x).sum(), [x, y], allow_unused=True, materialize_grads=True)
    return a, c


def kept_for_another_pass(w, x, y):
    x = x.clone().requires_grad_()
    loss = w.net(x).square().mean()
    (g,) = torch.autograd.grad(loss, x, retain_graph=True)
    w.update(loss)
    return g


STEPS = [
    gradient_penalty,
    equation_with_derivatives,
    trained_forces,
    served_forces,
    adversarial_examples,
    gradient_of_a_leaf_of_the_call,
    adapted_weights,
    product_with_a_hessian,
    one_that_is_not_used,
    kept_for_another_pass,
]


def run(step, wrap, sizes=(6,) * 7):
    w = World(step, 4 if step is equation_with_derivatives else 3)
    f = wrap(lambda a, b: step(w, a, b))
    torch.manual_seed(1)
    found = []
    for n in sizes:
        width = 2 if step is equation_with_derivatives else 3
        a, b = torch.randn(n, width), torch.randn(n, width)
        result = f(a, b)
        found.append((result, a.requires_grad, a.grad))
        found.append([(p.detach().clone(), p.grad, p.requires_grad) for p in w.net.parameters()])
    return found, f


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("step", STEPS, ids=lambda f: f.__name__)
def test_a_step_is_as_in_eager(step, backend):
    wanted, _ = run(step, lambda f: f)
    found, compiled = run(step, lambda f: magpy.compile(f, backend=backend))
    assert_same(found, wanted, tol=0 if backend == "eager" else 1e-6)
    stats = magpy.stats(compiled)
    assert stats.hits >= 4
    assert stats.eager_calls == 0
    assert stats.share == 1


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("step", STEPS, ids=lambda f: f.__name__)
def test_sizes_may_vary(step, backend):
    sizes = (6, 5, 7, 4, 8, 9, 3)
    wanted, _ = run(step, lambda f: f, sizes)
    found, compiled = run(step, lambda f: magpy.compile(f, backend=backend), sizes)
    assert_same(found, wanted, tol=0 if backend == "eager" else 1e-6)
    assert magpy.stats(compiled).captures <= 4
    assert magpy.stats(compiled).eager_calls == 0


@pytest.mark.parametrize("step", STEPS, ids=lambda f: f.__name__)
def test_one_graph_holds_the_passes_and_what_they_differentiate(step):
    _, compiled = run(step, lambda f: magpy.compile(f, backend="aot_eager"))
    graphs = [s for s in compiled._magpy_entries[0].tag.segments if s.differentiates]
    assert len(graphs) == 1
    assert not graphs[0].native


def outcome(f, *args):
    try:
        return f(*args)
    except RuntimeError as e:
        return type(e)


def returns_what_was_freed(w, x):
    x = x.detach().requires_grad_()
    energy = w.net(x).square().sum()
    return energy, torch.autograd.grad(energy, x)[0]


def returns_what_was_kept(w, x):
    x = x.detach().requires_grad_()
    energy = w.net(x).square().sum()
    return energy, torch.autograd.grad(energy, x, create_graph=True)[0]


def returns_what_lies_beside(w, x):
    x = x.detach().requires_grad_()
    beside = w.net[0].weight.exp()
    energy = (F.linear(x, beside)).square().sum()
    return beside.sum(), torch.autograd.grad(energy, x)[0]


def returns_the_leaf(w, x):
    x = x.clone().requires_grad_()
    return x, torch.autograd.grad(w.net(x).square().sum(), x)[0]


def argument_that_requires_gradients(w, x):
    x.requires_grad_()
    return torch.autograd.grad(w.net(x).square().sum(), x)[0]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "step",
    [
        returns_what_was_freed,
        returns_what_was_kept,
        returns_what_lies_beside,
        returns_the_leaf,
        argument_that_requires_gradients,
    ],
    ids=lambda f: f.__name__,
)
def test_what_comes_after_the_call_is_as_in_eager(step, backend):
    def trial(wrap):
        w = World(step, 3)
        f = wrap(lambda x: step(w, x))
        torch.manual_seed(1)
        for _ in range(4):
            x = torch.randn(5, 3)
            result = f(x)
            results = result if isinstance(result, tuple) else (result,)
            seen = [(t.detach(), t.requires_grad, t.is_leaf) for t in results]
            passes = [outcome(lambda t: t.sum().backward(), t) for t in results if t.requires_grad]
            yield seen, passes, x.requires_grad, x.grad, [p.grad for p in w.net.parameters()]

    wanted = list(trial(lambda f: f))
    found = list(trial(lambda f: magpy.compile(f, backend=backend)))
    assert_same(found, wanted, tol=0 if backend == "eager" else 1e-6)


class Twice(torch.autograd.Function):
    seen = []

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        Twice.seen.append(1)
        return g * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_python_in_the_pass_runs_in_every_call(backend):
    def step(x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(Twice.apply(x).square().sum(), x)[0]

    compiled = magpy.compile(step, backend=backend)
    for i in range(5):
        x = torch.full((3,), float(i))
        Twice.seen.clear()
        assert torch.equal(compiled(x), x * 8)
        assert Twice.seen == [1]


@pytest.mark.parametrize("where", range(4))
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_line_of_pythons_may_stand_anywhere(where, backend, monkeypatch):
    """Regions give what is differentiated twice by what comes after them."""

    def trial(wrap):
        from_outside = iter(range(100))

        def step(w, real, fake):
            mixed = (0.3 * real + 0.7 * fake).requires_grad_()
            out = w.net(mixed).sum()
            if where == 0:
                next(from_outside)
            (g,) = torch.autograd.grad(out, mixed, create_graph=True)
            if where == 1:
                next(from_outside)
            loss = w.net(fake).mean() - w.net(real).mean() + ((g.norm(2, 1) - 1) ** 2).mean()
            if where == 2:
                next(from_outside)
            w.optimizer.zero_grad()
            loss.backward()
            if where == 3:
                next(from_outside)
            w.optimizer.step()
            return loss.item()

        w = World(step, 3)
        f = wrap(lambda a, b: step(w, a, b))
        torch.manual_seed(1)
        return [f(torch.randn(5, 3), torch.randn(5, 3)) for _ in range(8)]

    monkeypatch.setattr(magpy.config, "regions", True)
    found = trial(lambda f: magpy.compile(f, backend=backend))
    assert_same(found, trial(lambda f: f), tol=0 if backend == "eager" else 1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("given", [{"a": 1}, "p", None, 2], ids=repr)
def test_the_gradient_of_what_is_no_tensor_raises_as_in_eager(given):
    def step(x):
        y = (x * 2).sum()
        try:
            return torch.autograd.grad(y, [given, x], allow_unused=True)
        except (TypeError, RuntimeError) as e:
            return type(e), str(e), y

    compiled = magpy.compile(step, backend="eager")
    for n in (2, 3, 4, 5):
        x = torch.ones(n, requires_grad=True)
        assert_same(compiled(x), step(x))
    assert not [r for r in magpy.stats(compiled).reasons if "magpy failed" in r]
