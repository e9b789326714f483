"""Backward passes as operations of graphs: gradients, and what the program sees of them."""

import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import magpy
from magpy.models.backward import differentiated, gradients
from tests.backends_of_cases import SAMPLED_BACKENDS

BACKENDS = ["eager", "aot_eager"]


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def batches(n):
    torch.manual_seed(1)
    return [torch.rand(4, 6) for _ in range(n)]


def seen(v):
    """Of a tensor what a program can tell: values, form, and what it is to autograd."""
    if isinstance(v, torch.Tensor):
        grad = None if not v.is_leaf or v.grad is None else seen(v.grad)
        values = v.detach().to_dense() if v.is_sparse else v.detach().clone()
        strides = None if v.is_sparse else v.stride()
        return values, strides, v.requires_grad, v.is_leaf, v._base is None, type(v), grad
    if isinstance(v, (tuple, list)):
        return [seen(x) for x in v]
    return v


def same(found, wanted):
    if isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-7, equal_nan=True)
    elif isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            same(a, b)
    else:
        assert found == wanted


def check(make, backend, calls=7, traced=True, inputs=batches):
    """Compares calls of `step, state = make()` with eager's; returns the compiled step."""
    (step, state), (eager, twins) = make(), make()
    compiled = magpy.compile(step, backend=backend)
    for found, wanted in zip(inputs(calls), inputs(calls), strict=True):
        torch.manual_seed(3)
        a = compiled(found)
        after = torch.rand(1)
        torch.manual_seed(3)
        b = eager(wanted)
        assert torch.equal(after, torch.rand(1)), "the generator"
        same(seen((a, found)), seen((b, wanted)))
        same(seen(state()), seen(twins()))
        memories = [p.grad.data_ptr() for p in state() if p.is_leaf and p.grad is not None]
        assert len(set(memories)) == len(memories), "each gradient has its own memory"
    assert magpy.stats(compiled).hits >= calls - 4
    passes = [
        any(step.func is gradients for step in s.steps)
        for e in compiled._magpy_entries
        for s in e.tag.segments
    ]
    assert any(passes) == traced
    return compiled


def trains(loss, optimizer=torch.optim.SGD, model=net, **settings):
    """A step that a loss of a model is made of."""

    def make():
        m = model()
        o = optimizer(m.parameters(), **({"lr": 0.1} | settings))
        return (lambda x: loss(m, o, x)), lambda: list(m.parameters())

    return make


def returned(m, o, x):
    loss = m(x).square().mean()
    o.zero_grad()
    loss.backward()
    o.step()
    return loss


def returned_with_output(m, o, x):
    out = m(x)
    loss = out.square().mean()
    o.zero_grad()
    loss.backward()
    o.step()
    return loss.detach(), out


def set_to_zero(m, o, x):
    o.zero_grad(set_to_none=False)
    loss = m(x).square().mean()
    loss.backward()
    o.step()
    return loss.item()


def kept_over_calls(m, o, x):
    loss = m(x).square().mean()
    loss.backward()
    return loss.item()


def two_passes(m, o, x):
    o.zero_grad()
    out = m(x)
    out.square().mean().backward(retain_graph=True)
    out.abs().sum().backward()
    o.step()
    return out.detach()


def two_forwards(m, o, x):
    o.zero_grad()
    for part in x.split(2):
        m(part).square().mean().backward()
    o.step()


def passes_of_several(m, o, x):
    o.zero_grad()
    out = m(x)
    torch.autograd.backward([out.mean(), out.square().sum()])
    o.step()


def gradient_given(m, o, x):
    o.zero_grad()
    out = m(x)
    out.backward(gradient=out.detach() * 2)
    o.step()
    return out.detach().sum()


def gradient_read_and_assigned(m, o, x):
    o.zero_grad()
    m(x).square().mean().backward()
    norm = sum(p.grad.square().sum() for p in m.parameters())
    m[0].weight.grad = m[0].weight.grad / norm
    m[0].bias.grad.mul_(0.5)
    m[2].bias.grad = None
    o.step()
    return norm.item()


def clipped(m, o, x):
    o.zero_grad()
    loss = m(x).square().mean()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(m.parameters(), 0.01)
    o.step()
    return loss.item(), norm


