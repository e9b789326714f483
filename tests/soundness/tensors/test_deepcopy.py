"""`copy.deepcopy` of tensors, which is refused: which are copied, and what the copies share."""

import copy
import random
import types

import numpy as np
import pytest
import torch

import magpy
from tests.comparison import assert_same
from tests.soundness.worlds import case, check_all

CASES = []


def kept(n):
    """Tensors that come and go between calls, so that other objects lie at their addresses."""
    return [torch.zeros(1) for _ in range(n)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "way",
    [
        "copy.deepcopy([p.detach() for p in parts])",
        "copy.deepcopy({str(i): p.data for i, p in enumerate(parts)})",
        "copy.deepcopy(net.state_dict())",
        "copy.deepcopy([v for p in parts for v in (p.detach(), p.detach()[1:])])",
        "[copy.deepcopy(p.detach().clone()) for p in parts]",
    ],
)
def test_tensors_that_are_new_in_each_call_are_told_apart(way, seed):
    torch.manual_seed(0)
    parts = [torch.nn.Parameter(torch.randn(i + 2)) for i in range(8)]
    net = torch.nn.ParameterList(parts)
    space = {"copy": copy, "parts": parts, "net": net}
    exec(f"def f():\n    return {way}", space)
    compiled = magpy.compile(space["f"], backend="eager")
    draw, others = random.Random(seed), []
    for _ in range(40):
        with torch.no_grad():
            for p in parts:
                p.add_(1)
        assert_same(compiled(), space["f"]())
        others.append(kept(draw.randint(0, 20)))
        if draw.random() < 0.5:
            others.pop(draw.randrange(len(others)))
    assert "a tensor is copied by copy.deepcopy" in magpy.stats(compiled).reasons[0]


@case(CASES, refused="a tensor is copied by copy.deepcopy")
def copies_share_what_the_tensors_shared(compile):
    t = torch.arange(6.0)

    def f(x):
        a, b, c, d = copy.deepcopy([x, x[1:], x, t[2:]])
        b.add_(10)
        again = copy.deepcopy(x)
        return a, b, c, d, a is c, again

    f = compile(f)
    for i in range(3):
        yield f(torch.arange(4.0) + i)


@case(CASES, refused="a tensor is copied by copy.deepcopy")
def copies_have_copies_of_gradients(compile):
    w = torch.ones(3, requires_grad=True)

    def f(x, first):
        held = [w.grad, w] if first else [w, w.grad]
        copies = copy.deepcopy(held)
        new = copies[first]
        return x * 2, copies, new.grad, new.grad is copies[not first], new.grad is w.grad

    f = compile(f)
    for first in (True, False):
        for given in (None, torch.ones(3), torch.arange(3.0)):
            w.grad = given
            for _ in range(2):
                yield f(torch.ones(1), first)


@case(CASES, refused="a tensor is copied by copy.deepcopy")
def a_result_of_autograd_is_not_copied(compile):
    w = torch.ones(2, requires_grad=True)

    def f(x):
        try:
            return copy.deepcopy(x * w)
        except RuntimeError as error:
            return str(error)[:40], copy.deepcopy((x * w).detach())

    f = compile(f)
    for i in range(3):
        yield f(torch.ones(2) * i)


@case(CASES, refused="a tensor is copied by copy.deepcopy")
def arguments_are_copied(compile):
    def f(x, y):
        return copy.deepcopy({"a": x, "b": [x, y], "c": (y, 3)})

    f = compile(f)
    for i in range(4):
        made = f(torch.ones(2) * i, torch.zeros(3) + i)
        yield made, made["a"] is made["b"][0], made["b"][1] is made["c"][0]


@case(CASES, refused="a memo from outside, and one that holds the copy already")
def a_memo_is_given_or_kept(compile):
    outside = {}

    def own(x):
        memo = {}
        return copy.deepcopy(x, memo), len(memo), copy.deepcopy([x], memo)[0]

    def directly(x):
        memo = {}
        y = x.__deepcopy__(memo)
        return y, x.__deepcopy__(memo) is y

    def from_outside(x):
        return copy.deepcopy(x, outside)

    for f in map(compile, (own, directly, from_outside)):
        for i in range(3):
            outside.clear()
            yield f(torch.ones(2) * i)
            yield [type(v).__name__ for v in outside.values()]


test_deep_copies = check_all(CASES)


def test_copies_of_objects_with_tensors_are_apart():
    def f(h):
        new = copy.deepcopy(h)
        new.t.add_(1)
        return new

    compiled = magpy.compile(f, backend="eager")
    h = types.SimpleNamespace(t=torch.ones(2), a=np.ones(2), l=[torch.zeros(1)])
    for i in range(4):
        h.l[0] = torch.full((1,), float(i))
        new = compiled(h)
        assert new.t.tolist() == [2.0, 2.0]
        assert h.t.tolist() == [1.0, 1.0]
        assert new.l[0].item() == i
