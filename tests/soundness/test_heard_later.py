"""Python of the program that hears of prints, logs and warnings, put in place after the capture.

Owns: programs in which a stream, a handler, a filter, a formatter or a hook of `warnings` that an
entry has not seen changes what the call itself looks at, and how `hearers` finds them.  Does not
own streams and handlers that were there in the capture (test_effects.py).
"""

from __future__ import annotations

import io
import logging
import sys
import warnings

import pytest
import torch

import magpy
from magpy.capture import hearers
from magpy.capture.below import reached
from magpy.capture.steps import Unwatched
from magpy.refgraph.checks import runs_below


class World:
    """A list that the call and what hears of it both change."""

    def __init__(self):
        self.log = []
        self.logger = logging.Logger("heard")
        self.logger.addHandler(logging.NullHandler())
        self.stream = io.StringIO()

    def hear(self, *args, **kwargs):
        self.log.append("heard")
        return True


class Stream(io.StringIO):
    """A stream in Python."""

    def __init__(self, hear):
        super().__init__()
        self.hear = hear

    def write(self, text):
        self.hear(text)
        return len(text)


def _stream(world):
    return Stream(world.hear)


class Handler(logging.Handler):
    """A handler in Python."""

    def __init__(self, hear):
        super().__init__()
        self.hear = hear

    def emit(self, record):
        self.hear(record)


class Formatter(logging.Formatter):
    """A formatter in Python."""

    def __init__(self, hear):
        super().__init__()
        self.hear = hear

    def format(self, record):
        self.hear(record)
        return "text"


def _printed(world):
    print("a")


def _printed_to(world):
    print("a", file=world.stream)


def _logged(world):
    world.logger.warning("a")


def _warned(world):
    warnings.warn("a", stacklevel=1)


def _stdout(world, patch):
    patch.setattr(sys, "stdout", _stream(world))


def _write_of_stdout(world, patch):
    stream = Stream(lambda text: None)
    patch.setattr(sys, "stdout", stream)
    patch.setattr(stream, "hear", world.hear)


def _another_file(world, patch):
    patch.setattr(world, "stream", _stream(world))


def _handler(world, patch):
    world.logger.addHandler(Handler(world.hear))


def _handler_of_the_parent(world, patch):
    parent = logging.Logger("parent")
    parent.addHandler(Handler(world.hear))
    world.logger.parent = parent


def _filter(world, patch):
    world.logger.addFilter(world.hear)


def _filter_of_the_handler(world, patch):
    handler = logging.StreamHandler(io.StringIO())
    handler.addFilter(world.hear)
    world.logger.handlers[:] = [handler]


def _emit_of_the_handler(world, patch):
    world.logger.handlers[0].handle = world.hear


def _formatter(world, patch):
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(Formatter(world.hear))
    world.logger.handlers[:] = [handler]


def _stream_of_a_handler(world, patch):
    world.logger.handlers[:] = [logging.StreamHandler(_stream(world))]


def _factory_of_records(world, patch):
    made = logging.LogRecord

    def factory(*args, **kwargs):
        world.hear()
        return made(*args, **kwargs)

    patch.setattr(logging, "_logRecordFactory", factory)


def _showwarning(world, patch):
    patch.setattr(warnings, "showwarning", world.hear)


def _handle_of_the_logger(world, patch):
    world.logger.handle = world.hear


def _write_of_c(world, patch):
    world.stream = _Plain()
    world.stream.write = world.log.append


class _Plain:
    def flush(self):
        pass


CASES = [
    (_printed_to, _write_of_c),
    (_printed, _stdout),
    (_printed_to, _another_file),
    (_warned, _showwarning),
    (_logged, _handler),
    (_logged, _handler_of_the_parent),
    (_logged, _filter),
    (_logged, _filter_of_the_handler),
    (_logged, _emit_of_the_handler),
    (_logged, _formatter),
    (_logged, _stream_of_a_handler),
    (_logged, _factory_of_records),
    (_logged, _handle_of_the_logger),
]


