"""What a function that runs unwatched can look at and change, on hand-written functions."""

import logging
import types

from magpy.capture import below


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
    found = below.named_places(function, given)
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
        b = below.Below(Session(seen))
        b.begin(())
        b.entered(function, (target,))
        target.append(1)
        b.done("print")
        assert (b.looked_at() is not None) == (target is seen)
