"""A gradient penalty whose pass is Python's: what regions give ahead of it has second derivatives.

A compiler's graphs have none, so Python runs those graphs, from the first call on.
"""

from __future__ import annotations

import queue

import pytest
import torch
from torch import nn

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS

BEFORE: queue.Queue = queue.Queue()


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = x.sigmoid()
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, g):
        x, s = ctx.saved_tensors
        return g * (s + x * s * (1 - s))


def critic():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))


def penalty(model, x, look=None, act=None):
    x = x.requires_grad_()
    h = model[1](model[0](x)) if act is None else act(model[0](x))
    if look is not None:
        look(h)
    out = model[2](h).sum()
    (g,) = torch.autograd.grad(out, x, create_graph=True)
    (out + ((g.norm(2, 1) - 1) ** 2).mean()).backward()
    return g.detach()


def plain(model, notes):
    return penalty


def custom_function(model, notes):
    return lambda model, x: penalty(model, x, act=Swish.apply)


def hook_of_a_parameter(model, notes):
    model[0].weight.register_hook(lambda g: g.clamp(-1, 1))
    return penalty


def hook_after_accumulation(model, notes):
    model[0].weight.register_post_accumulate_grad_hook(lambda p: notes.append(1))
    return penalty


def hook_of_a_module(model, notes):
    model[0].register_full_backward_hook(lambda m, given, out: notes.append(1))
    return penalty


def hook_of_a_tensor(model, notes):
    return lambda model, x: penalty(model, x, lambda h: h.register_hook(lambda g: g * 1.5))


def helper_that_is_left_out(model, notes):
    @magpy.disable
    def helper(h):
        notes.append(float(h.sum()))

    return lambda model, x: penalty(model, x, helper)


def refused_ahead(model, notes):
    return lambda model, x: penalty(model, x, lambda h: BEFORE.put(h.shape))


def every_third(model, notes):
    model[0].weight.register_hook(lambda g: g * 2)

    def step(model, x):
        notes.append(1)
        BEFORE.put(1)
        if len(notes) % 3:
            model(x).sum().backward()
            return x
        return penalty(model, x)

    return step


def method_of_a_tensor(model, notes):
    model[0].weight.register_hook(lambda g: g * 2)

    def step(model, x):
        x = x.requires_grad_()
        model(x).sum().backward(create_graph=True)
        g, x.grad = x.grad, None
        g.square().sum().backward()
        return g.detach()

    return step


KINDS = (
    plain,
    custom_function,
    hook_of_a_parameter,
    hook_after_accumulation,
    hook_of_a_module,
    hook_of_a_tensor,
    helper_that_is_left_out,
    refused_ahead,
    every_third,
    method_of_a_tensor,
)


def agrees(kind, backend):
    models, notes = (critic(), critic()), ([], [])
    eager = kind(models[0], notes[0])
    compiled = magpy.compile(kind(models[1], notes[1]), backend=backend)
    for i in range(9):
        results = []
        for call, model in zip((eager, compiled), models, strict=True):
            model.zero_grad()
            results.append(call(model, torch.linspace(-1, 1 + i, 32).reshape(4, 8)))
        torch.testing.assert_close(*results)
        for a, b in zip(*(m.parameters() for m in models), strict=True):
            torch.testing.assert_close(a.grad, b.grad)
    assert notes[0] == pytest.approx(notes[1])
    return magpy.stats(compiled)


@pytest.fixture(autouse=True)
def _regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives(kind, backend):
    agrees(kind, backend)


def test_callables_of_one_source_do_not_share_graphs_that_have_no_second_derivatives():
    for kind in KINDS:
        if kind not in (custom_function, method_of_a_tensor):
            assert agrees(kind, "aot_eager").captures < 12


def test_a_call_that_was_captured_whole_before_another_was_cut():
    """A batch of one raises in the normalization, which is Python's from then on."""
    weight, norm = nn.Parameter(torch.rand(4)), nn.BatchNorm1d(4)

    def f(x):
        y = norm(x * weight)
        (g,) = torch.autograd.grad(y.pow(2).sum(), weight, create_graph=True)
        (g**2).sum().backward()
        return y.detach()

    compiled = magpy.compile(f, backend="aot_eager")
    for rows in (4, 1, 1, 2, 3, 1, 2):
        if rows == 1:
            with pytest.raises(ValueError, match="more than 1 value"):
                compiled(torch.rand(rows, 4))
        else:
            assert compiled(torch.rand(rows, 4)).shape == (rows, 4)
