"""What TorchInductor takes magpy's graphs for (magpy/backends/inductor.py)."""

from __future__ import annotations

import functools
import inspect
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import magpy
from benchmarks.measure import peak_memory
from magpy.backends.inductor import _is_for_backward, _pass_of
from magpy.models.backward import BACKWARD


@pytest.fixture
def weighed(monkeypatch):
    """For which graphs with convolutions a layout was chosen as for one that only serves.

    Without TorchInductor's caches: a graph that an earlier run left there is not lowered again.
    """
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    decide = GraphLowering.decide_layout_opt
    found = []

    def noting(gm, *, is_inference):
        if any("convolution" in str(n.target) for n in gm.graph.nodes):
            found.append(is_inference)
        return decide(gm, is_inference=is_inference)

    monkeypatch.setattr(GraphLowering, "decide_layout_opt", staticmethod(noting))
    with config.patch(force_disable_caches=True):
        yield found
    assert GraphLowering.decide_layout_opt is noting  # magpy has put back what it found


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 3))


def test_a_graph_with_a_backward_pass_is_laid_out_as_one_that_is_trained(weighed):
    a, b = model(), model()

    def step(m, x):
        m.zero_grad()
        m(x).square().mean().backward()

    compiled = magpy.compile(step)
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(2, 2, 8, 8)
        compiled(a, x)
        step(b, x)
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad)
    assert set(magpy.stats(compiled).segments) == {1}
    assert weighed and not any(weighed)


def test_a_graph_that_only_serves_is_laid_out_as_such(weighed):
    compiled = magpy.compile(model())
    with torch.no_grad():
        for _ in range(3):
            compiled(torch.randn(2, 2, 8, 8))
    assert weighed and all(weighed)


def test_a_sum_that_a_backward_pass_needs_again_is_known():
    """`linear` gives a bias and a product; a view of the sum goes to both halves."""
    from torch._inductor import config

    found = {}

    def look(graph):
        for n in graph.nodes:
            if n.target in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default):
                found.setdefault(n.target, []).append([_is_for_backward(u) for u in n.users])

    layer, x = nn.Linear(3, 4), torch.randn(2, 5, 3)

    def step(x):
        layer.zero_grad()
        y = layer(x)
        (y.sin() * y).sum().backward()

    compiled = magpy.compile(step)
    with config.patch(post_grad_custom_pre_pass=look, fx_graph_cache=False):
        for _ in range(3):
            compiled(x)
    sums = found[torch.ops.aten.addmm.default]
    assert sums and all(any(users) for users in sums)

    found.clear()
    served = magpy.compile(lambda x: layer(x).sin())
    with config.patch(post_grad_custom_pre_pass=look, fx_graph_cache=False), torch.no_grad():
        for _ in range(3):
            served(x)
    sums = found[torch.ops.aten.addmm.default]
    assert sums and not any(any(users) for users in sums)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Conv2d(8, 8, 3, padding=1) for _ in range(2))
        self.norm, self.last = nn.BatchNorm2d(8), nn.BatchNorm2d(8)

    def forward(self, x):
        return (x + self.last(self.second(self.norm(self.first(x)).relu()))).relu()


def test_activations_are_kept_once_for_the_backward_pass():
    """Else a copy that the backward pass lays out otherwise is made, and kept, in the forward."""
    from torch._inductor import config

    peaks, losses = [], []
    for compiled in (False, True):
        torch.manual_seed(0)
        m = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *(Residual() for _ in range(2)))
        o = torch.optim.SGD(m.parameters(), lr=0.01)

        def step(x, m=m, o=o):
            o.zero_grad()
            loss = m(x).square().mean()
            loss.backward()
            o.step()
            return loss.detach()

        x = torch.randn(4, 3, 16, 16)
        run = magpy.compile(step) if compiled else step
        with config.patch(force_disable_caches=True):
            losses.append([run(x) for _ in range(4)])
        peaks.append(peak_memory(functools.partial(run, x)))
    assert magpy.stats(run).segments[0] == 1 and magpy.stats(run).eager_calls == 0
    torch.testing.assert_close(*losses)
    assert peaks[1] <= 1.05 * peaks[0]


def test_what_follows_from_a_backward_pass_is_no_part_of_the_forward_pass():
    def node(name, marked=False, ancestors=()):
        origin = SimpleNamespace(meta={"custom": {BACKWARD: True}} if marked else {})
        return SimpleNamespace(
            node=SimpleNamespace(get_origins=lambda: {id(origin): origin}.values()),
            get_operation_names=lambda: {name},
            ancestors=set(ancestors),
        )

    nodes = {
        "a": node("a"),
        "b": node("b", True, "a"),
        "c": node("c", False, "ab"),
        "d": node("d", False, "a"),
        "e": node("e", True),
    }
    scheduler = SimpleNamespace(name_to_node=nodes)
    found = {n: _pass_of(scheduler, v) for n, v in nodes.items()}
    assert found == {
        "a": "forward",
        "b": "backward",
        "c": "after",
        "d": "forward",
        "e": "backward",
    }
    assert found == {n: _pass_of(scheduler, v) for n, v in nodes.items()}


