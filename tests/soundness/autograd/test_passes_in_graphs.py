"""Backward passes that stand in one graph with what they differentiate.

Owns which do, that gradients are eager's (values, strides, memory of their own, additions to those
that are there), and what has a pass be made by Python.  Does not own what an entry saves and how
many graphs optimizers need (tests/replay/test_whole_steps.py).
"""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same


class Net(nn.Module):
    """Parameters with all sorts of gradients."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(3, 4))
        self.turned = nn.Parameter(torch.randn(4, 3).t())
        self.row = nn.Parameter(torch.randn(1, 4))
        self.number = nn.Parameter(torch.randn(()))
        self.unused = nn.Parameter(torch.randn(2))

    def forward(self, x):
        return x


def one_gradient_for_two(net, x):
    (net.a + net.b).sum().backward()


def parts_of_one_memory(net, x):
    (torch.cat([net.a, net.b]) * x[:1]).sum().backward()


def expanded(net, x):
    (net.a.sum() + net.row.sum() + net.number * 2).backward()


def turned_around(net, x):
    (net.turned * x).square().mean().backward()


def of_one_row(net, x):
    (net.row * x).sum().backward()


def given_a_gradient(net, x):
    (net.a * x).backward(x + 1)


def that_is_given_itself(net, x):
    net.a.add(0.0).backward(x)


def twice_through_a_graph(net, x):
    y = (net.a * x).exp()
    y.sum().backward(retain_graph=True)
    y.square().sum().backward()


def twice_with_graphs_of_their_own(net, x):
    (net.a * x).exp().sum().backward()
    (net.a * net.number).sum().backward()


def gradients_taken_away_between(net, x):
    (net.a * x).exp().sum().backward()
    first = net.a.grad
    net.zero_grad()
    (net.a * net.number).sum().backward()
    return first


def gradients_made_zero_at_the_end(net, x):
    loss = (net.a * x).exp().sum()
    loss.backward()
    value = net.a.grad.norm()
    net.zero_grad(set_to_none=False)
    return loss.item(), value


def loss_that_is_returned(net, x):
    loss = (net.a * x).exp().sum()
    loss.backward()
    return loss


def metrics_after_the_pass(net, x):
    y = net.a * x
    F.cross_entropy(y, torch.arange(3)).backward()
    with torch.no_grad():
        net.b.lerp_(net.a, 0.1)
        return y.argmax(1), (y > 0).float().mean(), y.detach(), y.softmax(1)


def within_no_grad(net, x):
    loss = (net.a * x).exp().sum()
    with torch.no_grad():
        loss.backward()
        net.a.sub_(net.a.grad, alpha=0.01)
        net.a.grad = None
    return loss.detach()


def gradient_of_a_gradient(net, x):
    (g,) = torch.autograd.grad((net.a * x).exp().sum(), net.a, create_graph=True)
    g.square().sum().backward()


def of_a_leaf_of_the_call(net, x):
    leaf = x.detach().clone().requires_grad_()
    (leaf * net.a).sum().backward()
    return leaf.grad


def of_what_is_in_a_branch(net, x):
    loss = (net.a * x).exp().sum()
    if loss > 0:
        loss.backward()
    return loss.detach()


def with_a_retained_gradient(net, x):
    y = net.a * x
    y.retain_grad()
    y.exp().sum().backward()
    return y.grad


STEPS = [
    one_gradient_for_two,
    parts_of_one_memory,
    expanded,
    turned_around,
    of_one_row,
    given_a_gradient,
    that_is_given_itself,
    twice_through_a_graph,
    twice_with_graphs_of_their_own,
    gradients_taken_away_between,
    gradients_made_zero_at_the_end,
    loss_that_is_returned,
    metrics_after_the_pass,
    within_no_grad,
    gradient_of_a_gradient,
    of_a_leaf_of_the_call,
    of_what_is_in_a_branch,
    with_a_retained_gradient,
]


def seen(net):
    """Values, gradients and how they lie; which gradients have one memory."""
    parameters = list(net.parameters())
    gradients = [p.grad for p in parameters]
    found = [g for g in gradients if g is not None]
    memories = [g.untyped_storage().data_ptr() for g in found]
    return (
        [p.detach().clone() for p in parameters],
        [None if g is None else (g.clone(), g.stride(), g.requires_grad) for g in gradients],
        [memories.index(m) for m in memories],
    )


def run(step, make, calls=8, between=lambda net, i: None):
    """What each call gives, and what can be seen after it."""
    torch.manual_seed(0)
    net = Net()
    f = make(lambda x: step(net, x))
    found = []
    for i in range(calls):
        result = f(torch.randn(3, 4))
        found.append((copy.deepcopy(result) if _plain(result) else result.detach(), seen(net)))
        between(net, i)
    return found, f


def _plain(result):
    return not (isinstance(result, torch.Tensor) and result.grad_fn is not None)


def compiling(backend):
    return lambda f: magpy.compile(f, backend=backend)


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("step", STEPS, ids=lambda f: f.__name__)
def test_gradients_are_those_of_eager(step, backend):
    wanted, _ = run(step, lambda f: f)
    found, compiled = run(step, compiling(backend))
    assert_same(found, wanted)
    assert magpy.stats(compiled).eager_calls <= 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "step", [expanded, turned_around, given_a_gradient, metrics_after_the_pass]
)
def test_a_pass_is_in_the_graph_of_what_it_differentiates(step, backend):
    _, compiled = run(step, compiling(backend))
    assert magpy.stats(compiled).segments[-1] == 1
    assert magpy.stats(compiled).hits >= 5


def test_a_loss_that_keeps_its_graph_has_a_compiler_leave_the_pass_to_python():
    _, compiled = run(loss_that_is_returned, compiling("aot_eager"))
    assert magpy.stats(compiled).segments[-1] == 2
    _, compiled = run(loss_that_is_returned, compiling("eager"))
    assert magpy.stats(compiled).segments[-1] == 1


def _gradient_given(net, i):
    net.a.grad = torch.ones(3, 4)


def _gradient_taken(net, i):
    net.a.grad = None if i % 2 else net.a.grad


def _gradient_of_other_strides(net, i):
    net.a.grad = torch.ones(4, 3).t()


def _hook_added(net, i):
    if i == 3:
        net.a.register_hook(lambda g: g * 2)


def _three_times(p):
    p.grad.mul_(3)


def _post_hook_added(net, i):
    if i == 3:
        net.a.register_post_accumulate_grad_hook(_three_times)


def _hook_of_the_node_added(net, i):
    if i == 3:
        node = net.a.expand_as(net.a).grad_fn.next_functions[0][0]
        net.kept = node, node.register_prehook(lambda grads: (grads[0] * 5,))


def _frozen(net, i):
    if i == 3:
        net.number.requires_grad_(False)


CHANGES = [
    _gradient_given,
    _gradient_taken,
    _gradient_of_other_strides,
    _hook_added,
    _post_hook_added,
    _hook_of_the_node_added,
    _frozen,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__.strip("_"))
@pytest.mark.parametrize("step", [expanded, twice_with_graphs_of_their_own, given_a_gradient])
def test_what_is_changed_between_calls_is_noticed(step, change):
    wanted, _ = run(step, lambda f: f, between=change)
    found, _ = run(step, compiling("eager"), between=change)
    assert_same(found, wanted)


def test_hooks_that_are_not_pythons_are_noticed():
    """Those of the reducer of a model in several processes hear of a leaf's gradient."""
    leaf, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    node = (leaf * 2).grad_fn.next_functions[0][0]
    y = leaf * other
    assert not magpy._tensor.has_native_hooks(leaf)
    y.retain_grad()
    assert magpy._tensor.has_native_hooks(y.grad_fn)
    assert not magpy._tensor.has_native_hooks(node)
    handle = node.register_hook(lambda *_: None)
    assert not magpy._tensor.has_native_hooks(leaf)
    handle.remove()


