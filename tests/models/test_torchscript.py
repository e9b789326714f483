"""What is told of TorchScript: its methods' names, and the state of modules that it holds."""

from typing import NamedTuple

import pytest
import torch
from torch import nn

import magpy
from magpy.models import callables, torchscript
from magpy.models.c_function_tables import Effect


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.times = [1, 2]

    def forward(self, t):
        return t * self.times[0]


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.k = 1.0
        self.register_buffer("b", torch.ones(2))
        self.inner = Inner()

    def forward(self, t):
        return self.inner(t) * self.k + self.b


@pytest.fixture
def module():
    return torch.jit.script(Outer())


def test_the_module_of_modules_and_methods(module):
    state = torchscript.state(module._c)
    assert torchscript.state(torchscript.module_of(module)) == state
    assert torchscript.state(torchscript.module_of(module.forward)) == state
    assert torchscript.module_of(torch.jit.script(Outer().eval()).inner) is not None
    assert torchscript.module_of(torch.relu) is None


CHANGES = {
    "a number": lambda m: setattr(m, "k", 2.0),
    "the other zero": lambda m: setattr(m, "k", -0.0),
    "a list within": lambda m: setattr(m.inner, "times", [1, 3]),
    "the shape of a tensor": lambda m: setattr(m, "b", torch.ones(3)),
    "its type": lambda m: setattr(m.b, "data", torch.ones(2, dtype=torch.float64)),
    "requires_grad": lambda m: m.b.requires_grad_(True),
    "training": lambda m: m.inner.eval(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_what_it_holds_is_told(module, name):
    module.k = 0.0
    before = torchscript.state(module._c)
    assert torchscript.state(module._c) == before
    CHANGES[name](module)
    assert torchscript.state(module._c) != before


def test_values_of_tensors_are_not_told(module):
    before = torchscript.state(module._c)
    module.b.add_(1)
    assert torchscript.state(module._c) == before


@torch.jit.script
def _appends(t, held: list[int]):
    held.append(1)
    return t * len(held)


@torch.jit.script
def _sets(t, held: dict[str, int]):
    held["a"] = 2
    return t * held["a"]


class _Held(NamedTuple):
    k: int
    held: list[int]


@torch.jit.script
def _appends_within(t, given: _Held):
    given.held.append(given.k)
    return t * len(given.held)


@torch.jit.script
def _collects(t, sizes: list[int]):
    found = [t]
    for k in sizes:
        found.append(t * k)
    return torch.stack(found)


class _Remembers(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = [0]

    def forward(self, t):
        self.seen.append(1)
        return t * len(self.seen)


def test_a_change_of_a_container_that_it_is_given_is_an_effect(module):
    assert torchscript.look(_appends).affects
    assert torchscript.look(_sets).affects
    assert torchscript.look(_appends_within).affects
    assert torchscript.look(torch.jit.script(_Remembers())).affects
    assert not torchscript.look(_collects).affects  # its own
    assert not torchscript.look(module).affects


def test_containers_that_scripts_change_are_changed_in_each_call():
    for make, f in (
        (lambda: (torch.jit.script([0]),), _appends),
        (lambda: (torch.jit.script({"b": 1}),), _sets),
        (lambda: (), torch.jit.script(_Remembers())),
    ):
        given = make()
        compiled = magpy.compile(lambda t, f=f, given=given: f(t, *given), backend="eager")
        expected = [2, 3, 4] if f is not _sets else [2, 2, 2]
        assert [int(compiled(torch.ones(1))) for _ in range(3)] == expected
        assert not given or len(given[0]) == (4 if f is _appends else 2)


def test_methods_are_called_by_their_class(module):
    assert callables.name_of(module._c.setattr) == "ScriptObject.setattr"
    assert callables.effect_of(module._c.setattr) is Effect.REFUSE
    assert callables.effect_of(module._c.getattr) is Effect.SCRIPT_READ
    assert callables.effect_of(torch.jit.script([1]).append) is Effect.REFUSE
