"""Whether a tensor is a view, and how it was made, counts where it is changed, and only there."""

from __future__ import annotations

import torch

import magpy


def made_under_no_grad(x):
    with torch.no_grad():
        return x.view(-1)[:4].view(1, 4)


def kinds():
    """Tensors without gradients that autograd tells apart."""
    base = torch.arange(8.0)
    with torch.inference_mode():
        base = base + 1
    base = base.clone()
    return [torch.ones(1, 4), made_under_no_grad(base), base.view(2, 4)[:1], base[4:].view(1, 4)]


def test_what_is_only_read_may_be_a_view_or_none():
    def f(items):
        return torch.cat(items) * 2

    c = magpy.compile(f, backend="eager")
    made = kinds()
    for i in range(16):
        items = [made[(i >> k) % 4] for k in range(0, 6, 2)]
        if len({id(t) for t in items}) == 3:
            assert torch.equal(c(items), f(items))
    assert magpy.stats(c).captures <= 2


def test_what_is_changed_is_told_apart():
    weight = torch.ones(1, 4, requires_grad=True)

    def f(x):
        x.mul_(weight)
        return x.sum()

    def got(call, x):
        try:
            return call(x).item()
        except RuntimeError as e:
            return str(e)

    c = magpy.compile(f, backend="eager")
    for _ in range(3):
        for a, b in zip(kinds(), kinds(), strict=True):
            assert got(c, a) == got(f, b)


def test_what_shares_memory_with_what_is_changed_is_told_apart():
    weight = torch.ones(2, requires_grad=True)

    def f(x, y):
        x.mul_(weight)
        return y * 2

    def got(call, view):
        base = torch.ones(2)
        if view:
            with torch.no_grad():
                y = base.view(2)
        else:
            y = torch.ones(2)
        try:
            return call(base, y).requires_grad
        except RuntimeError as e:
            return str(e)

    c = magpy.compile(f, backend="eager")
    for view in (False, True, False, True, True):
        assert got(c, view) == got(f, view)


def test_what_requires_grad_is_told_apart():
    def f(x):
        y = x * 1
        return y.view(-1), x.is_leaf

    c = magpy.compile(f, backend="eager")
    leaf = torch.ones(4, requires_grad=True)
    for x in (leaf, leaf[:4], leaf.view(4), leaf.detach(), leaf * 1):
        assert c(x)[1] == f(x)[1]
        assert c(x)[0].requires_grad == f(x)[0].requires_grad
