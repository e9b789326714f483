"""Numbers of numpy's among the arguments: `np.float64(0.3)`, `np.int64(2)`.

They are inputs at their second value, as Python's numbers are, and graphs take them as numbers.
Owns values, dtypes and how many captures there are.  Does not own arrays
(tests/soundness/arrays) nor numbers that numpy computes of tensors.
"""

import numpy as np
import pytest
import torch
from torch import nn

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same

LAYER = nn.Linear(4, 4)
FLOATS = [0.5, 0.25, 1.5, 0.0, -2.0, 0.1, 3.0, 0.7]
INTEGERS = [2, 1, 3, 0, 2, 1, 3, 2]


def mixed(x, n):
    return LAYER(x) * n + (1.0 - n) * x


def on_the_left(x, n):
    return n * x - n / (x + 5) + n**2


def half_precision(x, n):
    return x.half() * n, x.double() + n, (x > n) * 1, x.int() + n


def in_place(x, n):
    y = x.clone()
    y.mul_(n).add_(x, alpha=float(n))
    return y.clamp(max=n + 1)


def as_a_tensor(x, n):
    return torch.tensor(n) + x, torch.as_tensor(n).dtype, torch.full((2,), n), x.new_tensor(n)


def by_branch(x, n):
    return LAYER(x) * n if n > 0.6 else x + n


def passed_on(x, n):
    return {"n": n, "kind": type(n).__name__, "next": n + 1, "text": f"{n:.2f}"}, x * 2


def by_numpy(x, n):
    return x * np.sqrt(abs(n)), np.clip(n, 0, 1) * x, x + np.exp(n).astype(np.float32)


def a_slice(x, n):
    return LAYER(x)[:, n:], x[:, : int(n) + 1] * 2


def stored(x, n):
    y = x.clone()
    y[:, n : n + 1] = 7.0
    return LAYER(y), x[n % 3], torch.roll(x, int(n), 1)


def repeated(x, n):
    return [x * i for i in range(n)], x.expand(3, 4).sum() * n


OF_FLOATS = [
    *(mixed, on_the_left, half_precision, in_place, as_a_tensor, by_branch, passed_on, by_numpy),
]
OF_INTEGERS = [mixed, half_precision, passed_on, a_slice, stored, repeated]
#: Programs that may need a capture for each value: what they do goes by it.
BY_VALUE = (a_slice, stored, repeated, by_branch, as_a_tensor, by_numpy, half_precision, in_place)


def given(kind, i, values):
    if kind == "now and then Python's":
        return values[i] if i % 3 == 2 else np.asarray(values)[i]
    return kind(values[i])


def seen(f, kind, values):
    torch.manual_seed(0)
    return [f(torch.rand(3, 4), given(kind, i, values)) for i in range(len(values))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("regions", [False, True])
@pytest.mark.parametrize(
    ("f", "kind"),
    [(f, k) for f in OF_FLOATS for k in (np.float64, np.float32, "now and then Python's")]
    + [(f, k) for f in OF_INTEGERS for k in (np.int64, np.uint8, "now and then Python's")],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_they_are_inputs(f, kind, regions, backend, monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", regions)
    of_floats = kind in (np.float64, np.float32) or (isinstance(kind, str) and f in OF_FLOATS)
    values = FLOATS if of_floats else INTEGERS
    compiled = magpy.compile(f, backend=backend)
    with torch.no_grad():
        found, wanted = seen(compiled, kind, values), seen(f, kind, values)
    assert_same(found, wanted)
    if f not in BY_VALUE:
        stats = magpy.stats(compiled)
        assert stats.captures <= 3 and stats.eager_calls == 0 and stats.share == 1


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0, 1e300])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_special_numbers(value, backend):
    compiled = magpy.compile(mixed, backend=backend)
    for n in (0.5, 0.25, value, 0.5, value):
        x = torch.rand(3, 4)
        torch.testing.assert_close(
            compiled(x, np.float64(n)), mixed(x, np.float64(n)), equal_nan=True, rtol=0, atol=0
        )


class Marked(np.float64):
    def __mul__(self, other):
        return "marked"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "make",
    [
        Marked,
        np.longdouble,
        np.complex64,
        np.float16,
        lambda n: np.timedelta64(int(n * 4), "s"),
        lambda n: np.timedelta64("NaT"),
        lambda n: np.uint64(2**63 + int(n * 4)),
        lambda n: np.bool_(n > 1),
        lambda n: np.array(n),
    ],
)
def test_other_values_of_numpys(make, backend):
    def f(x, n):
        return x * 2, n, type(n).__name__, getattr(n, "mark", None), str(n * 2)

    def world(f):
        found = []
        for i, n in enumerate(FLOATS):
            value = make(n)
            if isinstance(value, Marked):
                value.mark = i
            *most, given = f(torch.ones(2), value)[0:1], *f(torch.ones(2), value)[1:]
            found.append((most, str(given)))
        return found

    assert_same(world(magpy.compile(f, backend=backend)), world(f))
