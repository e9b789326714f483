"""Sizes that functions written in C join to one number: `numel`, `math.prod`, `reduce`."""

from __future__ import annotations

import functools
import math
import operator

import pytest
import torch

import magpy


def numel(x):
    return x.reshape(x.shape.numel()) * x.shape.numel()


def numel_of_some(x):
    return x.reshape(x.shape[:2].numel(), -1) + torch.Size([x.shape[0], 3]).numel()


def numel_unbound(x):
    return x.reshape(torch.Size.numel(x.shape))


def numel_kept(x):
    ask = x.shape.numel
    return x.reshape(ask()) * ask()


def product(x):
    return x.reshape(math.prod(x.shape)) * math.prod(x.shape[:2], start=2)


def reduced(x):
    return x.reshape(functools.reduce(operator.mul, x.shape))


def reduced_from(x):
    sizes = list(x.shape[:2])
    return x.reshape(functools.reduce(operator.mul, sizes, 1), -1) * functools.reduce(
        operator.add, tuple(sizes), 0.5
    )


def largest(x):
    return x * functools.reduce(max, x.shape) + functools.reduce(operator.floordiv, x.shape)


class Batch:
    def __init__(self, x):
        self.x, self.sizes = x, torch.Size(x.shape[:2])


def kept_in_an_object(x):
    batch = Batch(x)
    return batch.x.reshape(batch.sizes.numel(), -1) * len(batch.sizes)


PROGRAMS = [
    *(numel, numel_of_some, numel_unbound, numel_kept, product, reduced, reduced_from, largest),
    kept_in_an_object,
]
SIZES = [(4, 5), (3, 6), (5, 3), (7, 4), (6, 6), (9, 5), (2, 7)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_sizes_stay_symbols(program):
    compiled = magpy.compile(program, backend="eager")
    for first, second in SIZES:
        x = torch.rand(first, second, 4)
        want, got = program(x), compiled(x)
        torch.testing.assert_close(got, want)
        assert got.dtype is want.dtype
    stats = magpy.stats(compiled)
    assert (stats.captures, stats.eager_calls) == (2, 0) or program is largest, stats.misses_by


def test_sizes_of_an_argument_that_is_an_object():
    def f(batch):
        return batch.x.reshape(batch.sizes.numel(), -1)

    compiled = magpy.compile(f, backend="eager")
    for first, second in SIZES:
        batch = Batch(torch.rand(first, second, 4))
        torch.testing.assert_close(compiled(batch), f(batch))
    assert magpy.stats(compiled).captures == 2


@pytest.mark.parametrize(
    "program",
    [
        lambda x: functools.reduce(operator.mul, [x.shape[0], x, 2.0]),
        lambda x: functools.reduce(operator.iadd, [x.shape[0], x.shape[1]], 0) * x,
        lambda x: functools.reduce(operator.concat, [(x.shape[0],), (2,)]),
        lambda x: functools.reduce(operator.getitem, [0], [x.shape[0], 2]),
        lambda x: functools.reduce(operator.mul, [], x.shape[0]),
    ],
)
def test_what_else_is_reduced(program):
    compiled = magpy.compile(program, backend="eager")
    for first, second in SIZES:
        x = torch.rand(first, second)
        torch.testing.assert_close(compiled(x), program(x))


def test_what_cannot_be_reduced_raises():
    compiled = magpy.compile(lambda x: functools.reduce(operator.mul, x.shape[2:]), backend="eager")
    for first, second in SIZES[:3]:
        with pytest.raises(TypeError, match="empty"):
            compiled(torch.rand(first, second))
    raising = magpy.compile(lambda x: x.shape.numel(1), backend="eager")
    for first, second in SIZES[:3]:
        with pytest.raises(TypeError):
            raising(torch.rand(first, second))
