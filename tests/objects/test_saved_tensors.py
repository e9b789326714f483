"""Hooks of saved tensors that the program has set, called through a pair of magpy's own."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from magpy.objects import saved_tensors


def test_the_programs_hooks_hear_of_what_is_saved_in_their_place():
    heard = []
    x = torch.ones(2, requires_grad=True)
    with saved_tensors_hooks(lambda t: heard.append("pack") or t, lambda t: t * 3):
        assert saved_tensors.are_the_programs()
        with saved_tensors.replaced():
            assert not saved_tensors.are_the_programs()
            y = x.exp()
        assert saved_tensors.are_the_programs()
    assert heard == ["pack"]
    y.sum().backward()
    assert torch.equal(x.grad, x.detach().exp() * 3)


def test_all_hooks_are_set_again_in_their_order():
    def pair(name):
        return saved_tensors_hooks(lambda t: (name, t), lambda p: p[1])

    def names():
        before, found = [], []
        while (now := saved_tensors.set_now()) is not None:
            torch._C._autograd._pop_saved_tensors_default_hooks()
            before.append(now)
            found.append(now[0](None)[0])
        for p in reversed(before):
            torch._C._autograd._push_saved_tensors_default_hooks(*p)
        return found

    with pair("outer"), pair("inner"):
        with saved_tensors.replaced() as hooks:
            assert hooks.pack(None)[0] == "inner"
            with pair("of the call"), saved_tensors.replaced() as hooks:
                assert hooks.pack(None)[0] == "of the call"
        assert names() == ["inner", "outer"]
    assert saved_tensors.set_now() is None


def test_hooks_that_the_block_leaves_stay_the_last_ones():
    def pack(t):
        return t

    with saved_tensors_hooks(lambda t: t, lambda t: t):
        with saved_tensors.replaced():
            torch._C._autograd._push_saved_tensors_default_hooks(pack, pack)
        assert saved_tensors.set_now()[0] is pack
        torch._C._autograd._pop_saved_tensors_default_hooks()
        assert saved_tensors.set_now()[0] is not pack
    assert saved_tensors.set_now() is None


def test_what_a_hook_raises_is_known():
    def fails(t):
        raise ValueError("no")

    with saved_tensors_hooks(fails, lambda t: t), saved_tensors.replaced():
        with pytest.raises(ValueError, match="no") as caught:
            torch.ones(2, requires_grad=True).exp()
        assert saved_tensors.raised_by_hook(caught.value)
        assert not saved_tensors.raised_by_hook(ValueError("no"))


def test_a_capture_calls_the_hooks_itself():
    called = []

    def call(hook, tensor):
        called.append(hook)
        return hook(tensor)

    def pack(t):
        return t

    with saved_tensors_hooks(pack, pack), saved_tensors.replaced():
        with saved_tensors.called_by(call):
            torch.ones(2, requires_grad=True).exp()
        torch.ones(2, requires_grad=True).exp()
    assert called == [pack]
