"""Checks that always hold are left out, and no others: on steps written by hand, and end to end."""

import operator
import os
import time

import pytest
import torch
from torch import nn

import magpy
from magpy.ir.ops import CheckValue, Fresh, OpStep, OutsideRef, Record, Ref, Var
from magpy.replay.passes.constant_checks import without_constant_checks
from tests.comparison import assert_same

X, A, B, C = map(Var, range(4))


def op(func, args, out, **more):
    return OpStep(func, args, {}, [((), out)], **more)


def check(func, *args, **more):
    return CheckValue(func, args, {}, expected=True, **more)


def kept(steps, needed=(), **more):
    record = Record(storages={X: 1, A: 2, B: 3, C: 4}, **more)
    return without_constant_checks(steps, set(needed), record)


MADE = op(torch.arange, (5,), A)
COMPARED = op(torch.Tensor.lt, (Ref(A), 9), B)
CHECKED = check(torch.Tensor.all, Ref(B))


def test_what_follows_from_constants_is_left_out():
    assert kept([MADE, COMPARED, CHECKED]) == []
    other = op(torch.Tensor.add, (Ref(X), Ref(A)), C)
    assert kept([MADE, COMPARED, CHECKED, other]) == [MADE, other]
    assert kept([MADE, COMPARED, CHECKED], needed=[B]) == [MADE, COMPARED]


@pytest.mark.parametrize(
    "steps",
    [
        [op(torch.Tensor.lt, (Ref(X), 9), B), CHECKED],
        [op(torch.randint, (5,), A, random=True), COMPARED, CHECKED],
        [op(torch.empty, (5,), A), COMPARED, CHECKED],
        [op(torch.asarray, (OutsideRef([1]),), A), COMPARED, CHECKED],
        [op(torch.asarray, (Fresh(bytearray(4)),), A), COMPARED, CHECKED],
        [op(lambda n: None, (5,), A), COMPARED, CHECKED],
        [op(torch.arange, (5,), A, unrepeatable=True), COMPARED, CHECKED],
        [
            MADE,
            COMPARED,
            OpStep(torch.Tensor.add_, (Ref(B), Ref(X)), {}, [], mutates=True),
            CHECKED,
        ],
        [MADE, COMPARED, check(torch.Tensor.all, Ref(B), owner=object())],
        [MADE, COMPARED, check(operator.eq, Ref(B), Ref(X))],
    ],
)
def test_what_may_vary_is_kept(steps):
    assert kept(list(steps)) == list(steps)


def test_a_value_from_elsewhere_is_kept():
    clock = check(time.ctime)
    assert kept([clock]) == [clock]
    f = magpy.compile(lambda x: (x + 1, os.urandom(8)), backend="eager")
    assert len({f(torch.ones(1))[1] for _ in range(4)}) == 4


def test_floating_point_numbers_and_classes_of_tensors_are_kept():
    steps = [MADE, COMPARED, CHECKED]
    assert kept(steps, floating={A}) == steps
    assert kept(steps, types={A: nn.Parameter}) == steps


def test_nothing_is_computed_ahead_for_a_check_of_sizes():
    def f(x):
        places = torch.arange(x.shape[1])
        if (places.diff() == 1).all():
            return x + places
        return x

    def g(x):
        return x * 2 if (torch.ones(x.shape[1], dtype=torch.long).cumsum(0) > x[0]).all() else x

    for program, constant in ((f, True), (g, False)):
        c = magpy.compile(program, backend="eager", dynamic=False)
        for x in (torch.zeros(2, 3), torch.ones(2, 3), torch.full((2, 3), 9.0), torch.ones(2, 5)):
            for _ in range(2):
                assert_same(c(x), program(x))
        plans = [e.tag.text for e in magpy.api.find(c)._magpy_entries]
        assert all(("return MISS" in text) != constant for text in plans)
        assert magpy.stats(c).captures == (2 if constant else 3)
