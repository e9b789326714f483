"""An index taken apart into views gives what torch's own indexing gives."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from magpy.shapes.indexing import taken_apart

ITEMS = [
    2,
    0,
    -1,
    slice(None),
    slice(1, None),
    slice(0, 3, 2),
    None,
    Ellipsis,
    torch.tensor([0, 1, 1]),
    torch.tensor([[1], [0]], dtype=torch.int32),
]


def values():
    return torch.arange(3.0 * 4 * 5 * 3).reshape(3, 4, 5, 3)


def indices():
    """Every index of one and two items, and many of up to six."""
    yield from ((a,) for a in ITEMS)
    yield from itertools.product(ITEMS, repeat=2)
    dice = random.Random(0)
    for _ in range(600):
        yield tuple(dice.choice(ITEMS) for _ in range(dice.randint(3, 6)))


def by_views(tensor, index, varies=lambda n: True):
    return taken_apart(tensor, index, varies, lambda f, args: f(*args))


def outcome(f):
    try:
        return f()
    except (IndexError, RuntimeError, ValueError) as e:
        return type(e)


def test_reads():
    done = 0
    for index in indices():
        tensor = values().requires_grad_()
        want = outcome(lambda tensor=tensor, index=index: tensor[index])
        found = by_views(tensor, index)
        if found is None:
            twice = sum(i is Ellipsis for i in index) > 1  # torch takes it
            assert isinstance(want, type) or twice or int not in map(type, index), index
            continue
        view, left = found
        got = outcome(lambda view=view, left=left: view if left is Ellipsis else view[left])
        if isinstance(want, type):
            assert got is want, index
            continue
        done += 1
        assert torch.equal(got, want), index
        assert (got.stride(), got.storage_offset()) == (want.stride(), want.storage_offset())
        assert type(got.grad_fn) is type(want.grad_fn), index
        gradients = [torch.autograd.grad((t * t).sum(), tensor)[0] for t in (got, want)]
        assert torch.equal(*gradients), index
    assert done > 100


def test_stores():
    done = 0
    for index in indices():
        want, got = values(), values()
        found = by_views(got, index)
        if found is None:
            continue
        view, left = found
        for value in (-1.0, torch.tensor([-2.0]), torch.arange(3.0), torch.ones(7)):
            a = outcome(lambda v=value, w=want, i=index: w.__setitem__(i, v))
            b = outcome(lambda v=value, w=view, i=left: w.__setitem__(i, v))
            assert a is b, index
            assert torch.equal(got, want), index
            done += a is None
    assert done > 200


@pytest.mark.parametrize(
    "index",
    [
        True,
        (1, True),
        [1, 2],
        (0, [1]),
        (1, torch.tensor([True, False, True, True])),
        (1, torch.tensor(1)),
        (1, torch.tensor([1], dtype=torch.uint8)),
        (1, "a"),
        3,
        (0, 4),
        -4,
        (0, 0, 0, 0, 0),
        (1, Ellipsis, Ellipsis),
    ],
)
def test_others_are_left_alone(index):
    def operate(f, args):
        raise AssertionError("an operation was done")

    assert taken_apart(values(), index, lambda n: True, operate) is None


def test_numbers_that_do_not_vary_are_left_alone():
    assert by_views(values(), (1, slice(2)), lambda n: False) is None
