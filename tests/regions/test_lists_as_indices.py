"""Lists of integers that index tensors, others in each call: inputs, in a region too."""

from __future__ import annotations

import os
import types

import pytest
import torch

import magpy

ODD = [
    [0, 1],
    [1, 2],
    [3],
    [7, 6, 5],
    [True] * 8,
    [True, False] * 4,
    [],
    [0.5],
    [9],
    [-1, -8],
    [0, 0],
    [[0, 1], [1, 2]],
    [2, True],
    [None],
    (1, 2),
    3,
    slice(2),
    torch.tensor([1, 2]),
    [torch.tensor(1), 2],
    [2**70],
    list(range(8)) * 8,
]


@pytest.fixture(autouse=True)
def _regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def got(f, *args):
    try:
        return f(*args)
    except Exception as e:  # noqa: BLE001 - whatever it is, it must be the same
        return type(e), str(e)


def row(x, i):
    return x[i] * 2 + 1


def column(x, i):
    return x[:, i].sum(-1).expand(5, -1)


def stored(x, i):
    y = x.clone()
    y[i] = 0.0
    y[i] += 3
    return y + 1


def stored_in_a_column(x, i):
    y = x.clone()
    y[..., i] = -1.0
    return y


@pytest.mark.parametrize("f", [row, column, stored, stored_in_a_column])
def test_whatever_an_index_is_it_selects_what_it_does_in_eager(f):
    compiled = magpy.compile(f, backend="eager")
    x = torch.arange(64.0).reshape(8, 8)
    for index in ODD + ODD:
        expected, result = got(f, x, index), got(compiled, x, index)
        if isinstance(expected, torch.Tensor):
            assert torch.equal(result, expected) and result.stride() == expected.stride(), index
        else:
            assert result == expected, index


HOLDER = types.SimpleNamespace(ids=[], batch={})
WEIGHT = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))


def given(ids, x):
    return (WEIGHT[ids].mean(0) + x).relu()


def of_an_attribute(ids, x):
    return (WEIGHT[HOLDER.ids].mean(0) + x).relu()


def of_a_dict(ids, x):
    return (WEIGHT[HOLDER.batch["ids"]].mean(0) + x).relu()


def two_lists(ids, x):
    return (WEIGHT[ids, [0] * len(ids)].sum() + x).relu()


def within_a_tuple(ids, x):
    return (WEIGHT[:, None, :][ids, :, 1:3].sum() + x).relu()


def stores(ids, x):
    y = torch.zeros(50, 8)
    y[ids] = 1.0
    y[ids] += x[:1]
    return (y.sum(0) + x).relu()


def beside_a_refused_line(ids, x):
    os.listdir("/dev")  # a line that is refused
    return (WEIGHT[ids].mean(0) + x).relu()


def computed_in_the_index(ids, x):
    return (x[:, [i % 8 for i in ids]].sum(1, keepdim=True) + x).relu() + 1


@pytest.mark.parametrize(
    ("f", "share"),
    [
        (given, 0.8),
        (of_an_attribute, 0.8),
        (of_a_dict, 0.8),
        (two_lists, 0.7),
        (within_a_tuple, 0.8),
        (stores, 0.7),
        (beside_a_refused_line, 0.8),
        (computed_in_the_index, 0.8),
    ],
)
def test_a_list_that_differs_is_an_input(f, share):
    compiled = magpy.compile(f, backend="eager")
    for i in range(14):
        ids = [(i * 7 + j * 3) % 50 for j in range(3 if i % 3 else 4)]
        HOLDER.ids, HOLDER.batch["ids"] = ids[:], ids[:]
        x = torch.full((2, 8), 0.5 + i)
        assert torch.equal(compiled(ids, x), f(ids, x))
    stats = magpy.stats(compiled)
    assert stats.captures <= 4
    assert stats.share >= share


def test_gradients_of_what_lists_select():
    weight = torch.nn.Parameter(torch.randn(8, 4))

    def loss(ids):
        return (weight[ids] ** 2).sum()

    compiled = magpy.compile(loss, backend="eager")
    for ids in ([0, 1], [1, 1], [2, 2, 2], [5, 0], [7, 3, 1]):
        weight.grad = None
        loss(ids).backward()
        expected, weight.grad = weight.grad, None
        compiled(ids).backward()
        assert torch.equal(weight.grad, expected)
    assert magpy.stats(compiled).captures <= 3
