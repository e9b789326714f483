"""Hooks of modules that a call registers and removes: each has a higher number than the last.

The numbers are keys of `OrderedDict`s that torch then goes through. They differ in every call, and
count for nothing but that they were not there: one capture serves all calls. Where the program gets
hold of such a dict it may look at the numbers, which are then what they are.
"""

from __future__ import annotations

import collections
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
    return y, seen[0]


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
    z = m(x)
    second.remove()
    return y, z


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


def removed_twice(m: Any, x: Any) -> Any:
    handle = m[2].register_forward_hook(lambda module, inputs, output: output + 1)
    y = m(x)
    handle.remove()
    handle.remove()
    return y, m(x)


def its_number_is_given(m: Any, x: Any) -> Any:
    handle = m[2].register_forward_hook(lambda module, inputs, output: output + 1)
    y = m(x)
    handle.remove()
    return y, handle.id - RemovableHandle.next_id


PROGRAMS = [
    one,
    one_for_each_layer,
    two_of_one_module,
    in_a_with_statement,
    before_the_module,
    removed_twice,
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


LOOKS = {
    "len": lambda m, d, h: len(d),
    "sum": lambda m, d, h: sum(d) - h.id,
    "sorted": lambda m, d, h: [k - h.id for k in sorted(d)],
    "max": lambda m, d, h: max(d) - h.id,
    "text": lambda m, d, h: repr(list(d)) == f"[{', '.join(map(str, d))}]",
    "has": lambda m, d, h: (h.id in d, 5 in d, -1 in d),
    "get": lambda m, d, h: (d.get(5) is None, d.get(h.id) is None),
    "keys": lambda m, d, h: (len(d.keys() & {5, 6}), 5 in d.keys()),
    "equal": lambda m, d, h: d.keys() == {5},
    "copied": lambda m, d, h: (5 in dict(d), len({**d, 5: None}), len(d.copy())),
    "vars": lambda m, d, h: sum(vars(m)["_forward_hooks"]) - h.id,
    "getattr": lambda m, d, h: sum(getattr(m, "_forward_hooks")) - h.id,
    "weakly": lambda m, d, h: sum(h.hooks_dict_ref()) - h.id,
    "state": lambda m, d, h: sum(h.__getstate__()[0]) - h.id,
    "of all": lambda m, d, h: [5 in v for v in vars(m).values() if type(v) is type(d)],
    "loop": lambda m, d, h: [k - h.id for k in d],
}


@pytest.mark.parametrize("held", [False, True], ids=["of the module", "kept before"])
@pytest.mark.parametrize("name", LOOKS)
def test_a_program_that_looks_at_the_numbers_sees_them(name: str, held: bool) -> None:
    def world(compile: Any) -> Any:
        m = model()
        kept = m[0]._forward_hooks

        def f(x: Any) -> Any:
            handle = m[0].register_forward_hook(lambda module, inputs, output: output + 1)
            y = m(x)
            seen = LOOKS[name](m[0], kept if held else m[0]._forward_hooks, handle)
            handle.remove()
            return y, seen, len(m[0]._forward_hooks)

        c = compile(f)
        for number in (60, 61, 62, 5, 70, 4, 5, 6):
            RemovableHandle.next_id = number  # as a program that counts by itself may do
            torch.manual_seed(number)
            yield c(torch.randn(2, 8))

    before = RemovableHandle.next_id
    try:
        wanted = list(world(lambda f: f))
        assert_same(list(world(lambda f: magpy.compile(f, backend="eager"))), wanted)
    finally:
        RemovableHandle.next_id = before + 100


def test_a_dict_of_hooks_that_is_an_argument_is_looked_at() -> None:
    m = model()

    def f(hooks: Any, x: Any) -> Any:
        handle = m[0].register_forward_hook(lambda module, inputs, output: output + 1)
        y, seen = m(x), sum(hooks) - handle.id
        handle.remove()
        return y, seen

    compiled = magpy.compile(f, backend="eager")
    x = torch.randn(2, 8)
    for _ in range(5):
        assert_same(compiled(m[0]._forward_hooks, x), f(m[0]._forward_hooks, x))


def test_other_dicts_with_new_keys_are_what_they_are() -> None:
    kept: collections.OrderedDict[int, int] = collections.OrderedDict([(50, 1)])

    def f(x: Any, key: int) -> Any:
        kept[key] = 3
        seen = sum(kept), 1 in kept, kept.get(1), len(kept), repr(kept)
        del kept[key]
        return x * 2, seen

    compiled = magpy.compile(f, backend="eager")
    x = torch.ones(2)
    for key in (60, 61, 62, 40, 1, 41, 1):
        assert_same(compiled(x, key), f(x, key))


def test_a_number_that_is_taken_by_then_is_no_new_key() -> None:
    m = model()

    def f(x: Any) -> Any:
        handle = m[2].register_forward_hook(lambda module, inputs, output: output + 1)
        y = m(x)
        handle.remove()
        return y

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
