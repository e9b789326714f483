"""Hooks of parameters that run compiled in a backward pass which stays Python: all is eager's."""

import pytest
import torch
from torch import nn

import magpy
from magpy.runtime import hooks


@pytest.fixture(autouse=True)
def regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def model(depth=4):
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.GELU()) for _ in range(depth)])


def run(prepare, wrap, calls=8):
    """Some steps of a model: what they give, the weights, and what `prepare` returns."""
    net = model()
    more = prepare(net)

    def step(x):
        loss = net(x).square().mean()
        loss.backward()
        return loss.detach()

    f = wrap(step)
    found = []
    for i in range(calls):
        torch.manual_seed(i)
        found.append(f(torch.rand(2, 4)).item())
        found += [p.detach().clone() for p in net.parameters()]
        found += [None if p.grad is None else p.grad.clone() for p in net.parameters()]
    placed = [
        list(d.values()) for p in net.parameters() for d in hooks._dicts(p)
    ]  # the program's own again
    assert not any(type(h).__module__.startswith("magpy") for found in placed for h in found)
    return found, more, f


def same(a, b):
    return a.equal(b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a == b


def assert_as_eager(prepare, calls=8):
    found, more, f = run(prepare, lambda step: magpy.compile(step, backend="eager"), calls)
    expected, wanted, _ = run(prepare, lambda step: step, calls)
    assert len(found) == len(expected)
    assert all(map(same, found, expected))
    assert more == wanted
    return magpy.stats(f)


def optimizers_in_hooks(net):
    made = {p: torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in net.parameters()}

    def update(p):
        made[p].step()
        made[p].zero_grad()

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(update)


def compiled_hooks(stats, n):
    """Whether hooks of `n` parameters were compiled, beside what is around the pass."""
    return stats.entries >= n


def test_optimizers_in_hooks_run_compiled():
    stats = assert_as_eager(optimizers_in_hooks)
    assert compiled_hooks(stats, 8)


def test_a_hook_for_each_parameter_runs_compiled():
    def prepare(net):
        for i, p in enumerate(net.parameters()):

            def update(p, rate=0.01 * i):
                with torch.no_grad():
                    p.sub_(p.grad.clamp(-1, 1) * rate)
                p.grad = None

            p.register_post_accumulate_grad_hook(update)

    assert compiled_hooks(assert_as_eager(prepare), 8)


def test_hooks_that_change_gradients_run_compiled():
    def prepare(net):
        for p in net.parameters():
            p.register_hook(lambda g: (g * 2).clamp(-0.01, 0.01))

    assert compiled_hooks(assert_as_eager(prepare), 8)


def test_hooks_are_called_in_eagers_order_with_their_effects():
    def prepare(net):
        heard = []
        for i, p in enumerate(net.parameters()):

            def note(p, i=i):
                heard.append((i, tuple(p.shape), p.grad.sum().item()))

            p.register_hook(lambda g, i=i: heard.append(("before", i)))
            p.register_post_accumulate_grad_hook(note)
        return heard

    assert_as_eager(prepare)


def test_a_hook_may_remove_itself_and_others():
    def prepare(net):
        heard, handles, steps = [], {}, []

        def update(p):
            heard.append(p.numel())
            steps.append(1)
            if len(steps) == 30:
                for handle in handles.values():
                    handle.remove()

        for p in net.parameters():
            handles[p] = p.register_post_accumulate_grad_hook(update)
        return heard

    assert_as_eager(prepare)


def test_what_a_hook_raises_leaves_the_pass_and_hooks_are_in_place_again():
    def outcome(wrap):
        net, calls, found = model(), [], []

        def update(p):
            calls.append(1)
            p.grad.mul_(2)
            if len(calls) % 21 == 0:
                raise ValueError("no")

        for p in net.parameters():
            p.register_post_accumulate_grad_hook(update)
        before = [dict(p._post_accumulate_grad_hooks) for p in net.parameters()]

        def step(x):
            loss = net(x).sum()
            loss.backward()
            return loss.detach()

        f = wrap(step)
        for _ in range(8):
            try:
                found.append(f(torch.ones(2, 4)).item())
            except ValueError as e:
                found.append(str(e))
            found += [None if p.grad is None else p.grad.clone() for p in net.parameters()]
        assert before == [dict(p._post_accumulate_grad_hooks) for p in net.parameters()]
        return [*found, len(calls)]

    found = outcome(lambda f: magpy.compile(f, backend="eager"))
    assert all(map(same, found, outcome(lambda f: f)))


def test_a_hook_that_comes_later_is_called():
    def outcome(wrap):
        net, heard = model(), []
        first = next(net.parameters())
        first.register_post_accumulate_grad_hook(lambda p: heard.append("first"))

        def step(x):
            loss = net(x).sum()
            loss.backward()
            return loss.detach()

        f = wrap(step)
        for i in range(9):
            f(torch.ones(2, 4))
            if i == 5:
                for p in net.parameters():
                    p.register_post_accumulate_grad_hook(lambda p: heard.append(p.numel()))
        return heard

    assert outcome(lambda f: magpy.compile(f, backend="eager")) == outcome(lambda f: f)


def test_state_that_a_hook_reads_may_change_between_calls():
    def prepare(net):
        rate = [0.1]

        def update(p):
            with torch.no_grad():
                p.sub_(p.grad, alpha=rate[0])
            p.grad = None
            rate[0] *= 0.9

        for p in net.parameters():
            p.register_post_accumulate_grad_hook(update)
        return rate

    assert_as_eager(prepare)


def test_only_passes_of_the_engine_are_told():
    x = torch.ones(2, requires_grad=True)
    assert hooks.makes_pass(x.backward)
    assert hooks.makes_pass(torch.autograd.backward)
    assert hooks.makes_pass(torch.autograd.grad)
    assert not hooks.makes_pass(x.sum)


class Blocks:
    """Compiles nothing; keeps what it was asked for."""

    def __init__(self):
        self.asked = []

    def of_hook(self, hook, of):
        made = Made(hook)
        self.asked.append(made)
        return made


class Made:
    def __init__(self, hook):
        self.hook, self._magpy_hits = hook, 0

    def __call__(self, *args):
        return self.hook(*args)


def test_a_function_is_compiled_for_few_tensors_until_it_has_served():
    net, blocks, heard = model(), Blocks(), []

    def note(p):
        heard.append(1)

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(note)
    of = hooks.Hooks(blocks, lambda: None)
    for _ in range(3):
        of.run_pass(net(torch.ones(2, 4)).sum().backward)
    assert (len(blocks.asked), len(heard)) == (2, 24)
    blocks.asked[0]._magpy_hits = 1
    of.run_pass(net(torch.ones(2, 4)).sum().backward)
    assert (len(blocks.asked), len(heard)) == (8, 32)


def test_hooks_of_torch_are_left_alone():
    w = torch.ones(2, requires_grad=True)
    w.register_hook(torch.abs)
    blocks = Blocks()
    hooks.Hooks(blocks, lambda: None).run_pass((w * 2).sum().backward)
    assert not blocks.asked
    assert w.grad.tolist() == [2, 2]


def test_a_leaf_that_has_died_is_forgotten():
    blocks = Blocks()
    of = hooks.Hooks(blocks, lambda: None)
    w = torch.ones(2, requires_grad=True)
    w.register_hook(torch.abs)
    of.run_pass((w * 2).sum().backward)
    assert len(of._leaves) == 1
    del w
    v = torch.ones(2, requires_grad=True)
    of.run_pass((v * 2).sum().backward)
    assert not of._leaves


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_pass_that_keeps_its_graph_is_told(create_graph):
    told = []
    of = hooks.Hooks(Blocks(), lambda: told.append(1))
    w = torch.ones(2, requires_grad=True)
    (g,) = of.run_pass(torch.autograd.grad, (w**3).sum(), w, create_graph=create_graph)
    assert torch.equal(g.detach(), torch.full((2,), 3.0))
    assert told == [1] * create_graph
    of.run_pass((w * 2).sum().backward, None, None, create_graph)
    assert told == [1, 1] * create_graph
