"""Gradients of a backward pass in a graph are kept as AccumulateGrad keeps them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from magpy import _tensor
from magpy.models.backward import gradients


def of_engine(leaves: list[torch.Tensor], make: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
    return list(torch.autograd.grad(make(*leaves), leaves))


def leaf(*shape: int, channels_last: bool = False) -> torch.Tensor:
    t = torch.randn(*shape)
    if channels_last:
        t = t.contiguous(memory_format=torch.channels_last)
    return t.requires_grad_()


def test_own_gradient_is_the_memory_that_the_engine_gave() -> None:
    w = leaf(3, 4)
    [g] = of_engine([w], lambda w: (w * torch.arange(4.0)).sum())
    [kept] = _tensor.own_gradients([g], [w], None)
    assert kept is not None and kept.data_ptr() == g.data_ptr() and kept is not g


def test_gradient_that_is_spread_out_has_to_be_copied() -> None:
    w = leaf(3, 4)
    found = of_engine([w], lambda w: w.sum())  # one number, expanded
    assert _tensor.own_gradients(found, [w], None) == [None]


def test_one_gradient_for_two_leaves_has_to_be_copied() -> None:
    a, b = leaf(3), leaf(3)
    found = of_engine([a, b], lambda a, b: ((a + b) * torch.arange(3.0)).sum())
    assert found[0].data_ptr() == found[1].data_ptr()
    assert _tensor.own_gradients(found, [a, b], None) == [None, None]


def test_gradient_that_was_given_has_to_be_copied() -> None:
    w, given = leaf(3), torch.ones(3)
    found = torch.autograd.grad(w + 0, [w], given)
    assert _tensor.own_gradients(found, [w], [None, given]) == [None]


def test_gradient_that_lies_otherwise_than_its_leaf_has_to_be_copied() -> None:
    w = leaf(2, 3, 4, 4, channels_last=True)
    other = torch.randn(2, 3, 4, 4)
    assert _tensor.own_gradients([other], [w], None) == [None]
    same = other.contiguous(memory_format=torch.channels_last)
    [kept] = _tensor.own_gradients([same], [w], None)
    assert kept is not None and kept.stride() == w.stride()


def test_strides_of_dimensions_of_one_element_do_not_count() -> None:
    w = torch.empty_strided((2, 1, 3), (1, 77, 2)).requires_grad_()
    g = torch.empty_strided((2, 1, 3), (1, 5, 2))
    [kept] = _tensor.own_gradients([g], [w], None)
    assert kept is not None


def test_own_gradients_refuses_what_are_no_tensors() -> None:
    w = leaf(2)
    with pytest.raises(TypeError):
        _tensor.own_gradients([3], [w], None)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="for each leaf"):
        _tensor.own_gradients([], [w], None)


@pytest.mark.parametrize("last", [False, True])
def test_gradients_lie_and_share_as_in_eager(last: bool) -> None:
    torch.manual_seed(0)
    w, v, x = leaf(4, 3, 3, 3, channels_last=last), leaf(4), torch.randn(2, 3, 8, 8)

    def loss() -> torch.Tensor:
        y = torch.conv2d(x, w) + (v + v.detach()).view(-1, 1, 1)
        return y.square().mean() + v.sum()

    loss().backward()
    made = gradients((loss(),), (w, v), None, (None, None), False)
    for g, t in zip(made, (w, v), strict=True):
        assert t.grad is not None
        assert torch.equal(g, t.grad) and g.stride() == t.grad.stride()
        assert g._base is None and not g.requires_grad


def test_a_leaf_without_hooks_is_unheard() -> None:
    w, v = leaf(2), leaf(2)
    assert _tensor.unheard() and _tensor.unheard(w, v, 3)
    (w * v).sum().backward()
    assert _tensor.unheard(w, v), "autograd's node alone hears of nothing"


@pytest.mark.parametrize("kind", ["tensor", "accumulated", "node", "node, before", "made"])
def test_every_kind_of_hook_hears(kind: str) -> None:
    w = leaf(2)
    node = w.view_as(w).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
    {
        "tensor": lambda: w.register_hook(lambda g: None),
        "accumulated": lambda: w.register_post_accumulate_grad_hook(lambda t: None),
        "node": lambda: node.register_hook(lambda a, b: None),
        "node, before": lambda: node.register_prehook(lambda a: None),
        "made": lambda: None,
    }[kind]()
    end = w * 2 if kind == "made" else w
    assert not _tensor.unheard(leaf(1), end)
