"""What is done apart is heard by no mode and no hook of the program."""

from __future__ import annotations

import torch
from torch.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from magpy.objects.quiet import apart, modes_of_the_program, saved_tensors_are_heard


class Hears(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.heard = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.heard += 1
        return func(*args, **(kwargs or {}))


def test_modes_do_not_hear():
    x = torch.ones(2)
    with Hears() as outer, Hears() as inner:
        assert modes_of_the_program()
        with apart():
            x.exp()
            assert not modes_of_the_program()
        assert (outer.heard, inner.heard) == (0, 0)
        x.exp()
        assert (outer.heard, inner.heard) == (1, 1)


def test_hooks_do_not_hear():
    heard = []
    x = torch.ones(2, requires_grad=True)
    assert not saved_tensors_are_heard()
    with saved_tensors_hooks(lambda t: heard.append(1) or t, lambda t: t):
        assert saved_tensors_are_heard()
        with apart():
            y = x.exp()
        assert not heard
        y.sum().backward()
        assert x.grad is not None
        x.exp()
        assert heard == [1]


def test_where_hooks_are_forbidden_nothing_is_set():
    with disable_saved_tensors_hooks("none here"), apart():
        assert torch.ones(2, requires_grad=True).exp().requires_grad


def test_modes_come_back_after_an_error():
    with Hears() as mode:
        try:
            with apart():
                raise ValueError
        except ValueError:
            pass
        torch.ones(2)
        assert mode.heard == 1
