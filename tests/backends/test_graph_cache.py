"""AOTAutograd's cache on disk finds magpy's graphs (magpy/backends/graph_cache.py).

Owns: which graphs are found, by a second process too, and which are told apart.  Does not own: what
`magpy.cache` says of the caches (tests/test_cache.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._functorch import aot_autograd
from torch._functorch._aot_autograd import autograd_cache
from torch.overrides import TorchFunctionMode

import magpy
from magpy.backends import graph_cache, inductor, random_ops, reuse
from magpy.models import backward, torch_ops


class _Asked(BaseException):
    """The cache was asked, and nothing need be compiled."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str | None]:
    """Gives the key by which a graph is looked up, or None if the cache is not asked."""

    def lookup(key: str, *_: Any) -> None:
        raise _Asked(key)

    def bypassed(*_: Any, **__: Any) -> None:
        raise _Asked(None)

    monkeypatch.setattr(autograd_cache.AOTAutogradCache, "_lookup", staticmethod(lookup))
    monkeypatch.setattr(aot_autograd, "create_aot_state", bypassed)

    def ask(gm: Any, *inputs: Any) -> str | None:
        with pytest.raises(_Asked) as raised:
            inductor.compile_graph(gm, list(inputs), {})
        key: str | None = raised.value.args[0]
        return key

    return ask


def graphs_of(f: Callable[..., Any], *args: Any) -> list[tuple[Any, list[Any]]]:
    """The graphs that TorchInductor gets of two calls of a function, each with its inputs."""
    found: list[tuple[Any, list[Any]]] = []

    def compile_graph(gm: Any, inputs: list[Any], *_: Any, **__: Any) -> Callable[..., Any]:
        found.append((gm, inputs))
        return lambda *given: gm(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inductor, "compile_graph", compile_graph)
        patch.setattr(reuse, "_made", {})
        c = magpy.compile(f)
        for _ in range(2):
            c(*args)
    return found


def graph_of(f: Callable[..., Any], *args: Any) -> Any:
    """The one graph that TorchInductor gets of a function, whose inputs are its arguments."""
    [(gm, inputs)] = graphs_of(f, *args)
    assert len(inputs) == len(args)
    return gm


def test_a_graph_with_methods_is_found(asked: Callable[..., str | None]) -> None:
    x = torch.ones(2, 3)
    gm = graph_of(lambda x: x.view(3, 2).norm(dim=1).unflatten(0, (3, 1)), x)
    methods = [n.target for n in gm.graph.nodes if n.op == "call_method"]
    assert "view" in methods
    key = asked(gm, x)
    assert key is not None
    assert key == asked(graph_of(lambda x: x.view(3, 2).norm(dim=1).unflatten(0, (3, 1)), x), x)
    assert key != asked(graph_of(lambda x: x.view(6, 1).norm(dim=1).unflatten(0, (6, 1)), x), x)


def test_a_backward_pass_in_a_graph_is_found(asked: Callable[..., str | None]) -> None:
    layer = torch.nn.Linear(3, 1)

    def step(x: Any) -> Any:
        layer.zero_grad()
        loss = layer(x).sum()
        loss.backward()
        return loss.detach()

    x = torch.ones(2, 3)
    graphs = [
        (gm, inputs)
        for gm, inputs in graphs_of(step, x)
        if any(n.target is backward.gradients for n in gm.graph.nodes)
    ]
    assert graphs
    for gm, inputs in graphs:
        assert asked(gm, *inputs) is not None


