"""The part of torch's state that decides how a graph is compiled, as plain values.

Owns reading it in one process and setting it in another.  Does not own TorchInductor's own
settings, which travel beside it.  Used on both sides of magpy/backends/process.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._C import _autocast_supported_devices
from torch.utils._device import DeviceContext

# What is read with one function and set with another.
_PAIRS: dict[str, tuple[Any, Any]] = {
    "grad": (torch.is_grad_enabled, torch.set_grad_enabled),
    "autocast cache": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "matmul precision": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    "fill uninitialized": (
        lambda: torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
        lambda v: setattr(torch.utils.deterministic, "fill_uninitialized_memory", v),
    ),
    **{
        f"{kind} attention": (
            getattr(torch.backends.cuda, f"{kind}_sdp_enabled"),
            getattr(torch.backends.cuda, f"enable_{kind}_sdp"),
        )
        for kind in ("flash", "mem_efficient", "math", "cudnn")
    },
}

# Attributes of modules that stand for a setting.
_ATTRIBUTES: tuple[tuple[Any, str], ...] = (
    (torch.backends.mkldnn, "enabled"),
    (torch.backends.mkldnn, "deterministic"),
    (torch.backends.cudnn, "enabled"),
    (torch.backends.cudnn, "benchmark"),
    (torch.backends.cudnn, "deterministic"),
    (torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
    (torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
)


def current() -> dict[str, Any] | None:
    """The state of this thread, or None when it cannot be told to another process."""
    device = None
    for mode in torch.overrides._get_current_function_mode_stack():  # type: ignore[no-untyped-call]
        if type(mode) is not DeviceContext or device is not None:
            return None
        device = mode.device
    if torch.utils._python_dispatch._get_current_dispatch_mode_stack():
        return None
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    return {
        "device": device,
        "inference": torch.is_inference_mode_enabled(),
        "deterministic": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        "autocast": [
            (d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d))
            for d in _autocast_supported_devices()
        ],
        "pairs": {name: get() for name, (get, _) in _PAIRS.items()},
        "attributes": [getattr(module, name) for module, name in _ATTRIBUTES],
    }


def apply(state: dict[str, Any]) -> None:
    """Puts this thread into a state, but for inference mode, which only a block can be in."""
    torch.set_default_device(state["device"])
    enabled, warn_only = state["deterministic"]
    torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
    for device, enabled, dtype in state["autocast"]:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
    for name, value in state["pairs"].items():
        get, put = _PAIRS[name]
        if get() != value:
            put(value)
    for (module, name), value in zip(_ATTRIBUTES, state["attributes"], strict=True):
        if getattr(module, name) != value:
            setattr(module, name, value)
