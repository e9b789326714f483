"""Floats that are computed from sizes and integers which vary: what is decided by them.

Owns branches, sizes and values that follow from arithmetic with floats, where reals and floats
differ: rounding, signs of zeros, cancellation, remainders, what is below zero.  Does not own what
is followed (tests/capture/test_symbols.py), nor integers
(tests/soundness/numbers/test_varying_sizes.py).
"""

from __future__ import annotations

import math

import pytest
import torch

import magpy
from tests.soundness.worlds import attempt, run

NAMES = {"math": math, "torch": torch}
NUMBERS = [2, 3, 500, 4, 6, 7, 30, 29, 5, 9, 10, 11, 0, 1, -7, -9, -4]
CONDITIONS = [
    "n / 2 % 1 == 0",
    "n * 0.1 % 1 == 0",
    "n * 0.5 % 1",
    "-n / 2 % 1",
    "n * 0.1 * 3 == n * 0.3",
    "n * 0.1 + n * 0.2 > n * 0.3",
    "(n + 0.1) - n > 0.1",
    "n * 1.1 - n > 0.1 * n",
    "n * 0.1 // 0.1 == n",
    "int(n * 0.29 * 100) > 29 * n - 1",
    "0.7 * n + 0.3 * n == n",
    "n * 0.1 * 3 > 2.1",
    "int(n / 2) == n // 2",
    "int(n / 2) > -4",
    "n / 10 == 0.1",
    "n / 3 > 1.1",
    "n * 1.5 + 0.25 > 4",
    "float(n) * 2.0 > 7",
    "abs(n * 0.5) > 2",
]
VALUES = [
    "(n - 4) * 0.0",
    "-n * 0.0",
    "(n / 2) * 0.0",
    "(0.1 + n) - n",
    "n * 1e16 + 1 - n * 1e16",
    "int(n * 0.5)",
    "int(n / 2)",
    "n * 0.3",
    "n / 3",
    "math.floor(n / 2)",
    "math.ceil(n * 0.25)",
]


def of_argument(text):
    f = eval(f"lambda t, n: (t * 1, {text})", NAMES)
    return f, [(torch.ones(1), n) for n in NUMBERS]


def of_size(text):
    f = eval(f"lambda t: (lambda n: (t * 1, {text}))(len(t))", NAMES)
    return f, [(torch.ones(n),) for n in NUMBERS if n >= 0]


def of_data(text):
    f = eval(f"lambda t: (lambda n: (torch.zeros(n), {text}))(t.sum().int().item())", NAMES)
    return f, [(torch.full((1,), float(n)),) for n in NUMBERS if n > 0]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("text", [*(f"1 if {c} else 2" for c in CONDITIONS), *VALUES])
def test_floats_round_as_they_do(text, dynamic):
    for make in (of_argument, of_size, of_data):

        def follows(compile, make=make):
            f, calls = make(text)
            c = compile(f, dynamic=dynamic)
            for given in calls:
                result = attempt(c, *given)
                yield result, str(result)

        run(follows, None)


def test_half_of_a_size_is_followed():
    f = magpy.compile(lambda t: t[: int(len(t) * 0.5)] if len(t) / 2 > 1 else t, backend="eager")
    for n in (4, 5, 6, 7, 8, 9, 20):
        assert len(f(torch.ones(n))) == n // 2
    assert magpy.stats(f).captures <= 3, magpy.stats(f)


def test_a_seed_that_is_refused_says_nothing_of_others():
    def seeded(compile):
        def f(n):
            try:
                torch.manual_seed(n)
            except ValueError as e:
                return str(e)[:20]
            return torch.rand(1)

        c = compile(f)
        for n in (1, 2, 2**64, 3, 3, -(2**64), 5):
            yield c(n)

    run(seeded, None)
