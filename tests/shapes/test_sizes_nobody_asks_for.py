"""Tensors that a call is given and does not use: their sizes are no reason for another capture."""

import pytest
import torch

import magpy


def unused(a, b):
    return a * 2


def passed_on(a, b):
    return unused(a, b)


def in_a_dict(a, b):
    return {"a": a, "b": b}["a"] + 1


def stored(a, b, into=[None]):  # noqa: B006 - a place from outside
    into[0] = b
    return a * 2


def measured(a, b):
    return a * len(b)


def told_apart(a, b):
    return a + (1 if b.shape[0] > 6 else 2)


def of_some_rank(a, b):
    return a + b.dim() + (b.dtype is torch.float64)


PROGRAMS = [unused, passed_on, in_a_dict, stored, measured, told_apart, of_some_rank]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_sizes_of_what_is_not_used_may_vary(program):
    compiled = magpy.compile(lambda a, b: program(a, b), backend="eager")
    for n in (6, 5, 7, 4, 8, 9):
        a, b = torch.rand(3), torch.rand(n, 2)
        assert torch.equal(compiled(a, b), program(a, b))
    assert magpy.stats(compiled).captures <= (4 if program is told_apart else 2)


def test_what_else_is_known_of_it_is_compared():
    compiled = magpy.compile(of_some_rank, backend="eager")
    for b in (
        torch.rand(2),
        torch.rand(3),
        torch.rand(3, 2),
        torch.rand(3, dtype=torch.float64),
        torch.rand(2).to_sparse(),
        torch.nn.Parameter(torch.rand(2)),
        None,
    ):
        if b is None:
            with pytest.raises(AttributeError):
                compiled(torch.rand(3), b)
        else:
            a = torch.rand(3)
            assert torch.equal(compiled(a, b), of_some_rank(a, b))


def test_a_tensor_that_only_a_pass_of_pythons_sees_is_compared():
    def program(a, b):
        return torch.utils.checkpoint.checkpoint(lambda t: t * b.shape[0], a, use_reentrant=False)

    compiled = magpy.compile(program, backend="eager")
    for n in (6, 5, 7, 4, 8):
        a, b = torch.rand(3, requires_grad=True), torch.rand(n)
        assert torch.equal(compiled(a, b), program(a, b))
