"""Nested tensors in a program that runs in part.

No entry with one of strided layout among its inputs would ever serve a call: none is made, and what
is asked of it is Python's at once. Those of jagged layout are compared by what they consist of.
"""

import pytest
import torch

import magpy

WEIGHT = torch.linspace(-1, 1, 16).reshape(4, 4)


@pytest.fixture(autouse=True)
def _in_part(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def before(x):
    return torch.relu(x @ WEIGHT) + torch.tanh(x) @ WEIGHT


def after(x):
    return (x @ WEIGHT).softmax(-1).cumsum(0)


def in_one_expression(rows):
    x = torch.nested.nested_tensor(rows, layout=torch.jagged)
    y = before(x.values())
    h = torch.nested.nested_tensor_from_jagged(y, x.offsets())
    return after(torch.stack([part.mean(0) for part in h.unbind()]))


def in_a_loop(rows):
    x = torch.nested.nested_tensor(rows, layout=torch.jagged)
    total = torch.zeros(4)
    for part in x.unbind():
        total = total + before(part).sum(0)
    return after(total[None])


def in_a_branch(rows):
    x = torch.nested.nested_tensor(rows, layout=torch.jagged)
    y = before(x.values())
    if x.size(0) > 1:
        y = y + x.offsets()[1]
    return after(y)


def padded(rows):
    x = torch.nested.nested_tensor(rows, layout=torch.jagged)
    y = before(x.to_padded_tensor(0.0))
    return after(y.sum(1))


def of_strided_layout(rows):
    x = torch.nested.nested_tensor(rows)
    y = before(x.to_padded_tensor(0.0))
    return after(y.sum(1)) + x.size(0)


def given(rows):
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


@pytest.mark.parametrize(
    "program",
    [in_one_expression, in_a_loop, in_a_branch, padded, of_strided_layout],
    ids=lambda f: f.__name__,
)
def test_what_is_computed_around_them_is_served(program):
    # torch keeps what it knows of the jagged tensors that there were: there is a first time.
    compiled = magpy.compile(program, backend="eager")
    for i in range(24):
        draw = torch.Generator().manual_seed(i)
        rows = [torch.randn(n, 4, generator=draw) for n in (2 + i % 3, 4 + i % 2)]
        assert torch.equal(compiled(rows), program(rows)), i
    stats = magpy.stats(compiled)
    assert stats.captures <= 8
    assert stats.hits >= 10


def test_they_may_be_arguments():
    def program(x, scale):
        y = before(x.values()) * scale
        return after(y)

    compiled = magpy.compile(program, backend="eager")
    for i in range(14):
        x = given([torch.ones(2 + i % 3, 4) * i, torch.ones(3, 4)])
        assert torch.equal(compiled(x, float(i)), program(x, float(i))), i
    assert magpy.stats(compiled).captures <= 8


def test_other_arguments_of_the_region_are_looked_at_as_ever():
    def program(rows, names):
        x = torch.nested.nested_tensor(rows, layout=torch.jagged)
        names.append(len(names))
        y = before(x.values()) + len(names)
        names[0] = x.size(0)
        return after(y)

    compiled = magpy.compile(program, backend="eager")
    there, here = [], []
    for i in range(10):
        rows = [torch.ones(2 + i % 3, 4) * i, torch.ones(3, 4)]
        assert torch.equal(compiled(rows, here), program(rows, there)), i
        assert here == there
