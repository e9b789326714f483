"""Compiled code is called without AOTAutograd's wrappers where these do nothing, and only there
(magpy/backends/direct_calls.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import magpy


def compiled_for(f: Callable[..., Any], *args: Any) -> Any:
    """A callable that has served a call with these arguments."""
    c = magpy.compile(f)
    for _ in range(3):
        c(*args)
    assert magpy.stats(c).hits >= 1
    return c


def modules_in(call: Callable[[], Any]) -> set[str]:
    """The modules whose Python runs in a call."""
    found: set[str] = set()

    def note(frame: Any, event: str, arg: Any) -> None:
        if event == "call":
            found.add(str(frame.f_globals.get("__name__")))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def is_direct(call: Callable[[], Any]) -> bool:
    """Whether no wrapper of torch's runs in a call."""
    found = modules_in(call)
    assert "magpy.backends.direct_calls" in found or any("aot_autograd" in m for m in found)
    return not any(m.startswith(("torch._functorch", "torch._dynamo")) for m in found)


@pytest.mark.slow
@pytest.mark.parametrize("grad", [True, False])
def test_a_graph_that_only_computes_is_called_directly(grad: bool) -> None:
    def f(x: Any, y: Any) -> Any:
        return torch.relu(x * 2 + y), x - y

    x, y = torch.randn(5), torch.randn(5)
    with torch.set_grad_enabled(grad):
        c = compiled_for(f, x, y)
        assert is_direct(lambda: c(x, y))
        for got, want in zip(c(y, x), f(y, x), strict=True):
            torch.testing.assert_close(got, want)
            assert not got.requires_grad
        assert torch.is_grad_enabled() == grad
        c(torch.randn(7), torch.randn(7))
        u, v = torch.randn(9), torch.randn(9)
        torch.testing.assert_close(c(u, v), f(u, v))
        assert is_direct(lambda: c(u, v))
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            c(x, y)
        assert any("Call CompiledFxGraph" in e.key for e in profiler.key_averages())


@pytest.mark.slow
def test_torch_compile_around_it_does_not_look_into_it() -> None:
    def f(x: Any) -> Any:
        return torch.relu(x * 3)

    x = torch.randn(5)
    c = compiled_for(f, x)
    graphs: list[Any] = []

    def backend(gm: Any, inputs: list[Any]) -> Callable[..., Any]:
        graphs.append(gm)
        return gm.forward  # type: ignore[no-any-return]

    around = torch.compile(lambda x: c(x + 1) - 1, backend=backend)
    for _ in range(2):
        torch.testing.assert_close(around(x), f(x + 1) - 1)
    called = [str(n.target) for gm in graphs for n in gm.graph.nodes if n.op == "call_function"]
    assert not any("kernel" in name or "empty_strided" in name for name in called)
    assert is_direct(lambda: c(x))


@pytest.mark.slow
def test_graphs_of_which_more_is_asked_keep_the_wrappers() -> None:
    def changing(x: Any) -> Any:
        x.add_(1)
        return x * 2

    def viewing(x: Any) -> Any:
        return x.view(2, 2), x + 1

    def trained(x: Any) -> Any:
        return (x * w).sum()

    w = torch.randn(4, requires_grad=True)
    for f in (changing, viewing, trained):
        c = compiled_for(f, torch.randn(4))
        a, b = torch.arange(4.0), torch.arange(4.0)
        got, want = c(a), f(b)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(a, b)
        assert a._version == b._version
        if f is trained:
            got.backward()
            torch.testing.assert_close(w.grad, a)
        elif f is viewing:
            got[0].zero_()
            assert not a.any()


@pytest.mark.slow
def test_a_graph_compiled_under_autocast_keeps_the_wrappers() -> None:
    def f(x: Any) -> Any:
        return (x @ x).relu()

    x = torch.randn(4, 4)
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        c = compiled_for(f, x)
        assert not is_direct(lambda: c(x))
        torch.testing.assert_close(c(x), f(x))
        assert c(x).dtype is torch.bfloat16
