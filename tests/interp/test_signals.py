"""Handlers of signals wait while magpy's own code runs (csrc/interp/signals.cpp)."""

import signal
import threading

import pytest

from magpy import _interp


@pytest.fixture
def came():
    """The signals that were handled."""
    before, found = signal.getsignal(signal.SIGALRM), []
    signal.signal(signal.SIGALRM, lambda number, frame: found.append(number))
    yield found
    signal.signal(signal.SIGALRM, before)


def ring():
    signal.raise_signal(signal.SIGALRM)
    for _ in range(1000):  # the interpreter looks at what has come
        pass
    return len(str(signal.getsignal(signal.SIGALRM)))


def test_they_wait_and_then_run_once(came):
    _interp.hold_signals()
    _interp.hold_signals()
    ring()
    ring()
    assert came == []
    _interp.release_signals()
    ring()
    assert came == []
    _interp.release_signals()
    for _ in range(1000):
        pass
    assert came == [signal.SIGALRM]
    ring()
    assert came == [signal.SIGALRM] * 2


def test_they_are_let_in_for_a_call(came):
    _interp.hold_signals()
    ring()
    assert came == []
    _interp.let_signals_in(ring)
    assert len(came) in (1, 2)  # the one that waited, and the one of the call
    found = len(came)
    ring()
    assert len(came) == found
    _interp.release_signals()
    for _ in range(1000):
        pass
    assert len(came) == found + 1


def test_what_they_raise_comes_after(came):
    def raising(number, frame):
        raise KeyError("late")

    signal.signal(signal.SIGALRM, raising)
    _interp.hold_signals()
    try:
        ring()
        held = True
    finally:
        with pytest.raises(KeyError, match="late"):
            _interp.release_signals()
            for _ in range(1000):
                pass
    assert held


def test_another_thread_holds_none(came):
    held, done = threading.Event(), threading.Event()

    def other():
        _interp.hold_signals()
        held.set()
        done.wait()
        _interp.release_signals()

    thread = threading.Thread(target=other)
    thread.start()
    held.wait()
    ring()
    assert came == [signal.SIGALRM]
    done.set()
    thread.join()
    ring()
    assert came == [signal.SIGALRM] * 2
