"""Numbers that vary, put into containers by C code: they are inputs, and the containers eager's."""

import collections
import copy
import dataclasses
import types
import typing

import pytest
import torch

import magpy
from tests.comparison import assert_same


class Named(typing.NamedTuple):
    loss: object
    lr: float


class Checked(collections.namedtuple("Checked", "loss lr")):
    def __new__(cls, loss, lr):
        return super().__new__(cls, loss, lr * 2)


@dataclasses.dataclass
class Record:
    loss: object
    lr: float


Pair = collections.namedtuple("Pair", "loss lr")


def in_place(loss, lr):
    made = {"loss": loss}
    made |= {"lr": lr}
    return made


def with_default(loss, lr):
    made = {"loss": loss}
    return made.setdefault("lr", lr), made.setdefault("lr", 0.0), made


def changed_afterwards(loss, lr):
    made = dict([("lr", lr), ("loss", loss)])
    other = made.copy()
    made["lr"] = other.pop("lr") + 1
    return made, other


KEEPERS = {
    "NamedTuple": Named,
    "namedtuple": lambda loss, lr: Pair(loss, lr=lr),
    "namedtuple with code": Checked,
    "made of a list": lambda loss, lr: Pair._make([loss, lr]),
    "as a dict": lambda loss, lr: Pair(loss, lr)._asdict(),
    "joined": lambda loss, lr: {"loss": loss} | {"lr": lr},
    "joined in place": in_place,
    "of pairs": lambda loss, lr: dict([("loss", loss), ("lr", lr)]),
    "of a zip": lambda loss, lr: dict(zip(("loss", "lr"), (loss, lr), strict=False), more=lr),
    "with a default": with_default,
    "copied": lambda loss, lr: copy.copy({"loss": loss, "lr": lr}),
    "copied list": lambda loss, lr: copy.copy([loss, lr]),
    "namespace": lambda loss, lr: types.SimpleNamespace(loss=loss, lr=lr),
    "defaultdict": lambda loss, lr: collections.defaultdict(list, {"loss": loss}, lr=lr),
    "OrderedDict": lambda loss, lr: collections.OrderedDict([("loss", loss), ("lr", lr)]),
    "deque": lambda loss, lr: collections.deque([loss, lr]),
    "repeated": lambda loss, lr: [lr] * 3 + 2 * [loss],
    "replaced": lambda loss, lr: dataclasses.replace(Record(loss, 0.0), lr=lr),
    "changed afterwards": changed_afterwards,
}


class Schedule:
    def __init__(self):
        self.lr = 0.1


@pytest.mark.parametrize("keep", KEEPERS.values(), ids=KEEPERS)
def test_one_entry_serves_all_numbers(keep):
    def make():
        schedule = Schedule()

        def step(x):
            schedule.lr *= 0.9
            return keep(x.sum(), schedule.lr)

        return step

    eager, compiled = make(), magpy.compile(make(), backend="eager")
    for i in range(8):
        assert_same(compiled(torch.ones(2) * i), eager(torch.ones(2) * i), str(i))
    stats = magpy.stats(compiled)
    assert (stats.captures, stats.hits, stats.eager_calls) == (1, 7, 0)


OTHER = {
    "a key": lambda loss, lr: {lr: loss},
    "a key in a pair": lambda loss, lr: dict([(lr, loss), ("lr", 1)]),
    "a key in a zip": lambda loss, lr: dict(zip((lr, 2), (loss, lr), strict=False)),
    "a default that is a key": lambda loss, lr: {"a": loss}.setdefault(lr, loss),
    "keys that meet": lambda loss, lr: {lr: 1} | {0.81: 2, 0.729: lr},
    "counted": lambda loss, lr: collections.Counter([lr, lr, 1]),
    "compared": lambda loss, lr: Pair(loss, lr)[1:] == (0.729,) or {"lr": lr} == {"lr": 0.81},
    "so many times": lambda loss, lr: [loss] * int(lr * 4),
}


@pytest.mark.parametrize("keep", OTHER.values(), ids=OTHER)
def test_what_looks_at_the_number_is_as_in_eager(keep):
    def step(x, lr):
        return keep(x.sum(), lr), x + lr

    compiled = magpy.compile(step, backend="eager")
    for i in range(6):
        for lr in (0.9**i, 0.81):
            assert_same(compiled(torch.ones(2) * i, lr), step(torch.ones(2) * i, lr), str(i))
