"""A local that nobody reads holds an object until its function ends: a guard, a lock, a directory.

A region that assigns one gives it to the driver, which keeps it as eager's frame does.
"""

import os

import pytest
import torch
from torch import nn

import magpy


class Guard:
    """Counts while it lives."""

    alive = 0

    def __init__(self):
        Guard.alive += 1

    def __del__(self):
        Guard.alive -= 1


LAYER = nn.Linear(4, 4).eval()


def odd():
    open(os.devnull).close()


def until_the_end(x):
    guard = Guard()  # noqa: F841
    y = LAYER(x)
    odd()
    return y + Guard.alive, Guard.alive


def one_after_another(x):
    guard = Guard()
    y = LAYER(x)
    odd()
    guard = Guard()  # noqa: F841
    y = y * 2
    odd()
    return y + Guard.alive, Guard.alive


def in_a_loop(x):
    seen = []
    for _ in range(3):
        guard = Guard()  # noqa: F841
        x = LAYER(x).relu()
        odd()
        seen.append(Guard.alive)
    return x, seen, Guard.alive


def in_a_branch(x):
    if x.shape[0] > 1:
        guard = Guard()  # noqa: F841
        x = LAYER(x)
        odd()
    return x + Guard.alive


def in_a_branch_before(x):
    if x.shape[0] > 1:
        guard = Guard()  # noqa: F841
        x = LAYER(x)
    odd()
    return x + Guard.alive


def in_a_loop_before(x):
    for _ in range(2):
        guard = Guard()  # noqa: F841
        x = LAYER(x)
    odd()
    return x + Guard.alive


def in_a_with_before(x):
    with torch.no_grad():
        guard = Guard()  # noqa: F841
        x = LAYER(x)
    odd()
    return x + Guard.alive


def let_go_early(x):
    guard = Guard()
    y = LAYER(x)
    odd()
    del guard
    return y + Guard.alive


def in_a_called_function(x):
    y, alive = until_the_end(x)
    odd()
    return y * 2, alive, Guard.alive


PROGRAMS = [
    until_the_end,
    one_after_another,
    in_a_loop,
    in_a_branch,
    in_a_branch_before,
    in_a_loop_before,
    in_a_with_before,
    let_go_early,
    in_a_called_function,
]


@pytest.fixture(autouse=True)
def _regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_lives_as_long_as_in_eager(program):
    compiled = magpy.compile(program, backend="eager")
    with torch.no_grad():
        for i in range(6):
            x = torch.full((2, 4), float(i))
            got, wanted = compiled(x), program(x)
            assert repr(got) == repr(wanted)
            assert Guard.alive == 0
    assert magpy.stats(compiled).hits