def in_part(m, o, x):
    o.zero_grad()
    loss = m[0](x).square().mean()
    loss.backward()
    o.step()
    return loss.item()


def of_a_sum(m, o, x):
    """The gradient of a sum is one number, expanded."""
    o.zero_grad()
    loss = sum(p.sum() for p in m.parameters()) + 0 * x.sum()
    loss.backward()
    o.step()
    return loss.item()


def of_weights_added(m, o, x):
    """Both get the same gradient, and each its own memory."""
    o.zero_grad()
    (m[0].weight[:3, :6] + m[2].weight[:, :6]).square().sum().backward()
    (m[0].bias + m[2].weight[0] + x.mean()).square().sum().backward()
    m[2].weight.grad.mul_(2)
    o.step()


def tied(m, o, x):
    o.zero_grad()
    h = x
    for _ in range(3):
        h = F.linear(F.linear(h, m[0].weight, m[0].bias), m[0].weight.t())
    h.square().mean().backward()
    o.step()


def with_dropout(m, o, x):
    o.zero_grad()
    loss = F.dropout(m(x), 0.5).square().mean()
    loss.backward()
    o.step()
    return loss.item()


def autocast(m, o, x):
    o.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = m(x).float().square().mean()
    loss.backward()
    o.step()
    return loss.item()


def in_no_grad(m, o, x):
    o.zero_grad()
    loss = m(x).square().mean()
    with torch.no_grad():
        loss.backward()
        for p in m.parameters():
            p -= 0.1 * p.grad
    return loss.item()


def of_the_argument(m, o, x):
    x.requires_grad_()
    m(x).square().mean().backward()
    return (x + 0.1 * x.grad.sign()).detach()


STEPS = [
    returned,
    returned_with_output,
    set_to_zero,
    kept_over_calls,
    two_passes,
    two_forwards,
    passes_of_several,
    gradient_given,
    gradient_read_and_assigned,
    clipped,
    in_part,
    of_a_sum,
    of_weights_added,
    tied,
    with_dropout,
    autocast,
    in_no_grad,
]


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("step", STEPS, ids=lambda f: f.__name__)
def test_a_step_is_as_in_eager(step, backend):
    check(trains(step), backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop", "Adagrad"])
def test_a_step_of_an_optimizer_is_one_graph_beside_its_numbers(name, backend):
    compiled = check(trains(returned, getattr(torch.optim, name)), backend)
    graphs = compiled._magpy_entries[0].tag.segments
    assert [any(s.func is gradients for s in g.steps) for g in graphs].count(True) == 1
    assert len(graphs) <= 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_gradient_of_an_argument(backend):
    check(trains(of_the_argument), backend)


def laid_out():
    torch.manual_seed(0)
    m = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Flatten(), nn.Linear(6, 3))
    m[0].to(memory_format=torch.channels_last)
    m[2].weight = nn.Parameter(torch.rand(6, 3).t())
    return m


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_lie_as_their_parameters(backend):
    def step(m, o, x):
        o.zero_grad()
        loss = m(x.reshape(4, 2, 3, 1).expand(4, 2, 3, 2)[:, :, :, :]).square().mean()
        loss.backward()
        return loss.item()

    check(trains(step, model=laid_out), backend)


def has_a_hook(m, o, x):
    o.zero_grad()
    m(x).square().mean().backward()
    o.step()


class Doubles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


def of_a_function(m, o, x):
    o.zero_grad()
    Doubles.apply(m(x)).sum().backward()
    o.step()


def differentiated_twice(m, o, x):
    o.zero_grad()
    loss = m(x).square().mean()
    (g,) = torch.autograd.grad(loss, m[0].weight, create_graph=True)
    g.square().sum().backward()
    o.step()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("step", [of_a_function, differentiated_twice], ids=lambda f: f.__name__)
