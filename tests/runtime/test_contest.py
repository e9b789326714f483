"""An entry whose calls cost more than eager ones is given up (magpy/runtime/contest.py).

The clock is the tests' own: reading it takes one second, the graph as long as they say.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import magpy
from magpy import config
from magpy.errors import MagpyWarning
from magpy.runtime import contest

CALLS = 260


class Clock:
    """A clock, and a backend whose graphs take `graph` seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.graph = 0.0
        self.runs = 0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now

    def backend(self, gm: Any, inputs: list[Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            self.now += self.graph
            self.runs += 1
            return gm(*args)

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    found = Clock()
    monkeypatch.setattr(contest, "clock", found)
    monkeypatch.setattr(config, "notice_slower", True)
    yield found


class Counts(torch.nn.Module):
    """Each call changes a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * 2 + self.calls


def told(f: Callable[[], Any]) -> list[str]:
    """The warnings of magpy while `f` runs."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        f()
    return [str(w.message) for w in caught if issubclass(w.category, MagpyWarning)]


def run_both(c: Any, f: Any, calls: int = CALLS) -> None:
    """Calls both in step and compares."""
    for i in range(calls):
        x = torch.full((3,), float(i))
        torch.testing.assert_close(c(x), f(x), rtol=0, atol=0)


def test_entry_that_costs_more_is_given_up_with_one_warning(clock: Clock) -> None:
    clock.graph = 2.0
    f, m = Counts(), Counts()
    c = magpy.compile(m, backend=clock.backend)
    with torch.no_grad():
        [text] = told(lambda: run_both(c, f))
    assert "runs eagerly from now on" in text and "with what was captured" in text
    assert m.calls == f.calls == CALLS
    runs = clock.runs
    assert contest.LEAST < runs < CALLS // 2
    with torch.no_grad():
        run_both(c, f)
    assert clock.runs == runs
    stats = magpy.stats(c)
    assert stats.entries == 0 and stats.captures == 1 and any("takes" in r for r in stats.reasons)
    magpy.reset(c)
    with torch.no_grad():
        c(torch.ones(3)), c(torch.ones(3))
    assert clock.runs == runs + 1, "it may be captured again"


@pytest.mark.parametrize("graph", [0.0, 0.15])
def test_entry_that_costs_little_more_or_less_stays(clock: Clock, graph: float) -> None:
    clock.graph = graph
    f, m = Counts(), Counts()
    c = magpy.compile(m, backend=clock.backend)
    with torch.no_grad():
        assert not told(lambda: run_both(c, f))
    stats = magpy.stats(c)
    assert m.calls == CALLS and stats.entries == 1 and not stats.reasons
    timed = contest.WARM + 2 * contest.SAMPLES
    assert stats.eager_calls == timed // 2, "eager's turns are told of"
    runs = clock.runs
    with torch.no_grad():
        run_both(c, f)
    assert clock.runs == runs + CALLS, "it is timed once"


def test_entry_that_is_slow_for_a_while_stays(clock: Clock) -> None:
    clock.graph = 5.0
    f, m = Counts(), Counts()
    c = magpy.compile(m, backend=clock.backend)
    with torch.no_grad():
        run_both(c, f, 67 + contest.WARM + 2 * contest.SAMPLES)
        clock.graph = 0.0
        assert not told(lambda: run_both(c, f))
    assert magpy.stats(c).entries == 1


def test_one_slow_call_decides_nothing(clock: Clock) -> None:
    seen = []

    def f(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    c = magpy.compile(f, backend=clock.backend)
    with torch.no_grad():
        for i in range(CALLS):
            clock.graph = 100.0 if i % 3 == 0 else 0.0
            seen.append(c(torch.ones(2)))
    assert magpy.stats(c).entries == 1
    assert all(torch.equal(v, torch.full((2,), 2.0)) for v in seen)


def test_results_that_a_backward_pass_begins_from_are_not_timed(clock: Clock) -> None:
    clock.graph = 9.0
    layer = torch.nn.Linear(3, 3)
    c = magpy.compile(lambda x: layer(x).sum(), backend=clock.backend)
    for _ in range(CALLS):
        c(torch.ones(3)).backward()
    stats = magpy.stats(c)
    assert stats.entries == 1 and stats.eager_calls == 0


@pytest.mark.parametrize("kind", ["off", "fullgraph", "deterministic", "eager"])
def test_nothing_is_timed_where_nobody_wants_it(
    clock: Clock, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.graph = 9.0
    monkeypatch.setattr(config, "notice_slower", kind != "off")
    backend: Any = "eager" if kind == "eager" else clock.backend
    torch.use_deterministic_algorithms(kind == "deterministic")
    try:
        c = magpy.compile(lambda x: x + 1, backend=backend, fullgraph=kind == "fullgraph")
        for _ in range(CALLS):
            c(torch.ones(2))
    finally:
        torch.use_deterministic_algorithms(False)
    stats = magpy.stats(c)
    assert stats.hits == CALLS - 1 and stats.eager_calls == 0


def test_calls_that_raise_raise_what_eager_raises_and_do_not_count(clock: Clock) -> None:
    clock.graph = 9.0

    def f(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return x + other

    c = magpy.compile(f, backend=clock.backend)
    raised = 0
    for i in range(2 * CALLS):
        if i % 2:
            with pytest.raises(RuntimeError, match="must match"):
                c(torch.ones(2), torch.ones(3))
            raised += 1
        else:
            assert torch.equal(c(torch.ones(2), torch.ones(2)), torch.full((2,), 2.0))
    assert raised == CALLS


def test_calls_within_a_timed_call_and_of_other_threads_are_served(clock: Clock) -> None:
    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        return c(x, n - 1) + 1 if n else x * 2

    c = magpy.compile(f, backend=clock.backend)
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(CALLS):
            got = c(torch.ones(2), 2)
            if not torch.equal(got, torch.full((2,), 4.0)):
                wrong.append(got)

    threads = [threading.Thread(target=work) for _ in range(3)]
    with torch.no_grad():
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert not wrong


def test_no_frame_of_magpys_is_between_the_caller_and_an_eager_turn(clock: Clock) -> None:
    lines: set[int] = set()

    def f(x: torch.Tensor) -> torch.Tensor:
        warnings.warn("seen", UserWarning, stacklevel=2)
        return x + 1

    c = magpy.compile(f, backend=clock.backend)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(CALLS):
            c(torch.ones(2))
    seen = [w for w in caught if w.category is UserWarning]
    lines = {w.lineno for w in seen}
    assert len(seen) == CALLS and {w.filename for w in seen} == {__file__} and len(lines) == 1
