"""Runs programs in which Python that nobody watches gets at what a call looks at.

Owns: the world of such a program, its calls, the two checks that each must pass, and a function of
autograd that calls what it was given in the backward pass.  Does not own: the ways by which it gets
there (unwatched/test_unwatched_later.py, unwatched/test_unwatched_ways.py).
"""

from __future__ import annotations

import io
import logging

import torch

import magpy


class World:
    """A dict that the call reads after the effect, and one that is nobody's."""

    def __init__(self):
        self.read = {"k": 1.0}
        self.apart = {"k": 0.0}
        self.log = logging.Logger("unwatched")
        self.log.addHandler(logging.StreamHandler(io.StringIO()))

    def put(self, *given, **named):
        self.read["k"] = 5.0


def compiled(f):
    return magpy.compile(f, backend="eager")


def calls(case, wrap):
    """What seven calls give, of which the last three come after the change; what was called.

    Args:
        case: takes a world and gives what acts in the call, and what changes what that does.
        wrap: makes what is called of the function.
    """
    world = World()
    act, change = case(world)

    def f(x):
        act()
        return x * world.read["k"]

    target, found = wrap(f), []
    for i in range(7):
        world.read["k"] = 1.0
        if i == 4:
            change()
        found.append(target(torch.ones(1)).item())
    return found, target


def check_noticed(case, served=False):
    """The change is noticed; the call is refused at once, or `served` before the change."""
    expected, _ = calls(case, lambda f: f)
    found, target = calls(case, compiled)
    assert expected == [1.0] * 4 + [5.0] * 3
    assert found == expected
    check_refused(target, served)


def check_refused(target, served=False):
    """What runs the program's Python unwatched is refused, and nothing else."""
    reasons = magpy.stats(target).reasons
    assert served or reasons
    for reason in reasons:
        assert "runs" in reason and "nobody watches" in reason, reason


def check_harmless(case):
    """Without the change, nothing differs either."""

    def without(world):
        act, _ = case(world)
        return act, lambda: None

    found, _ = calls(without, compiled)
    assert found == [1.0] * 7


class CallsBack(torch.autograd.Function):
    """Its function runs in the backward pass only, which a watched call does not see."""

    @staticmethod
    def forward(ctx, f, t):
        ctx.f = f
        return t * 1

    @staticmethod
    def backward(ctx, gradient):
        return None, gradient * ctx.f()
