"""Entries below hooks of saved tensors that are Python of the program: all is as in eager."""

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

import magpy

COUNT = 0


def run_graph(gm, inputs):
    """A backend that runs the operations as they are."""
    return gm.forward


def saves_more(gm, inputs):
    """A backend whose results are right, and for which more is saved."""

    def run(*args):
        found = gm.forward(*args)
        return [t * torch.ones_like(t, requires_grad=True) for t in found]

    return run


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4))


def notes(heard):
    """Hooks that tell what they were given, and keep less of it."""

    def pack(t):
        heard.append((tuple(t.shape), t.is_leaf, t.sum().item()))
        return t.bfloat16()

    def unpack(t):
        heard.append(t.dtype)
        return t.float()

    return saved_tensors_hooks(pack, unpack)


def steps(call, net, hooks=notes, calls=5):
    """What hooks hear in some steps, with results and gradients."""
    heard, found = [], []
    for i in range(calls):
        torch.manual_seed(i)
        x = torch.rand(2, 4)
        with hooks(heard):
            y = call(x)
        y.square().sum().backward()
        found += [y.detach(), *(p.grad.clone() for p in net.parameters())]
    return heard, found


def assert_same(found, expected):
    assert found[0] == expected[0]
    assert len(found[1]) == len(expected[1])
    assert all(a.equal(b) for a, b in zip(found[1], expected[1], strict=True))


@pytest.mark.parametrize("backend", ["eager", run_graph], ids=["eager", "run_graph"])
def test_an_entry_serves_below_hooks(backend):
    net, other = model(), model()
    c = magpy.compile(net, backend=backend)
    assert_same(steps(c, net), steps(other, other))
    stats = magpy.stats(c)
    assert (stats.captures, stats.hits) == (1, 4)


@pytest.mark.parametrize("backend", ["aot_eager", saves_more], ids=["aot_eager", "saves_more"])
def test_a_graph_that_saves_other_tensors_does_not_serve(backend):
    net, other = model(), model()
    c = magpy.compile(net, backend=backend)
    assert_same(steps(c, net), steps(other, other))
    assert magpy.stats(c).hits == 0
    assert "Python of the program" in str(magpy.stats(c).reasons)
    c(torch.rand(2, 4))  # without hooks it is compiled as ever
    c(torch.rand(2, 4))
    assert magpy.stats(c).hits == 1


def test_the_trial_draws_no_random_numbers_and_changes_nothing():
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
    other = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4))
    other.load_state_dict(net.state_dict())
    assert_same(steps(magpy.compile(net, backend=run_graph), net), steps(other, other))
    assert all(a.equal(b) for a, b in zip(net.buffers(), other.buffers(), strict=True))


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.scale, self.seen = nn.Linear(4, 4), 1.0, []

    def forward(self, x):
        h = self.layer(x).sigmoid()
        return (h * self.scale).exp() + len(self.seen)


def _changes_an_attribute(net):
    def pack(t):
        net.scale += 0.5
        return t

    return pack


def _changes_a_list(net):
    seen = net.seen

    def pack(t):
        seen.append(1)
        return t

    return pack


def _by_a_method(net):
    class Keeper:
        def __init__(self):
            self.of = net

        def __call__(self, t):
            return self.keep(t)

        def keep(self, t):
            self.of.scale *= 1.5
            return t

    return Keeper()


def _by_a_bound_method(net):
    append = net.seen.append

    def pack(t):
        append(t.numel())
        return t

    return pack


def _by_a_partial(net):
    import functools

    def keep(of, t):
        of["scale"] = of["scale"] + 1
        return t

    return functools.partial(keep, net.__dict__)


def _by_setattr(net):
    where = [net]

    def pack(t):
        setattr(where[0], "sca" + "le", where[0].scale + 1)
        return t

    return pack