def test_the_recursion_limit_that_a_compilation_raises_is_put_back():
    """`inspect.signature` asks for it, as models do that are run in chunks."""

    def f(x):
        return torch.sin(x) * len(inspect.signature(torch.nn.Linear.forward).parameters)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1234)
    try:
        compiled = magpy.compile(f)
        for _ in range(3):
            x = torch.randn(3)
            torch.testing.assert_close(compiled(x), f(x))
        assert sys.getrecursionlimit() == 1234
    finally:
        sys.setrecursionlimit(limit)
    stats = magpy.stats(compiled)
    assert (stats.captures, stats.hits) == (1, 2)


@pytest.mark.parametrize("grad", [False, True])
def test_rows_in_an_order_drawn_in_the_call(grad):
    """TorchInductor 2.13 fails to replace this by what is faster: it is compiled as it is."""

    def mixup(x, y):
        order = torch.randperm(len(x))
        return x * 0.75 + x[order] * 0.25, y[order]

    c = magpy.compile(mixup)
    for i in range(3):
        x, y = torch.randn(4, 8, requires_grad=grad), torch.arange(4)
        torch.manual_seed(i)
        expected = mixup(x, y)
        torch.manual_seed(i)
        for a, b in zip(c(x, y), expected, strict=True):
            torch.testing.assert_close(a, b)
    assert magpy.stats(c).uncompiled == 0
    assert magpy.stats(c).share == 1.0


def test_a_number_of_elements_beside_none_of_the_sizes_it_is_made_of():
    """What a padded batch of transformers asks of its mask: a graph is given the product alone."""

    def f(mask, y):
        m = mask.to(torch.bool)
        if m.sum() == m.numel():
            return y * 2
        k = m[:, : mask.shape[1]]
        if k.sum() == k.numel():
            return y * 3
        return y + m.sum()

    c = magpy.compile(f)
    for rows, length in ((3, 5), (2, 9), (4, 7), (2, 6), (3, 8)):
        mask = torch.ones(rows, length, dtype=torch.long)
        mask[0, : length // 2] = 0
        y = torch.randn(rows, length)
        assert torch.equal(c(mask, y), f(mask, y))
    stats = magpy.stats(c)
    assert (stats.captures, stats.hits, stats.reasons) == (2, 3, [])


@pytest.mark.parametrize("order", ["after", "ahead", "none"])
@pytest.mark.parametrize("tail", [lambda loss: loss.detach(), float])
def test_a_gradient_times_a_rate_is_no_product_of_matrices(order, tail):
    """TorchInductor forgets `alpha` of a sum with a product of matrices; it diverged."""
    losses = []
    for compiles in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Linear(16, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, model=model, optimizer=optimizer):
            if order == "ahead":
                optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            if order == "after":
                optimizer.zero_grad()
            elif order == "none":
                for p in model.parameters():
                    p.grad = None
            return tail(loss)

        call = magpy.compile(step) if compiles else step
        for i in range(6):
            torch.manual_seed(i)
            losses.append(torch.as_tensor(call(torch.randn(4, 8))))
        losses += [p.detach() for p in model.parameters()]
    half = len(losses) // 2
    torch.testing.assert_close(losses[:half], losses[half:])


def test_sums_with_factors():
    a, b, w = torch.randn(4, 5), torch.randn(5, 6), torch.randn(4, 6)
    i = torch.arange(24).reshape(4, 6)

    def f(a, b, w, i):
        return (
            torch.add(w, a @ b, alpha=-0.1),
            torch.add(a @ b, w, alpha=3),
            w.clone().add_(a @ b, alpha=2.5),
            torch.sub(w, a @ b, alpha=2),
            torch.add(i, i, alpha=3),
            torch.addmm(w, a, b, alpha=2, beta=3),
        )

    c = magpy.compile(f)
    for _ in range(3):
        torch.testing.assert_close(c(a, b, w, i), f(a, b, w, i))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_graph_that_takes_sizes_alone_is_compiled_for_all(backend):
    def mask(rows, steps):
        return torch.ones(steps, steps).tril() * 2 + torch.arange(rows)[:, None, None]

    compiled = magpy.compile(mask, backend=backend)
    for rows, steps in ((2, 3), (3, 4), (4, 6), (5, 3), (6, 7)):
        assert torch.equal(compiled(rows, steps), mask(rows, steps))
    stats = magpy.stats(compiled)
    assert stats.captures == 2
    assert stats.share == 1.0
