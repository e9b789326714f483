"""The class of a compiled module follows the module's: parametrizations, assignments, slots."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import magpy


class Symmetric(nn.Module):
    def forward(self, w):
        return (w + w.t()) / 2


class Slotted(nn.Linear):
    __slots__ = ("own",)


WAYS = {
    "symmetric": lambda m: parametrize.register_parametrization(m, "weight", Symmetric()),
    "weight norm": parametrizations.weight_norm,
    "orthogonal": parametrizations.orthogonal,
    "old weight norm": nn.utils.weight_norm,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("through", ["compiled", "module"])
@pytest.mark.parametrize("way", WAYS)
def test_parametrizations_are_both_modules(way, through):
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    eager = copy.deepcopy(model)
    f = magpy.compile(model, backend="eager")
    x = torch.ones(1, 2)
    assert torch.equal(f(x), eager(x))
    WAYS[way](eager)
    WAYS[way](f if through == "compiled" else model)
    state = {k: v.clone() for k, v in eager.state_dict().items()}
    f.load_state_dict(state)
    for _ in range(3):
        assert torch.equal(f(x), eager(x))
        assert torch.equal(model(x), eager(x))
        assert torch.equal(f.weight, eager.weight)
    assert f.__class__ is model.__class__
    assert isinstance(f, nn.Linear)
    assert f.state_dict().keys() == eager.state_dict().keys() == model.state_dict().keys()
    assert magpy.stats(f).hits >= 1
    if parametrize.is_parametrized(f):
        parametrize.remove_parametrizations(f, "weight")
        parametrize.remove_parametrizations(eager, "weight")
        assert type(model) is nn.Linear
        assert torch.equal(f(x), eager(x))
    if way == "symmetric":
        assert torch.equal(pickle.loads(pickle.dumps(f))(x), eager(x))


def test_copies_have_the_class_that_the_module_has():
    f = magpy.compile(nn.Linear(2, 2), backend="eager")
    parametrize.register_parametrization(f, "weight", Symmetric())
    x = torch.ones(1, 2)
    for other in (copy.deepcopy(f), copy.deepcopy(copy.deepcopy(f))):
        assert torch.equal(other(x), f(x))
        assert type(other) is type(f)


def test_a_class_with_slots_stays_what_it_is():
    model = Slotted(2, 2)
    model.own = 3
    f = magpy.compile(model, backend="eager")
    x = torch.ones(1, 2)
    assert torch.equal(f(x), model(x))
    with pytest.raises(TypeError, match="layout"):
        f.__class__ = nn.Linear
    assert type(model) is Slotted
    assert torch.equal(f(x), model(x))


def test_what_is_missing_is_missing_as_ever():
    f = magpy.compile(nn.Linear(2, 2), backend="eager")
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'nothing'"):
        _ = f.nothing
    with pytest.raises(TypeError, match="__class__ must be set to a class"):
        f.__class__ = 3
