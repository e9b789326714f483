"""Large arrays in closures, attributes and containers are inputs, as arguments are."""

import numpy as np
import pytest
import torch

import magpy
from magpy.capture.python.callbacks import LARGE

X = torch.ones(4)
WEIGHT = torch.linspace(-1, 1, 32).reshape(8, 4)


class Set:
    def __init__(self, array):
        self.rows = array


def test_they_are_large():
    assert made().nbytes >= LARGE


def closure(use):
    rows = made()
    return (lambda x, i: use(x, rows, i)), rows, ()


def attribute(use):
    data = Set(made())
    return (lambda x, i: use(x, data.rows, i)), data.rows, ()


def listed(use):
    data = [made()]
    return (lambda x, i: use(x, data[0], i)), data[0], ()


def of_argument(use):
    data = Set(made())
    return (lambda x, i, given: use(x, given.rows, i)), data.rows, (data,)


def made():
    return np.arange(16_384.0).reshape(2048, 8) % 7


def scalar(x, rows, i):
    return x + float(rows[i, 3])


def row(x, rows, i):
    return torch.from_numpy(rows[i]).float() @ WEIGHT + x


def batch(x, rows, i):
    return torch.tensor(rows[i : i + 2], dtype=torch.float32) @ WEIGHT + x


def chosen(x, rows, i):
    return (torch.from_numpy(rows[np.array([i, 0])]).float() @ WEIGHT).sum(0) + x


def normalised(x, rows, i):
    return torch.from_numpy((rows[i] - rows.mean(0)) / (1 + rows.std(0))).float() @ WEIGHT + x


def measured(x, rows, i):
    return x * len(rows) + rows.shape[1] + rows.size


def decided(x, rows, i):
    return x + 1 if rows.max() > 7 else x - 1


def given_back(x, rows, i):
    return x + 1, rows


def compared(x, rows, i):
    return x * bool((rows == rows[0]).any())


@pytest.mark.parametrize("holder", [closure, attribute, listed, of_argument])
@pytest.mark.parametrize(
    "use",
    [scalar, row, batch, chosen, normalised, measured, decided, given_back, compared],
    ids=lambda f: f.__name__,
)
def test_arrays_that_change_in_place(use, holder):
    f, rows, more = holder(use)
    compiled = magpy.compile(f, backend="eager")
    for i in range(9):
        if i % 3 == 2:
            rows[i % 4] += i
        expected, got = f(X, i, *more), compiled(X, i, *more)
        if use is given_back:
            assert got[1] is rows
            expected, got = expected[0], got[0]
        assert torch.equal(got, expected)
    stats = magpy.stats(compiled)
    assert stats.captures <= 3
    assert stats.hits >= 6


def test_another_array_is_served_if_it_lies_the_same():
    data = Set(made())
    compiled = magpy.compile(lambda x: x + float(data.rows[1, 3]), backend="eager")
    for i, rows in enumerate(
        [made(), made() + 1, made()[::-1], made().astype(np.float32), made()[:5], made() + 2]
    ):
        data.rows = rows
        assert torch.equal(compiled(X), X + float(rows[1, 3])), i


def change_by_tensor(rows):
    torch.from_numpy(rows).add_(1)


def change_by_item(rows):
    rows[0, 0] = 5.0


def change_in_place(rows):
    rows += 1


def change_by_method(rows):
    rows.fill(2.0)


def change_by_out(rows):
    np.negative(rows, out=rows)


def change_by_view(rows):
    rows[1:3] *= 2


@pytest.mark.parametrize(
    "change",
    [
        change_by_tensor,
        change_by_item,
        change_in_place,
        change_by_method,
        change_by_out,
        change_by_view,
    ],
    ids=lambda f: f.__name__,
)
def test_an_array_that_the_call_changes(change):
    there, here = made(), made()

    def program(rows):
        def f(x):
            y = x + float(rows[0, 0])
            change(rows)
            return y + float(rows[1, 1]), torch.from_numpy(rows[0].copy())

        return f

    eager, compiled = program(there), magpy.compile(program(here), backend="eager")
    for _ in range(6):
        for a, b in zip(eager(X), compiled(X), strict=True):
            assert torch.equal(a, b)
        assert np.array_equal(there, here)


def test_entries_hold_no_copy_of_an_array():
    rows = np.zeros((1000, 1000))
    compiled = magpy.compile(lambda x: x + float(rows[3, 4]), backend="eager")
    compiled(X)
    assert "contents" not in magpy.explain(lambda x: x + float(rows[3, 4]), X).guard_summary
    rows[3, 4] = 2.0
    assert torch.equal(compiled(X), X + 2)
    assert magpy.stats(compiled).hits == 1


@pytest.mark.parametrize("size", [4, 40_000])
def test_a_copy_of_a_dtype_is_told_from_the_dtype(size):
    own = np.dtype("f4")

    def f(x, rows):
        return x + 1, rows.dtype is own

    compiled = magpy.compile(f, backend="eager")
    for dtype in [own, np.dtype("f4", copy=True)] * 4:
        assert compiled(X, np.zeros(size, dtype))[1] is (dtype is own)
    assert magpy.stats(compiled).hits >= 5
