"""Which conditions say of a size that it is not 1, and what is asked where sizes may be 1."""

from __future__ import annotations

import pytest
import sympy
import torch
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic

from magpy.shapes.environment import any_size, environment, is_not_one

S, T = (sympy.Symbol(name, integer=True, positive=True) for name in "st")


@pytest.mark.parametrize(
    "condition",
    [S > 1, S >= 2, 1 < S, S - 1 > 0, 1 - S < 0, sympy.Ne(S, 1), sympy.Ne(4, 4 * S), 2 * S > 2],
    ids=str,
)
def test_a_size_is_not_one(condition):
    assert is_not_one(condition, {S})
    assert not is_not_one(condition, {T})


@pytest.mark.parametrize(
    "condition",
    [S > 2, S < 1, S <= 1, sympy.Eq(S, 1), sympy.Ne(S - 1, 1), S * S > 1, S * T > 1, S - T > 0],
    ids=str,
)
def test_something_else_is_said(condition):
    assert not is_not_one(condition, {S})


@pytest.fixture
def env():
    return environment()(duck_shape=False)


@pytest.fixture
def size(env):
    source = ConstantSource("size")
    symbol = env.create_size(5, source, DimDynamic.DYNAMIC)
    return env.create_symintnode(symbol, hint=5, source=source)


def test_where_it_makes_no_difference_nothing_becomes_a_condition(env, size):
    with any_size(env):
        assert not bool(size == 1)
        assert bool(size * 8 != 8)
        assert bool(size * 4 >= 2)
    assert env.guards == []
    assert not bool(size == 1)
    assert len(env.guards) == 1


def test_bounds_and_what_is_left_are_asked_for(env, size):
    with any_size(env, bounded=True):
        assert not bool(size == 1)
        assert env.guards == []
        assert bool(size > 1)
    assert len(env.guards) == 1


def test_what_is_less_than_a_size_is_asked_for(env, size):
    with any_size(env):
        assert bool(size - 1 != 0)
    assert len(env.guards) == 1


def test_a_size_that_only_a_kernel_goes_by(env, size):
    symbols = frozenset(size.node.expr.free_symbols)
    with any_size(env, bounded=True, of_kernels=symbols):
        assert bool(size < 16)
    assert env.guards == []


def test_nothing_is_left_of_a_size_of_one(env, size):
    for left in (size, size * 3, size + 1, size - 4):
        env.keep_positive(left)
    assert env.guards == []  # of these none is 0 for a size of 1 alone
    env.keep_positive(size // 2)
    env.keep_positive(size - 1)
    assert env.guards
    assert all(torch.utils._sympy.numbers.int_oo not in g.expr.atoms() for g in env.guards)
    symbol = size.node.expr
    for n, holds in ((1, False), (2, True), (9, True)):
        assert all(bool(g.expr.subs(symbol, n)) for g in env.guards) is holds
