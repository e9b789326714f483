"""What is told of TorchScript: its methods' names, and the state of modules that it holds."""

import pytest
import torch
from torch import nn

from magpy.capture import leaves, scripts


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
    state = scripts.state(module._c)
    assert scripts.state(scripts.module_of(module)) == state
    assert scripts.state(scripts.module_of(module.forward)) == state
    assert scripts.module_of(torch.jit.script(Outer().eval()).inner) is not None
    assert scripts.module_of(torch.relu) is None


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
    before = scripts.state(module._c)
    assert scripts.state(module._c) == before
    CHANGES[name](module)
    assert scripts.state(module._c) != before


def test_values_of_tensors_are_not_told(module):
    before = scripts.state(module._c)
    module.b.add_(1)
    assert scripts.state(module._c) == before


def test_methods_are_called_by_their_class(module):
    assert leaves.name_of(module._c.setattr) == "ScriptObject.setattr"
    assert leaves.effect_of(module._c.setattr) is leaves.Effect.REFUSE
    assert leaves.effect_of(module._c.getattr) is leaves.Effect.SCRIPT_READ
    assert leaves.effect_of(torch.jit.script([1]).append) is leaves.Effect.REFUSE
