"""Which functions of `torch._C` ask about torch's state, or change it, and are no operations.

Owns the table: which of them other guards see to, and which of the rest ask, or are called for an
effect; and the settings that a run changes for a while, under which operations must run again.
Does not own the state that the guard compares (csrc/tensor/state.cpp) nor how such a function is
called (magpy/capture/calls.py).  Called by that, by magpy/capture/leaves.py and by mock code.
"""

from __future__ import annotations

import functools
import re
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from magpy.kinds import isinstance


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The state that the guard compares in every call, and that an entry must find as it leaves it.
_COMPARED = _names(
    """
    is_grad_enabled _set_grad_enabled is_inference_mode_enabled _is_fwd_grad_enabled
    _set_fwd_grad_enabled _is_multithreading_enabled _set_multithreading_enabled
    _is_view_replay_enabled _set_view_replay_enabled _is_grad_layout_enforcement_enabled
    _set_grad_layout_enforcement_enabled
    is_autocast_enabled is_autocast_cpu_enabled is_autocast_ipu_enabled is_autocast_xla_enabled
    is_autocast_cache_enabled get_autocast_dtype get_autocast_cpu_dtype get_autocast_gpu_dtype
    get_autocast_ipu_dtype get_autocast_xla_dtype set_autocast_enabled set_autocast_cpu_enabled
    set_autocast_ipu_enabled set_autocast_xla_enabled set_autocast_dtype set_autocast_cpu_dtype
    set_autocast_gpu_dtype set_autocast_ipu_dtype set_autocast_xla_dtype
    set_autocast_cache_enabled autocast_increment_nesting
    autocast_decrement_nesting _is_any_autocast_enabled
    get_default_dtype _set_default_dtype _set_default_tensor_type
    _get_deterministic_algorithms _get_deterministic_algorithms_warn_only
    _set_deterministic_algorithms _get_deterministic_fill_uninitialized_memory
    _set_deterministic_fill_uninitialized_memory
    _get_float32_matmul_precision _set_float32_matmul_precision _get_fp32_precision_getter
    _set_fp32_precision_setter
    _get_cudnn_enabled _set_cudnn_enabled _get_cudnn_benchmark _set_cudnn_benchmark
    _get_cudnn_deterministic _set_cudnn_deterministic _get_mkldnn_enabled _set_mkldnn_enabled
    _get_mkldnn_deterministic _set_mkldnn_deterministic _get_nnpack_enabled _set_nnpack_enabled
    _get_flash_sdp_enabled _set_sdp_use_flash _get_mem_efficient_sdp_enabled
    _set_sdp_use_mem_efficient _get_math_sdp_enabled _set_sdp_use_math _get_cudnn_sdp_enabled
    _set_sdp_use_cudnn _get_overrideable_sdp_enabled _set_sdp_use_overrideable
    _get_math_sdp_allow_fp16_bf16_reduction _set_math_sdp_allow_fp16_bf16_reduction
    _get_qengine _set_qengine is_anomaly_enabled is_anomaly_check_nan_enabled set_anomaly_enabled
    get_num_threads set_num_threads
    _cuda_getDevice _cuda_setDevice _cuda_exchangeDevice _cuda_maybeExchangeDevice
    _accelerator_getDeviceIndex _accelerator_setDeviceIndex _accelerator_exchangeDevice
    _accelerator_maybeExchangeDevice
    """
)
# Of the stacks of modes, of which one is magpy's while a run is watched, and of traces, whose
# operations no guard lets pass.
_MODES = _names(
    """
    _push_on_torch_function_stack _pop_torch_function_stack _len_torch_function_stack
    _get_function_stack_at _is_torch_function_enabled _is_torch_function_all_disabled
    _is_torch_function_mode_enabled _get_torch_function_state _set_torch_function_state
    _set_skip_next_torch_function _skip_one_hop_torch_function
    _pop_torch_dispatch_stack _len_torch_dispatch_stack _get_dispatch_stack_at
    _get_dispatch_mode _unset_dispatch_mode
    _dispatch_tls_is_dispatch_key_excluded _dispatch_tls_is_dispatch_key_included
    _dispatch_tls_set_dispatch_key_excluded _dispatch_tls_set_dispatch_key_included
    _get_tracing_state _is_tracing _are_functorch_transforms_active _should_allow_numbers_as_tensors
    """
)
# Nobody can tell how often these were called.
_UNSEEN = _names("_log_api_usage_once _log_api_usage_metadata _dispatch_pystub")
# What torch was built with, and what follows from the arguments.
_FIXED = _names(
    """
    _has_storage _has_torch_function _has_torch_function_unary _has_torch_function_variadic
    _is_autocast_available _get_all_dtypes _infer_size _has_distributed _show_config _cxx_flags
    _get_cpu_capability _autocast_supported_devices _cuda_getCompiledVersion _is_xnnpack_enabled
    """
)
_ELSEWHERE = _COMPARED | _MODES | _UNSEEN | _FIXED
_EFFECTS = _names(
    """
    _cuda_synchronize _cuda_emptyCache _cuda_resetPeakMemoryStats _cuda_resetAccumulatedMemoryStats
    _accelerator_synchronizeDevice _accelerator_emptyCache _mps_deviceSynchronize _mps_emptyCache
    _warn _warn_deprecation
    """
)
_QUESTION = re.compile(
    r"_?[a-z0-9]*_?(get|is|has|are|can|check|len|supported)(_|[A-Z]|$)|.*(enabled|available|Count)$"
)


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


