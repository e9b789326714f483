"""A run that was refused is watched for a while more, and then runs as it does eagerly.

Owns that what follows is the program's own in results, effects, exceptions and collections of
garbage, and that nothing hears of it.  How long it takes is no test's affair (benchmarks/).
"""

import gc
import io
import weakref

import pytest
import torch
from torch import nn

import magpy
from tests.comparison import assert_same

MODEL = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
#: So many turns of these loops are some ten thousand events, and some hundred thousand.
FEW, MANY = 10, 3000


def modes():
    """How many torch function modes there are: magpy's watch is one."""
    return torch._C._len_torch_function_stack()


def odd():
    return io.BytesIO(b"ab").read()


def after_a_refusal(x, turns, seen):
    odd()
    for _ in range(turns):
        x = MODEL(x).tanh()
    seen.append(modes())
    return x


@torch.no_grad()
@pytest.mark.parametrize(("turns", "watched"), [(FEW, 1), (MANY, 0)])
def test_the_watch_ends_some_time_after_the_refusal(turns, watched):
    c = magpy.compile(after_a_refusal, backend="eager")
    x, seen = torch.randn(2, 4), []
    assert_same(c(x, turns, seen), after_a_refusal(x, turns, []))
    assert seen == [watched]
    assert modes() == 0


def test_a_long_run_that_is_not_refused_is_watched_to_its_end():
    def f(x, numbers):
        total = 0
        for n in numbers:
            total = total + (n if n > 0 else -n)
        return x + total

    c = magpy.compile(f, backend="eager")
    x, numbers = torch.ones(2), list(range(30_000))
    assert_same(c(x, numbers), f(x, numbers))
    numbers[-1] = 7
    assert_same(c(x, numbers), f(x, numbers))


@torch.no_grad()
def test_effects_after_it_are_made_once():
    kept, cell = [], {"n": 0}

    def f(x):
        odd()
        for i in range(MANY):
            x = MODEL(x).tanh()
            cell["n"] += 1
            if i % 100 == 0:
                kept.append(i)
        x[0] = 7.0
        return x

    c = magpy.compile(f, backend="eager")
    x = torch.randn(2, 4)
    got = c(x.clone())
    assert (cell["n"], kept) == (MANY, list(range(0, MANY, 100)))
    assert_same(got, f(x.clone()))


def test_an_exception_after_it_is_the_programs():
    def f(x):
        odd()
        for _ in range(MANY):
            x = MODEL(x).tanh()
        return x @ torch.ones(3)

    c = magpy.compile(f, backend="eager")
    with pytest.raises(RuntimeError, match="size mismatch"):
        c(torch.randn(2, 4))
    assert modes() == 0
    assert gc.isenabled()


def test_gradients_through_it_are_those_of_eager():
    def f(x):
        odd()
        for _ in range(MANY // 10):
            for p in MODEL:
                x = p(x)
            for _ in range(40):
                x = x * 1.001 + 0.001
        return x.sum()

    c = magpy.compile(f, backend="eager")
    x, y = torch.randn(2, 4, requires_grad=True), None
    y = x.detach().clone().requires_grad_()
    c(x).backward()
    f(y).backward()
    assert_same(x.grad, y.grad)


class Cycle:
    def __init__(self):
        self.me = self


@torch.no_grad()
def test_garbage_is_collected_again():
    """The watch holds collections back: a call of an hour must not go without."""
    alive = []

    def f(x):
        odd()
        for _ in range(MANY):
            x = MODEL(x).tanh()
            alive.append(weakref.ref(Cycle()))
        return x

    c = magpy.compile(f, backend="eager")
    c(torch.randn(2, 4))
    assert sum(r() is not None for r in alive) < MANY // 2
    assert gc.isenabled()


@torch.no_grad()
def test_a_program_that_stops_collections_finds_them_stopped():
    def f(x):
        odd()
        gc.disable()
        for _ in range(MANY):
            x = MODEL(x).tanh()
        return x

    c = magpy.compile(f, backend="eager")
    try:
        c(torch.randn(2, 4))
        assert not gc.isenabled()
    finally:
        gc.enable()


@torch.no_grad()
def test_in_a_mode_of_the_programs_and_in_what_it_calls():
    """Where the watch cannot be left at once it is left later."""
    names = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            names.append(func.__name__)
            y = args[0]
            if func is torch.Tensor.tanh:
                with torch._C.DisableTorchFunction():
                    for _ in range(3):
                        y = y + 1
            return func(*args, **(kwargs or {}))

    def f(x):
        odd()
        with Mode():
            for _ in range(MANY):
                x = x.tanh().relu()
        return x

    x = torch.randn(2, 4)
    want = f(x)
    heard = list(names)
    names.clear()
    c = magpy.compile(f, backend="eager")
    assert_same(c(x), want)
    assert names == heard
    assert modes() == 0


@torch.no_grad()
def test_the_next_call_runs_in_part(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)

    def f(x):
        odd()
        y = MODEL(x).tanh()
        for _ in range(MANY):
            x = x + 1
            len(x)
        odd()
        return MODEL(x) + y

    c = magpy.compile(f, backend="eager")
    for _ in range(6):
        x = torch.randn(2, 4)
        assert_same(c(x), f(x))
    s = magpy.stats(c)
    assert s.regions >= 1, s
    assert s.share > 0.9, s
    assert s.eager_calls <= 2, s


def test_tracebacks_after_it_have_the_programs_frames():
    def f(x):
        odd()
        x = x + 1
        return x @ torch.ones(3)

    def frames(call):
        with pytest.raises(RuntimeError) as caught:
            call(torch.randn(2, 4))
        return [entry.name for entry in caught.traceback][1:]

    assert frames(magpy.compile(f, backend="eager")) == frames(f) == ["f"]


def test_the_default_device_is_switched_around_what_is_computed(monkeypatch):
    """torch takes all modes off its stack meanwhile, and puts them back."""
    monkeypatch.setattr(magpy.config, "regions", True)

    def f(x):
        torch.set_default_device("cpu")
        y = x.sin() + torch.zeros(2)
        torch.set_default_device(None)
        return y

    c = magpy.compile(f, backend="eager")
    for _ in range(12):
        x = torch.randn(2)
        assert_same(c(x), f(x))
        assert modes() == 0
