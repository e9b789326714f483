"""`_tensor.TorchState`: every switch that changes what an operation does is seen, and seen back.

Owns: the list of switches.  Does not own: what an entry does when one changed (`magpy/runtime`).
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from magpy import _interp, _tensor


@contextlib.contextmanager
def setting(set_: Callable[[Any], Any], value: Any, back: Any) -> Iterator[None]:
    set_(value)
    try:
        yield
    finally:
        set_(back)


@contextlib.contextmanager
def attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    old = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, old)


class FunctionMode(TorchFunctionMode):
    pass


class DispatchMode(TorchDispatchMode):
    pass


CHANGES: dict[str, tuple[Callable[[], AbstractContextManager[Any]], str]] = {
    "no_grad": (torch.no_grad, "grad mode"),
    "inference_mode": (torch.inference_mode, "grad mode"),
    "autocast": (lambda: torch.autocast("cpu"), "autocast"),
    "autocast dtype": (
        lambda: setting(
            lambda d: torch.set_autocast_dtype("cpu", d),
            torch.float16,
            torch.get_autocast_dtype("cpu"),
        ),
        "autocast dtype (cpu)",
    ),
    "autocast cache": (
        lambda: setting(
            torch.set_autocast_cache_enabled,
            not torch.is_autocast_cache_enabled(),
            torch.is_autocast_cache_enabled(),
        ),
        "autocast cache",
    ),
    "default dtype": (
        lambda: setting(torch.set_default_dtype, torch.float64, torch.float32),
        "default dtype",
    ),
    "default device": (lambda: torch.device("cpu"), "torch function modes"),
    "function mode": (FunctionMode, "torch function modes"),
    "dispatch mode": (DispatchMode, "dispatch"),
    "no torch function": (torch._C.DisableTorchFunctionSubclass, "torch function disabled"),
    "deterministic": (
        lambda: setting(torch.use_deterministic_algorithms, True, False),
        "deterministic algorithms",
    ),
    "fill uninitialized": (
        lambda: attribute(torch.utils.deterministic, "fill_uninitialized_memory", False),
        "fill uninitialized memory",
    ),
    "matmul precision": (
        lambda: setting(torch.set_float32_matmul_precision, "medium", "highest"),
        "float32 precision",
    ),
    "cudnn": (lambda: attribute(torch.backends.cudnn, "enabled", False), "cudnn enabled"),
    "cudnn benchmark": (
        lambda: attribute(torch.backends.cudnn, "benchmark", True),
        "cudnn benchmark",
    ),
    "cudnn deterministic": (
        lambda: attribute(torch.backends.cudnn, "deterministic", True),
        "cudnn deterministic",
    ),
    "mkldnn": (
        lambda: setting(torch._C._set_mkldnn_enabled, False, True),
        "mkldnn enabled",
    ),
    "attention": (
        lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        "attention",
    ),
    "anomaly": (torch.autograd.detect_anomaly, "anomaly mode"),
    "threads": (
        lambda: setting(
            torch.set_num_threads, torch.get_num_threads() + 1, torch.get_num_threads()
        ),
        "number of threads",
    ),
    "saved tensor hooks": (
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
        "saved tensor hooks",
    ),
    "saved tensor hooks off": (
        lambda: torch.autograd.graph.disable_saved_tensors_hooks("no"),
        "saved tensor hooks",
    ),
    "multithreading": (
        lambda: torch.autograd.set_multithreading_enabled(False),
        "autograd multithreading",
    ),
    "forward grad": (
        lambda: torch.autograd.forward_ad._set_fwd_grad_enabled(False),
        "forward-mode grad",
    ),
}


@pytest.mark.parametrize(("change", "text"), CHANGES.values(), ids=CHANGES)
@pytest.mark.filterwarnings("ignore")
def test_switch_is_seen_and_seen_back(
    change: Callable[[], AbstractContextManager[Any]], text: str
) -> None:
    torch.set_float32_matmul_precision(
        "highest"
    )  # unset is a state of its own that nothing goes back to
    state = _tensor.TorchState()
    g = _interp.Guard(0, (), 0, [], {"state": state})
    assert state.matches()
    assert g.check(())
    with change():
        assert not state.matches()
        assert text in str(state.difference())
        assert not g.check(())
        assert g.explain(()) == (("state", 0, -1), state.difference())
        inside = _tensor.TorchState()
        assert inside.matches()
    assert state.matches(), state.difference()
    assert state.difference() is None
    assert not inside.matches()
    assert g.check(())


def test_flush_denormal_is_seen() -> None:
    state = _tensor.TorchState()
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot")
    try:
        assert state.difference() == "flushing of denormal numbers changed"
    finally:
        torch.set_flush_denormal(False)
    assert state.matches()


def test_another_mode_object_is_seen() -> None:
    with FunctionMode():
        state = _tensor.TorchState()
        assert state.matches()
    with FunctionMode():
        assert not state.matches()
        assert "torch function modes" in str(state.difference())


def test_functorch_transform_never_matches() -> None:
    outside = _tensor.TorchState()
    seen: list[bool] = []

    def inner(x: torch.Tensor) -> torch.Tensor:
        state = _tensor.TorchState()
        seen.extend([state.matches(), outside.matches()])
        return x * 2

    torch.vmap(inner)(torch.zeros(2))
    torch.func.grad(lambda x: inner(x).sum())(torch.zeros(2))
    assert seen == [False] * 4
    assert outside.matches()


def test_each_thread_has_its_own_state() -> None:
    seen: list[bool] = []
    with torch.no_grad():
        state = _tensor.TorchState()
        thread = threading.Thread(target=lambda: seen.append(state.matches()))
        thread.start()
        thread.join()
        assert state.matches()
    assert seen == [False]


def test_modes_are_held_while_compared_and_let_go() -> None:
    mode = FunctionMode()
    ref = weakref.ref(mode)
    with mode:
        state = _tensor.TorchState()
    del mode
    gc.collect()
    assert ref() is not None
    del state
    gc.collect()
    assert ref() is None


def test_matching_leaks_nothing() -> None:
    before = 0
    for i in range(200):
        state = _tensor.TorchState()
        with torch.no_grad():
            state.matches()
            state.difference()
        if i == 100:
            gc.collect()
            before = sys.getallocatedblocks()
    gc.collect()
    assert sys.getallocatedblocks() - before < 100
