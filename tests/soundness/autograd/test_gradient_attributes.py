"""Attributes that Python gives to gradients, which are other tensors in every call."""

from __future__ import annotations

import pytest
import torch

import magpy


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_gradient_has_what_the_call_gives_it(anew, backend):
    def outcomes(wrap):
        weight = torch.nn.Parameter(torch.ones(2))

        def program(x, tag):
            if anew:
                weight.grad = None
            (weight * x).sum().backward()
            weight.grad.tag = tag
            return x * 2

        f = wrap(program)
        found = []
        for tag in ("a", "a", "a", "b", "b"):
            f(torch.ones(2), tag)
            found.append((vars(weight.grad), weight.grad.tolist()))
            if not anew:
                weight.grad = None
        return found

    wanted = outcomes(lambda f: f)
    assert wanted[-1][0] == {"tag": "b"}
    assert outcomes(lambda f: magpy.compile(f, backend=backend)) == wanted


def test_one_that_was_there_is_given_it_by_an_entry():
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.zeros(2)

    def program(x, tag):
        (weight * x).sum().backward()
        weight.grad.tag = tag
        return x * 2

    f = magpy.compile(program, backend="eager")
    for tag in ("a", "a", "a"):
        f(torch.ones(2), tag)
        assert vars(weight.grad) == {"tag": tag}
        del weight.grad.tag
    assert weight.grad.tolist() == [3, 3]


class _Tag:
    pass


def _set(weight, other, tag):
    weight.grad.tag = tag


def _set_and_add(weight, other, tag):
    weight.sum().backward()
    weight.grad.tag = tag


def _set_and_leave(weight, other, tag):
    weight.grad.tag = tag
    weight.grad = None


def _get(weight, other, tag):
    return weight.grad.tag


def _get_and_add(weight, other, tag):
    weight.sum().backward()
    return weight.grad.tag


def _all(weight, other, tag):
    return weight.grad.__dict__


def _ask(weight, other, tag):
    return hasattr(weight.grad, "tag"), hasattr(weight.grad, "note")


def _delete(weight, other, tag):
    del weight.grad.tag


def _through_another(weight, other, tag):
    return other[0].tag, weight.grad.tag, other[0] is weight.grad


_USES = [_set, _set_and_add, _set_and_leave, _get, _get_and_add, _all, _ask, _delete]


@pytest.mark.parametrize("given", [False, True], ids=["outside", "given"])
@pytest.mark.parametrize("use", [*_USES, _through_another], ids=lambda f: f.__name__)
def test_attributes_are_those_of_the_gradient_of_the_day(use, given):
    weight = torch.nn.Parameter(torch.ones(2))
    other = []

    def of_outside(tag):
        return use(weight, other, tag)

    def of_given(tag, weight, other):
        return use(weight, other, tag)

    program = of_given if given else of_outside
    f = magpy.compile(program, backend="eager")

    def outcome(called, tag, before):
        weight.grad = torch.ones(2)
        vars(weight.grad).update(before)
        other[:] = [weight.grad]
        gradient = weight.grad
        result = called(tag, *((weight, other) if given else ()))
        if result is vars(gradient):
            result = "its own"
        return result, vars(gradient), weight.grad is gradient, gradient.tolist()

    a, b = _Tag(), _Tag()
    for tag, before in (
        (a, {"tag": 1}),
        (a, {"tag": 1}),
        (b, {"tag": 1}),
        (b, {"tag": 2}),
        (a, {"tag": a}),
        (a, {"tag": b}),
        (a, {"tag": 1, "note": 1}),
        (b, {"tag": 1}),
    ):
        assert outcome(f, tag, before) == outcome(program, tag, before)
    # A list that lives outside has to hold what it held.
    assert magpy.stats(f).hits >= 3 or (use is _through_another and not given)
