"""Operators between tensors and numpy's arrays, which torch leaves to numpy."""

from __future__ import annotations

import pytest

from tests.fuzz import worlds

TENSORS = {
    "an argument": "x",
    "made": "x + 1",
    "outside": "q",
    "a number": "x.sum()",
    "a parameter": "par.detach()",
}
ARRAYS = {
    "made": "lin(x).detach().numpy()",
    "computed": "(x * 2).numpy() + 0",
    "outside": "arr",
    "an argument": "y",
    "a constant": "np.arange(3.0, dtype='float32')",
}
USES = """
p * a | p + a | p - a | p / a | p @ a | p ** a | p == a | p != a | p % a | a == p
p * a[0] | a[0] * p | a[0] > p | p == a[0] | (-p) * a | a.sum() * p | p * a.sum()
operator.mul(p, a) | operator.eq(p, a) | pow(p, a) | divmod(p, a) | p.__mul__(a) | p.__rmul__(a)
np.multiply(p, a) | np.where(a > 0, p, a) | functools.reduce(operator.mul, [p, a])
list(map(operator.mul, [p], [a]))[0] | add(p.clone(), a) | p[a > 2] | a[p > 2]
"""
PROGRAM = """
import functools, operator
import numpy as np, torch
from torch import nn
lin = nn.Linear(3, 3).requires_grad_(False)
arr = np.ones(3, dtype="float32")
q = torch.ones(3)
par = nn.Parameter(torch.ones(3))
def add(u, v):
    u += v
    return u
def f(x, y):
    p = {tensor}
    a = {array}
    r = {use}
    return r, type(r).__name__
target = f
def steps(f):
    ones = np.ones(3, dtype="float32")
    yield attempt(f, torch.arange(3.0) + 1, ones)
    yield attempt(f, torch.arange(3.0) + 1, ones)
    yield attempt(f, torch.arange(3.0) + 2, ones * 3)
    global arr
    lin.weight.add_(1)
    arr += 2
    q.add_(1)
    par.data.mul_(2)
    yield attempt(f, torch.arange(3.0) + 5, ones * 4)
    arr[0] = 7
    lin.bias.add_(1)
    yield attempt(f, torch.arange(3.0) + 5, ones * 4)
"""


@pytest.mark.parametrize("array", ARRAYS)
@pytest.mark.parametrize("tensor", TENSORS)
def test_operators(tensor, array):
    hits = 0
    for use in (u.strip() for line in USES.strip().splitlines() for u in line.split("|")):
        source = PROGRAM.format(tensor=TENSORS[tensor], array=ARRAYS[array], use=use)
        report = worlds.run(source)
        assert report.finding is None, use
        hits += report.hits
    assert hits >= 20