def _calls(call, change, wrap, patch):
    """What five calls return and leave behind, the change being made before the fourth."""
    world = World()

    def f(x):
        world.log.append("call")
        call(world)
        world.log.append("end")
        return x + 1

    target = wrap(f)
    found = []
    for i in range(5):
        if i == 3:
            change(world, patch)
        if call is _warned:
            warnings.onceregistry.clear()
            globals().pop("__warningregistry__", None)
        found.append((target(torch.ones(2)).tolist(), list(world.log)))
    return found, target


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize(("call", "change"), CASES)
def test_python_put_in_place_later_is_heard_as_in_eager(call, change, monkeypatch):
    with monkeypatch.context() as patch:
        expected, _ = _calls(call, change, lambda f: f, patch)
    with monkeypatch.context() as patch:
        found, target = _calls(call, change, lambda f: magpy.compile(f, backend="eager"), patch)
    assert len(expected[-1][1]) >= 12, "the change is heard of"
    assert found == expected
    assert magpy.stats(target).hits, "and before it an entry is used"


@pytest.mark.parametrize("call", [_printed, _printed_to, _logged, _warned])
def test_nobody_new_hears_and_entries_are_used(call, monkeypatch):
    with monkeypatch.context() as patch:
        found, target = _calls(call, lambda world, patch: None, magpy.compile, patch)
    assert magpy.stats(target).hits >= 3


def _told(*asked):
    return hearers.hearers(*asked)[0]


def test_a_stream_of_c_has_no_hearers():
    stream = io.StringIO()
    assert hearers.hearers(print, stream) == ((), (stream,))
    assert _told(print, sys.__stdout__) == ()


def test_the_methods_of_a_stream_are_found_without_running_them():
    class Told:
        @property
        def write(self):
            raise AssertionError

        def __getattr__(self, name):
            raise AssertionError

    assert _told(print, Told()) == (vars(Told)["write"], vars(Told)["__getattr__"])


def test_what_is_in_the_instance_goes_before_its_class():
    stream = Stream(print)
    assert _told(print, stream) == (Stream.write,)
    stream.write = heard = lambda text: None
    assert _told(print, stream) == (heard,)


def test_a_method_of_c_is_no_function_but_has_what_it_is_a_method_of():
    stream, kept = Stream(print), []
    stream.write = kept.append
    functions, given = hearers.hearers(print, stream)
    assert functions == ()
    assert any(v is kept for v in given)


def test_what_is_shown_hears_how_it_becomes_text():
    class Shown:
        def __str__(self):
            return ""

    shown = Shown()
    functions, given = hearers.hearers(print, io.StringIO(), shown)
    assert functions == (Shown.__str__,)
    assert shown in given


def test_what_shows_warnings_hears_and_the_stream_that_it_writes_to(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Stream(print))
    monkeypatch.setattr(warnings, "formatwarning", shown := lambda *args, **kwargs: "")
    assert _told(warnings.warn, None) == (shown, Stream.write)


def test_a_logger_hears_through_its_parents_where_it_propagates():
    parent, child = logging.Logger("parent"), logging.Logger("child")
    child.parent = parent
    child.addHandler(logging.NullHandler())
    parent.addHandler(Handler(print))
    parent.addFilter(hear := lambda record: True)
    assert _told(child.info, child) == (Handler.emit, hear)
    child.propagate = False
    assert _told(child.info, child) == ()


def test_hooks_are_told_apart_by_the_tensors_that_they_are_of():
    a, b = (torch.ones(1, requires_grad=True) for _ in range(2))
    world = World()
    a.register_hook(world.hear)
    assert hearers.hooks(a, b) == ((None, World.hear, None), (world,))
    assert hearers.hooks(b, a) == ((None, None, World.hear), (world,))


def _holds(ask, of, looks):
    return runs_below(Unwatched(ask, of, ask(*of)[0]), looks, [])


def test_a_check_of_what_runs_below_fails_for_functions_that_are_others():
    stream = Stream(print)
    check = _holds(hearers.hearers, (print, stream), {})
    assert check(print, stream)
    stream.write = lambda text: None
    assert not check(print, stream)


def test_a_check_of_what_runs_below_fails_where_it_gets_hold_of_what_the_run_looks_at():
    world = World()
    stream, kept = _stream(world), world.log
    check = _holds(hearers.hearers, (print, stream), {id(kept): {None}})
    assert check(print, stream)
    world.log = []
    assert not check(print, stream)
    world.log = kept
    assert check(print, stream)


def test_what_helpers_of_functions_reach_is_reached():
    kept = []

    def helper():
        kept.append(1)

    def outer():
        helper()

    assert (id(kept), None) in reached([outer], ())
    assert (id(kept), None) not in reached([_holds], ())
