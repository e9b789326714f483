"""Hooks of modules for their gradients, in the backward passes of captured calls."""

import pytest
import torch
from torch import nn

import magpy
from magpy.capture.tensors.pass_hooks import PassHooks, WatchedHook, cannot_wait
from magpy.ir.ops import CheckValue, OpStep, Ref


@pytest.fixture(autouse=True)
def regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.act, self.last = nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)

    def forward(self, x):
        h = self.act(self.first(x))
        return self.last(h) + h[:, :4]


def run(register, wrap, *, calls=6, backward=None, zero=True):
    """Steps of a model with hooks: results, gradients, and what `register` gave."""
    torch.manual_seed(0)
    net = Net()
    heard = register(net)

    def step(x):
        if zero:
            net.zero_grad()
        loss = net(x).square().mean()
        if backward is None:
            loss.backward()
        else:
            backward(loss, net)
        return loss.detach()

    f, found = wrap(step), []
    for i in range(calls):
        torch.manual_seed(i)
        found.append(f(torch.rand(2, 16)).detach().clone())
        found += [None if p.grad is None else p.grad.clone() for p in net.parameters()]
    return f, found, heard


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.equal(b)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


def assert_as_eager(register, *, backend="eager", exact=True, **more):
    f, found, heard = run(register, lambda step: magpy.compile(step, backend=backend), **more)
    _, expected, wanted = run(register, lambda step: step, **more)
    if exact:
        assert same(found, expected)
        assert same(heard, wanted)
    else:
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b)
        assert len(heard) == len(wanted)
    return magpy.stats(f)


def notes_norms(net):
    norms = []
    net.act.register_full_backward_hook(lambda m, i, o: norms.append(o[0].abs().max().item()))
    return norms


def test_a_hook_that_notes_a_number_is_a_part_of_the_graph():
    stats = assert_as_eager(notes_norms)
    assert (stats.captures, stats.hits, stats.segments) == (2, 4, [1, 1])


def test_gradients_may_be_added_to():
    stats = assert_as_eager(notes_norms, zero=False)
    assert stats.hits >= 3


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiler_takes_the_pass_with_what_hooks_compute(backend):
    stats = assert_as_eager(notes_norms, backend=backend, exact=False, calls=4)
    assert stats.hits == 2


def test_what_comes_in_and_what_goes_out_are_told_apart():
    def register(net):
        found = []
        net.last.register_full_backward_hook(
            lambda m, i, o: found.append((i[0].clone(), o[0] * 2, type(m).__name__))
        )
        return found

    assert assert_as_eager(register).hits >= 3


def test_a_hook_may_keep_the_gradients():
    def register(net):
        found = []
        net.act.register_full_backward_hook(lambda m, i, o: found.append((i, o)))
        return found

    assert assert_as_eager(register).hits >= 3


def test_hooks_of_several_modules_are_called_in_order():
    def register(net):
        found = []
        for name in ("last", "act"):
            net.get_submodule(name).register_full_backward_hook(
                lambda m, i, o, name=name: found.append((name, o[0].sum().item()))
            )
        return found

    assert_as_eager(register)


def test_a_hook_that_goes_by_data_goes_each_way():
    def register(net):
        found = []

        def hook(m, i, o):
            if o[0].sum() > 0:
                found.append("more")
            else:
                found.append(o[0].amin().item())

        net.last.register_full_backward_hook(hook)
        return found

    assert_as_eager(register, calls=10)


def test_a_hook_that_is_registered_or_removed_later_is_heard_of():
    def outcome(wrap):
        torch.manual_seed(0)
        net, found = Net(), []

        def step(x):
            net.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            return loss.detach()

        f, handle = wrap(step), None
        for i in range(9):
            if i == 3:
                handle = net.act.register_full_backward_hook(lambda *a: found.append(1))
            if i == 6:
                handle.remove()
            f(torch.ones(2, 16))
            found.append(i)
        return found

    assert outcome(lambda f: magpy.compile(f, backend="eager")) == outcome(lambda f: f)


CANNOT = {}


def cannot(register):
    CANNOT[register.__name__] = register
    return register


@cannot
def other_gradients(net):
    net.act.register_full_backward_hook(lambda m, i, o: (i[0] * 0.5,))
    return []


@cannot
def changes_a_gradient(net):
    def hook(m, i, o):
        i[0].mul_(2)

    net.act.register_full_backward_hook(hook)
    return []


@cannot
def reads_a_gradient(net):
    found = []

    def hook(m, i, o):
        grads = [p.grad for p in net.parameters()]
        found.append([None if g is None else g.sum().item() for g in grads])

    net.act.register_full_backward_hook(hook)
    return found


@cannot
def draws(net):
    found = []
    net.act.register_full_backward_hook(lambda m, i, o: found.append(torch.rand(1).item()))
    return found


@cannot
def changes_a_weight(net):
    def hook(m, i, o):
        with torch.no_grad():
            net.last.bias.add_(o[0].mean())

    net.act.register_full_backward_hook(hook)
    return []


@cannot
def prints(net):
    net.act.register_full_backward_hook(lambda m, i, o: print(tuple(o[0].shape)))
    return []


