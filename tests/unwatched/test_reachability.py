"""Which objects Python functions can change."""

import functools
import types

import torch

from magpy.unwatched.reachability import is_torchs_hook, reachable

STORE = []
COUNT = 0


class Keeper:
    __slots__ = ("inner",)
    shared = []

    def __init__(self):
        self.inner = {"list": []}

    def keep(self, t):
        STORE.append(t)


def test_a_function_that_names_nothing_changes_nothing_else():
    def pack(t):
        return t + 1

    assert reachable([pack]) == {id(pack)}


def test_what_a_cell_holds_is_in_reach_and_the_cell_where_it_is_written():
    held, n = [], 0

    def pack(t):
        held.append(t)
        return t

    def counts(t):
        nonlocal n
        n += 1
        return t

    found = reachable([pack])
    assert id(held) in found
    assert id(pack.__closure__[0]) not in found
    assert id(counts.__closure__[0]) in reachable([counts])


def test_globals_are_in_reach_of_who_names_or_sets_them():
    def names(t):
        STORE.append(t)

    def sets(t):
        global COUNT
        COUNT += 1

    assert id(STORE) in reachable([names])
    assert id(globals()) not in reachable([names])
    assert id(globals()) in reachable([sets])


def test_objects_are_walked_with_slots_classes_and_methods():
    keeper = Keeper()
    found = reachable([functools.partial(keeper.keep)])
    assert {id(keeper), id(keeper.inner), id(keeper.inner["list"]), id(Keeper.shared)} <= found
    assert id(STORE) in found


def test_the_owner_of_a_builtin_method_is_in_reach():
    held = []
    assert id(held) in reachable([held.append])
    assert id(held) in reachable([functools.partial(print, file=held)])


def test_a_module_of_the_program_is_in_reach_of_who_sets_attributes():
    m = types.ModuleType("of_the_program")
    m.items = []

    def reads(t):
        return m.items

    def sets(t):
        m.other = t

    assert id(m.items) in reachable([reads])
    assert id(vars(m)) in reachable([sets])


def test_tensors_and_torchs_own_classes_are_left_out():
    w, layer = torch.ones(2), torch.nn.Linear(2, 2)

    def pack(t):
        return layer(t) + w

    found = reachable([pack])
    assert id(w) not in found
    assert id(torch.nn.Linear) not in found
    assert {id(layer), id(vars(layer)), id(layer._parameters)} <= found


def test_nobody_can_tell_what_a_function_changes_by_names_that_it_computes():
    def pack(t):
        setattr(t, "a", 1)

    def looks(t):
        return globals()["a"]

    assert reachable([pack]) is None
    assert reachable([looks]) is None


def test_too_many_objects_are_given_up():
    many = [[] for _ in range(5000)]

    def pack(t):
        many.append(t)

    assert reachable([pack]) is None


def test_hooks_of_torch_and_of_c_are_no_hooks_of_the_program():
    hooks = torch.autograd.graph.save_on_cpu()
    assert is_torchs_hook(hooks.pack_hook)
    assert is_torchs_hook(torch.clone)
    assert not is_torchs_hook(lambda t: t)
    assert not is_torchs_hook(Keeper().keep)