def test_passes_that_stay_as_they_are(step, backend):
    make = trains(step)
    (a, state), (b, twins) = make(), make()
    compiled = magpy.compile(a, backend=backend)
    for x in batches(6):
        compiled(x), b(x)
        same(seen(state()), seen(twins()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_run(backend):
    heard = []

    def hooked():
        m = net()
        m[0].weight.register_hook(lambda g: heard.append(g.sum().item()))
        return m

    make = trains(has_a_hook, model=hooked)
    (a, state), (b, twins) = make(), make()
    compiled = magpy.compile(a, backend=backend)
    for x in batches(6):
        compiled(x)
        b(x)
        same(seen(state()), seen(twins()))
    assert heard[::2] == pytest.approx(heard[1::2])
    assert len(heard) == 12


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hook_that_is_registered_later_runs(backend):
    step, state = trains(has_a_hook)()
    compiled = magpy.compile(step, backend=backend)
    for x in batches(5):
        compiled(x)
    heard = []
    state()[0].register_hook(heard.append)
    state()[1].register_post_accumulate_grad_hook(heard.append)
    for x in batches(3):
        compiled(x)
    assert len(heard) == 6


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_differentiated_is_not_differentiated_again(backend):
    step, _ = trains(returned)()
    compiled = magpy.compile(step, backend=backend)
    for x in batches(5):
        loss = compiled(x)
    assert loss.requires_grad and not loss.is_leaf
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_graph_that_is_not_used_up_can_be_differentiated_later(backend):
    def step(m, o, x):
        o.zero_grad()
        loss = m(x).square().mean()
        loss.backward()
        o.step()
        return (m[0].bias * x.sum()).sum()

    make = trains(step)
    (a, state), (b, twins) = make(), make()
    compiled = magpy.compile(a, backend=backend)
    for x in batches(6):
        for result in (compiled(x), b(x)):
            result.backward()
        same(seen(state()), seen(twins()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_batch_statistics_and_buffers(backend):
    def model():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

    def make():
        m = model()
        o = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            return set_to_zero(m, o, x)

        return step, lambda: [*m.parameters(), *m.buffers()]

    compiled = check(make, backend)
    assert len(compiled._magpy_entries[0].tag.segments) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_average_of_weights_and_a_schedule(backend):
    def make():
        m = net()
        average = copy.deepcopy(m)
        o = torch.optim.AdamW(m.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.LambdaLR(o, lambda n: 0.9**n)

        def step(x):
            loss = m(x).square().mean()
            loss.backward()
            o.step()
            o.zero_grad()
            schedule.step()
            with torch.no_grad():
                for a, p in zip(average.parameters(), m.parameters(), strict=True):
                    a.lerp_(p, 0.1)
            return loss.item()

        return step, lambda: [*m.parameters(), *average.parameters()]

    check(make, backend, calls=9)


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_cannot_be_differentiated_raises_as_in_eager(backend):
    def step(m, o, x):
        o.zero_grad()
        out = m(x)
        out = out.mean() if x.shape[0] == 4 else out
        out.backward()
        o.step()

    step, state = trains(step)()
    compiled = magpy.compile(step, backend=backend)
    for x in batches(4):
        compiled(x)
    before = [p.detach().clone() for p in state()]
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        compiled(torch.rand(2, 6))
    same(before, [p.detach() for p in state()])
    assert all(p.grad is None for p in state())


def test_gradients_of_leaves():
    a, b, t = (torch.rand(3, 3, requires_grad=True) for _ in range(3))
    c = torch.rand(3, 3).t().requires_grad_()
    held, given = torch.rand(3, 3), torch.rand(3, 3)
    leaves = (a, b, c, t)
    had = held.clone()
    root = (a + b) * 1 + c + t.t()
    found = gradients((root,), leaves, (given,), (None, None, None, held), False)
    assert len(found) == 3
    for leaf, gradient in zip(leaves, (*found, held), strict=True):
        assert gradient.stride() == leaf.stride()
        assert not gradient._is_view() and gradient._base is None
        assert leaf.grad is None
    assert len({g.untyped_storage().data_ptr() for g in (*found, held, given)}) == 5
    wanted = torch.autograd.grad(a + b + c + t.t(), leaves, given)
    assert all(torch.equal(x, y) for x, y in zip(found, wanted[:3], strict=True))
    assert torch.equal(held, had + wanted[3])


def test_gradients_that_leaves_have_are_added_to_in_place():
    a, b = (torch.rand(3, requires_grad=True) for _ in range(2))
    (a * b).sum().backward()
    held = (a.grad, b.grad)
    assert gradients(((a * b).sum(),), (a, b), None, held, False) == ()
    assert a.grad is held[0] and b.grad is held[1]
    assert torch.equal(a.grad, 2 * b.detach()) and torch.equal(b.grad, 2 * a.detach())


@pytest.mark.parametrize("given_first", [False, True])
def test_what_another_thread_gives_during_a_pass_is_added_to(given_first):
    m = net()
    between = []

    def backend(gm, inputs):
        def run(*args):
            for act in between:
                thread = threading.Thread(target=act)
                thread.start()
                thread.join()
            return gm(*args)

        return run

    def give(x):
        m(x).sum().backward()

    f = magpy.compile(lambda x: m(x).square().sum().backward(), backend=backend)
    x = torch.rand(4, 6)
    for _ in range(3):
        m.zero_grad(set_to_none=not given_first)
        f(x)
    served = magpy.stats(f).hits
    m.zero_grad(set_to_none=not given_first)
    between.append(lambda: give(x))
    f(x)
    assert magpy.stats(f).hits == served + 1
    found = [p.grad for p in m.parameters()]
    m.zero_grad()
    give(x)
    m(x).square().sum().backward()
    same(found, [p.grad for p in m.parameters()])


@pytest.mark.parametrize("set_to_none", [True, False])
def test_threads_that_run_one_step_lose_no_gradient(set_to_none):
    m = net()
    f = magpy.compile(lambda x: m(x).square().mean().backward(), backend="eager")
    for x in batches(4):
        f(x)
    given = batches(40)
    for _ in range(3):
        m.zero_grad(set_to_none)
        threads = [
            threading.Thread(target=lambda at: [f(x) for x in given[at::4]], args=(at,))
            for at in range(4)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        found = [p.grad for p in m.parameters()]
        m.zero_grad()
        for x in given:
            m(x).square().mean().backward()
        for a, b in zip(found, m.parameters(), strict=True):
            torch.testing.assert_close(a, b.grad)


def test_the_end_of_a_graph():
    value = torch.rand(2)
    end = differentiated(value)
    assert end.requires_grad and torch.equal(end, value)
    assert end.data_ptr() == value.data_ptr()
    with pytest.raises(RuntimeError, match="second time"):
        (end * 2).sum().backward()


def after_an_exception(part, set_to_none):
    """The state of two calls of which the second raises in the middle."""

    def run(backend):
        m = net()
        o = torch.optim.SGD(m.parameters(), lr=0.1)
        log = {"n": 0}

        def step(x, y):
            log["n"] += 1
            return part(m, o, x, y, set_to_none)

        f = magpy.compile(step, backend=backend) if backend else step
        for x in batches(5):
            f(x, torch.tensor([0, 1, 2, 0]))
        with pytest.raises(IndexError):
            f(x, torch.tensor([0, 1, 2, 7]))
        return log["n"], seen(list(m.parameters()))

    return run


def zero_after_the_loss(m, o, x, y, set_to_none):
    loss = F.cross_entropy(m(x), y)
    o.zero_grad(set_to_none=set_to_none)
    loss.backward()
    o.step()


def zero_first(m, o, x, y, set_to_none):
    o.zero_grad(set_to_none=set_to_none)
    F.cross_entropy(m(x), y).backward()
    o.step()


def the_second_of_two(m, o, x, y, set_to_none):
    o.zero_grad(set_to_none=set_to_none)
    for part in range(2):
        F.cross_entropy(m(x[2 * part :][:2]), y[2 * part :][:2]).backward()
    o.step()


def an_update_after_each(m, o, x, y, set_to_none):
    for part in range(2):
        o.zero_grad(set_to_none=set_to_none)
        F.cross_entropy(m(x[2 * part :][:2]), y[2 * part :][:2]).backward()
        o.step()


@pytest.mark.parametrize("set_to_none", [True, False])
@pytest.mark.parametrize(
    "part",
    [zero_after_the_loss, zero_first, the_second_of_two, an_update_after_each],
    ids=lambda f: f.__name__,
)
def test_what_an_exception_leaves_is_eagers(part, set_to_none):
    run = after_an_exception(part, set_to_none)
    n, found = run("eager")
    wanted_n, wanted = run(None)
    same(found, wanted)
    changed = part is an_update_after_each or not (set_to_none or part is zero_after_the_loss)
    assert n == wanted_n - changed, "what raises after a change has no effects on Python's objects"
