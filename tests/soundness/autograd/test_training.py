"""Training steps that are compiled as a whole: backward passes, optimizers, hooks, loss scaling.

Owns programs in which autograd's engine runs inside of the compiled call, and what is kept between
such calls (gradients, states of optimizers, averages of weights).  Does not own gradients of
compiled modules, which the caller computes (tests/soundness/tensors/test_tensor_semantics.py).
"""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import magpy
from tests.comparison import assert_same
from tests.soundness.worlds import assert_served, case, check_all

CASES = []
OUTSIDE = "went on to what was computed before the call"


def batch():
    return torch.randn(2, 4)


def model():
    return nn.Linear(4, 3)


def weights(m):
    return [p.detach().clone() for p in m.parameters()]


@case(CASES)
def gradients_are_read_after_a_backward_pass(compile):
    m = model()
    x = torch.ones(3, requires_grad=True)

    @compile
    def of_a_parameter(t):
        m(t).square().sum().backward()
        return m.weight.grad.norm().item()

    @compile
    def of_an_argument(t):
        torch.autograd.backward([(t * t).sum()])
        return t.grad.sum().item()

    @compile
    def of_what_is_then_taken_away(t):
        m(t).square().sum().backward()
        g, m.weight.grad, m.bias.grad = m.weight.grad, None, None
        return g

    for _ in range(4):
        yield of_a_parameter(batch()), m.weight.grad, of_an_argument(x), x.grad
    for _ in range(4):
        yield of_what_is_then_taken_away(batch()), m.weight.grad


@case(CASES)
def gradients_that_can_be_differentiated(compile):
    m = model()

    @compile
    def step(t):
        m(t).square().sum().backward(create_graph=True)
        return m.weight.grad

    for _ in range(3):
        yield step(batch()).detach().clone(), m.bias.grad.detach().clone()


@case(CASES)
def gradients_held_outside(compile):
    m = model()
    m(batch()).sum().backward()
    held = [p.grad for p in m.parameters()]

    @compile
    def step(t):
        m(t).square().sum().backward()
        return held[0].norm().item(), held[1].sum().item() > 3

    for _ in range(4):
        yield step(batch()), held


@case(CASES)
def a_gradient_is_printed_before_it_grows(compile):
    m = model()
    log = []

    @compile
    def step(t):
        loss = m(t).square().sum()
        log.append(loss.item())
        loss.backward()

    for _ in range(3):
        step(batch())
        yield list(log), m.weight.grad


@case(CASES, refused=OUTSIDE)
def a_loss_from_outside(compile):
    m = model()

    @compile
    def step(loss):
        loss.backward()
        n = m.weight.grad.norm()
        if n > 20:
            m.weight.grad.mul_(20 / n)
        return n

    for _ in range(5):
        yield step(m(batch()).square().sum()), m.weight.grad, m.bias.grad


@case(CASES, refused="ran Python of the program")
def hooks_that_change_something_before_a_check(compile):
    m, seen = model(), []
    m.weight.register_hook(lambda g: seen.append(g.norm()))

    @compile
    def step(t):
        m(t).square().sum().backward()
        n = m.weight.grad.norm()
        return n * 2 if n > 20 else n

    for _ in range(5):
        yield step(batch()), m.weight.grad, list(seen)


@case(CASES, refused="a hook changes what is looked at")
def what_a_hook_changes_is_looked_at(compile):
    m, seen = model(), []
    m.weight.register_hook(lambda g: seen.append(g.norm()))

    @compile
    def step(t):
        m(t).square().sum().backward()
        return len(seen)

    for _ in range(3):
        yield step(batch()), list(seen)


@case(CASES, refused="ran Python of the program")
def a_function_counts_its_backward_passes(compile):
    m, calls = model(), [0]

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            return t * 2

        @staticmethod
        def backward(ctx, g):
            calls[0] += 1
            return g * 2

    @compile
    def step(t):
        Double.apply(m(t)).square().sum().backward()
        n = m.weight.grad.norm()
        return n * 2 if n > 50 else n

    for _ in range(5):
        yield step(batch()), m.weight.grad, calls[0]


