"""`sum`, `min` and `max` of what a generator gives: numbers of data keep being known, in order."""

import pytest
import torch
from torch import nn

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same
from tests.soundness.worlds import attempt

SEEN = []


def seen(v):
    SEEN.append(v)
    return v


def numbers(x, n):
    for i in range(n):
        SEEN.append(i)
        yield x[i].item()
    SEEN.append("end")


def mixed(x, n):
    yield 1
    yield x[0].item()
    yield x[1]
    SEEN.append("a tensor was given")
    yield n
    yield x.sum().item()


def failing(x, n):
    yield x[0].item()
    if x[0].item() > n - 2:
        raise ValueError(f"{n} is too little")
    yield x[1].item()


def too_large(x, n):
    yield 0.5
    SEEN.append("small")
    yield 10**400
    SEEN.append("large")
    yield x.sum().item()


def dying(x, n):
    yield Dies(x[0].item())
    SEEN.append("second")
    yield Dies(x[0].item() + 1)
    SEEN.append("third")
    yield Dies(n)


class Dies:
    def __init__(self, v):
        self.v = v

    def __gt__(self, other):
        return self.v > other.v

    def __radd__(self, other):
        return other + self.v

    def __del__(self):
        SEEN.append(("died", self.v))


class Meta(type):
    def __eq__(cls, other):
        raise RuntimeError("a class is compared")

    __hash__ = type.__hash__


class Compared(metaclass=Meta):
    def __radd__(self, other):
        return other + 1


class Odd:
    def __radd__(self, other):
        SEEN.append(("joined", other))
        return 3.5

    def __gt__(self, other):
        SEEN.append(("compared", other))
        return True


PROGRAMS = {
    "items": lambda x, n: sum(v.item() for v in x),
    "squares": lambda x, n: sum(v.item() ** 2 for v in x) ** 0.5,
    "with a start": lambda x, n: (sum((v.item() for v in x), 1.5), sum((v.item() for v in x), n)),
    "minimum": lambda x, n: (min(v.item() for v in x), max(v.item() + n for v in x)),
    "sizes": lambda x, n: (sum(v.shape[0] for v in (x, x[1:])), max(len(v) for v in (x, x[2:]))),
    "tensors": lambda x, n: (sum(v * 2 for v in x), max(v for v in x), min(v for v in x)),
    "mixed": lambda x, n: sum(mixed(x, n)),
    "mixed maximum": lambda x, n: max(v for v in (n, x[0].item(), x[1], x.sum().item())),
    "none": lambda x, n: (sum(v for v in ()), max((v for v in ()), default=n)),
    "the largest of none": lambda x, n: max(v for v in x[:0]),
    "effects": lambda x, n: (sum(numbers(x, n)), x + 1),
    "raises": lambda x, n: (sum(failing(x, n)), x + 1),
    "no number": lambda x, n: sum(seen(v) for v in (1, x[0].item(), "text", n)),
    "text at the start": lambda x, n: sum((seen(v) for v in (1, 2)), ""),
    "tensor at the start": lambda x, n: sum((seen(v.item()) for v in x), x[0]),
    "odd": lambda x, n: (sum(v for v in (n, Odd(), x[0].item())), max(v for v in (n, Odd()))),
    "too large": lambda x, n: sum(too_large(x, n)),
    "large integers": lambda x, n: (sum(2**62 for _ in range(9)), sum(2**70 + i for i in range(n))),
    "objects that die": lambda x, n: (sum(dying(x, n)), max(dying(x, n)).v),
    "classes with classes of their own": lambda x, n: x * sum(Compared() for _ in range(n)),
    "many floats": lambda x, n: sum(v for v in [0.1] * 10 + [True, x.sum().item()] + [0.1] * 10),
    "truth values": lambda x, n: sum(v > 1 for v in x.tolist()),
    "nested": lambda x, n: sum(sum(v.item() * i for v in x) for i in range(n)),
    "key": lambda x, n: (max((v.item() for v in x), key=lambda v: -v), x),
    "lists": lambda x, n: sum(([v.item()] for v in x), []),
    "used further": lambda x, n: x * sum(v.item() for v in x) / max(v.item() for v in x),
    "two of one": lambda x, n: (lambda g: (next(g), sum(g), list(g)))(numbers(x, n)),
}


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_sees_what_it_sees_in_eager(name, backend):
    f = PROGRAMS[name]
    c = magpy.compile(f, backend=backend)
    for i in range(6):
        x, n = torch.arange(4.0) + i / 3, 2 + i % 3
        SEEN.clear()
        ours, then = attempt(c, x, n), list(SEEN)
        SEEN.clear()
        theirs = attempt(f, x, n)
        assert_same([ours, then], [theirs, list(SEEN)])


@pytest.mark.parametrize(
    "name", ["items", "squares", "minimum", "tensors", "nested", "used further"]
)
def test_two_captures_serve_all_data(name):
    c = magpy.compile(lambda x: PROGRAMS[name](x, 3), backend="eager")
    for i in range(6):
        x = torch.arange(4.0) * (1 - 2 * (i % 2)) + i
        assert_same(c(x), PROGRAMS[name](x, 3))
    assert magpy.stats(c).captures <= 2
    assert magpy.stats(c).eager_calls == 0


def test_the_norm_of_the_gradients_is_logged():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def f(x):
        net.zero_grad()
        net(x).square().mean().backward()
        return sum(p.grad.norm().item() ** 2 for p in net.parameters()) ** 0.5

    c = magpy.compile(f, backend="eager")
    for i in range(6):
        x = torch.full((3, 4), i / 2)
        assert c(x) == f(x)
    assert (magpy.stats(c).captures, magpy.stats(c).eager_calls) == (2, 0)
