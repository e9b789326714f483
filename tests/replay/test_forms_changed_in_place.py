"""A tensor that is given another form in place, in a call that makes a backward pass."""

from __future__ import annotations

import pytest
import torch

import magpy

WEIGHT = torch.nn.Parameter(torch.ones(4))


def squeezed(x):
    y = ((x + WEIGHT) * 1).unsqueeze(1).squeeze_(1)
    y.sum().backward()
    return y.detach(), y.detach().t()


def transposed(x):
    y = (x + WEIGHT) * 1
    before = y.detach()
    y.t_()
    torch.autograd.grad(y.sum(), WEIGHT, create_graph=True)
    return before, y.detach()


def unsqueezed(x):
    y = (x * WEIGHT).sum(1)
    y.unsqueeze_(0)
    y.sum().backward()
    return y.detach() * 2, len(y.shape)


def swapped(x):
    y = x * WEIGHT
    z = y.view(-1, 2, 2)
    z.transpose_(1, 2)
    (y.sum() + z[0].sum()).backward()
    return y.detach(), z.detach()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("f", [squeezed, transposed, unsqueezed, swapped])
def test_it_has_that_form_afterwards(f, backend):
    compiled = magpy.compile(f, backend=backend)
    for rows in (4, 4, 5, 6, 6, 3, 5):
        x = torch.linspace(-1, 1, rows * 4).reshape(rows, 4)
        WEIGHT.grad = None
        expected = f(x)
        gradient, WEIGHT.grad = WEIGHT.grad, None
        result = compiled(x)
        for a, b in zip(result, expected, strict=True):
            if isinstance(b, torch.Tensor):
                assert a.shape == b.shape and torch.equal(a, b)
            else:
                assert a == b
        assert (WEIGHT.grad is None) == (gradient is None)
        if gradient is not None:
            assert torch.equal(WEIGHT.grad, gradient)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_pass_to_leaves_of_the_call_whose_gradients_nobody_reads(backend):
    """As a program does that warms up a kernel."""

    def f(x):
        leaf = (x * x).requires_grad_()
        leaf.sum().backward()
        return x + 1

    compiled = magpy.compile(f, backend=backend)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))