@case(CASES)
def a_later_check_takes_back_what_operations_write_beside_their_first_argument(compile):
    m = model()
    opt = torch.optim.SGD(m.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    @compile
    def step(t):
        loss = m(t).square().mean()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        opt.zero_grad()
        return loss.detach()

    for i in range(8):
        factor = float("inf") if i in (3, 6) else 1.0
        yield step(batch() * factor), weights(m), scaler.get_scale(), scaler._growth_tracker.item()


@case(CASES)
def checkpointed_blocks(compile):
    class Model(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in "ab")
            self.reentrant = reentrant

        def forward(self, t):
            for block in self.blocks:
                t = checkpoint(block, t, use_reentrant=self.reentrant)
            return t * 2

    for reentrant in (True, False):
        plain = Model(reentrant)
        m = compile(plain)
        for _ in range(3):
            t = batch().requires_grad_()
            out = m(t)
            out.sum().backward()
            yield out, t.grad, [p.grad for p in plain.parameters()]


@case(CASES, refused="a backward pass runs a hook of the program's")
def hooks_that_only_compute(compile):
    m, limit = model(), [0.5]
    opt = torch.optim.SGD(m.parameters(), lr=0.1)
    for p in m.parameters():
        p.register_hook(lambda g: g.clamp(-limit[0], limit[0]))

    @compile
    def step(t):
        loss = m(t).square().sum()
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        return loss.item()

    for _ in range(5):
        yield step(batch()), weights(m)


def lower_precision(compile):
    m = model()
    opt = torch.optim.SGD(m.parameters(), lr=0.1)

    @compile
    def step(t):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = m(t).float().square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        return loss.detach()

    for _ in range(5):
        yield step(batch()), weights(m)


def steps_of(make, inside):
    def program(compile):
        m = model()
        opt = make(m.parameters())

        def update():
            opt.step()
            opt.zero_grad()

        def step(t):
            loss = m(t).square().mean()
            loss.backward()
            update()
            return loss.detach()

        if inside:
            step = compile(step)
        else:
            update = compile(update)
        for _ in range(6):
            yield step(batch()), weights(m), [s.get("step") for s in opt.state.values()]

    return program


def cut_off_from_the_step_before(compile):
    cell, head = nn.LSTM(4, 4), nn.Linear(4, 1)
    opt = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)

    class Trainer:
        state = None

        def step(self, t):
            if self.state is not None:
                self.state = tuple(s.detach() for s in self.state)
            out, self.state = cell(t, self.state)
            loss = head(out).square().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(cell.parameters(), 0.05)
            opt.step()
            return loss.item()

    step = compile(Trainer().step)
    for _ in range(6):
        yield step(torch.randn(3, 1, 4)), weights(cell)


def scheduled(compile):
    m = model()
    opt = torch.optim.AdamW(m.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)

    @compile
    def step(t):
        loss = m(t).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        schedule.step()
        return loss.detach()

    for _ in range(7):
        yield step(batch()), weights(m), schedule.get_last_lr()


SERVED = {
    "scheduled": scheduled,
    "cut off": cut_off_from_the_step_before,
    "lower precision": lower_precision,
    "Adam": steps_of(lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True), False),
    "AdamW": steps_of(lambda p: torch.optim.AdamW(p, lr=0.01), True),
    "fused": steps_of(lambda p: torch.optim.AdamW(p, lr=0.01, fused=True), True),
    "foreach": steps_of(lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True), True),
    "RMSprop": steps_of(lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9), True),
}
for program in SERVED.values():
    case(CASES)(program)


test_training = check_all(CASES)


def test_training_steps_are_served():
    for program in SERVED.values():
        # The first step makes the optimizer's state; a number is an input at its second value.
        assert_served(program, captures=3)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("decides", [False, True])
