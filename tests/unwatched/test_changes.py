"""What a call for its effect changes, and which tensors functions can reach, by hand."""

import collections
import types

import torch

from magpy.errors import Refusal
from magpy.unwatched import changes


class Thing:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Slotted:
    __slots__ = ("n",)


weight = torch.ones(1)
table = {"a": Thing(t=torch.ones(2))}
module = types.ModuleType("elsewhere")
module.level = [torch.ones(3)]


def reached(*roots):
    found = changes.tensors_within(list(roots))
    return None if found is None else {id(t) for t in found}


def test_tensors_are_reached_by_names_cells_and_modules():
    inner = torch.ones(4)

    def function():
        return weight, table, module.level, inner

    expected = [weight, table["a"].t, module.level[0], inner]
    assert reached(function) == set(map(id, expected))


def test_tensors_are_reached_through_objects_slots_and_containers():
    v, t = Slotted(), torch.ones(1)
    v.n = collections.deque([{"k": (t,)}])
    assert reached(v) == reached(Thing(a=[v])) == {id(t)}
    assert reached(t, 1, "text", print) == {id(t)}


def test_too_many_objects_are_not_walked():
    assert reached([[i] for i in range(10_000)]) is None


class Session:
    """A session by hand: what was looked at, what was written, and what containers held before."""

    def __init__(self, looked=(), log=(), before=()):
        self._looked, self._log, self._before = looked, list(log), list(before)

    def is_outside(self, v):
        return not isinstance(v, (Thing, dict))

    def containers(self):
        return [(v, list(v), False, 0) for v in self._looked] + [
            (v, old, False, 0) for v, old in self._before
        ]

    def log(self):
        return self._log

    def written_cells(self):
        return []


def test_a_change_of_what_the_call_looks_at_is_told():
    seen, unseen = [], []
    for target in (seen, unseen):
        b = changes.Below(Session([seen]))
        b.begin((target,), ())
        target.append(1)
        b.done("print")
        assert (b.looked_at() is not None) == (target is seen)


def test_a_change_of_what_the_effect_goes_through_is_told():
    handler = Slotted()
    handler.n = []
    b = changes.Below(Session([handler.n]))
    b.begin((), (handler,))
    handler.n.append(1)
    b.done("info")
    assert "info changes an object" in b.looked_at().reason


def test_a_change_of_an_object_of_the_call_is_refused():
    own = Thing(n=1)
    b = changes.Below(Session())
    b.begin((own,), ())
    own.n = 2
    try:
        b.done("print")
    except Refusal as refusal:
        assert "changes an object of the call" in refusal.reason
    else:
        raise AssertionError("it is not refused")


def test_what_an_effect_was_given_may_have_been_written_to():
    file, other = [], []
    b = changes.Below(Session())
    b.begin((file,), ())
    b.done("print")
    assert b.written_to(file) and not b.written_to(other)


def test_what_the_call_has_written_is_known():
    v = Thing(n=1)
    assert not changes.Below(Session()).written()
    assert not changes.Below(Session(log=[("attr_c", v, "n", 1)])).written()
    assert changes.Below(Session(log=[("write_attr", v, "n", 1)])).written()