CHANGES = [
    *(_changes_an_attribute, _changes_a_list, _by_a_method, _by_a_bound_method, _by_a_partial),
    _by_setattr,
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_hook_changes_the_call_finds(change):
    def outcome(wrap):
        torch.manual_seed(0)
        net = Scaled()
        pack = change(net)
        return steps(wrap(net), net, lambda heard: saved_tensors_hooks(pack, lambda t: t))

    assert_same(outcome(lambda net: magpy.compile(net, backend="eager")), outcome(lambda net: net))


def test_a_global_that_a_hook_sets_is_read_anew():
    def program(x):
        h = x.exp().sin()
        return h * COUNT

    def pack(t):
        global COUNT
        COUNT += 1
        return t

    def outcome(f):
        global COUNT
        COUNT, found = 0, []
        for _ in range(5):
            with saved_tensors_hooks(pack, lambda t: t):
                found.append(f(torch.ones(2, requires_grad=True)).tolist())
        return found

    assert outcome(magpy.compile(program, backend="eager")) == outcome(program)


def test_a_cell_that_a_hook_sets_is_read_anew():
    n = 0

    def program(x):
        h = x.exp().sin()
        return h * n

    def pack(t):
        nonlocal n
        n += 1
        return t

    def outcome(f):
        nonlocal n
        n, found = 0, []
        for _ in range(5):
            with saved_tensors_hooks(pack, lambda t: t):
                found.append(f(torch.ones(2, requires_grad=True)).tolist())
        return found

    assert outcome(magpy.compile(program, backend="eager")) == outcome(program)


def test_an_argument_that_a_hook_changes_is_read_anew():
    def program(x, given):
        h = x.exp().sin()
        return h * len(given["seen"])

    def outcome(f):
        found = []
        for _ in range(5):
            given = {"seen": [0]}

            def pack(t, given=given):
                given["seen"].append(1)
                return t

            with saved_tensors_hooks(pack, lambda t: t):
                found.append(f(torch.ones(2, requires_grad=True), given).tolist())
        return found

    assert outcome(magpy.compile(program, backend="eager")) == outcome(program)


def test_hooks_that_come_later_may_change_what_is_read():
    def program(x, state):
        h = x.exp().sin()
        return h * state["n"]

    def outcome(f):
        state, found = {"n": 1}, []

        def counts(t):
            state["n"] += 1
            return t

        for pack in (lambda t: t, lambda t: t, counts, lambda t: t, counts):
            with saved_tensors_hooks(pack, lambda t: t):
                found.append(f(torch.ones(2, requires_grad=True), state).tolist())
        return found

    f = magpy.compile(program, backend="eager")
    assert outcome(f) == outcome(program)
    assert magpy.stats(f).hits >= 1


def test_what_a_hook_raises_in_an_entry_is_raised():
    net, full = model(), []

    def pack(t):
        if full:
            raise MemoryError("no room")
        return t

    c = magpy.compile(net, backend="eager")
    for _ in range(3):
        with saved_tensors_hooks(pack, lambda t: t):
            c(torch.rand(2, 4))
    full.append(1)
    with pytest.raises(MemoryError, match="no room"), saved_tensors_hooks(pack, lambda t: t):
        c(torch.rand(2, 4))
    full.clear()
    with saved_tensors_hooks(pack, lambda t: t):
        c(torch.rand(2, 4))
    assert magpy.stats(c).hits >= 3


def test_hooks_set_in_the_call_hear_of_regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)
    net, other = model(), model()

    def of(net):
        def step(x):
            heard = []
            with notes(heard):
                h = net(x)
            h.square().mean().backward()
            return h.detach(), heard

        return step

    f, g = magpy.compile(of(net), backend="eager"), of(other)
    for i in range(10):
        torch.manual_seed(i)
        x = torch.rand(2, 4)
        (a, heard), (b, expected) = f(x), g(x)
        assert heard == expected
        assert a.equal(b)
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        assert p.grad.equal(q.grad)
    assert magpy.stats(f).hits >= 4


def test_a_checkpoint_below_and_around_hooks_stays_eagers():
    from torch.utils.checkpoint import checkpoint

    net, other = model(), model()
    c = magpy.compile(net, backend="eager")
    found = steps(lambda x: checkpoint(c, x, use_reentrant=False), net)
    assert_same(found, steps(lambda x: checkpoint(other, x, use_reentrant=False), other))
