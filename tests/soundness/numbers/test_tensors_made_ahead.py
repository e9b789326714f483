"""A tensor made of numbers is made ahead of the graph: not of what the call changes by then."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import magpy
from tests.comparison import assert_same
from tests.soundness.worlds import attempt


def list_is_changed_before(x, v):
    v[0] = x.sum().item()
    return torch.tensor(v) * x


def list_is_changed_after(x, v):
    t = torch.tensor(v)
    v[0] = x.sum().item()
    return t * x, torch.tensor(v)


def array_is_changed_after(x, v):
    a = np.array(v)
    t = torch.tensor(a)
    a[0] = 7
    return t * x, torch.tensor(a)


def array_shares_its_memory(x, v):
    a = np.array(v)
    t = torch.from_numpy(a)
    t.add_(1)
    return t * x, a.tolist(), torch.as_tensor(a)


def array_is_changed_in_place(x, v):
    a = np.asarray(v)
    t = torch.as_tensor(a)
    s = t.sum().item()
    np.multiply(a, 2, out=a)
    return t * x, torch.tensor(a), s


def made_tensor_is_changed(x, v):
    n = x.sum().item()
    t = torch.tensor([n, n + 1])
    t[0] = 5
    return t, torch.tensor([n, n + 1])


def array_of_a_tensor_that_is_changed(x, v):
    a = x.numpy()
    t = torch.tensor(a)
    x.add_(1)
    return t, torch.tensor(a), torch.as_tensor(a)


def number_of_an_array_of_a_tensor(x, v):
    a = x.numpy()
    n = float(a[0])
    t = torch.tensor(n)
    x.mul_(2)
    return t * x, torch.tensor(float(a[0]))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", lambda graph, inputs: graph.forward])
@pytest.mark.parametrize(
    "program",
    [
        *(list_is_changed_before, list_is_changed_after, array_is_changed_after),
        *(array_shares_its_memory, array_is_changed_in_place, made_tensor_is_changed),
        *(array_of_a_tensor_that_is_changed, number_of_an_array_of_a_tensor),
    ],
)
def test_a_tensor_of_numbers_holds_what_there_was_at_its_place(program, backend):
    c = magpy.compile(program, backend=backend)
    for i in range(7):
        ours, theirs = ((torch.arange(3.0) + i, [i / 2, 2.0, 3.0 + i]) for _ in range(2))
        assert_same(attempt(c, *ours), attempt(program, *theirs))
        assert_same(ours, theirs)
