"""Hooks of modules that a call registers and removes: each has a higher number than the last.

The numbers are keys of `OrderedDict`s that the call then goes through. They differ in every call,
and count for nothing but that they were not there: one capture serves all calls.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

import magpy
from tests.comparison import assert_same

CALLS = 6


def model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)).eval()


def one(m: Any, x: Any) -> Any:
    seen: list[Any] = []
    handle = m[0].register_forward_hook(lambda module, inputs, output: seen.append(output))
    y = m(x)
    handle.remove()
    return y, seen[0], len(m[0]._forward_hooks)


def one_for_each_layer(m: Any, x: Any) -> Any:
    seen: dict[str, Any] = {}
    handles = [
        layer.register_forward_hook(lambda module, i, o, name=name: seen.__setitem__(name, o))
        for name, layer in m.named_children()
    ]
    y = m(x)
    for handle in handles:
        handle.remove()
    return y, seen


def two_of_one_module(m: Any, x: Any) -> Any:
    first = m[0].register_forward_hook(lambda module, inputs, output: output * 1.5)
    second = m[0].register_forward_hook(lambda module, inputs, output: output + 1)
    y = m(x)
    first.remove()
    z, left = m(x), len(m[0]._forward_hooks)
    second.remove()
    return y, z, left


def in_a_with_statement(m: Any, x: Any) -> Any:
    seen: list[Any] = []
    with m[1].register_forward_hook(lambda module, inputs, output: seen.append(output.mean())):
        y = m(x)
    return y, seen[0]


def before_the_module(m: Any, x: Any) -> Any:
    handle = m[2].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))
    y = m(x)
    handle.remove()
    return y


def asked_for(m: Any, x: Any) -> Any:
    handle = m[2].register_forward_hook(lambda module, inputs, output: output + 1)
    y, there = m(x), handle.id in m[2]._forward_hooks
    handle.remove()
    handle.remove()
    return y, there, handle.id in m[2]._forward_hooks, m(x)


def its_number_is_given(m: Any, x: Any) -> Any:
    handle = m[2].register_forward_hook(lambda module, inputs, output: output + 1)
    y, keys = m(x), list(m[2]._forward_hooks)
    handle.remove()
    return y, handle.id - RemovableHandle.next_id, keys[-1] - handle.id


PROGRAMS = [
    one,
    one_for_each_layer,
    two_of_one_module,
    in_a_with_statement,
    before_the_module,
    asked_for,
    its_number_is_given,
]


def calls(f: Any, m: Any, handles: bool) -> Any:
    """What some calls give, with the numbers of the hooks from where they began."""
    start, kept = RemovableHandle.next_id, []
    for i in range(CALLS):
        if handles and i == CALLS // 2:
            kept.append(m[2].register_forward_hook(lambda module, inputs, output: output * 3))
        torch.manual_seed(i)
        result = f(m, torch.randn(2, 8))
        hooks = [[k - start for k in layer._forward_hooks] for layer in m]
        yield result, hooks, RemovableHandle.next_id - start


@pytest.mark.parametrize("others", [False, True], ids=["alone", "beside a hook that stays"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_hooks_of_a_call_are_served(program: Any, others: bool) -> None:
    compiled = magpy.compile(program, backend="eager")
    wanted = list(calls(program, model(), others))
    m = model()
    for got, expected in zip(calls(compiled, m, others), wanted, strict=True):
        assert_same(got, expected)
    stats = magpy.stats(compiled)
    assert stats.captures == 1 + others
    assert stats.eager_calls == 0


def test_hooks_that_stay_are_redone_at_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(magpy.config, "regions", True)

    def f(m: Any, x: Any) -> Any:
        m[0].register_forward_hook(lambda module, inputs, output: output + 1)
        return m(x)

    wanted = list(calls(f, model(), True))
    compiled = magpy.compile(f, backend="eager")
    for got, expected in zip(calls(compiled, model(), True), wanted, strict=True):
        assert_same(got, expected)


def test_a_number_that_is_taken_by_then_is_no_new_key() -> None:
    m = model()

    def f(x: Any) -> Any:
        handle = m[2].register_forward_hook(lambda module, inputs, output: output + 1)
        y, there = m(x), len(m[2]._forward_hooks)
        handle.remove()
        return y, there

    compiled = magpy.compile(f, backend="eager")
    x = torch.randn(2, 8)
    for _ in range(3):
        assert_same(compiled(x), f(x))
    handle = m[2].register_forward_hook(lambda module, inputs, output: output * 3)
    for _ in range(2):
        results = []
        for run in (f, compiled):
            RemovableHandle.next_id = handle.id  # as a program that counts by itself may do
            m[2]._forward_hooks[handle.id] = lambda module, inputs, output: output * 3
            results.append(run(x))
        assert_same(results[1], results[0])
