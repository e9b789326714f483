"""Modes on torch's stacks: one that the call enters, and those of devices."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import magpy


class Times(TorchDispatchMode):
    """Multiplies what each operation gives, and counts."""

    def __init__(self, k):
        super().__init__()
        self.k, self.seen = k, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(str(func))
        return func(*args, **(kwargs or {})) * self.k


def _with(x, mode):
    with mode:
        return x + 1


def _by_hand(x, mode):
    mode.__enter__()
    try:
        return torch.relu(x) + 1
    finally:
        mode.__exit__(None, None, None)


def _after(x, mode):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(mode)
        y = x + 1
    return y * 2


def _made(x, mode):
    with Times(mode.k) as made:
        y = x + 1
    mode.seen += made.seen
    return y


@pytest.mark.parametrize("program", [_with, _by_hand, _after, _made])
def test_a_mode_is_entered_in_the_call(program):
    eager, ours = Times(3), Times(3)
    f = magpy.compile(program, backend="eager")
    for _ in range(3):
        assert f(torch.ones(2), ours).tolist() == program(torch.ones(2), eager).tolist()
        assert ours.seen == eager.seen
    assert any("_push_on_torch_dispatch_stack" in r for r in magpy.stats(f).reasons)


def test_a_device_that_is_set_anew_is_the_same_device():
    """Each `with torch.device(..)` makes a mode of its own."""
    f = magpy.compile(lambda x: (x + 1, torch.empty(1).device), backend="eager")
    for _ in range(4):
        with torch.device("cpu"):
            assert f(torch.ones(2))[0].tolist() == [2, 2]
    try:
        for _ in range(4):
            torch.set_default_device("cpu")
            f(torch.ones(2))
    finally:
        torch.set_default_device(None)
    assert magpy.stats(f).captures == 1
    x = torch.ones(2)
    for _ in range(2):
        with torch.device("meta"):
            assert f(x)[1].type == "meta"
        with torch.device("cpu"), torch.device("cpu"):
            assert f(x)[1].type == "cpu"
        assert f(x)[1].type == "cpu"
