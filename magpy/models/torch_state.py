"""The settings of torch that a run changes for a while, under which operations must run again.

Owns which functions of `torch._C` write a setting, and how each is read and put back: precision,
determinism, the current device, the stream of a device. Does not own what the rest of its functions
do (magpy/models/torch_callables.py), the state that the guard compares (csrc/tensor/state.cpp) nor
how such a function is called (magpy/capture/python/c_calls.py).  Called by that, by
magpy/models/callables.py and by mock code.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from magpy.objects.types import isinstance


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Setting:
    """A part of torch's state that one function reads and another writes.

    Attributes:
        read: gives the value, for keys (say, a backend).
        write: takes the keys and the value.
        keys: how many keys there are.
    """

    read: Callable[..., Any]
    write: Callable[..., Any]
    keys: int = 0


# Functions of `torch._C` that write a setting, each with the one that reads it: `_set_X` with
# `_get_X`, and others.
_PAIRS = {
    f"_set_{name}": f"_get_{name}"
    for name in _names(
        """
        autograd_fallback_mode backcompat_broadcast_warn backcompat_keepdim_warn
        blas_preferred_backend cpu_allow_fp16_reduced_precision_reduction
        cublas_allow_bf16_reduced_precision_reduction cublas_allow_fp16_accumulation
        cublas_allow_fp16_reduced_precision_reduction cublas_allow_tf32
        cublaslt_prefer_grouped_gemm cudnn_allow_tf32 cudnn_benchmark cudnn_depthwise_kernel
        cudnn_deterministic cudnn_enabled deterministic_fill_uninitialized_memory
        dtensor_allow_implicit_replication float32_matmul_precision graph_exec_group
        graph_executor_optimize linalg_preferred_backend math_sdp_allow_fp16_bf16_reduction
        miopen_immediate mkldnn_deterministic mkldnn_enabled nnpack_enabled onednn_allow_tf32
        qengine rocm_fa_preferred_backend sdp_priority_order sm_carveout_experimental warnAlways
        """
    )
} | {
    "_set_default_dtype": "get_default_dtype",
    "set_num_threads": "get_num_threads",
    "_set_check_sparse_tensor_invariants": "_check_sparse_tensor_invariants",
    "_cuda_set_cudnn_benchmark_limit": "_cuda_get_cudnn_benchmark_limit",
    "_cuda_set_sync_debug_mode": "_cuda_get_sync_debug_mode",
}
for _name in ("flash", "mem_efficient", "math", "cudnn", "overrideable", "fa3"):
    _PAIRS[f"_set_sdp_use_{_name}"] = f"_get_{_name}_sdp_enabled"

# The device on which CUDA's new tensors are, and the stream of a device, whose key is its index.
_CUDA_DEVICE, _CUDA_STREAM = "_cuda_setDevice", "_cuda_setStream"
_DEVICE = "_accelerator_setDeviceIndex"
# What else writes a setting, or gives the value that it had: the name of the setting.
_WRITERS = {
    "_cuda_exchangeDevice": _CUDA_DEVICE,
    "_cuda_maybeExchangeDevice": _CUDA_DEVICE,
    "_accelerator_exchangeDevice": _DEVICE,
    "_accelerator_maybeExchangeDevice": _DEVICE,
}


@functools.cache
def settings() -> dict[str, Setting]:
    """The settings by the name of the function that writes them."""
    c: Any = sys.modules["torch._C"]
    found = {
        name: Setting(getattr(c, getter), getattr(c, name))
        for name, getter in _PAIRS.items()
        if hasattr(c, name) and hasattr(c, getter)
    }
    found["_set_fp32_precision_setter"] = Setting(
        c._get_fp32_precision_getter, c._set_fp32_precision_setter, 2
    )
    found["_set_deterministic_algorithms"] = Setting(
        lambda: (
            c._get_deterministic_algorithms(),
            c._get_deterministic_algorithms_warn_only(),
        ),
        lambda v: c._set_deterministic_algorithms(v[0], warn_only=v[1]),
    )
    found["set_anomaly_enabled"] = Setting(
        lambda: (c.is_anomaly_enabled(), c.is_anomaly_check_nan_enabled()),
        lambda v: c.set_anomaly_enabled(*v),
    )
    if hasattr(c, _CUDA_DEVICE):
        found[_CUDA_DEVICE] = Setting(c._cuda_getDevice, c._cuda_setDevice)
        found[_CUDA_STREAM] = Setting(c._cuda_getCurrentStream, _set_cuda_stream, 1)
    elif hasattr(c, _DEVICE):
        found[_DEVICE] = Setting(c._accelerator_getDeviceIndex, c._accelerator_setDeviceIndex)
    found[_OF_CONTEXT] = Setting(lambda var: var.get(), lambda var, value: var.set(value), 1)
    found[_OVERRIDES] = Setting(c._get_torch_function_state, c._set_torch_function_state)
    return found


def _set_cuda_stream(device: int, stream: tuple[int, int, int]) -> None:
    """Makes a stream that of a device, and leaves the device as it is.

    Args:
        device: the index of the device.
        stream: its id, the index and the type of its device, as `_cuda_getCurrentStream` gives it.
    """
    c: Any = sys.modules["torch._C"]
    before = c._cuda_getDevice()
    c._cuda_setStream(stream_id=stream[0], device_index=stream[1], device_type=stream[2])
    c._cuda_setDevice(before)


def _name_of_setting(function: str) -> str:
    name = _WRITERS.get(function, function)
    return _CUDA_DEVICE if name == _DEVICE and _CUDA_DEVICE in settings() else name


# Those that the guard compares in every call (csrc/tensor/state.cpp).
_COMPARED = _names(
    """
    _set_default_dtype _set_deterministic_algorithms _set_deterministic_fill_uninitialized_memory
    _set_float32_matmul_precision _set_fp32_precision_setter _set_cudnn_enabled
    _set_cudnn_benchmark _set_cudnn_deterministic _set_mkldnn_enabled _set_mkldnn_deterministic
    _set_nnpack_enabled _set_sdp_use_flash _set_sdp_use_mem_efficient _set_sdp_use_math
    _set_sdp_use_cudnn _set_sdp_use_overrideable _set_math_sdp_allow_fp16_bf16_reduction
    _set_qengine set_anomaly_enabled set_num_threads _set_torch_function_state _cuda_setDevice
    """
)


# A context variable (PEP 567) that C code computes under; the key is the variable.
_OF_CONTEXT = "ContextVar"
# Whether the classes of tensors hear of operations; contexts in C switch it.
_OVERRIDES = "_set_torch_function_state"


class Settings:
    """The settings that a run has changed, and not yet put back.

    Attributes:
        changed: (name of the function that writes it, keys, value), in order.
    """

    def __init__(self) -> None:
        """None was."""
        self.changed: tuple[tuple[str, tuple[Any, ...], Any], ...] = ()
        self._start: dict[tuple[str, tuple[Any, ...]], Any] = {}
        self._c: Any = sys.modules["torch._C"]
        self._hear: bool = self._c._is_torch_function_enabled()
        self._heard_at_start = self._hear

    def look(self) -> bool:
        """Notes whether classes hear of the operations of the program now; True if they do."""
        hear: bool = self._c._is_torch_function_enabled()
        if hear is not self._hear:
            if self._c._is_torch_function_all_disabled():
                return self._hear  # while magpy looks at something
            self._hear = hear
            self.changed = tuple(s for s in self.changed if s[0] != _OVERRIDES)
            if hear is not self._heard_at_start:
                self.changed += ((_OVERRIDES, (), self._c._get_torch_function_state()),)
        return hear

    def call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a function of torch's that writes a setting."""
        name = _name_of_setting(f.__name__)
        if name == _CUDA_STREAM:
            # The device of the stream becomes the current one, too.
            device = kwargs["device_index"] if "device_index" in kwargs else args[1]
            return self._watch(
                _CUDA_DEVICE,
                (),
                lambda: self._watch(_CUDA_STREAM, (device,), lambda: f(*args, **kwargs)),
            )
        keys = args[: settings()[name].keys]
        return self._watch(name, keys, lambda: f(*args, **kwargs))

    def is_own(self, f: Any, args: tuple[Any, ...]) -> bool:
        """Whether a function asks for a setting that the run itself has changed."""
        return any(
            settings()[name].read is f and _matches(keys, args) for name, keys, _ in self.changed
        )

    def of_context(self, var: Any, write: Callable[[], Any]) -> Any:
        """Calls what sets a context variable, or puts it back."""
        return self._watch(_OF_CONTEXT, (var,), write)

    def _watch(self, name: str, keys: tuple[Any, ...], write: Callable[[], Any]) -> Any:
        read = settings()[name].read
        start = self._start.setdefault((name, keys), read(*keys))
        result = write()
        now = read(*keys)
        self.changed = tuple(s for s in self.changed if s[:2] != (name, keys))
        if now is not start and now != start:
            self.changed += ((name, keys, now),)
        return result

    def left(self) -> str | None:
        """The name of a setting of torch's that is not as it was."""
        return next((name for name, _, _ in self.changed if name != _OF_CONTEXT), None)

    def unguarded(self) -> list[tuple[Any, tuple[Any, ...], Any]]:
        """(function that reads it, keys, value at the start) of settings that no guard compares."""
        return [
            (settings()[name].read, keys, value)
            for (name, keys), value in self._start.items()
            if name not in _COMPARED and name != _OF_CONTEXT
        ]


def _matches(keys: tuple[Any, ...], args: tuple[Any, ...]) -> bool:
    """Whether the arguments of a function that reads a setting are, or may be, these keys."""
    return len(keys) != len(args) or keys == args


def is_setting(f: Any) -> bool:
    """Whether a callable is a function of `torch._C` that switches a setting."""
    if not isinstance(f, types.BuiltinFunctionType):
        return False
    name = f.__name__
    if getattr(sys.modules.get("torch._C"), name, None) is not f:
        return False
    return _name_of_setting(name) in settings() or name == "clear_autocast_cache"


__all__ = ["Setting", "Settings", "is_setting", "settings"]
