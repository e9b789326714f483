"""What a function that runs unwatched can look at and change, on hand-written functions."""

import logging
import operator
import types

import torch

from magpy.errors import Refusal
from magpy.unwatched import changes


class Thing:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Slotted:
    __slots__ = ("n",)
    shared = []


count = 0
table = {"a": Thing(n=1)}
module = types.ModuleType("elsewhere")
module.level = [1]


def keys(function, *given):
    """The places that are found, as names."""
    known = {id(globals()): "globals", id(table): "table", id(vars(module)): "module"}
    known[id(vars(table["a"]))] = "a"
    for i, v in enumerate(given):
        known[id(getattr(v, "__dict__", v))] = known[id(v)] = f"given{i}"
    found = changes.named_places(function, given)
    return {(known.get(holder, type(v).__name__), k) for (holder, k), (_, v) in found.items()}


def test_globals_are_those_that_are_named():
    def function():
        return count

    assert keys(function) == {("globals", "count")}


def test_attributes_are_those_that_are_named_however_far_away():
    def function(v):
        return v.inner.n

    v = Thing(inner=Thing(n=1, m=2), other=Thing(n=3))
    assert keys(function, v) == {("given0", "inner"), ("dict", "n")}


def test_what_is_reached_by_a_name_of_another_function_is_not_looked_at():
    def function(v):
        return v.write("text")

    far = Thing(n=1)
    assert keys(function, Thing(write=print, shell=far)) == {("given0", "write")}


def test_containers_are_looked_into():
    def function():
        table["a"].n += 1

    found = keys(function)
    assert {("globals", "table"), ("table", "a"), ("table", None), ("a", "n")} <= found


def test_a_module_is_looked_at_by_name():
    def function():
        module.level.append(1)

    assert {("module", "level"), ("list", None)} <= keys(function)


def test_attributes_of_a_module_of_torch_are_those_that_are_named():
    class Scaled(torch.nn.Module):
        def forward(self, t):
            return self.inner(t) * self.scale + self.shift

    m = Scaled()
    m.inner, m.unused = torch.nn.ReLU(), torch.nn.Tanh()
    m.register_buffer("shift", torch.ones(2))
    m.scale = torch.nn.Parameter(torch.ones(2))
    found = changes.named_places(Scaled.forward, (m,))
    named = {(holder, k) for holder, k in found if isinstance(k, str)}
    of = m._modules, m._buffers, m._parameters
    assert {(id(d), k) for d, k in zip(of, ("inner", "shift", "scale"), strict=True)} <= named
    assert (id(m._modules), "unused") not in named


def test_slots_cells_and_class_attributes():
    kept = [1]

    def function(v):
        kept.append(v.n)
        v.shared.append(1)

    found = keys(function, Slotted())
    assert {("given0", "n"), ("type", "shared"), ("cell", None), ("list", None)} <= found


def test_all_of_what_is_given_where_names_are_computed():
    def function(v):
        for name in vars(v):
            setattr(v, name, 0)

    assert keys(function, Thing(a=1, b=Thing(c=2))) == {("given0", "a"), ("given0", "b")}


def test_pythons_own_functions_are_followed_by_name():
    handler = logging.Handler()
    assert ("given0", "level") in keys(logging.Handler.setLevel, handler)


class Session:
    """A session that has seen nothing but one list, which it looked at."""

    def __init__(self, looked):
        self.looked = looked

    def containers(self):
        return [(self.looked, list(self.looked))]

    def log(self):
        return []

    def written_cells(self):
        return []


def test_a_change_of_what_the_call_looks_at_is_told():
    seen, unseen = [], []

    def function(v):
        v.append(1)

    for target in (seen, unseen):
        b = changes.Below(Session(seen))
        b.begin(())
        b.entered(function, (target,))
        target.append(1)
        b.done("print")
        assert (b.looked_at() is not None) == (target is seen)


class Changed:
    """A session by hand: what was written, and what containers held before."""

    def __init__(self, log=(), before=()):
        self._log, self._before = list(log), list(before)

    def log(self):
        return self._log

    def containers(self):
        return [(v, old, False, 0) for v, old in self._before]

    def written_cells(self):
        return []


def entered(session, function, *given):
    """Why a function may not start below a call that is done as a whole; None: it may."""
    watched = changes.Below(session)
    watched.begin(())
    try:
        watched.entered_whole(function, given)
    except Refusal as refusal:
        return refusal.reason
    return None


def test_a_look_at_what_the_call_has_changed_is_refused():
    def function(v):
        return v.n

    v, w = Thing(n=2, m=3), Thing(n=2)
    changed = vars(v), {"n": 1, "m": 3}
    assert "looks at 'n'" in entered(Changed(before=[changed]), function, v)
    assert entered(Changed(before=[changed]), function, w) is None
    assert entered(Changed(before=[(vars(v), {"n": v.n, "m": 1})]), function, v) is None
    assert entered(Changed(), function, v) is None


def test_a_written_slot_is_a_change():
    def function(v):
        return v.n

    v = Slotted()
    v.n = 2
    assert "looks at 'n'" in entered(Changed(log=[("write_attr", v, "n", 1)]), function, v)
    assert entered(Changed(log=[("attr_c", v, "n", 1)]), function, v) is None


def test_names_of_getters_are_names_of_the_function():
    first, second = operator.attrgetter("inner.n"), operator.methodcaller("step", 1)

    def function(v):
        return first(v), second(v)

    v = Thing(inner=Thing(n=1), step=len, other=2)
    found = keys(function, v)
    assert {("given0", "inner"), ("dict", "n"), ("given0", "step")} <= found
    assert ("given0", "other") not in found
