"""Treatments of calls whose results a guard asks for again (magpy/capture/python/c_calls.py)."""

from __future__ import annotations

import abc

import pytest
import torch

import magpy


@pytest.fixture
def bases():
    class Base(abc.ABC):  # noqa: B024 - it only registers
        asked = 0

        @classmethod
        def __subclasshook__(cls, other):
            cls.asked += 1
            return NotImplemented

    class Mine:
        pass

    return Base, Mine


def test_a_registration_elsewhere_costs_no_entry(bases):
    base, mine = bases
    del base.__subclasshook__
    o = mine()
    c = magpy.compile(
        lambda t: (isinstance(o, base), issubclass(mine, base), t + 1), backend="eager"
    )
    for _ in range(4):
        assert c(torch.ones(2))[:2] == (False, False)
        other = type("Other", (), {})
        base.register(other)
        abc.ABC.register(other)
    assert magpy.stats(c).captures == 1
    base.register(mine)
    for _ in range(2):
        assert c(torch.ones(2))[:2] == (True, True)
    assert magpy.stats(c).captures == 2


def test_a_hook_runs_as_often_as_in_eager(bases):
    base, mine = bases

    def f(t):
        return isinstance(mine(), base), t + 1

    c = magpy.compile(f, backend="eager")
    asked = []
    for call in (f, c):
        base.register(type("Other", (), {}))
        base.asked = 0
        call(torch.ones(2))
        asked.append(base.asked)
    assert asked == [1, 1]


def test_what_a_hook_reads_is_guarded(bases):
    base, mine = bases
    answer = {"is": False}

    def hook(cls, other):
        return answer["is"] if other is mine else NotImplemented

    base.__subclasshook__ = classmethod(hook)
    c = magpy.compile(lambda t: (isinstance(mine(), base), t + 1), backend="eager")
    for value in (False, True, False):
        base.register(type("Other", (), {}))  # forgets the answers
        answer["is"] = value
        for _ in range(2):
            assert c(torch.ones(2))[0] is isinstance(mine(), base)


def test_a_hook_that_fails_raises_what_it_raises(bases):
    base, mine = bases

    def fail(cls, other):
        raise KeyError("no")

    base.__subclasshook__ = classmethod(fail)
    c = magpy.compile(lambda t: isinstance(mine(), base), backend="eager")
    for _ in range(2):
        with pytest.raises(KeyError, match="no"):
            c(torch.ones(2))
    assert not [r for r in magpy.stats(c).reasons if "magpy failed" in r]
