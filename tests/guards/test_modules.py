"""A compiled module sees every way in which a module and its parameters change.

Owns: changes of one layer among many, end to end, after the cheap tests have been armed; what keeps
parameters alive.  Does not own: the checks one by one (`tests/interp`, `test_tensor_meta.py`).
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import magpy

LAYERS = 70  # more than a block of dicts or objects


class Scaled(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 2


def model() -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(3, 3) for _ in range(LAYERS)))
    for layer in net:
        nn.init.eye_(layer.weight)
        layer.register_buffer("shift", torch.zeros(3))
    return net


def new() -> nn.Parameter:
    return nn.Parameter(torch.full((3, 3), 0.5))


def halved(module: Any, args: Any, out: torch.Tensor) -> torch.Tensor:
    return out / 2


def swap(layer: Any) -> None:
    torch.utils.swap_tensors(layer.weight, new())


def load(layer: Any) -> None:
    layer.load_state_dict({**layer.state_dict(), "weight": new().data}, assign=True)


def set_storage(layer: Any) -> None:
    with torch.no_grad():
        layer.weight.set_(new().data)


def resize(layer: Any) -> None:
    layer.requires_grad_(False)
    layer.bias.resize_(1).fill_(0.25)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "setattr": lambda m: setattr(m, "weight", new()),
    "delattr": lambda m: (delattr(m, "bias"), m.register_parameter("bias", None)),
    "parameters dict": lambda m: m._parameters.__setitem__("weight", new()),
    "parameters update": lambda m: m._parameters.update(weight=new()),
    "parameters ior": lambda m: m.__dict__["_parameters"].__ior__({"weight": new()}),
    "parameters pop": lambda m: (m._parameters.pop("bias"), m._parameters.setdefault("bias", None)),
    "parameters replaced": lambda m: m.__dict__.update(_parameters={"weight": new(), "bias": None}),
    "instance dict": lambda m: m.__dict__.__setitem__("forward", lambda x: x * 3),
    "dict replaced": lambda m: setattr(
        m, "__dict__", {**m.__dict__, "_parameters": {"weight": new(), "bias": None}}
    ),
    "class": lambda m: setattr(m, "__class__", Scaled),
    "hook": lambda m: m.register_forward_hook(halved),
    "hooks dict": lambda m: m._forward_hooks.__setitem__(99, halved),
    "data": lambda m: setattr(m.weight, "data", new().data.double().float() * 2),
    "data of another size": lambda m: setattr(m.bias, "data", torch.full((1,), 0.25)),
    "data of other strides": lambda m: setattr(m.weight, "data", torch.arange(9.0).view(3, 3).t()),
    "set_": set_storage,
    "resize_": resize,
    "requires_grad_": lambda m: m.weight.requires_grad_(False),
    "swap_tensors": swap,
    "load_state_dict": load,
    "in place": lambda m: m.weight.data.mul_(3),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("at", [0, LAYERS - 2])
def test_a_change_of_one_layer_among_many(change: Callable[[Any], Any], at: int) -> None:
    net = model()
    compiled = magpy.compile(net, backend="eager")
    x = torch.tensor([[1.0, 2.0, 3.0]])
    for _ in range(3):
        assert torch.equal(compiled(x), net(x))
    assert magpy.stats(compiled).hits == 2
    change(net[at])
    for _ in range(3):
        got, want = compiled(x), net(x)
        assert torch.equal(got, want)
        assert got.requires_grad == want.requires_grad


def test_freezing_every_parameter_is_seen() -> None:
    net = model()
    compiled = magpy.compile(net, backend="eager")
    x = torch.ones(1, 3)
    for _ in range(3):
        assert compiled(x).requires_grad
    for p in net.parameters():
        p.requires_grad_(False)
    assert not compiled(x).requires_grad
    net[5].bias.requires_grad_()
    assert compiled(x).requires_grad


def test_parameters_come_first_and_in_order() -> None:
    seen: list[tuple[Any, ...]] = []

    def backend(gm: Any, example: list[Any]) -> Any:
        def run(*args: Any) -> Any:
            seen.append(args)
            return gm(*args)

        return run

    net = model()
    compiled = magpy.compile(net, backend=backend)
    for k in range(3):
        x = torch.full((1, 3), float(k))
        assert torch.equal(compiled(x), net(x))
    assert len(seen) >= 2
    for args in seen:
        assert [id(a) for a in args[:-1]] == [id(p) for p in net.parameters()]


def test_parameters_die_with_the_module() -> None:
    net = model()
    compiled = magpy.compile(net, backend="eager")
    x = torch.ones(1, 3)
    for _ in range(3):
        compiled(x)
    refs = [weakref.ref(p) for p in net.parameters()]
    del net, compiled
    gc.collect()
    assert not any(r() is not None for r in refs)


def test_a_replaced_parameter_dies_once_its_entries_are_gone() -> None:
    net = model()
    compiled = magpy.compile(net, backend="eager")
    x = torch.ones(1, 3)
    for _ in range(3):
        compiled(x)
    ref = weakref.ref(net[3].weight)
    net[3].weight = new()
    compiled(x)
    magpy.reset()
    gc.collect()
    assert ref() is None