@cannot
def before_the_module(net):
    found = []
    net.act.register_full_backward_pre_hook(lambda m, o: found.append(o[0].sum().item()))
    return found


@cannot
def changes_before_the_module(net):
    net.act.register_full_backward_pre_hook(lambda m, o: (o[0] * 2,))
    return []


@cannot
def of_a_module_whose_inputs_need_none(net):
    found = []
    net.first.register_full_backward_hook(lambda m, i, o: found.append((i, o[0].sum().item())))
    return found


@pytest.mark.parametrize("register", CANNOT.values(), ids=list(CANNOT))
@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_wait_is_eagers(register, zero, capsys):
    assert_as_eager(register, zero=zero)


def test_a_gradient_that_was_read_before_the_pass_is_read_in_it():
    def outcome(wrap):
        torch.manual_seed(0)
        net, found, before = Net(), [], []

        def hook(m, i, o):
            found.append(before[0].sum().item())

        net.act.register_full_backward_hook(hook)

        def step(x):
            before[:] = [net.last.weight.grad]
            loss = net(x).square().mean()
            loss.backward()
            return loss.detach()

        net(torch.ones(2, 16)).mean().backward.__self__.sum()
        net.last.weight.grad = torch.zeros_like(net.last.weight)
        f = wrap(step)
        for i in range(6):
            torch.manual_seed(i)
            f(torch.rand(2, 16))
        return found

    assert outcome(lambda f: magpy.compile(f, backend="eager")) == outcome(lambda f: f)


def twice(loss, net):
    loss.backward(retain_graph=True)
    loss.backward()


def by_grad(loss, net):
    torch.autograd.grad(loss, list(net.parameters()))


def with_graph(loss, net):
    loss.backward(create_graph=True)


def with_given(loss, net):
    loss.backward(torch.full((), 0.5))


def not_at_all(loss, net):
    pass


@pytest.mark.parametrize("backward", [twice, by_grad, with_graph, with_given, not_at_all])
@pytest.mark.filterwarnings("ignore")
def test_other_passes_call_hooks_as_eager_does(backward):
    assert_as_eager(notes_norms, backward=backward)


def test_a_pass_after_the_call_calls_the_hook():
    def outcome(wrap):
        torch.manual_seed(0)
        net = Net()
        norms, f = notes_norms(net), wrap(lambda x: net(x).square().mean())
        for i in range(6):
            torch.manual_seed(i)
            f(torch.rand(2, 16)).backward()
        return norms

    assert outcome(lambda f: magpy.compile(f, backend="eager")) == outcome(lambda f: f)


def test_gradients_that_are_much_are_not_kept():
    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(4))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    torch.manual_seed(0)
    net, norms = Wide(), []
    for layer in net.layers[1:]:
        layer.register_full_backward_hook(lambda m, i, o: norms.append(o[0].norm().item()))

    def step(x):
        net.zero_grad()
        loss = net(x).sum()
        loss.backward()
        return loss.detach()

    f = magpy.compile(step, backend="eager")
    for _ in range(4):
        f(torch.ones(500, 2))
    assert len(norms) == 12
    assert "calls hooks of modules" in str(magpy.stats(f).reasons)


def test_a_watched_hook_is_the_programs_when_the_run_is_over():
    heard = []
    hook = WatchedHook(None, lambda *a: heard.append(a), lambda node, hook, given: heard.append(0))
    hook(1)
    hook.end()
    hook(2)
    assert heard == [0, (2,)]


def test_only_hooks_of_torchs_modules_are_taken():
    hooks, t = PassHooks(), torch.ones(2, requires_grad=True).exp()
    assert not hooks.takes(t.grad_fn, lambda *a: None)
    assert hooks.left() is None


def test_steps_that_change_nothing_can_wait():
    op = OpStep(torch.abs, (Ref(1),), {}, [((), 2)])
    value = CheckValue(torch.Tensor.item, (Ref(2),), {}, [], expected=1.0)
    assert not cannot_wait([op, value], [(0, 1)], {1})
    assert cannot_wait([op], [], {1})
    assert cannot_wait([OpStep(torch.abs, (Ref(3),), {}, [((), 4)], random=True)], [], set())
    assert cannot_wait([OpStep(torch.Tensor.add_, (Ref(3), 1), {}, [], mutates=True)], [], set())
    grad = CheckValue(getattr, (Ref(3), "grad"), {}, [], expected=None)
    assert cannot_wait([grad], [], set())


def test_a_gradient_that_is_given_may_be_what_a_hook_gets():
    def register(net):
        found = []
        net.register_full_backward_hook(lambda m, i, o: found.append(o[0].sum().item()))
        return found

    def outcome(wrap):
        torch.manual_seed(0)
        net = Net()
        found = register(net)

        def step(x, g):
            net.zero_grad()
            y = net(x)
            y.backward(g)
            return y.detach()

        f = wrap(step)
        for i in range(6):
            torch.manual_seed(i)
            f(torch.rand(2, 16, requires_grad=True), torch.rand(2, 4))
        return found

    assert outcome(lambda f: magpy.compile(f, backend="eager")) == outcome(lambda f: f)
