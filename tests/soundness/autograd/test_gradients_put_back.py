"""A gradient that the program takes away, and puts back after a backward pass.

As where the gradient of one task is wanted beside what has been added up so far. Owns that the
gradients are eager's and the same objects, whatever the pass in between computes.
"""

import pytest
import torch

import magpy
from tests.comparison import assert_same


def beside(w, u):
    kept = w.grad
    w.grad = None
    (w * 2).sum().backward()
    found = w.grad
    w.grad = kept
    return found


def after_a_pass(w, u):
    (u * 2).sum().backward()
    kept = w.grad
    w.grad = None
    w.grad = kept


def after_its_own_pass(w, u):
    (w * 2).sum().backward()
    kept = w.grad
    w.grad = None
    w.grad = kept


def between_two(w, u):
    (u * 2).sum().backward()
    kept = w.grad
    w.grad = None
    (w * 3).sum().backward()
    w.grad = kept


def before_a_pass(w, u):
    kept = w.grad
    w.grad = None
    (u * 2).sum().backward()
    w.grad = kept


def asked_in_between(w, u):
    (u * 2).sum().backward()
    kept = w.grad
    w.grad = None
    nothing = w.grad
    w.grad = kept
    return nothing is None


def another_one_in_between(w, u):
    (u * 2).sum().backward()
    kept = w.grad
    w.grad = u.grad
    w.grad = kept


def added_up(w, u):
    kept = w.grad
    w.grad = None
    (w * u).sum().backward()
    w.grad = kept + w.grad


def taken_away(w, u):
    (u * 2).sum().backward()
    w.grad = None


PROGRAMS = (
    beside,
    after_a_pass,
    after_its_own_pass,
    between_two,
    before_a_pass,
    asked_in_between,
    another_one_in_between,
    added_up,
    taken_away,
)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients_are_those_of_eager(program, backend):
    def world():
        w = torch.tensor([1.0, 2.0], requires_grad=True)
        w.grad = torch.ones(2)
        return w, torch.tensor([3.0, 4.0], requires_grad=True)

    there, here = world(), world()
    before = there[0].grad, here[0].grad
    compiled = magpy.compile(program, backend=backend)
    for _ in range(5):
        assert_same(compiled(*here), program(*there))
        for a, b in zip(here, there, strict=True):
            assert_same(a.grad, b.grad)
        assert (here[0].grad is before[1]) == (there[0].grad is before[0])
    assert magpy.stats(compiled).hits >= 2
