"""Marks of a profiler whose names differ from call to call."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import profile, record_function

import magpy


def numbered(x, i):
    with record_function(f"step_{i}"):
        return x * 2


def nested(x, i):
    with record_function(f"step_{i}"):
        y = x * 2
        with record_function("inner", f"mark {i + 1}"):
            y = y + i
        with record_function("other"):
            y = y.sin()
    return y + 1


def of_a_class(x, i):
    with record_function(f"step_of {type(x).__name__} {len(x)}"):
        return x.sum() * i


def entered_by_hand(x, i):
    mark = record_function(f"step_{i:04d}")
    mark.__enter__()
    y = x + i
    mark.__exit__(None, None, None)
    return y * 2, mark.name


@pytest.mark.parametrize("program", [numbered, nested, of_a_class, entered_by_hand])
def test_names_that_differ(program):
    compiled = magpy.compile(program, backend="eager")
    for i in range(2, 9):
        x = torch.arange(float(i))
        want = program(x, i)
        with profile():
            got = compiled(x, i)
        assert str(got) == str(want)
    stats = magpy.stats(compiled)
    assert stats.captures <= 3, stats.misses_by
    assert stats.share == 1.0
