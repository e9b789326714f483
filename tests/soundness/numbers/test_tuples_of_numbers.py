"""Tuples of numbers among the arguments (`labels` of `zip(*batch)`): inputs where they differ."""

import math

import pytest
import torch

import magpy
from tests.comparison import assert_same
from tests.soundness.worlds import attempt

KEPT = []
GLOBAL = (math.nan, 2.0, 3.0)
KEYS = {GLOBAL: -1}
USES = {
    "tensor": lambda x, t: torch.tensor(t).float().sum() * x,
    "as_tensor": lambda x, t: torch.as_tensor(t, dtype=torch.float32) + x.sum(),
    "unpacked": lambda x, t: x * t[0] + t[-1],
    "sum": lambda x, t: (x * sum(t), max(t), min(t)),
    "zip": lambda x, t: [x * a + b for a, b in zip(t, reversed(t), strict=True)],
    "returned": lambda x, t: (x, t, {"t": t}),
    "kept": lambda x, t: (KEPT.append(t), x + t[0], KEPT[-1]),
    "in": lambda x, t: (x, 2 in t, t.index(t[1]), t.count(t[0])),
    "compared": lambda x, t: x + 1 if t[0] > 2 else (x - t[1], t == (1.0, 2.0)),
    "text": lambda x, t: (f"{t} {t[0]:.2f}", x),
    "key": lambda x, t: (x, KEYS.setdefault(t, len(KEYS)), GLOBAL == t, hash(t) == hash(GLOBAL)),
    "slice": lambda x, t: (x, t[1:], t + (1,), t * 2),
}
# Floats, integers, both, and what may stand where a number was.
VALUES = {
    "floats": [(i / 2, 1.5, i / 4) for i in range(8)],
    "integers": [(i, 7, i + 2) for i in range(8)],
    "both": [(i, i / 4, True) for i in range(8)],
    "special": [(v, 0.5, -v) for v in (1.0, math.inf, math.nan, -0.0, 0.0, 1e300, 2.0)],
    "one object": [GLOBAL, (1.0, 2.0, 3.0), GLOBAL, (2.0, 3.0, 4.0), GLOBAL, GLOBAL],
    "lengths": [tuple(j / 2 for j in range(2, 4 + i % 3)) for i in range(8)],
    "classes": [(1.0, 2.0, 3.0), (2.0, 2.0, 4.0), (3, 2.0, 5.0), (True, 2.0, 1.0), [1.0, 2.0, 3.0]],
    "many": [tuple(float(i + j) for j in range(70)) for i in range(4)],
}


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("use", USES)
def test_a_tuple_of_numbers_gives_what_eager_does(use, values):
    f, x = USES[use], torch.arange(3.0)
    c = magpy.compile(f, backend="eager")
    for t in VALUES[values]:
        KEYS.clear()
        KEYS[GLOBAL] = -1
        ours = attempt(c, x, t)
        KEYS.clear()
        KEYS[GLOBAL] = -1
        assert_same(ours, attempt(f, x, t))


@pytest.mark.parametrize("size", [3, 16, 64])
@pytest.mark.parametrize("kind", [float, int])
@pytest.mark.parametrize("use", ["tensor", "unpacked", "sum", "returned"])
def test_two_captures_serve_all_numbers(use, kind, size):
    c = magpy.compile(USES[use], backend="eager")
    for i in range(2, 10):
        t, x = tuple(kind(i + j) for j in range(size)), torch.full((3,), float(i))
        assert_same(c(x, t), USES[use](x, t))
    s = magpy.stats(c)
    assert (s.captures, s.hits, s.eager_calls) == (2, 6, 0)
