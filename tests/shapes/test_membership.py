"""`in` of a few numbers that are followed: each comparison is a condition, and no size is fixed."""

from __future__ import annotations

import pytest
import torch

import magpy

NAN = float("nan")
KINDS = {
    "of a constant": (lambda x, y: x.shape[0] in (100, 200), 2),
    "of another size": (lambda x, y: y.shape[0] in (1, x.shape[0]), 2),
    "in a list": (lambda x, y: x.shape[0] in [300, y.shape[0]], 2),
    "not in": (lambda x, y: x.shape[0] not in (100, x.shape[1]), 3),
    "two ways": (lambda x, y: x.shape[0] in (7, 9), 4),
    "a float": (lambda x, y: float(x.shape[0]) in (100.0, 200), 2),
    "itself": (lambda x, y: (n := x.shape[0]) in (n, 3), 2),
    "not a number": (lambda x, y: NAN in (x.shape[0], NAN), 2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_membership_among_sizes(kind):
    asks, most = KINDS[kind]

    def f(x, y):
        return x + 1 if asks(x, y) else x * 2

    compiled = magpy.compile(f, backend="eager")
    for rows in (4, 7, 6, 5, 3, 8, 9, 4, 7, 10, 3):
        x, y = torch.ones(rows, 3), torch.ones(rows, 3)
        assert torch.equal(compiled(x, y), f(x, y))
    assert magpy.stats(compiled).captures <= most
    assert magpy.stats(compiled).share == 1.0


def test_membership_among_other_things():
    class Odd:
        def __eq__(self, other):
            return other == 4

        __hash__ = None

    def f(x, odd):
        n = int(x.sum())
        return x + (n in (12, 15)), n in (True, odd), x.shape[0] in (odd, 9), 5 in [n, odd]

    compiled = magpy.compile(f, backend="eager")
    for rows in (4, 7, 6, 5, 3, 8, 9, 4):
        x, odd = torch.ones(rows, 3), Odd()
        result, expected = compiled(x, odd), f(x, odd)
        assert torch.equal(result[0], expected[0])
        assert result[1:] == expected[1:]
