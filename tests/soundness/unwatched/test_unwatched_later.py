"""Python that runs unwatched, and does something else after the capture without being replaced.

Owns: programs in which what a stream, an effect, an object that is shown or a backward pass leads
to (an inner stream, a helper, a base class, an element of a list, the `backward` of a function)
gets hold of what the call looks at, or is replaced by what has it.  Does not own hearers and hooks
that are put in place themselves (effects/test_listeners_added_later.py).
"""

from __future__ import annotations

import logging

import pytest
import torch

import magpy
from tests.soundness.unwatched_programs import check_harmless, check_noticed, check_refused


class Inner:
    """A stream that writes to a dict."""

    def __init__(self, d):
        self.d = d

    def write(self, text):
        self.d["k"] = 5.0

    def flush(self):
        pass


def _print(stream):
    return lambda: print("x", file=stream)


def inner_stream(world):
    class Tee:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

    inner = Inner(world.apart)
    return _print(Tee(inner)), lambda: setattr(inner, "d", world.read)


def class_of_an_inner_stream(world):
    class Silent(Inner):
        def write(self, text):
            pass

    class Tee:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

    return _print(Tee(Silent({}))), lambda: setattr(Silent, "write", world.put)


def stream_with_slots(world):
    class Slots:
        __slots__ = ("d",)

        def write(self, text):
            self.d["k"] = 5.0

        def flush(self):
            pass

    stream = Slots()
    stream.d = world.apart
    return _print(stream), lambda: setattr(stream, "d", world.read)


def base_of_a_stream(world):
    class Base(Inner):
        def write(self, text):
            pass

    class Stream(Base):
        def write(self, text):
            super().write(text)

    return _print(Stream({})), lambda: setattr(Base, "write", world.put)


def helper_of_a_stream(world):
    space: dict = {"put": world.put}
    text = "def helper(): pass\nclass W:\n  def write(self, t): helper()\n  def flush(self): pass"
    exec(text, space)
    return _print(space["W"]()), lambda: space.update(helper=world.put)


def object_that_is_shown(world):
    class Shown:
        def __str__(self):
            return "a"

    shown = Shown()
    return lambda: world.log.warning("%s", shown), lambda: _shows(Shown, "__str__", world)


def element_of_a_list_that_is_shown(world):
    class Shown:
        pass

    shown = [[Shown()]]
    return lambda: world.log.warning("%s", shown), lambda: _shows(Shown, "__repr__", world)


def _shows(cls, name, world):
    def text(self):
        world.put()
        return "b"

    setattr(cls, name, text)


def object_that_is_an_effect(world):
    class Effect:
        def __call__(self):
            self.d["k"] = 5.0

    tell = Effect()
    tell.d = world.apart
    return magpy.effect(tell), lambda: setattr(tell, "d", world.read)


def graph_from_outside(world):
    made = torch.ones(2, requires_grad=True) * 2
    backward = made.sum().backward
    return lambda: backward(retain_graph=True), lambda: made.register_hook(world.put)


def backward_of_a_function(world):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    made = Double.apply(torch.ones(2, requires_grad=True))

    def backward(ctx, g):
        world.put()
        return g * 2

    return (
        lambda: made.sum().backward(retain_graph=True),
        lambda: setattr(Double, "backward", staticmethod(backward)),
    )


CASES = [
    *(inner_stream, class_of_an_inner_stream, stream_with_slots, base_of_a_stream),
    *(helper_of_a_stream, object_that_is_shown, element_of_a_list_that_is_shown),
    *(object_that_is_an_effect, graph_from_outside, backward_of_a_function),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_gets_at_what_the_call_reads_is_noticed(case):
    check_noticed(case)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_keeps_to_itself_does_no_harm(case):
    check_harmless(case)


def test_a_hook_that_counts_in_a_graph_from_outside_is_noticed_at_once():
    counted = {"n": 0}
    made = torch.ones(2, requires_grad=True) * 2
    made.register_hook(lambda g: counted.update(n=counted["n"] + 1))

    def f(x):
        made.sum().backward(retain_graph=True)
        return x * counted["n"]

    f = magpy.compile(f, backend="eager")
    assert [f(torch.ones(1)).item() for _ in range(4)] == [1, 2, 3, 4]


def test_what_a_handler_changes_by_a_computed_name_is_seen_at_once():
    class Lines:
        kept: list

    class Keep(logging.Handler):
        def emit(self, record):
            getattr(self.inner, "kept").append(record.getMessage())  # noqa: B009

    lines, handler = Lines(), Keep()
    lines.kept, handler.inner = [], lines
    log = logging.Logger("assumed")
    log.addHandler(handler)

    def program(t):
        log.warning("called")
        return t + 1, len(lines.kept)

    f = magpy.compile(program, backend="eager")
    seen = [f(torch.ones(1))[1] for _ in range(4)]
    assert len(lines.kept) == 4, "the effect itself comes once in each call"
    assert seen == [1, 2, 3, 4]
    check_refused(f)


def test_what_a_handler_changes_in_some_calls_only_is_seen_at_once():
    class Keep(logging.Handler):
        count, full = 0, 0

        def emit(self, record):
            self.count += 1
            if self.count % 3 == 0:
                self.full += 1

    handler = Keep()
    log = logging.Logger("assumed")
    log.addHandler(handler)

    def program(t):
        log.warning("called")
        return t + 1, handler.full

    f = magpy.compile(program, backend="eager")
    seen = [f(torch.ones(1))[1] for _ in range(4)]
    assert handler.full == 1, "the effect itself comes in each call"
    assert seen == [0, 0, 1, 1]
    check_refused(f)


def test_an_effect_is_given_the_very_objects_of_the_call():
    kept, times = [], [0]

    @magpy.effect
    def keep(v):
        kept.append(v)
        v.extend([0] * times[0])

    def program(t):
        y = [1]
        keep(y)
        keep(y)
        return t + 1, y

    f = magpy.compile(program, backend="eager")
    f(torch.ones(1)), f(torch.ones(1))
    assert kept[0] is kept[1] and kept[2] is kept[3]
    times[0] = 2
    assert f(torch.ones(1))[1] == [1, 0, 0, 0, 0]
    check_refused(f)
