"""What is called total raises nothing and keeps its type, for all numbers that come that far."""

import itertools
import operator

import numpy as np
import pytest
import torch

from magpy.ir.ops import Bind, OpStep, OutsideRef, Ref, Var
from magpy.replay.passes.totality import Totality

SMALL, WORD, FLOAT, COMPLEX, TEXT, DRAWN = map(Var, range(6))
VALUES = {
    SMALL: [0, 1, -3, 2**48 - 1, 1 - 2**48],
    WORD: [0, 1, -3, 2**63 - 1, -(2**63)],
    FLOAT: [0.0, -0.0, 1.5, 1e308, -1e308, 5e-324, float("inf"), float("nan")],
    COMPLEX: [0j, 1 + 2j, complex(1e308, -1e308)],
    TEXT: ["", "12", "x"],
    DRAWN: [0, 2**48 - 1],
}
FUNCTIONS = [
    *(operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv),
    *(operator.mod, operator.pow, operator.neg, operator.pos, operator.lshift, operator.iadd),
    *(operator.imul, operator.getitem, operator.matmul),
    *(abs, int, float, complex, str, repr, min, max, pow, divmod, round, sum),
]
CONSTANTS = [0, 7, -2, 2**70, 10**400, True, -0.0, 1e-300, 1j, "a"]


def bound(func, args, kind, result):
    return Bind(func, args, {}, expected=kind, result=result)


def sources():
    drawn = bound(lambda n: 0, (2**40,), int, DRAWN)
    drawn.owner = object()
    return [
        bound(operator.getitem, (OutsideRef({}), "k"), int, SMALL),
        bound(torch.Tensor.item, (Ref(Var(50)),), int, WORD),
        bound(torch.Tensor.item, (Ref(Var(51)),), float, FLOAT),
        bound(torch.Tensor.item, (Ref(Var(52)),), complex, COMPLEX),
        bound(str, (Ref(FLOAT),), str, TEXT),
        drawn,
    ]


def outcomes(func, args):
    """What the function gives for all values of its variables; None where it raises."""
    for values in itertools.product(*(VALUES[a.var] if type(a) is Ref else [a] for a in args)):
        try:
            yield func(*values)
        except (ArithmeticError, TypeError, ValueError, LookupError):
            yield None


def judged():
    operands = [*map(Ref, VALUES), *CONSTANTS]
    for func in FUNCTIONS:
        for args in [*((a,) for a in operands), *itertools.product(operands, repeat=2)]:
            if not any(type(a) is Ref for a in args):
                continue
            if func in (pow, round, operator.pow, operator.lshift) and any(
                type(a) is Ref or a in (2**70, 10**400) for a in args[1:]
            ):
                continue  # would not end
            if func in (operator.mul, operator.imul) and (Ref(TEXT) in args or "a" in args):
                continue  # would not fit
            kinds = [type(r) for r in outcomes(func, args) if r is not None]
            if kinds:
                step = bound(func, args, kinds[0], Var(60))
                yield step, step in Totality([*sources(), step])


def test_what_is_certain_never_raises_and_keeps_its_type():
    total = 0
    for step, sure in judged():
        if sure:
            total += 1
            kinds = {type(r) for r in outcomes(step.func, step.args)}
            assert kinds == {step.expected}, step
    assert total > 200


@pytest.mark.parametrize(
    ("func", "args", "kind"),
    [
        (operator.add, (Ref(SMALL), 1), int),
        (operator.mul, (Ref(SMALL), 0.5), float),
        (operator.truediv, (Ref(WORD), 3), float),
        (operator.sub, (1, Ref(FLOAT)), float),
        (operator.mul, (Ref(DRAWN), Ref(FLOAT)), float),
        (max, (Ref(FLOAT), 0.0), float),
    ],
)
def test_ordinary_arithmetic_is_total(func, args, kind):
    step = bound(func, args, kind, Var(60))
    assert step in Totality([*sources(), step])


def test_a_product_of_many_is_not():
    steps, last = sources(), SMALL
    for i in range(60, 90):
        steps.append(bound(operator.mul, (Ref(last), Ref(SMALL)), int, Var(i)))
        last = Var(i)
    steps.append(bound(float, (Ref(last),), float, Var(99)))
    total = Totality(steps)
    assert steps[10] in total
    assert steps[-1] not in total


def test_the_item_of_what_may_have_many_is_not():
    (step,) = [bound(torch.Tensor.item, (Ref(Var(50)),), int, WORD)]
    assert step in Totality([step])
    assert step not in Totality([step], frozenset([Var(50)]))


@pytest.mark.parametrize(
    ("func", "number", "total"),
    [
        (torch.Tensor.mul, FLOAT, True),
        (torch.Tensor.mul, SMALL, True),
        (torch.Tensor.add_, WORD, True),
        (torch.Tensor.fill_, FLOAT, False),
        (torch.Tensor.mul, Var(60), False),
    ],
)
def test_operations_that_take_every_number(func, number, total):
    steps = sources()
    steps.append(bound(operator.mul, (Ref(WORD), Ref(WORD)), int, Var(60)))
    steps.append(OpStep(func, (Ref(Var(50)), Ref(number)), {}, []))
    assert (steps[-1] in Totality(steps)) is total


def test_nothing_is_said_of_numbers_of_numpys():
    array = bound(operator.getitem, (OutsideRef(np.array([2.0])), 0), np.float64, SMALL)
    steps = [
        array,
        *(bound(f, (Ref(SMALL),), np.float64, Var(9)) for f in (abs, max, operator.neg)),
    ]
    total = Totality(steps)
    assert not any(step in total for step in steps[1:])
