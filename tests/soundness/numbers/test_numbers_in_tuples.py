"""Numbers that objects in C hold: in tuples of dicts (an optimizer's `betas`), beside `maxlen`."""

from __future__ import annotations

import collections

import torch

import magpy


def test_numbers_in_a_tuple_that_a_dict_holds():
    def make():
        group = {"rates": None, "name": "a"}

        def f(t):
            a, b = group["rates"]
            return (t * a).sum().item() + b, group["rates"], group["rates"] is group["rates"]

        return f, group

    (eager, ours), (call, theirs) = make(), make()
    f = magpy.compile(call, backend="eager")
    values = [
        *((0.5, 2.0), (0.25, 2.0), (0.125, 2.0), (0.5, 3.0), (-0.0, 3.0), (0.0, 3.0)),
        *((1.5, 3.0, 1.0), (1, 2.0), [0.5, 2.0], (0.75, 4.0), (0.875, 5.0)),
    ]
    for v in values:
        ours["rates"], theirs["rates"] = type(v)([*v]), type(v)([*v])
        held = theirs["rates"]
        for _ in range(2):
            outcomes = []
            for g in (eager, f):
                try:
                    outcomes.append(repr(g(torch.ones(2))))
                except ValueError as error:
                    outcomes.append(str(error))
            assert outcomes[1] == outcomes[0]
            assert theirs["rates"] is held
    assert magpy.stats(f).captures <= 8
    assert magpy.stats(f).hits >= 10


def test_a_call_replaces_a_tuple_of_numbers():
    def make():
        group = {"rates": tuple([0.5, 2.0])}

        def f(t):
            a, b = group["rates"]
            group["rates"] = (a * 0.5, b)
            return t * a + b

        return f, group

    (eager, ours), (call, theirs) = make(), make()
    f = magpy.compile(call, backend="eager")
    for i in range(10):
        if i == 6:
            ours["rates"], theirs["rates"] = tuple([3.0, 1.0]), tuple([3.0, 1.0])
        assert f(torch.ones(2)).tolist() == eager(torch.ones(2)).tolist()
        assert theirs == ours
    assert magpy.stats(f).captures == 2
    assert magpy.stats(f).hits == 8


def test_a_deque_tells_its_greatest_length_and_holds_a_number_that_varies():
    last = collections.deque([0.0], maxlen=2)

    def f(t):
        return t * last[0], last.maxlen

    f = magpy.compile(f, backend="eager")
    for i in range(6):
        last[0] = float(i)
        out, length = f(torch.ones(2))
        assert out.tolist() == [i, i]
        assert length == 2
    assert magpy.stats(f).captures == 2