def test_an_operation_that_raises_later_leaves_gradients_alone():
    net = Net()

    def step(x, at):
        net.zero_grad()
        net.a[at].square().sum().backward()
        return net.a.grad

    compiled = magpy.compile(step, backend="eager")
    at = torch.tensor([0, 1])
    for _ in range(3):
        compiled(torch.ones(1), at)
    before = net.a.grad
    with pytest.raises(IndexError):
        compiled(torch.ones(1), torch.tensor([0, 9]))
    assert net.a.grad is None or net.a.grad is before
    net.zero_grad()
    assert_same(compiled(torch.ones(1), at), step(torch.ones(1), at))


def test_tied_weights_and_sizes_that_vary():
    torch.manual_seed(0)
    both = []
    for make in (lambda f: f, compiling("eager"), compiling("inductor")):
        torch.manual_seed(0)
        embed = nn.Embedding(9, 4)
        optimizer = torch.optim.SGD(embed.parameters(), lr=0.1)

        def step(ids, embed=embed, optimizer=optimizer):
            loss = F.cross_entropy(embed(ids) @ embed.weight.t(), ids)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.item()

        f = make(step)
        losses = [f(torch.arange(n) % 9) for n in (3, 3, 4, 5, 6, 7, 8, 5)]
        both.append((losses, embed.weight.detach().clone(), embed.weight.grad.clone()))
    assert_same(both[1], both[0])
    torch.testing.assert_close(both[2], both[0])
    assert magpy.stats(f).captures <= 3
    assert magpy.stats(f).segments[-1] == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("make", [lambda t: t.T, lambda t: t, lambda t: t.T.contiguous()])
def test_gradients_lie_as_their_leaves_where_a_size_is_one(make, backend):
    def step(leaf):
        leaf.requires_grad_()
        (leaf * 2).sum().backward()
        return leaf

    def ones(leaf):
        leaf.requires_grad_()
        leaf.sum().backward()
        return leaf

    for f in (step, ones):
        compiled = magpy.compile(f, backend=backend)
        for _ in range(3):
            found, expected = (g(make(torch.arange(3.0)[None])).grad for g in (compiled, f))
            assert torch.equal(found, expected)
            assert found.stride() == expected.stride()
