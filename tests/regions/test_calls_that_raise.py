"""Calls that raise again and again: the line is Python's, what leads to it is compiled."""

import traceback

import pytest
import torch

import magpy
from tests.comparison import assert_same


@pytest.fixture(autouse=True)
def _in_part(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def computed(x):
    return torch.relu(x * 2) + torch.tanh(x).exp()


def number_in_its_text(x, log):
    n = int(computed(x).sum())
    if n > 6:
        raise ValueError(f"loss is {n}")
    return computed(x) * 2


def three_calls_deep(x, log):
    y = computed(x)
    log.append(len(log))
    return checked(y) * 3


def checked(y):
    if y.max() > 5:
        raise RuntimeError("too large") from KeyError(3)
    return y + 1


def of_c(x, log):
    y = computed(x)
    text = "5" if x.sum() < 3 else "5x"
    return y * int(text)


def of_torch(x, log):
    y = computed(x)
    log.append("before")
    z = y.view(2 if x.sum() < 5 else 3)
    log.append("after")
    return z * 3


def within_finally(x, log):
    y = computed(x)
    try:
        log.append(1)
        return checked(y)
    finally:
        log.append(computed(y).shape)


def always(x, log):
    y = computed(x)
    raise NotImplementedError(str(y.shape))


def raised_again(x, log):
    y = computed(x)
    try:
        return checked(y)
    except RuntimeError as e:
        log.append(str(e))
        raise TypeError("another one") from e


def from_a_loop(x, log):
    for i in range(4):
        x = computed(x) / 3
        if x.sum() > 4:
            raise StopIteration(i)
    return x


PROGRAMS = [
    number_in_its_text,
    three_calls_deep,
    of_c,
    of_torch,
    within_finally,
    always,
    raised_again,
    from_a_loop,
]


def outcome(f, x, log):
    """The result, or the exception with the lines that it has passed and what led to it."""
    try:
        return f(x, log)
    except Exception as e:
        lines = [(f.name, f.lineno) for f in traceback.extract_tb(e.__traceback__)][1:]
        return type(e), e.args, lines, repr(e.__cause__), repr(e.__context__)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_they_are_served_up_to_the_line(program):
    compiled = magpy.compile(program, backend="eager")
    there, here = [], []
    for i in range(28):
        x = torch.full((2,), float(i % 7) / 2)
        expected = outcome(program, x, there)
        assert_same(outcome(compiled, x, here), expected)
        assert here == there
    stats = magpy.stats(compiled)
    assert stats.captures <= 9
    assert stats.hits >= 14


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients_of_calls_that_do_not_raise_are_those_of_eager(program):
    compiled = magpy.compile(program, backend="eager")
    for i in range(20):
        x = [torch.full((2,), float(i % 5) / 2, requires_grad=True) for _ in range(2)]
        for f, v in zip((compiled, program), x, strict=True):
            y = outcome(f, v, [])
            if isinstance(y, torch.Tensor):
                y.sum().backward()
        assert_same(x[0].grad, x[1].grad)


def test_one_call_that_raises_leaves_the_program_in_one_piece():
    compiled = magpy.compile(number_in_its_text, backend="eager")
    for i in range(10):
        x = torch.full((2,), 3.0 if i == 2 else 0.5)
        assert_same(outcome(compiled, x, []), outcome(number_in_its_text, x, []))
    stats = magpy.stats(compiled)
    assert stats.regions == 1
    assert stats.captures == 1


MODELS = {
    "linear": lambda: torch.nn.Linear(4, 4),
    "layers": lambda: torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()),
    "transformer": lambda: torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval(),
}


@pytest.mark.parametrize("before", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_bad_request_now_and_then_leaves_a_model_served_whole(make, before):
    model = make()
    compiled = magpy.compile(model, backend="eager")
    good, bad = torch.randn(2, 3, 4), torch.randn(2, 3, 5)
    with torch.no_grad():
        for _ in range(3):
            for _ in range(before):
                assert_same(compiled(good), model(good))
            with pytest.raises((RuntimeError, AssertionError)):
                compiled(bad)
        hits = magpy.stats(compiled).hits
        for _ in range(20):
            assert_same(compiled(good), model(good))
    stats = magpy.stats(compiled)
    assert stats.share == 1.0
    if before > 2:  # else every second call raises, or every third
        assert stats.hits - hits == 20
        assert stats.entries == stats.regions == 1
