"""Marks of a profiler whose names differ from call to call: an entry gives each its name."""

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


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [numbered, nested, of_a_class, entered_by_hand])
def test_names_that_differ(program, backend):
    compiled = magpy.compile(program, backend=backend)
    for i in range(2, 9):
        x = torch.arange(float(i))
        with profile() as eager:
            want = program(x, i)
        with profile() as watched:
            got = compiled(x, i)
        torch.testing.assert_close(got, want) if program is not entered_by_hand else None
        if program is entered_by_hand:
            torch.testing.assert_close(got[0], want[0])
            assert got[1] == want[1]
        assert _marks(watched) == _marks(eager)
    stats = magpy.stats(compiled)
    assert stats.captures <= 3, stats.misses_by
    assert stats.share == 1.0


def _marks(found):
    names = ("step_", "inner", "other", "mark")
    events = sorted(found.events(), key=lambda e: e.time_range.start)
    return [e.name for e in events if e.name.startswith(names)]
