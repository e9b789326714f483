"""Signals that come while magpy works: what their handlers raise and do is the program's."""

from __future__ import annotations

import signal
import sys
import threading

import pytest
import torch

import magpy


class TimeUp(Exception):
    """What a program raises at its own time limit."""


@pytest.fixture
def handled():
    """Installs a handler for SIGALRM, puts back what was there."""
    before = signal.getsignal(signal.SIGALRM)

    def install(handler):
        signal.signal(signal.SIGALRM, handler)

    yield install
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


_LONG = "def f(x):\n  for _ in range(3): x = x + 1\n{}  return x\n".format(
    "  if x is None: x = [a for a in range(9)]\n" * 40
)


@pytest.mark.parametrize("kind", [TimeUp, KeyboardInterrupt])
def test_what_a_handler_raises_reaches_the_caller_whenever_it_comes(handled, kind, monkeypatch):
    came, lost = [], []

    def hook(unraisable):
        """Where CPython drops an exception: in a callback of one of torch's weak references."""
        assert unraisable.object.__module__.startswith("torch.")
        lost.append(unraisable.exc_type)

    monkeypatch.setattr(sys, "unraisablehook", hook)

    def handler(number, frame):
        came.append(number)
        raise kind("now")

    handled(handler)
    seen = 0
    for i in range(40):
        space = {}
        exec(compile(_LONG, f"long{i}.py", "exec"), space)  # code that was not watched before
        c = magpy.compile(space["f"], backend="eager")
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0002 * (i + 1))
            c(torch.ones(1))
            signal.setitimer(signal.ITIMER_REAL, 0)
        except kind:
            seen += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert seen + lost.count(kind) == len(came)
        assert not any("failed" in r or "instrumented" in r for r in magpy.stats(c).reasons)
        # And nothing of it stays: the next calls are captured, and served.
        assert [c(torch.ones(1)).item() for _ in range(3)] == [4.0] * 3
        assert magpy.stats(c).hits >= 2


class _Handlers:
    def __init__(self, said):
        self.said = said

    def method(self, number, frame):
        self.said.append("method")

    def __call__(self, number, frame):
        self.said.append("object")


@pytest.mark.parametrize("way", ["function", "method", "object"])
def test_what_a_handler_does_is_no_part_of_the_call(handled, way):
    said = []

    def function(number, frame):
        said.append("function")

    of = _Handlers(said)
    handled({"function": function, "method": of.method, "object": of}[way])

    def f(x, now):
        y = x + 1
        if now:
            signal.raise_signal(signal.SIGALRM)
        return y * 2

    def g(x):
        y = x + 1
        box[0]()
        return y * 2

    c = magpy.compile(f, backend="eager")
    assert c(torch.ones(1), True).item() == 4.0
    assert said == [way]
    for _ in range(3):
        assert c(torch.ones(1), False).item() == 4.0
    assert said == [way]
    # It comes in the middle of a call that is watched, from elsewhere.
    box = [lambda: None]
    c = magpy.compile(g, backend="eager")
    thread = threading.Thread(target=signal.raise_signal, args=(signal.SIGALRM,))

    def from_another_thread():
        thread.start()
        thread.join()

    box[0] = magpy.pure(from_another_thread)
    said.clear()
    assert c(torch.ones(1)).item() == 4.0
    box[0] = int
    for _ in range(3):
        assert c(torch.ones(1)).item() == 4.0
    assert said == [way]


def test_what_a_handler_raises_in_the_program_is_not_captured(handled):
    def handler(number, frame):
        raise TimeUp("now")

    handled(handler)
    limits = [True]

    def f(x):
        y = x + 1
        if limits[0]:
            ring()
        return y * 2

    ring = magpy.pure(lambda: signal.raise_signal(signal.SIGALRM))
    c = magpy.compile(f, backend="eager")
    for _ in range(5):
        with pytest.raises(TimeUp):
            c(torch.ones(1))
    assert magpy.stats(c).captures == 0
    limits[0] = False
    assert [c(torch.ones(1)).item() for _ in range(3)] == [4.0] * 3
    assert magpy.stats(c).hits == 2


def test_what_a_handler_raises_in_a_compiler_is_no_failure_of_it(handled):
    def handler(number, frame):
        raise TimeUp("now")

    handled(handler)
    rings = [True]

    def backend(graph, inputs):
        if rings[0]:
            signal.raise_signal(signal.SIGALRM)
        return graph

    c = magpy.compile(lambda x: x * 2, backend=backend)
    with pytest.raises(TimeUp):
        c(torch.ones(1))
    assert not any("failed" in r for r in magpy.stats(c).reasons)
    rings[0] = False
    assert [c(torch.ones(1)).item() for _ in range(3)] == [2.0] * 3
    assert magpy.stats(c).hits >= 1


def test_signals_on_the_way_of_hits_are_not_lost(handled):
    came = []

    def handler(number, frame):
        came.append(number)
        raise TimeUp("now")

    handled(handler)
    state = {"a": [1, 2.5], "b": {"c": (1, 2)}}

    def f(x):
        x.add_(1)
        state["n"] = state.get("n", 0) + 1
        return x * state["a"][1] + state["b"]["c"][0]

    c = magpy.compile(f, backend="eager")
    x = torch.zeros(2)
    for _ in range(5):
        c(x)
    seen = 0
    for i in range(300):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.00001 * (i + 1))
            for _ in range(40):
                c(x)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except TimeUp:
            seen += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert seen == len(came)


def test_signals_come_while_several_threads_capture(handled):
    came, right = [], []
    handled(lambda number, frame: came.append(number))

    def work(k):
        for i in range(20):
            c = magpy.compile(lambda x, i=i: x * i + k, backend="eager")
            right.append([c(torch.ones(1)).item() for _ in range(3)] == [i + k] * 3)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    for thread in threads:
        thread.start()
    work(7)
    for thread in threads:
        thread.join()
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert all(right)
    assert len(right) == 80
    assert came
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # this is the main thread still
