"""A compiled module whose `forward` is set on the instance, as accelerate does for precision."""

from __future__ import annotations

import functools
import types
from typing import Any

import pytest
import torch
from torch import nn

import magpy


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.layer(x)


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Any) -> Any:
        return self.inner(x)


def _wrapped(f: Any) -> Any:
    @functools.wraps(f)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        return f(self, *args, **kwargs)

    return wrapper


class Decorated(Deep):
    forward = _wrapped(Deep.forward)


class AsksForItself(Inner):
    @property
    def dtype(self) -> torch.dtype:
        return next(p.dtype for p in self.parameters())

    def forward(self, x: Any) -> Any:
        return self.layer(x.to(self.dtype))


@pytest.mark.parametrize("cls", [Inner, Deep, Decorated, AsksForItself])
@pytest.mark.parametrize("on_compiled", [False, True])
def test_forward_set_on_a_module_stays_compiled(cls: type[nn.Module], on_compiled: bool) -> None:
    torch.manual_seed(0)
    module, plain = cls(), None
    compiled = magpy.compile(module, backend="eager")
    target = compiled if on_compiled else module
    under = torch.autocast("cpu", torch.bfloat16)
    x = torch.ones(2, 4)
    expected = under(cls.forward)(module, x)
    target.forward = types.MethodType(under(target.forward.__func__), target)
    for _ in range(5):
        module.zero_grad()
        result = compiled(x)
        assert torch.equal(result, expected)
        result.sum().backward()
        grads = [p.grad for p in module.parameters()]
        plain = plain or [g.clone() for g in grads if g is not None]
        assert all(torch.equal(a, b) for a, b in zip(grads, plain, strict=True))
    stats = magpy.stats(compiled)
    assert (stats.captures, stats.hits, stats.eager_calls) == (1, 4, 0), stats.reasons
