"""Calls below hooks of saved tensors that are Python of the program: all is as in eager."""

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

import magpy


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


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_below_hooks_of_the_program_calls_are_eager(backend):
    net, other = model(), model()
    c = magpy.compile(net, backend=backend)
    assert_same(steps(c, net), steps(other, other))
    assert magpy.stats(c).hits == 0
    assert "Python of the program" in str(magpy.stats(c).reasons)
    c(torch.rand(2, 4))  # without hooks it is compiled as ever
    c(torch.rand(2, 4))
    assert magpy.stats(c).hits == 1


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


@pytest.mark.parametrize("change", [_changes_an_attribute, _changes_a_list])
def test_what_a_hook_changes_the_call_finds(change):
    def outcome(wrap):
        torch.manual_seed(0)
        net = Scaled()
        pack = change(net)
        return steps(wrap(net), net, lambda heard: saved_tensors_hooks(pack, lambda t: t))

    assert_same(outcome(lambda net: magpy.compile(net, backend="eager")), outcome(lambda net: net))


def test_what_a_hook_raises_is_raised():
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
    assert magpy.stats(f).regions >= 1


def test_a_checkpoint_below_and_around_hooks_stays_eagers():
    from torch.utils.checkpoint import checkpoint

    net, other = model(), model()
    c = magpy.compile(net, backend="eager")
    found = steps(lambda x: checkpoint(c, x, use_reentrant=False), net)
    assert_same(found, steps(lambda x: checkpoint(other, x, use_reentrant=False), other))