def test_autocast_in_a_graph_is_found(asked: Callable[..., str | None]) -> None:
    def cast(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return x @ x

    x = torch.ones(2, 2)
    gm = graph_of(cast, x)
    assert torch.amp.autocast_mode._enter_autocast in {n.target for n in gm.graph.nodes}
    assert asked(gm, x) is not None


def test_what_inputs_are_tells_graphs_apart(asked: Callable[..., str | None]) -> None:
    a, b = torch.ones(4), torch.ones(4)
    gm = graph_of(lambda a, b: (a.view(2, 2), b + 1), a, b)
    whole = torch.ones(4, requires_grad=True)
    inputs = [(a, b), (a, a.view(4)), (whole, b), (whole.view(4), b)]
    keys = [asked(gm, *given) for given in inputs]
    assert None not in keys
    assert len(set(keys)) == len(inputs)
    assert asked(gm, torch.ones(4), torch.ones(4)) == keys[0]


def test_settings_and_magpy_s_own_code_tell_graphs_apart(
    asked: Callable[..., str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(4)
    gm = graph_of(lambda x: x.view(2, 2) + 1, x)
    keys = [asked(gm, x)]
    with torch.device("meta"):
        keys.append(asked(gm, x))
    with random_ops.told_apart():
        keys.append(asked(gm, x))
    monkeypatch.setattr(graph_cache, "_own_code", lambda: "another version")
    keys.append(asked(gm, x))
    assert None not in keys
    assert len(set(keys)) == len(keys)


class _Doubling(torch.Tensor):
    def view(self, *sizes: Any) -> Any:
        return super().view(*sizes) * 2


class _Mode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_what_the_key_does_not_tell_is_not_looked_up(
    asked: Callable[..., str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.ones(4)
    gm = graph_of(lambda x: x.view(2, 2) + 1, x)
    assert asked(gm, x) is not None
    assert asked(gm, x.as_subclass(_Doubling)) is None
    with _Mode():
        assert asked(gm, x) is None
    view = torch.Tensor.view

    def replaced(self: Any, *sizes: Any) -> Any:
        return view(self, *sizes) * 2

    replaced.__module__ = "torch"
    monkeypatch.setattr(torch.Tensor, "view", replaced)
    assert asked(gm, x) is None


def test_a_function_that_took_the_place_of_one_of_magpy_s_is_not_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = torch.fx.Graph()
    node = graph.call_function(torch_ops.scalar_tensor, (1.0,))
    assert graph_cache._is_known(node)
    monkeypatch.setattr(torch_ops, "scalar_tensor", lambda value: torch.tensor(value))
    assert not graph_cache._is_known(node)


PROGRAM = """
import json, torch, magpy
from torch._dynamo.utils import counters

layer = torch.nn.Linear(4, 3)
w = layer.weight

def served(x):
    return (x @ w.detach().T).view(-1).relu().reshape(x.shape[0], 3).sum(1)

def step(x):
    layer.zero_grad()
    loss = layer(x).square().mean()
    loss.backward()
    return loss.detach()

def differentiable(x):
    return (x.T @ x).reshape(-1) * w.sum()

def run(f, x):
    layer.zero_grad()
    found = f(x)
    if found.requires_grad:
        found.sum().backward()
    return found.detach(), w.grad

made = {f: magpy.compile(f) for f in (served, step, differentiable)}
for f, c in made.items():
    for n in (2, 2, 3, 3, 5, 4):
        x = torch.rand(n, 4)
        torch.testing.assert_close(run(c, x), run(f, x))
    stats = magpy.stats(c)
    assert not stats.reasons, stats
    assert stats.hits >= 3, stats
print(json.dumps({k: n for kind in ("aot_autograd", "inductor") for k, n in counters[kind].items()
                  if k.startswith(("autograd_cache", "fxgraph_cache"))}))
"""


def counted(cache: Path) -> dict[str, int]:
    """What a process that runs the program counts, with its caches in a directory."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([os.getcwd(), *filter(None, sys.path)]),
            "TORCHINDUCTOR_CACHE_DIR": str(cache),
        },
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.long
def test_a_second_process_finds_every_graph(tmp_path: Path) -> None:
    first, second = counted(tmp_path), counted(tmp_path)
    graphs = first["autograd_cache_miss"]
    assert graphs >= 5
    assert first["autograd_cache_saved"] == graphs
    assert first["fxgraph_cache_miss"] >= graphs
    assert second["autograd_cache_hit"] == graphs
    assert {k for k in (*first, *second) if k.endswith("_bypass")} == set()
    assert {k for k in second if k.endswith("_miss")} == set()
