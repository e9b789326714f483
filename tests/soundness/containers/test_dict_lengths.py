"""How many entries a dict has, and whether it has any: its keys are read, and not its values."""

import pytest
import torch

import magpy
from tests.comparison import assert_same
from tests.soundness.worlds import case, check_all

CASES = []


def counting():
    state = {"step": 0, "name": "a"}

    def f(x):
        if len(state) == 0:
            state["step"] = 0
        state["step"] += 1
        return x * state["step"] if state else x

    return f, state


def given():
    state = {"a": 0.5, "b": 1.5}
    return lambda x, d=state: x + d["a"] * len(d), state


@pytest.mark.parametrize("make", [counting, given])
def test_numbers_in_a_dict_that_is_measured_are_inputs(make):
    (eager, own), (function, held) = make(), make()
    compiled = magpy.compile(function, backend="eager")
    for i in range(10):
        assert_same(compiled(torch.ones(2)), eager(torch.ones(2)), str(i))
        if make is given:
            own["a"] = held["a"] = i + 0.25
        assert held == own
    stats = magpy.stats(compiled)
    assert stats.captures <= 3
    assert stats.eager_calls == 0


def test_an_optimizer_that_counts_its_steps_in_a_dict_is_served():
    def make():
        torch.manual_seed(0)
        embedding = torch.nn.Embedding(20, 4, sparse=True)
        optimizer = torch.optim.SparseAdam(embedding.parameters())

        def step(ids):
            optimizer.zero_grad()
            loss = embedding(ids).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach(), embedding.weight.detach().clone()

        return step

    eager, compiled = make(), magpy.compile(make(), backend="eager")
    for i in range(12):
        ids = torch.arange(i % 3, i % 3 + 6)
        assert_same(compiled(ids), eager(ids), str(i))
    stats = magpy.stats(compiled)
    assert stats.captures <= 5
    assert stats.hits >= 7


@case(CASES)
def entries_come_and_go(compile):
    seen = {}

    def f(x):
        return x + len(seen), bool(seen), "full" if seen else "empty"

    f = compile(f)
    for change in (
        lambda: None,
        lambda: seen.update(a=1),
        lambda: seen.update(a=2),
        lambda: seen.update(b=1),
        lambda: seen.pop("a"),
        lambda: seen.update(c=1),
        seen.clear,
    ):
        change()
        for _ in range(2):
            yield f(torch.ones(2)), seen


@case(CASES)
def the_call_itself_adds_and_takes_away(compile):
    seen = {"a": 1}

    def f(x, key):
        before = len(seen)
        seen[key] = before
        between = len(seen)
        if len(seen) > 3:
            del seen[next(iter(seen))]
        return x * before, between, len(seen)

    f = compile(f)
    for key in "abacdabbe":
        yield f(torch.ones(2), key), seen


@case(CASES)
def a_dict_among_the_arguments(compile):
    f = compile(lambda x, d: (x * len(d), not d, d.get("a")))
    for d in ({}, {"a": 1}, {"a": 2}, {"b": 1}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, {}):
        for _ in range(2):
            yield f(torch.ones(2), dict(d))


@case(CASES)
def all_of_it_is_looked_at_as_well(compile):
    held = {"a": 1.5, "b": 2}

    def f(x):
        n = len(held)
        return (
            x + sum(held.values()) * n,
            dict(held),
            list(held.items()),
            held == {"a": 1.5, "b": 2},
        )

    f = compile(f)
    for i in range(6):
        if i % 2:
            held["a"] = i
        yield f(torch.ones(2)), held


@case(CASES)
def keys_of_other_kinds(compile):
    class Key:
        def __eq__(self, other):
            return isinstance(other, Key)

        def __hash__(self):
            return 1

    held = {(1, 2): 1, Key(): 2}

    def f(x):
        return x * len(held)

    f = compile(f)
    for i in range(4):
        held[(1, i)] = i
        yield f(torch.ones(2)), list(held.values())


test_dict_lengths = check_all(CASES)