def test_two_players_of_whom_one_rests(backend, decides):
    """Who requires no gradients for a while does so again where an entry is left in between."""

    def make():
        torch.manual_seed(0)
        players = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
        optimizers = [torch.optim.SGD(p.parameters(), 0.1) for p in players]

        def step(x, z):
            generator, judge = players
            for p in judge.parameters():
                p.requires_grad = True
            optimizers[1].zero_grad()
            loss = judge(x).mean() - judge(generator(z).detach()).mean()
            loss.backward()
            optimizers[1].step()
            judge.requires_grad_(False)
            optimizers[0].zero_grad()
            other = -judge(generator(z)).mean()
            other.backward()
            optimizers[0].step()
            a, b = loss.item(), other.item()
            if decides and a > 0:
                return "large", a
            return a, b

        return step, [*players[0].parameters(), *players[1].parameters()]

    (eager, ours), (call, theirs) = make(), make()
    f = magpy.compile(call, backend=backend)
    seen = set()
    for i in range(12):
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(3, 2, generator=generator) * (i % 3)
        z = torch.randn(3, 2, generator=generator)
        if i == 7:
            for p in (*ours, *theirs):
                p.requires_grad_(True)
        wanted, got = eager(x, z), f(x, z)
        seen.add(wanted[0] == "large")
        assert got == pytest.approx(wanted) if wanted[0] != "large" else got[0] == "large"
        for p, q in zip(ours, theirs, strict=True):
            assert p.requires_grad == q.requires_grad
            assert (p.grad is None) == (q.grad is None)
            torch.testing.assert_close(p, q)
            torch.testing.assert_close(p.grad, q.grad)
    assert magpy.stats(f).hits >= 8
    assert not decides or seen == {True, False}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpointed_partial_that_holds_tensors(reentrant, backend):
    """As `transformers` checkpoints its layers: masks and the like are keywords of a partial."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.dropout = nn.Dropout(0.3)
            self.calls = 0

        def forward(self, t, scale, *, mask, shift=0):
            return self.dropout(self.linear(t) * scale).masked_fill(mask, 0.0) + shift

    def make():
        torch.manual_seed(0)
        layers = nn.ModuleList(Layer() for _ in range(2))

        def step(x, n):
            mask = x > 1
            scale = (x.detach() if reentrant else x).mean() + n
            for layer in layers:
                block = functools.partial(layer.forward, mask=mask, scale=scale, shift=n)
                x = checkpoint(block, x, use_reentrant=reentrant)
            loss = x.square().mean()
            loss.backward()
            return loss

        return step, list(layers.parameters())

    (eager, ours), (call, theirs) = make(), make()
    f = magpy.compile(call, backend=backend)
    for i in range(5):
        for p in (*ours, *theirs):
            p.grad = None
        x = torch.randn(2, 3, generator=torch.Generator().manual_seed(i))
        torch.manual_seed(i)
        wanted = eager(x.clone().requires_grad_(), 1)
        torch.manual_seed(i)
        torch.testing.assert_close(f(x.clone().requires_grad_(), 1), wanted)
        for p, q in zip(ours, theirs, strict=True):
            torch.testing.assert_close(p.grad, q.grad)
    assert "a backward pass" in magpy.stats(f).reasons[0]


def test_a_partial_from_outside_stays_the_same_object():
    """What a Function keeps of it is the very partial that the program has."""
    kept = []

    class Keeps(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t, f):
            ctx.f = f
            return t * 2

        @staticmethod
        def backward(ctx, g):
            return g * ctx.f(1.0), None

    outside = functools.partial(torch.add, torch.ones(()))

    def program(x):
        return Keeps.apply(x, outside), Keeps.apply(x, functools.partial(torch.mul, x.sum()))

    f = magpy.compile(program, backend="eager")
    for i in range(1, 4):
        x, y = (torch.full((2,), float(i), requires_grad=True) for _ in range(2))
        for g, t in ((program, x), (f, y)):
            a, b = g(t)
            (a + b).sum().backward()
        assert y.grad.tolist() == x.grad.tolist()
        kept.append(x.grad.tolist())
    assert kept[0] != kept[1]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("foreach", [False, True])
def test_a_schedule_sets_one_of_two_rates(foreach, inside):
    """OneCycleLR sets `betas`, a tuple: each of its numbers is an input."""

    def make():
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.AdamW(model.parameters(), 0.01, foreach=foreach)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=50)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            if inside:
                schedule.step()
            return loss

        return step, schedule, optimizer, model

    (eager, one, ours, a), (call, two, theirs, b) = make(), make()
    f = magpy.compile(call, backend="eager")
    for i in range(12):
        x = torch.full((3, 4), float(i))
        assert f(x).item() == eager(x).item()
        if not inside:
            one.step(), two.step()
        assert theirs.param_groups[0]["betas"] == ours.param_groups[0]["betas"]
        assert theirs.param_groups[0]["lr"] == ours.param_groups[0]["lr"]
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            assert torch.equal(p, q)
    assert magpy.stats(f).captures == 2
    assert magpy.stats(f).hits >= 9  # a cache of the process may be filled in the first call


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_hook_counts_on_an_object_that_the_call_changes(backend):
    class Kept:
        count = 0
        gradient = None

    def make():
        kept, p = Kept(), torch.ones(2, requires_grad=True)

        def hook(q):
            kept.count += 1

        p.register_post_accumulate_grad_hook(hook)

        def f():
            kept.gradient = p.grad
            (p * p).sum().backward()

        return f, kept, p

    (eager, one, p), (call, two, q) = make(), make()
    f = magpy.compile(call, backend=backend)
    for _ in range(4):
        p.grad, q.grad = torch.ones(2), torch.ones(2)
        eager(), f()
        assert two.count == one.count
        assert q.grad.tolist() == p.grad.tolist()
        assert two.gradient is q.grad


def _retained():
    p = torch.ones(2, requires_grad=True).exp()
    p.retain_grad()
    return p, lambda: p.grad.tolist()


def _hooked():
    p, calls = torch.ones(2, requires_grad=True).exp(), []
    p.register_hook(lambda g: calls.append(g.tolist()))
    return p, lambda: list(calls)


def _behind():
    w, old = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True).exp()
    return (w.clone() + old).sum(), lambda: w.grad.tolist()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", [_retained, _hooked, _behind])
def test_a_pass_that_raises_on_its_way_is_made_once(make, backend):
    """The second pass fails where the first has freed the graph, after it has added gradients."""

    def program(t):
        (t * t).sum().backward()

    def outcome(f, given, seen):
        try:
            f(given)
        except RuntimeError as error:
            return str(error)[:40], seen()
        return None, seen()

    f = magpy.compile(program, backend=backend)
    (a, ours), (b, theirs) = make(), make()
    for _ in range(4):
        assert outcome(f, b, theirs) == outcome(program, a, ours)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", lambda graph, inputs: graph.forward])
@pytest.mark.parametrize("apart", ["detach", "data", "no_grad", "item"])
def test_a_pass_frees_nothing_of_what_it_was_cut_off_from(apart, backend):
    """A probe trains on features that the loss outside is computed of, too."""

    def world(compile):
        net, probe = nn.Linear(4, 4), nn.Linear(4, 1)
        for i, p in enumerate((*net.parameters(), *probe.parameters())):
            p.data.copy_(torch.arange(float(p.numel())).view_as(p) / (7 + i) - 0.3)

        def features(x):
            y = net(x).relu()
            if apart == "detach":
                given = y.detach()
            elif apart == "data":
                given = y.data
            elif apart == "item":
                given = torch.full((3, 4), y.sum().item())
            else:
                with torch.no_grad():
                    given = y * 1
            probe(given).square().mean().backward()
            return y

        f, found = compile(features), []
        for i in range(4):
            y = f(torch.full((3, 4), i / 4))
            y.sum().backward()
            found.append((y, [p.grad.clone() for p in (*net.parameters(), *probe.parameters())]))
            with pytest.raises(RuntimeError, match="a second time"):
                y.sum().backward()
        return found

    got, want = world(lambda f: magpy.compile(f, backend=backend)), world(lambda f: f)
    assert_same(got, want, tol=0 if backend == "eager" else 1e-6)


@pytest.mark.parametrize(
    "line",
    [
        lambda t, w: t.clamp(min=w),
        lambda t, w: torch.nn.functional.threshold(t, w, 0.5),
        lambda t, w: torch.nn.functional.hardtanh(t, -1 - w, w),
    ],
)
def test_an_operation_that_python_does_leaves_what_comes_before_it_compiled(line):
    def world(compile):
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))
        for i, p in enumerate(net.parameters()):
            p.data.copy_(torch.arange(float(p.numel())).view_as(p) / (31 + i) - 0.3)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)

        def step(x, weight):
            y = net(x)
            loss = (y - x).square().mean() + line(y.abs().mean(), weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        f, found = compile(step), []
        for i in range(6):
            found.append(f(torch.full((3, 4), i / 4), i / 12))
        return f, found, [p.detach() for p in net.parameters()]

    f, *got = world(lambda f: magpy.compile(f, backend=lambda graph, inputs: graph.forward))
    _, *want = world(lambda f: f)
    assert_same(got, want)
    assert magpy.stats(f).captures == 2
    assert magpy.stats(f).share >= 0.9


@pytest.mark.parametrize("backend", ["eager", lambda graph, inputs: graph.forward])
def test_gradients_are_summed_in_the_order_of_the_operations(backend):
    """A check that a distribution makes of its logits goes ahead of no loss that was computed."""

    def world(compile):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))
        optimizer = torch.optim.SGD(net.parameters(), 0.1)

        def step(x, labels, weight):
            out = net(x)
            loss = nn.functional.cross_entropy(out, labels)
            policy = torch.distributions.Categorical(logits=out)
            loss = loss - weight * policy.entropy().mean() - policy.log_prob(labels).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        f, found = compile(step), []
        for i in range(16):
            loss = f(torch.randn(4, 6), torch.tensor([0, 1, 2, 0]), i / 20)
            found.append((loss, [(p.detach().clone(), p.grad.clone()) for p in net.parameters()]))
        return f, found

    f, got = world(lambda f: magpy.compile(f, backend=backend))
    _, want = world(lambda f: f)
    assert_same(got, want)
    assert (magpy.stats(f).captures, magpy.stats(f).share) == (2, 1.0)


@pytest.mark.parametrize(
    "program",
    [
        lambda p, w: p.sin() + p.exp() + p.clamp(max=w),
        lambda p, w: (p * w) + p.pow(2).sum() * w + p.clamp(min=w),
        lambda p, w: (p.tanh() * 2).round(decimals=int(w * 4)) + p.sin() + p.exp() * p.clamp(w),
    ],
)
def test_an_operation_of_pythons_keeps_its_place_in_the_sums_of_gradients(program):
    def f(p, w):
        p.grad = None
        program(p, w).sum().backward()
        return p.grad.clone()

    c = magpy.compile(f, backend=lambda graph, inputs: graph.forward)
    torch.manual_seed(0)
    for i in range(8):
        p = torch.randn(1000).requires_grad_()
        assert_same(c(p, i / 9), f(p, i / 9))
