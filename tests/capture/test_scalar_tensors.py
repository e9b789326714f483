"""Numbers that differ from call to call reach a compiler's graph as tensors (scalar_tensors.py)."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same
from tests.soundness.worlds import attempt

CALLS = 6


def changed(a, b, values, how):
    """What each of some calls makes of a list of tensors, and of a number that differs in each."""
    results = []
    for i in range(CALLS):
        tensors = [t.clone() for t in a]
        given = [v + i for v in values]
        results.append(how(tensors, b, torch.tensor(given, dtype=torch.float64)))
    return results


def on_lists(name):
    """An operation on lists with a number for each tensor, and with one number."""

    def each(tensors, others, values):
        return getattr(torch, name)(tensors, [v.item() * 0.5 for v in values]) or tensors

    def one(tensors, others, values):
        return getattr(torch, name)(tensors, values[0].item() * 0.5) or tensors

    return each, one


def scaled(tensors, others, values):
    torch._foreach_add_(tensors, others, alpha=values[0].item() * 0.5)
    return tensors


def divided(tensors, others, values):
    divisors = [t.square() + 1 for t in others]
    torch._foreach_addcdiv_(tensors, others, divisors, [v.item() * 0.5 for v in values])
    return tensors


def lists(shapes=((3, 4), (5,)), dtype=torch.float32):
    torch.manual_seed(0)
    return [[torch.rand(s, dtype=dtype) + 1 for s in shapes] for _ in range(2)]


HOW = {
    **{
        f"{name} {kind}": f
        for operator in ("add", "mul", "div", "sub")
        for name in (f"_foreach_{operator}", f"_foreach_{operator}_")
        for kind, f in zip(("each", "one"), on_lists(name), strict=True)
    },
    "alpha": scaled,
    "addcdiv_": divided,
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", HOW)
def test_an_operation_on_lists_takes_numbers_that_differ(name, backend):
    how = HOW[name]
    compiled = magpy.compile(how, backend=backend)
    a, b = lists()
    got, want = changed(a, b, (1.0, 2.0), compiled), changed(a, b, (1.0, 2.0), how)
    assert_same(got, want, tol=0.0 if backend == "eager" else 1e-6)
    stats = magpy.stats(compiled)
    assert (stats.captures, stats.hits, stats.eager_calls) == (1, CALLS - 1, 0), stats.reasons


@pytest.mark.parametrize("name", HOW)
def test_such_an_operation_stands_in_a_graph(name):
    found = []

    def backend(gm, inputs):
        found.extend(getattr(n.target, "__name__", "") for n in gm.graph.nodes)
        return gm.forward

    how = HOW[name]
    a, b = lists()
    got = changed(a, b, (1.0, 2.0), magpy.compile(how, backend=backend))
    assert_same(got, changed(a, b, (1.0, 2.0), how), tol=1e-6)
    wanted = {"alpha": "foreach_add_scaled_", "addcdiv_": "foreach_addcdiv_"}
    assert wanted.get(name, name.partition(" ")[0]) in found


def step_of(optimizer):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    opt = optimizer(model.parameters())
    return model, opt


OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, 0.01, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01, foreach=True),
    "amsgrad": lambda p: torch.optim.AdamW(p, 0.01, foreach=True, amsgrad=True),
    "adamax": lambda p: torch.optim.Adamax(p, 0.01, foreach=True),
    "nadam": lambda p: torch.optim.NAdam(p, 0.01, foreach=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.01, lr_decay=0.1, foreach=True),
}


def trained(optimizer, compiled):
    model, opt = step_of(optimizer)

    def step(x):
        opt.zero_grad()
        model(x).square().mean().backward()
        opt.step()

    f = magpy.compile(step) if compiled else step
    for seed in range(8):
        torch.manual_seed(seed)
        f(torch.randn(4, 6))
    return f, [p.detach() for p in model.parameters()], opt.state_dict()


@pytest.mark.parametrize("name", ["adam", "adamw", "amsgrad", "adagrad"])
def test_a_step_of_an_optimizer_on_lists_stays_in_graphs(name):
    f, *got = trained(OPTIMIZERS[name], True)
    _, *want = trained(OPTIMIZERS[name], False)
    assert_same(got, want, tol=1e-4)
    stats = magpy.stats(f)
    assert stats.hits >= 5
    assert stats.share == 1.0, stats


@pytest.mark.parametrize("name", ["adamax", "nadam"])
def test_other_optimizers_on_lists_are_right(name):
    f, *got = trained(OPTIMIZERS[name], True)
    _, *want = trained(OPTIMIZERS[name], False)
    assert_same(got, want, tol=1e-4)
    assert magpy.stats(f).hits >= 5


def test_a_schedule_on_lists_is_no_reason_to_leave_the_graph():
    def run(compiled):
        model, opt = step_of(lambda p: torch.optim.SGD(p, 0.1, foreach=True))

        def step(x):
            opt.zero_grad()
            model(x).square().mean().backward()
            opt.step()

        f = magpy.compile(step) if compiled else step
        for i in range(8):
            opt.param_groups[0]["lr"] = 0.1 / (i + 1)
            torch.manual_seed(i)
            f(torch.randn(4, 6))
        return f, [p.detach() for p in model.parameters()]

    f, got = run(True)
    _, want = run(False)
    assert_same(got, want, tol=1e-5)
    stats = magpy.stats(f)
    assert stats.hits >= 4
    assert stats.share == 1.0, stats


@pytest.mark.parametrize(
    "shapes, dtype",
    [(((), (3,)), torch.float32), (((3, 2), (2,)), torch.int64), (((3, 2),), torch.complex64)],
)
def test_tensors_that_another_one_would_promote_are_left_alone(shapes, dtype):
    def f(tensors, values):
        return torch._foreach_mul(tensors, [v.item() for v in values])

    torch.manual_seed(0)
    tensors = [torch.ones(s, dtype=dtype) * 3 for s in shapes]
    compiled = magpy.compile(f, backend="aot_eager")
    for i in range(4):
        values = torch.arange(len(shapes), dtype=torch.float64) + i + 0.5
        assert_same(compiled(tensors, values), f(tensors, values))


OPERATORS = {
    "add": lambda t, v: (t + v, v + t, t.add(v), torch.add(t, v)),
    "sub": lambda t, v: (t - v, v - t, torch.rsub(t, v)),
    "mul": lambda t, v: (t * v, v * t),
    "div": lambda t, v: (t / v, v / t, torch.true_divide(t, v)),
    "remainder": lambda t, v: (t % v, torch.fmod(t, v), t // v),
    "compare": lambda t, v: (t < v, t >= v, t == v, v > t, torch.ne(t, v)),
    "in place": lambda t, v: (t.clone().add_(v), t.clone().mul_(v).sub_(v)),
}
# Numbers that float32 and half precision cannot hold, and ones at which comparisons turn.
FLOATS = [0.1, 0.30000001, 1e300, float("inf"), float("nan"), -0.0, 2.0**-140, 3.0]
INTEGERS = [3, 7, 2**24 + 1, 2**53 + 1, -5, 1, 2, 11]


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("values", [FLOATS, INTEGERS], ids=["floats", "integers"])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64]
)
@pytest.mark.parametrize("name", OPERATORS)
def test_a_tensor_of_no_dimensions_and_a_number_that_differs(name, dtype, values, backend):
    def f(t, v):
        return OPERATORS[name](t, v)

    c = magpy.compile(f, backend=backend)
    for i, v in enumerate(values):
        t = torch.tensor(0.1 if i % 3 == 0 else 3 + i, dtype=torch.float64).to(dtype)
        assert_same(attempt(c, t, v), attempt(f, t, v))


WEIGHTED = {
    "annealed": lambda a, b, w: a + w * b,
    "mixed": lambda a, b, w: w * a + (1 - w) * b,
    "divided": lambda a, b, w: (a + b) / (w + 1.0),
    "counted": lambda a, b, w: (a + b) / int(10 * w + 2),
    "temperature": lambda a, b, w: a - b * (1.0 - w) ** 2,
    "as a tensor": lambda a, b, w: a + b * torch.tensor(w),
}


@pytest.mark.parametrize("name", WEIGHTED)
def test_a_loss_that_is_weighted_by_a_schedule_stays_in_the_graph(name):
    def run(compile):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x, weight):
            y = model(x)
            loss = WEIGHTED[name](nn.functional.mse_loss(y, x), y.abs().mean(), weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        f, found = compile(step), []
        for i in range(8):
            found.append(f(torch.full((4, 6), i / 8), min(1.0, i / 7)))
        return f, found, [p.detach() for p in model.parameters()]

    f, *got = run(lambda f: magpy.compile(f, backend=lambda graph, inputs: graph.forward))
    _, *want = run(lambda f: f)
    assert_same(got, want)
    stats = magpy.stats(f)
    assert (stats.captures, stats.segments) == (2, [1, 1])
    # Python makes the tensor of the number, ahead of the graph.
    assert stats.share == 1.0 or (name == "as a tensor" and stats.share > 0.9)


SCALED = {
    "add": lambda a, b, v: (torch.add(a, b, alpha=v), a.clone().add_(b, alpha=-v)),
    "sub": lambda a, b, v: (torch.sub(a, b, alpha=v), a.clone().sub_(b, alpha=v)),
    "broadcast": lambda a, b, v: (a.add(b[0], alpha=v), a.clone().add_(b[:, :1], alpha=v)),
    "lerp": lambda a, b, v: (torch.lerp(a, b, v), a.clone().lerp_(b, 1 - v)),
    "addcmul": lambda a, b, v: (a.addcmul(b, b, value=v), a.clone().addcmul_(b, a, value=v)),
    "clamp": lambda a, b, v: (a.clamp(-v, v), a.clone().clamp_(min=v), a.clip(max=v)),
    "clamp one bound": lambda a, b, v: (a.clamp(v - 1, 0.5), a.clone().clip_(-0.5, v)),
    "clamp_min": lambda a, b, v: (a.clamp_min(v), torch.clamp_max(a, max=v), a[0, 0].clamp(v)),
    "clamp gradients": lambda a, b, v: torch.autograd.grad(
        (a.clamp(-v, v) * b + (b / b.abs().max()).clamp(v, 0.5) + b.clamp_min(v)).sum(), [a, b]
    ),
    "gradients": lambda a, b, v: torch.autograd.grad(
        a.add(b * 2, alpha=v).lerp(b, v).addcmul(a, b, value=v).square().sum(), [a, b]
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("name", SCALED)
def test_what_is_scaled_by_a_number_is_rounded_as_in_eager(name, dtype):
    def f(a, b, v):
        return SCALED[name](a, b, v)

    c = magpy.compile(f, backend=lambda graph, inputs: graph.forward)
    torch.manual_seed(0)
    for i in range(8):
        a, b = ((torch.randn(37, 11, dtype=torch.float64) * 8).to(dtype) for _ in range(2))
        if "gradients" in name and dtype.is_floating_point:
            a.requires_grad_()
            b.requires_grad_()
        v = (0.1, 0.37, 1.0, 0.0, -0.3, 1e-30, math.inf, 0.93)[i]
        if i == 5:
            with torch.no_grad():
                a[0], b[1] = math.nan if dtype.is_floating_point else 0, v
        assert_same(attempt(c, a, b, v), attempt(f, a, b, v))
    counted = not ("gradients" in name or "clamp" in name or name == "broadcast")
    if dtype in (torch.float32, torch.float64) and counted:
        assert (magpy.stats(c).captures, magpy.stats(c).share) == (2, 1.0)


def test_bounds_that_vary_stand_in_the_graph():
    def f(a, v):
        return a.clamp(1 - v, 1 + v), a.clone().clamp_(min=v), a.clip(max=v), a.clamp_max(v)

    c = magpy.compile(f, backend=lambda graph, inputs: graph.forward)
    torch.manual_seed(0)
    for i in range(8):
        a = torch.randn(77)
        assert_same(c(a, 0.1 + i / 8), f(a, 0.1 + i / 8))
    assert (magpy.stats(c).captures, magpy.stats(c).share) == (2, 1.0)


@pytest.mark.parametrize(
    "line",
    [
        lambda a, v: a.clamp(v),
        lambda a, v: a.clamp(max=v),
        lambda a, v: a.clamp(v, 0.25),
        lambda a, v: a.clamp(-0.5, v),
        lambda a, v: a.clamp(v, v + 1),
    ],
)
def test_a_bound_of_zero_gives_the_zeros_of_eager(line):
    c = magpy.compile(lambda a, v: line(a, v), backend=lambda graph, inputs: graph.forward)
    for v in (0.1, 0.2, 0.3, 0.0, -0.0, 0.1):
        for a in (torch.zeros(77), -torch.zeros(77)):
            assert torch.equal(torch.signbit(c(a, v)), torch.signbit(line(a, v)))


def test_a_tensor_is_clamped_once():
    def world(compile):
        a = torch.zeros(3)

        def f(v):
            a.clamp_(0.05, v)
            a.clamp_(-v, v)

        g = compile(f)
        for i in range(6):
            g(0.1 + i / 8)
            yield a._version, a.clone()

    wanted = list(world(lambda f: f))
    backend = lambda graph, inputs: graph.forward  # noqa: E731
    assert_same(list(world(lambda f: magpy.compile(f, backend=backend))), wanted)


SCHEDULED = {
    "sgd": (lambda p: torch.optim.SGD(p, 0.1), {}),
    "momentum": (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01), {}),
    "adam": (lambda p: torch.optim.Adam(p, 0.1), {}),
    "rates of averages": (lambda p: torch.optim.AdamW(p, 0.1), {"max_momentum": 0.95}),
}


@pytest.mark.parametrize("name", SCHEDULED)
def test_an_optimizer_with_a_schedule_stays_in_the_graph(name):
    make, how = SCHEDULED[name]

    def run(compile):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3))
        optimizer = make(model.parameters())
        if name == "sgd":
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
        else:
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 20, **how)

        def step(x):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        f, found = compile(step), []
        for i in range(10):
            found.append(f(torch.full((4, 6), i / 8)))
            schedule.step()
        return f, found, [p.detach() for p in model.parameters()]

    f, *got = run(lambda f: magpy.compile(f, backend=lambda graph, inputs: graph.forward))
    _, *want = run(lambda f: f)
    assert_same(got, want)
    assert magpy.stats(f).captures <= 3
    assert magpy.stats(f).share == 1.0


def heard_by(mode):
    log = []

    class Mode(mode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            log.append((func.__name__, str(kwargs)))
            return func(*args, **(kwargs or {}))

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            log.append((str(func), str(kwargs)))
            return func(*args, **(kwargs or {}))

    return Mode, log


@pytest.mark.parametrize("backend", ["eager", lambda graph, inputs: graph.forward])
@pytest.mark.parametrize("mode", [TorchFunctionMode, TorchDispatchMode])
@pytest.mark.parametrize(
    "line", [lambda a, v: a * v, lambda a, v: a.sum() / v, lambda a, v: torch.add(a, a, alpha=v)]
)
def test_a_mode_of_the_program_hears_what_it_hears_in_eager(line, mode, backend):
    def world(compile):
        cls, log = heard_by(mode)

        def f(a, v):
            with cls():
                return line(a, v)

        c = compile(f)
        return [c(torch.ones(2), i / 8 + 0.1) for i in range(8)], log

    ours = world(lambda f: magpy.compile(f, backend=backend))
    assert_same(ours, world(lambda f: f))


@pytest.mark.parametrize("name", ["add", "sub", "lerp", "addcmul", "clamp", "clamp_min"])
def test_a_number_that_the_dtype_does_not_hold_raises(name):
    def f(a, b, v):
        return SCALED[name](a, b, v)[0], a.mul_(2)

    c = magpy.compile(f, backend=lambda graph, inputs: graph.forward)
    for v in (0.1, 0.3, 0.7, 1e39, -1e39, 0.2):
        a = torch.ones(3, 4), torch.ones(3, 4)
        assert_same(attempt(c, a[0], torch.ones(3, 4), v), attempt(f, a[1], torch.ones(3, 4), v))
        assert_same(*a)


@pytest.mark.parametrize(
    "line",
    [
        lambda x, a, v: x.sum() * v,
        lambda x, a, v: torch.addcmul(a, x, a, value=v),
        lambda x, a, v: a.clone().addcdiv_(x, a, value=v),
        lambda x, a, v: torch.add(a, x, alpha=v),
        lambda x, a, v: torch.lerp(a, x, v),
        lambda x, a, v: x.clamp(-v, v) * a,
    ],
)
def test_derivatives_of_transforms_are_as_in_eager(line):
    def f(x, a, v):
        forward = torch.func.jvp(lambda x: line(x, a, v), (x,), (a,))
        return forward, torch.func.grad(lambda x: line(x, a, v).sum())(x)

    c = magpy.compile(f, backend=lambda graph, inputs: graph.forward)
    torch.manual_seed(0)
    for i in range(6):
        x, a = torch.randn(50), torch.randn(50)
        assert_same(c(x, a, i / 8 + 0.1), f(x, a, i / 8 + 0.1))
