"""Small arrays that are reached are compared; once one holds something else they are inputs.

Where the program writes to one that is an input, they are compared again.
"""

import numpy as np
import pytest
import torch

import magpy

WEIGHT = torch.linspace(-1, 1, 16).reshape(4, 4)


@pytest.fixture(autouse=True)
def _in_part(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


class Statistics:
    """What a program keeps in arrays from call to call."""

    def __init__(self):
        self.mean, self.table = np.arange(4.0), np.zeros((2, 4))
        self.counts = [np.zeros(4, np.int64)]
        self.n = 0


def replaced(kept):
    def f(x):
        kept.n += len(x)
        kept.mean = kept.mean + (x.numpy() - kept.mean).sum(0) / kept.n
        return (x - torch.from_numpy(kept.mean).float()) @ WEIGHT

    return f


def replaced_in_a_list(kept):
    def f(x):
        kept.counts[0] = kept.counts[0] + (x.numpy() > 0).sum(0)
        return x @ WEIGHT + torch.from_numpy(kept.counts[0])

    return f


def read(kept):
    def f(x):
        return x @ WEIGHT + float(kept.mean[1])

    return f


def decided(kept):
    def f(x):
        return x @ WEIGHT if kept.mean.sum() > 8 else x - 1

    return f


def changed_in_place(kept):
    def f(x):
        kept.mean += x.numpy().mean(0)
        return x @ WEIGHT + torch.from_numpy(kept.mean.copy()).float()

    return f


def item_written(kept):
    def f(x):
        kept.table[kept.n % 2, 1] = float(x.sum())
        kept.n += 1
        return x @ WEIGHT + float(kept.table[0, 1])

    return f


def written_by_tensor(kept):
    def f(x):
        torch.from_numpy(kept.mean).add_(x[0])
        return x @ WEIGHT

    return f


def written_by_numpy(kept):
    def f(x):
        np.add(kept.mean, x[0].numpy(), out=kept.mean)
        return x @ WEIGHT + float(kept.mean[0])

    return f


def one_replaced_and_one_written(kept):
    def f(x):
        kept.mean = kept.mean * 0.5 + x.numpy().mean(0)
        kept.table[0] = 3.0
        return x @ WEIGHT + torch.from_numpy(kept.mean).float()

    return f


def caught(kept):
    def f(x):
        try:
            kept.mean[int(kept.n)] += 1
        except IndexError:
            kept.mean = np.zeros(4)
            kept.n = 0
        kept.n += 1
        return x @ WEIGHT + float(kept.mean[0])

    return f


ONLY_READ = [replaced, replaced_in_a_list, read, decided]
WRITTEN = [
    changed_in_place,
    item_written,
    written_by_tensor,
    written_by_numpy,
    one_replaced_and_one_written,
    caught,
]


def held(kept):
    return [kept.mean.copy(), kept.table.copy(), kept.counts[0].copy(), np.array(kept.n)]


def run_both(use, between=lambda kept, i: None, calls=12):
    """Runs a program in eager and compiled, in step; gives the figures."""
    there, here = Statistics(), Statistics()
    eager, compiled = use(there), magpy.compile(use(here), backend="eager")
    for i in range(calls):
        for kept in (there, here):
            between(kept, i)
        x = torch.linspace(-i, 2, 12).reshape(3, 4)
        mean, other = there.mean, here.mean
        assert torch.equal(compiled(x), eager(x)), i
        assert (mean is there.mean) is (other is here.mean)
        for a, b in zip(held(there), held(here), strict=True):
            assert a.dtype == b.dtype
            assert np.array_equal(a, b), i
    return magpy.stats(compiled)


@pytest.mark.parametrize("use", ONLY_READ, ids=lambda f: f.__name__)
def test_what_they_hold_is_an_input_at_its_second_value(use):
    def between(kept, i):
        if use in (read, decided):
            kept.mean[1] = i

    stats = run_both(use, between)
    assert stats.captures <= 3
    assert stats.hits >= 9
    assert stats.eager_calls == 0


@pytest.mark.parametrize("use", WRITTEN, ids=lambda f: f.__name__)
@pytest.mark.parametrize("others", [False, True])
def test_those_that_the_program_writes_to_are_right(use, others):
    def between(kept, i):
        if others and i % 5 == 4:
            kept.mean = kept.mean + i

    stats = run_both(use, between)
    assert stats.captures <= 6
    assert stats.hits >= 4


def test_what_is_read_as_a_whole_is_compared():
    there = np.arange(4.0)

    def f(x):
        return x + len(there.tobytes()) + list(there)[1]

    compiled = magpy.compile(f, backend="eager")
    x = torch.ones(3)
    for i in range(8):
        there[1] = i // 2
        assert torch.equal(compiled(x), f(x))


def test_an_array_of_another_form_is_captured_anew():
    kept = Statistics()
    compiled = magpy.compile(lambda x: x + float(kept.mean[0]), backend="eager")
    x = torch.ones(3)
    forms = [np.arange(4.0), np.ones(4), np.ones(4) * 3, np.ones(4, np.float32), np.ones(8)[::2]]
    for array in forms * 3:
        kept.mean = array
        assert torch.equal(compiled(x), x + float(array[0]))
    assert magpy.stats(compiled).hits >= 8


def test_a_tensor_of_the_memory_is_seen_to_change():
    kept = Statistics()
    shared = torch.from_numpy(kept.mean)

    def f(x):
        return x + shared + float(kept.mean[0])

    compiled = magpy.compile(f, backend="eager")
    x = torch.ones(4)
    for i in range(8):
        shared.fill_(i)
        assert torch.equal(compiled(x), f(x))
