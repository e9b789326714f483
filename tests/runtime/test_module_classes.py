"""The class of a compiled module follows the module's: parametrizations, assignments, slots."""

from __future__ import annotations

import abc
import copy
import pickle
import warnings

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


class Sized(nn.Module):
    def __init__(self, n=4):
        super().__init__()
        self.n, self.layer = n, nn.Linear(n, n)

    def forward(self, x):
        return self.layer(x)

    @classmethod
    def small(cls):
        return cls(2)

    def fresh(self):
        return type(self)(self.n)


def test_what_the_program_makes_of_the_class_is_a_module_as_any_other():
    m = magpy.compile(Sized(), backend="eager")
    m(torch.ones(4))
    for made, n in ((m.small(), 2), (m.fresh(), 4), (type(m)(3), 3), (m.__class__(5), 5)):
        assert type(made) is Sized
        assert made(torch.ones(n)).shape == (n,)
    assert isinstance(m, Sized)


def test_the_program_does_not_hear_of_the_class():
    heard = []

    class Meta(type):
        def __new__(mcs, name, bases, body, **kwargs):
            heard.append(("new", name))
            return super().__new__(mcs, name, bases, body, **kwargs)

    class Base(nn.Module, metaclass=Meta):
        def __init_subclass__(cls, tag, **kwargs):
            super().__init_subclass__(**kwargs)
            heard.append(("subclass", tag, cls))

    class Model(Base, tag="model"):
        def forward(self, x):
            return x * 2

    before = list(heard)
    m = magpy.compile(Model(), backend="eager")
    assert m(torch.ones(1)).item() == 2
    assert heard == before
    assert type(type(m)) is Meta


def test_abstract_classes_keep_what_they_know_apart():
    class Base(nn.Module, abc.ABC):
        @abc.abstractmethod
        def forward(self, x): ...

    class Model(Base):
        def forward(self, x):
            return x * 2

    model = Model()
    m = magpy.compile(model, backend="eager")
    assert not isinstance(model, type(m))
    assert isinstance(m, Model)
    assert isinstance(model, Model)
    assert isinstance(m, Base)
    assert m(torch.ones(1)).item() == 2


def test_slots_and_the_dict_are_the_modules():
    model = Slotted(2, 2)
    f = magpy.compile(model, backend="eager")
    f.own = 5
    assert model.own == f.own == 5
    model.own = 6
    assert f.own == 6
    del f.own
    assert not hasattr(model, "own")
    other, x = nn.Linear(2, 2), torch.ones(1, 2)
    f = magpy.compile(nn.Linear(2, 2), backend="eager")
    f(x)
    f.__dict__ = vars(other)
    assert f.weight is other.weight
    for _ in range(2):
        assert torch.equal(f(x), other(x))


def test_a_module_that_holds_what_was_compiled_of_it_is_copied_once():
    m = magpy.compile(nn.Linear(1, 1), backend="eager")
    m.me = [m]
    copied = copy.deepcopy(m)
    assert copied.me[0] is copied
    assert copied is not m


@pytest.mark.parametrize("called", [0, 3])
def test_a_trace_of_a_compiled_module_is_the_modules(called):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    f, x = magpy.compile(model, backend="eager"), torch.ones(1, 2)
    for _ in range(called):
        f(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        traced = torch.jit.trace(f, x)
    for n in (1, 3):
        given = torch.randn(n, 2)
        assert torch.equal(traced(given), model(given))
    assert not any("tracing tensor" in r for r in magpy.stats(f).reasons)
