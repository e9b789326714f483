"""What TorchInductor takes magpy's graphs for (magpy/backends/inductor.py)."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import magpy
from magpy.backends.inductor import _is_for_backward


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
