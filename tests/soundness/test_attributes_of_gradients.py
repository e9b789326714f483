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
