"""Stores that are refused: their value is computed in a region, the store is Python's."""

import traceback

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import magpy


@pytest.fixture(autouse=True)
def regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


class State:
    def __init__(self):
        self.table = np.zeros((6, 4), np.float32)
        self.n = 0
        self.told = []

    def place(self):
        self.told.append(f"place {self.n}")
        return self.n % 6

    def value(self, h):
        self.told.append("value")
        return (h.sigmoid() * 2).mean(0).detach().numpy()


def row(state, layer, x):
    h = F.relu(layer(x))
    state.table[state.n % 6] = (h.exp() + 1).mean(0).detach().numpy()
    state.n += 1
    return torch.tanh(layer(h))


def in_order(state, layer, x):
    h = F.relu(layer(x))
    state.table[state.place()] = state.value(h)
    state.n += 1
    return torch.tanh(layer(h))


def a_slice_and_a_name(state, layer, x):
    h = F.relu(layer(x))
    state.table[1:3] = rows = (h * 3).sigmoid()[:2].detach().numpy()
    state.n += 1
    return torch.tanh(layer(h)) + float(rows[0, 0])


def added_to(state, layer, x):
    h = F.relu(layer(x))
    state.table[0] += (h.exp() + 1).mean(0).detach().numpy()
    return torch.tanh(layer(h))


def in_a_loop(state, layer, x):
    for i in range(3):
        x = F.relu(layer(x)) + 1
        state.table[i] = x.softmax(-1).mean(0).detach().numpy()
    return torch.tanh(layer(x))


def and_raises(state, layer, x):
    h = F.relu(layer(x))
    state.table[state.n] = (h.exp() + 1).mean(0).detach().numpy()
    state.n += 1
    return torch.tanh(layer(h))


def outcome(f, state, layer, x):
    try:
        return f(state, layer, x), None
    except IndexError as e:
        lines = [(s.name, s.lineno) for s in traceback.extract_tb(e.__traceback__)]
        return None, (str(e), lines[1:])


@pytest.mark.parametrize(
    ("f", "share"),
    [
        (row, 0.8),
        (in_order, 0.7),
        (a_slice_and_a_name, 0.7),
        (added_to, 0.3),  # its target is read before the value
        (in_a_loop, 0.7),
        (and_raises, 0.8),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_the_value_is_computed_in_a_region(f, share):
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 4)
    state, other = State(), State()
    compiled = magpy.compile(f, backend="eager")
    for _ in range(12):
        x = torch.randn(3, 4)
        got, want = outcome(compiled, state, layer, x), outcome(f, other, layer, x)
        assert got[1] == want[1]
        assert (got[0] is None) == (want[0] is None)
        assert got[0] is None or torch.equal(got[0], want[0])
        assert np.array_equal(state.table, other.table)
        assert (state.n, state.told) == (other.n, other.told)
    assert magpy.stats(compiled).share >= share
