"""Numbers that differ in every call and are put into dicts by C code: what a step reports.

Owns that they are inputs there, and that what looks at them afterwards is as in eager.
"""

from __future__ import annotations

import collections

import pytest
import torch

import magpy
from tests.comparison import assert_same

MAKES = {
    "by_name": lambda loss, lr: dict(loss=loss, lr=lr),
    "ordered": lambda loss, lr: collections.OrderedDict(loss=loss, lr=lr),
    "of_a_dict": lambda loss, lr: dict({"loss": loss, "lr": lr}, twice=lr * 2),
    "nested": lambda loss, lr: dict(loss=loss, of=dict(lr=lr, rates=[lr, lr])),
    "read_again": lambda loss, lr: dict(loss=loss * dict(lr=lr)["lr"]),
    "changed": lambda loss, lr: {**dict(loss=loss, lr=lr), "more": lr},
}
LOOKS = {
    "compared": lambda loss, lr: loss * 2 if dict(lr=lr)["lr"] > 0.05 else loss,
    "equal": lambda loss, lr: loss * (dict(lr=lr) == dict(lr=0.1 * 0.9**3)),
    "as_text": lambda loss, lr: (loss, str(dict(lr=lr))),
    "as_a_key": lambda loss, lr: (loss, dict({lr: 1})),
}


class Schedule:
    """A rate that goes down in every call."""

    def __init__(self):
        self.rate = 0.1


def run(make, compile):
    schedule = Schedule()

    def step(x):
        schedule.rate *= 0.9
        return make(x.sum(), schedule.rate)

    f = compile(step)
    return [f(torch.full((2,), float(i))) for i in range(12)], f


def compiled(f):
    return magpy.compile(f, backend="eager")


@pytest.mark.parametrize("name", MAKES)
def test_they_are_inputs(name):
    wanted, _ = run(MAKES[name], lambda f: f)
    found, f = run(MAKES[name], compiled)
    assert_same(found, wanted)
    stats = magpy.stats(f)
    assert (stats.captures, stats.eager_calls) == (1, 0)


@pytest.mark.parametrize("name", LOOKS)
def test_what_looks_at_them_is_as_in_eager(name):
    wanted, _ = run(LOOKS[name], lambda f: f)
    found, _ = run(LOOKS[name], compiled)
    assert_same(found, wanted)


def test_a_dict_from_outside_is_read_as_it_is():
    settings = {"lr": 0.1}

    def step(x):
        settings["lr"] *= 0.9
        return x * dict(settings)["lr"], dict(settings, more=settings["lr"])

    f, wanted = compiled(step), []
    for i in range(8):
        result = f(torch.ones(2))
        wanted.append(settings["lr"])
        assert_same(result, (torch.ones(2) * wanted[i], {"lr": wanted[i], "more": wanted[i]}))
        if i == 4:
            settings["new"] = 3
            settings.pop("new")
