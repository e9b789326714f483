"""One compilation for graphs that are alike (magpy/backends/reuse.py), and none where they differ.

Owns: which graphs share what was compiled.  Does not own: what shares entries
(tests/runtime/test_instances.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import magpy
from magpy.backends import inductor, reuse


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The graphs that were compiled; Python runs them."""
    graphs: list[Any] = []

    def compile_graph(gm: Any, inputs: list[Any], *_: Any, **__: Any) -> Callable[..., Any]:
        graphs.append(gm)
        return lambda *given: gm(*given)

    monkeypatch.setattr(inductor, "compile_graph", compile_graph)
    monkeypatch.setattr(reuse, "_made", {})  # of other tests
    yield graphs


def served(f: Callable[..., Any], *args: Any) -> Any:
    """A callable that has been captured for some arguments, and served a call with them."""
    c = magpy.compile(f)
    for _ in range(2):
        assert torch.equal(c(*args), f(*args))
    return c


def test_layers_share_one_compilation(made: list[Any]) -> None:
    layers = [nn.Linear(3, 3) for _ in range(6)]
    kept = [served(layer, torch.rand(2, 3)) for layer in layers]
    assert len(made) == 1
    for c, layer in zip(kept, layers, strict=True):
        x = torch.rand(2, 3)
        assert torch.equal(c(x), layer(x))
        c(x).sum().backward()
        assert torch.equal(layer.weight.grad, x.sum(0).expand(3, 3))


def test_inputs_that_come_in_another_order(made: list[Any]) -> None:
    def first(a: Any, b: Any) -> Any:
        return a * 2 - b

    def second(a: Any, b: Any) -> Any:
        return b * 2 - a

    kept = [served(f, torch.rand(3), torch.rand(3)) for f in (first, second)]
    assert len(made) == 1
    assert len(kept) == 2


def test_the_value_of_a_string_needs_no_compilation(made: list[Any]) -> None:
    @magpy.compile(dynamic=False)
    def named(x: Any, name: str) -> Any:
        return x * 2, name

    for name in ("a", "b", "c"):
        assert named(torch.ones(3), name)[1] == name
    assert magpy.stats(named).captures == 3
    assert len(made) == 1


@pytest.mark.parametrize(
    "other",
    [
        (lambda x, y: x * 3 - y, torch.rand(3), torch.rand(3)),
        (lambda x, y: x * 2.0 - y, torch.rand(3), torch.rand(3)),
        (lambda x, y: x * 2 + y, torch.rand(3), torch.rand(3)),
        (lambda x, y: x * 2 - x, torch.rand(3), torch.rand(3)),
        (lambda x, y: x * 2 - y, torch.rand(4), torch.rand(4)),
        (lambda x, y: x * 2 - y, torch.rand(3), torch.rand(3).double()),
        (lambda x, y: x * 2 - y, torch.rand(3), torch.rand(3, requires_grad=True)),
        (lambda x, y: x * 2 - y, torch.rand(3), torch.rand(6)[::2]),
        (lambda x, y: x.mul_(1) * 2 - y, torch.rand(3), torch.rand(3)),
    ],
)
def test_what_differs_is_compiled(made: list[Any], other: Any) -> None:
    kept = served(lambda x, y: x * 2 - y, torch.rand(3), torch.rand(3))
    f, *args = other
    again = served(f, *args)
    assert len(made) == 2
    assert kept is not again


@pytest.mark.parametrize("same", [True, False])
def test_inputs_that_share_memory(made: list[Any], same: bool) -> None:
    kept = []
    for is_same in (False, same):
        c = magpy.compile(lambda x, y: x.add_(1) * y)
        for _ in range(3):
            data, other = torch.rand(4), torch.rand(4)
            given = (data[:], data[:] if is_same else other)
            twin = data.clone()
            wanted = twin.add_(1) * (twin if is_same else other)
            assert torch.equal(c(*given), wanted)
            assert torch.equal(data, twin)
        kept.append(c)
    assert len(made) <= 2
    assert len(kept) == 2


def test_modes_and_settings_tell_graphs_apart(made: list[Any]) -> None:
    f, x = nn.Linear(3, 3), torch.rand(2, 3)
    kept = [served(f, x)]
    with torch.no_grad():
        kept.append(served(f, x))
    assert len(made) == 2
    with torch.autocast("cpu", torch.bfloat16):
        kept.append(served(f, x))
    assert len(made) == 3
    c = magpy.compile(f, options={"max_autotune": True})
    c(x)
    assert len(made) == 4


SCALE = 2.0


@magpy.allow_in_graph
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE


def test_python_of_the_program_in_a_graph_is_compiled_each_time(
    made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [served(lambda x: scaled(x) + 1, torch.rand(3))]
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    kept.append(served(lambda x: scaled(x) + 1, torch.rand(3)))
    assert len(made) == 2


def test_what_nobody_keeps_is_let_go(made: list[Any]) -> None:
    for _ in range(2):
        served(lambda x: x * 7, torch.rand(3))
        magpy.reset()
    assert len(made) == 2
