"""The current device: what a call switches, and what it finds."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import magpy
from tests.cuda.programs import run, same

second = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one device")


def _zeros_in_a_context(x: Any) -> Any:
    with torch.cuda.device(1):
        return torch.zeros(2, device="cuda")


def _moved_in_a_context(x: Any) -> Any:
    with torch.cuda.device(1):
        return x.cuda(), x.to("cuda")


def _on_the_device_of_a_tensor(x: Any) -> Any:
    with torch.cuda.device_of(torch.zeros(1, device="cuda:1")):
        return torch.zeros(2, device="cuda")


def _accelerators_index(x: Any) -> Any:
    with torch.accelerator.device_index(1):
        return torch.zeros(2, device="cuda")


def _set_and_put_back(x: Any) -> Any:
    torch.cuda.set_device(1)
    y = torch.zeros(2, device="cuda")
    torch.cuda.set_device(0)
    return y, torch.zeros(2, device="cuda")


def _accelerator_set_and_put_back(x: Any) -> Any:
    torch.accelerator.set_device_index(1)
    y = torch.zeros(2, device="cuda")
    torch.accelerator.set_device_index(0)
    return y


def _drawn_in_a_context(x: Any) -> Any:
    with torch.cuda.device(1):
        y = torch.rand(2, device="cuda")
    return y, torch.rand(2, device="cuda")


def _nested(x: Any) -> Any:
    with torch.cuda.device(1):
        with torch.cuda.device(0):
            y = torch.ones(1, device="cuda")
        z = torch.ones(1, device="cuda")
    return y, z, torch.ones(1, device="cuda")


def _left_by_an_exception(x: Any) -> Any:
    try:
        with torch.cuda.device(1):
            y = torch.ones(1, device="cuda")
            raise ValueError
    except ValueError:
        return y, torch.ones(1, device="cuda")


def _asked_within(x: Any) -> Any:
    with torch.cuda.device(1):
        y = torch.full((2,), float(torch.cuda.current_device()), device="cuda")
    return y, torch.cuda.current_device()


def _device_as_a_mode(x: Any) -> Any:
    with torch.device("cuda:1"):
        return torch.zeros(2)


def _legacy_constructor(x: Any) -> Any:
    with torch.cuda.device(1):
        return torch.cuda.FloatTensor(2)


@second
@pytest.mark.parametrize(
    "f",
    [
        _zeros_in_a_context,
        _moved_in_a_context,
        _on_the_device_of_a_tensor,
        _accelerators_index,
        _set_and_put_back,
        _accelerator_set_and_put_back,
        _drawn_in_a_context,
        _nested,
        _left_by_an_exception,
        _asked_within,
        _device_as_a_mode,
        _legacy_constructor,
    ],
)
def test_a_device_that_the_call_switches_is_switched_in_later_calls(f: Callable[..., Any]) -> None:
    same(f, lambda: (torch.randn(3),))


@second
def test_a_device_that_is_left_switched_runs_eagerly() -> None:
    def f(x: Any) -> Any:
        torch.cuda.set_device(1 - torch.cuda.current_device())
        return torch.zeros(2, device="cuda")

    torch.cuda.set_device(0)
    eager = run(f, lambda: (torch.randn(3),), None)
    torch.cuda.set_device(0)
    compiled = magpy.compile(f, backend="eager")
    assert run(compiled, lambda: (torch.randn(3),), None) == eager
    assert magpy.stats(compiled).hits == 0


@second
def test_another_current_device_is_another_case() -> None:
    compiled = magpy.compile(lambda: torch.zeros(2, device="cuda"), backend="eager")
    for device in (0, 1, 0, 1, 1):
        torch.cuda.set_device(device)
        assert compiled().device == torch.device("cuda", device)
    assert magpy.stats(compiled).captures == 2


@second
def test_a_compiled_module_follows_the_device_of_its_input() -> None:
    compiled = magpy.compile(lambda x: x + 1, backend="eager")
    for device in ("cuda:0", "cuda:1", "cpu", "cuda:0", "cuda:1", "cpu"):
        assert compiled(torch.randn(2, device=device)).device == torch.device(device)
    assert magpy.stats(compiled).hits == 3


def test_properties_of_a_device_are_asked_for() -> None:
    def f(x: Any) -> Any:
        if torch.cuda.get_device_capability()[0] >= 8 and torch.cuda.is_available():
            return x * 2, torch.cuda.get_device_properties(x.device).total_memory
        return x, torch.cuda.get_device_name()

    compiled = magpy.compile(f, backend="eager")
    x = torch.randn(3, device="cuda")
    for _ in range(4):
        assert compiled(x)[1] == f(x)[1]
    assert magpy.stats(compiled).hits >= 2


@second
def test_tensors_move_between_host_and_devices() -> None:
    def f(x: Any) -> Any:
        y = x.pin_memory().to("cuda:1", non_blocking=True)
        return y, y.cpu(), y.to("cuda:0", non_blocking=True) + 1, x.is_pinned()

    same(f, lambda: (torch.randn(3),))


_STARTED_IN_THE_CALL = """
import torch, magpy
f = magpy.compile(lambda x: x.cuda() + torch.zeros(3, device="cuda"), backend="eager")
assert not torch.cuda.is_initialized()
assert [str(f(torch.randn(3)).device) for _ in range(4)] == ["cuda:0"] * 4
assert magpy.stats(f).hits >= 2, magpy.stats(f)
"""


def test_a_call_that_starts_cuda_is_captured_next_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _STARTED_IN_THE_CALL], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