@functools.cache
def settings() -> dict[str, Setting]:
    """The settings by the name of the function that writes them."""
    c: Any = sys.modules["torch._C"]
    pairs = {
        "_set_default_dtype": "get_default_dtype",
        "set_num_threads": "get_num_threads",
        "_set_check_sparse_tensor_invariants": "_check_sparse_tensor_invariants",
        "_set_float32_matmul_precision": "_get_float32_matmul_precision",
        "_set_fp32_precision_setter": "_get_fp32_precision_getter",
        "_cuda_set_cudnn_benchmark_limit": "_cuda_get_cudnn_benchmark_limit",
    }
    for name in ("flash", "mem_efficient", "math", "cudnn", "overrideable", "fa3"):
        pairs[f"_set_sdp_use_{name}"] = f"_get_{name}_sdp_enabled"
    for name in dir(c):
        if name.startswith("_set_") and hasattr(c, name.replace("_set_", "_get_", 1)):
            pairs.setdefault(name, name.replace("_set_", "_get_", 1))
    for name in _NO_SETTINGS & pairs.keys():
        del pairs[name]
    found = {
        name: Setting(getattr(c, getter), getattr(c, name))
        for name, getter in pairs.items()
        if hasattr(c, name) and hasattr(c, getter)
    }
    keyed = found.get("_set_fp32_precision_setter")
    if keyed is not None:
        found["_set_fp32_precision_setter"] = Setting(keyed.read, keyed.write, 2)
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
    found[_OF_CONTEXT] = Setting(lambda var: var.get(), lambda var, value: var.set(value), 1)
    found[_OVERRIDES] = Setting(c._get_torch_function_state, c._set_torch_function_state)
    return found


# These are modes, of which the recorder takes care, or hold objects.
_NO_SETTINGS = _MODES | _names(
    """
    _set_grad_enabled _set_generator_metaclass _set_tensor_metadata _set_value_trace
    _set_thread_name _set_default_tensor_type _set_tracing_state
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
        keys = args[: settings()[f.__name__].keys]
        return self._watch(f.__name__, keys, lambda: f(*args, **kwargs))

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


def asks_or_sets(f: Any) -> bool:
    """Whether a callable is such a function, and no other guard sees to it."""
    if not isinstance(f, types.BuiltinFunctionType):
        return False
    name = f.__name__
    if getattr(sys.modules.get("torch._C"), name, None) is not f:
        return False
    return name not in _ELSEWHERE or name in settings()


def is_question(name: str) -> bool:
    """Whether a function of this name changes nothing."""
    return "_set" not in name and _QUESTION.match(name) is not None


def is_effect(name: str) -> bool:
    """Whether a function of this name is called for what it does, which can be done again."""
    return name in _EFFECTS


__all__ = ["Setting", "Settings", "asks_or_sets", "is_effect", "is_question", "settings"]
