"""What the functions, methods and classes of torch that are written in C do.

Owns one table with a row for each of them, under the module or the class that has it, and how a
callable is found in it.  Does not own how a call is then performed
(magpy/capture/python/c_calls.py), nor the functions of `torch._C` that switch settings
(magpy/models/torch_state.py).  Called by magpy/models/callables.py, once for each C function that a
watched run meets.

A `TorchFunctionMode` sees what goes through torch's argument parser, and the observer of the
dispatcher what reaches an operator.  Nobody sees the rest: functions and classes bound with
pybind11 (`ProcessGroup`, `Reducer`, `Store`, ...) and functions of `torch._C` that ask for torch's
state or change it.  What has no row is REFUSED in a run, and fails a test
(tests/models/test_torch_callables.py), so that a new version of torch brings nothing unseen.
"""

from __future__ import annotations

import enum
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any


class Does(enum.Enum):
    """What a call of a function does, as far as an entry is concerned."""

    #: An operation on tensors, which torch's modes see, or which the tensors that it returns show.
    OPERATES = enum.auto()
    #: It follows from what it is given, and keeps nothing.
    COMPUTES = enum.auto()
    #: Asks for, or switches, a state that every guard compares and the recorder follows.
    GUARDED = enum.auto()
    #: Asks for a state that a guard must ask for again.
    ASKS = enum.auto()
    #: Asks an object that never changes: again if it is one from outside, which may be another one.
    ASKS_VALUE = enum.auto()
    #: Changes something beyond the program's objects; done again, in order, when all is certain.
    ACTS = enum.auto()
    #: Has to do with a device's queue of work; done again at its place among the operations.
    IN_ORDER = enum.auto()
    #: Switches, in a context, how operations are dispatched: known inside an operation only.
    INSIDE = enum.auto()
    #: Takes part in what several processes do: known inside a call that is done as a whole only.
    COMMUNICATES = enum.auto()
    #: Nobody can do it again, or tell whether it would come to the same.
    REFUSED = enum.auto()


def _row(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Modules and classes of functions that torch generates from its list of operators
# (native_functions.yaml): those that have the name of an operator of `aten` are operations.
_GENERATED = frozenset(
    {
        *("torch._C.TensorBase", "torch._C._VariableFunctionsClass", "torch._C._VariableFunctions"),
        *(f"torch._C._{name}" for name in ("nn", "fft", "linalg", "special", "sparse", "nested")),
    }
)

# Rows: the module of a function, or the class of a method, and what they do, by their names.
# Classes bound with pybind11 stand by their qualified name, since Python gives many of them another
# module. `__init__` and `__new__` are the making of an object. A name that ends with `*` stands for
# all that begin so, `*` for all that have no row of their own; only what is refused is so named.
_TABLE: dict[str, dict[Does, tuple[str, ...]]] = {
    "torch._C.TensorBase": {
        # Written by hand (torch/csrc/autograd/templates/python_variable_methods.cpp), and seen.
        Does.OPERATES: _row(
            """
            __new__ __init__ __len__ __getitem__ __setitem__ __delitem__ __add__ __radd__ __iadd__
            __rmul__ __mul__ __imul__ __sub__ __isub__ __div__ __truediv__ __floordiv__ __idiv__
            __ifloordiv__ __mod__ __imod__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __rand__
            __ror__ __rxor__ __bool__ __float__ __complex__ __int__ __long__ __index__ __nonzero__
            __invert__ __matmul__ _is_view apply_ bfloat16 byte char cpu cuda mtia xpu ipu
            const_data_ptr data_ptr double cdouble element_size float cfloat bool half int long map_
            map2_ ndimension nelement new new_tensor numpy short untyped_storage tolist type
            as_subclass _make_subclass _make_wrapper_subclass _dtensor__new__ _view_func
            _view_func_unsafe _rev_view_func_unsafe
            """
        ),
        Does.COMPUTES: _row("_fix_weakref"),
        Does.REFUSED: _row("_use_count"),
    },
    "torch._C._VariableFunctionsClass": {
        Does.OPERATES: _row(
            "asarray as_tensor from_numpy _from_blob frombuffer tensor saddmm spmm dsmm hsmm"
        ),
    },
    "torch._C._nn": {Does.COMPUTES: _row("_parse_to")},
    "torch._C._nested": {Does.OPERATES: _row("nested_tensor")},
    # ---------------------------------------------------------------- values and small objects
    "torch.device": {
        Does.COMPUTES: _row("__new__ __init__ __call__ __reduce__"),
        Does.GUARDED: _row("__enter__ __exit__"),  # a mode, which guards compare
    },
    "torch.dtype": {Does.COMPUTES: _row("__new__ __reduce__ to_real to_complex")},
    "torch.finfo": {Does.COMPUTES: _row("__new__")},
    "torch.iinfo": {Does.COMPUTES: _row("__new__")},
    "torch.layout": {Does.COMPUTES: _row("__new__")},
    "torch.memory_format": {Does.COMPUTES: _row("__new__ __reduce__")},
    "torch.qscheme": {Does.COMPUTES: _row("__new__ __reduce__")},
    "torch.Size": {
        Does.COMPUTES: _row(
            "__new__ __add__ __radd__ __getitem__ __mul__ __rmul__ __reduce__ numel"
        )
    },
    "torch._C._TensorMeta": {Does.COMPUTES: _row("__new__ __init__ __call__")},
    "torch._C._LegacyVariableBase": {Does.OPERATES: _row("__new__ __init__")},
    "torch._C.Generator": {
        # A draw of a generator is an operation, which the observer sees.
        Does.OPERATES: _row(
            """
            __init__ get_state clone_state graphsafe_get_state __reduce__ __setstate__
            """
        ),
        # Between the draws that move it; only one that the call makes gets a seed.
        Does.IN_ORDER: _row("__new__ manual_seed initial_seed get_offset"),
        Does.REFUSED: _row("set_state graphsafe_set_state set_offset seed philox_state"),
    },
    "torch._C.StorageBase": {
        # What it holds when the call begins is compared (magpy/objects/c_state.py).
        Does.COMPUTES: _row(
            """
            __new__ __init__ __len__ __getitem__ element_size nbytes data_ptr resizable is_shared
            new _get_filename _fix_weakref _weak_ref _free_weak_ref _expired
            """
        ),
        Does.REFUSED: _row("*"),
    },
    # ---------------------------------------------------------------- torch._C
    "torch._C": {
        Does.OPERATES: _row(
            """
            _from_dlpack _to_dlpack _to_dlpack_versioned _broadcast _broadcast_coalesced
            _broadcast_out _gather _gather_out _scatter _scatter_out
            _construct_CUDA_Tensor_From_Storage_And_Metadata _construct_storage_from_data_pointer
            """
        ),
        Does.COMPUTES: _row(
            """
            _log_api_usage_once _log_api_usage_metadata _dispatch_pystub _has_storage
            _has_torch_function _has_torch_function_unary _has_torch_function_variadic
            _is_autocast_available _get_all_dtypes _infer_size _has_distributed _show_config
            _cxx_flags _get_cpu_capability _autocast_supported_devices _cuda_getCompiledVersion
            _is_xnnpack_enabled _can_use_cudnn_attention _can_use_flash_attention
            _can_use_mem_efficient_attention _is_flash_attention_available _is_ck_sdpa_available
            _select_batch_norm_backend _select_conv_backend _conv_determine_backend_memory_format
            _get_cudnn_batch_norm_reserve_space_size _is_alias_of _is_cow_tensor _overlaps
            _any_output_is_alias_to_input_or_output _any_requires_grad _non_sym_sizes
            _group_tensors_by_device_and_dtype _get_nested_int _get_constant_bool_symnode
            _get_operation_overload _get_schema _get_custom_class_python_wrapper
            _check_schema_allow_fake_script_object _is_opaque_type_registered
            _maybe_call_torch_function_for_op_packet _parse_source_def parse_schema
            _parse_dispatch_key _demangle _torchDeviceToDLDevice _functionality_to_backend_keys
            _to_functionality_key _dispatch_get_all_op_names
            _dispatch_get_backend_keyset_from_autograd _dispatch_get_registrations_for_dispatch_key
            _dispatch_has_backend_fallback _dispatch_has_computed_kernel_for_dispatch_key
            _dispatch_has_kernel _dispatch_has_kernel_for_any_dispatch_key
            _dispatch_has_kernel_for_dispatch_key _dispatch_isTensorSubclassLike
            _dispatch_is_alias_key _dispatch_is_included_in_alias
            _dispatch_kernel_for_dispatch_key_is_fallthrough _dispatch_key_for_device
            _dispatch_key_name _dispatch_key_parse _dispatch_key_set _dispatch_keys
            _dispatch_keyset_full _dispatch_keyset_full_after _dispatch_keyset_to_string
            _dispatch_num_backends _dispatch_find_schema_or_throw
            _dispatch_get_computed_kernel_for_dispatch_key _jit_get_operation
            _jit_get_schemas_for_operator _jit_resolve_packet _jit_is_script_object
            _jit_get_all_schemas _jit_get_custom_class_schemas _jit_has_cpp_tests
            _jit_opt_conditionals _jit_try_infer_type _jit_flatten _jit_unflatten
            _disabled_torch_function_impl _disabled_torch_dispatch_impl _add_docstr _fx_map_arg
            _fx_map_aggregate _awaitable_nowait _cuda_getArchFlags _cuda_canDeviceAccessPeer
            _cuda_getHipblasltVersion _nccl_version _nccl_version_suffix _llvm_enabled
            _has_tensorexpr_cpp_tests _valgrind_supported_platform _mps_is_available
            _mps_is_on_macos_or_newer _mps_is_in_bad_fork _mtia_isBuilt _mtia_isInBadFork
            _supported_qengines _get_accelerator _accelerator_getAccelerator
            _cuda_memoryMetadataSupported _is_fake_tensor _tensor_impl_raw_handle
            _DTensor_compute_global_tensor_info _DTensor_OpSchema_post_init
            _DTensor_OpSchema_recompute_comparison_key
            """
        ),
        Does.GUARDED: _row(
            """
            is_grad_enabled _set_grad_enabled is_inference_mode_enabled _is_fwd_grad_enabled
            _set_fwd_grad_enabled _is_multithreading_enabled _set_multithreading_enabled
            _is_view_replay_enabled _set_view_replay_enabled _is_grad_layout_enforcement_enabled
            _set_grad_layout_enforcement_enabled is_autocast_enabled is_autocast_cpu_enabled
            is_autocast_ipu_enabled is_autocast_xla_enabled is_autocast_cache_enabled
            get_autocast_dtype get_autocast_cpu_dtype get_autocast_gpu_dtype get_autocast_ipu_dtype
            get_autocast_xla_dtype set_autocast_enabled set_autocast_cpu_enabled
            set_autocast_ipu_enabled set_autocast_xla_enabled set_autocast_dtype
            set_autocast_cpu_dtype set_autocast_gpu_dtype set_autocast_ipu_dtype
            set_autocast_xla_dtype set_autocast_cache_enabled autocast_increment_nesting
            autocast_decrement_nesting clear_autocast_cache _is_any_autocast_enabled
            get_default_dtype _set_default_dtype _set_default_tensor_type
            _get_deterministic_algorithms _get_deterministic_algorithms_warn_only
            _set_deterministic_algorithms _get_deterministic_fill_uninitialized_memory
            _set_deterministic_fill_uninitialized_memory _get_float32_matmul_precision
            _set_float32_matmul_precision _get_fp32_precision_getter _set_fp32_precision_setter
            _get_cudnn_enabled _set_cudnn_enabled _get_cudnn_benchmark _set_cudnn_benchmark
            _get_cudnn_deterministic _set_cudnn_deterministic _get_mkldnn_enabled
            _set_mkldnn_enabled _get_mkldnn_deterministic _set_mkldnn_deterministic
            _get_nnpack_enabled _set_nnpack_enabled _get_flash_sdp_enabled _set_sdp_use_flash
            _get_mem_efficient_sdp_enabled _set_sdp_use_mem_efficient _get_math_sdp_enabled
            _set_sdp_use_math _get_cudnn_sdp_enabled _set_sdp_use_cudnn
            _get_overrideable_sdp_enabled _set_sdp_use_overrideable
            _get_math_sdp_allow_fp16_bf16_reduction _set_math_sdp_allow_fp16_bf16_reduction
            _get_qengine _set_qengine is_anomaly_enabled is_anomaly_check_nan_enabled
            set_anomaly_enabled get_num_threads set_num_threads _cuda_getDevice
            _accelerator_getDeviceIndex _push_on_torch_function_stack _pop_torch_function_stack
            _len_torch_function_stack _get_function_stack_at _is_torch_function_enabled
            _is_torch_function_all_disabled _is_torch_function_mode_enabled
            _get_torch_function_state _set_torch_function_state _set_skip_next_torch_function
            _skip_one_hop_torch_function _peek_should_skip_torch_function _pop_torch_dispatch_stack
            _len_torch_dispatch_stack _get_dispatch_stack_at _get_dispatch_mode _unset_dispatch_mode
            _dispatch_tls_is_dispatch_key_excluded _dispatch_tls_is_dispatch_key_included
            _dispatch_tls_set_dispatch_key_excluded _dispatch_tls_set_dispatch_key_included
            _dispatch_tls_local_exclude_set _dispatch_tls_local_include_set _get_tracing_state
            _is_tracing _are_functorch_transforms_active _should_allow_numbers_as_tensors
            """
        ),
        Does.ASKS: _row(
            """
            _jit_texpr_fuser_enabled initial_seed _get_default_device _get_linalg_preferred_backend
            _get_blas_preferred_backend _get_blas_default_backend _get_rocm_fa_preferred_backend
            _get_sdp_priority_order _get_cublas_allow_tf32 _get_cublas_allow_fp16_accumulation
            _get_cublas_allow_fp16_reduced_precision_reduction
            _get_cublas_allow_bf16_reduced_precision_reduction _get_cudnn_allow_tf32
            _get_cudnn_depthwise_kernel _get_onednn_allow_tf32 _get_fa3_sdp_enabled
            _get_cpu_allow_fp16_reduced_precision_reduction _get_miopen_immediate
            _get_sm_carveout_experimental _get_cublaslt_prefer_grouped_gemm _get_warnAlways
            _get_thread_name _get_privateuse1_backend_name _get_autograd_fallback_mode
            _get_backcompat_broadcast_warn _get_backcompat_keepdim_warn
            _get_dtensor_allow_implicit_replication _check_sparse_tensor_invariants
            _get_graph_executor_optimize _get_graph_exec_group _get_obj_in_tls _is_key_in_tls
            _functionalization_reapply_views_tls _debug_only_are_vmap_fallback_warnings_enabled
            _meta_in_tls_dispatch_include _only_lift_cpu_tensors
            _warn_on_accumulate_grad_stream_mismatch _override_stale_capture_stream
            get_num_interop_threads _is_default_mobile_cpu_allocator_set _current_graph_task_id
            _current_autograd_node _parallel_info _accelerator_getAllocatorSettings
            _accelerator_getDeviceCapability _accelerator_getDeviceStats _accelerator_getMemoryInfo
            _accelerator_isAllocatorInitialized
            _accelerator_hooks_device_count _accelerator_hooks_get_current_device
            _cuda_getDeviceCount _cuda_getCurrentStream _cuda_getDefaultStream
            _cuda_getCurrentRawStream _cuda_getAllocator _cuda_getAllocatorBackend
            _cuda_getMemoryFraction _cuda_hasPrimaryContext _cuda_isCurrentStreamCapturing
            _cuda_isHistoryEnabled _cuda_isInBadFork _cuda_memoryStats _cuda_hostMemoryStats
            _cuda_get_cudnn_benchmark_limit _cuda_get_sync_debug_mode
            _cuda_get_conv_benchmark_empty_cache _cuda_getCublasWorkspaceSize
            _cuda_getCublasLtWorkspaceSize _cuda_tunableop_is_enabled
            _cuda_tunableop_tuning_is_enabled _cuda_record_untuned_is_enabled
            _cuda_cudaCachingAllocator_is_enabled _cuda_checkPoolLiveAllocations
            _mps_currentAllocatedMemory _mps_driverAllocatedMemory _mps_recommendedMaxMemory
            _mps_maxBufferLength _mtia_getCurrentRawStream _mtia_getCurrentStream
            _mtia_getDefaultStream _mtia_getDevice _mtia_getDeviceCapability _mtia_getDeviceCount
            _mtia_getDeviceProperties _getenv _rocm_is_backward_pass
            """
        ),
        Does.ACTS: _row(
            """
            _cuda_emptyCache _cuda_resetPeakMemoryStats _cuda_resetAccumulatedMemoryStats
            _cuda_resetPeakHostMemoryStats _cuda_resetAccumulatedHostMemoryStats _host_emptyCache
            _accelerator_emptyCache _accelerator_emptyHostCache _accelerator_resetPeakStats
            _accelerator_resetAccumulatedStats _mps_emptyCache _mtia_emptyCache
            _mtia_resetPeakMemoryStats _cuda_ipc_collect _cuda_clearCublasWorkspaces _warn
            _warn_deprecation
            """
        ),
        Does.IN_ORDER: _row(
            """
            _cuda_synchronize _accelerator_synchronizeDevice _mps_deviceSynchronize
            _mtia_deviceSynchronize _cuda_sleep _accelerator_getStream
            """
        ),
        # What switches a setting that can be read is followed (magpy/models/torch_state.py).
        Does.REFUSED: _row(
            """
            _push_on_torch_dispatch_stack _set_* set_* _cuda_set* _cuda_exchangeDevice
            _cuda_maybeExchangeDevice _accelerator_set* _accelerator_exchangeDevice
            _accelerator_maybeExchangeDevice _accelerator_hooks_* _accelerator_getDefaultGenerator
            _cudnn_set_conv_benchmark_empty_cache _jit_* _get_model_*
            _get_module_info_from_flatbuffer _get_mobile_* _get_caught_jit_* _get_cpp_backtrace
            _get_file_format _get_max_operator_version _get_operator_version_map _get_upgrader*
            _get_value_trace _get_version_calculator_flag _get_tensor_metadata
            _get_DTensor_sharding_propagator_cache_stats _check_onnx_proto _debug_*
            _is_cached_tensor _storage_Use_Count _mps_* _mtia_* _dispatch_check_*
            _dispatch_call_boxed _dispatch_clear_leaked_python_filenames _dispatch_dump
            _dispatch_dump_table _dispatch_find_dangling_impls _dispatch_library
            _dispatch_make_pyobj_dispatch_fns _dispatch_print_registrations_for_dispatch_key
            _dispatch_set_report_error_callback _abort _activate_gpu_trace _add_cached_tensor
            _autograd_init _awaitable _awaitable_wait _backport_for_mobile* _c10d_init
            _calculate_package_version_based_on_upgraders _clear_DTensor_sharding_propagator_cache
            _clear_storage_data_ptr_access_error_msg _collect_all _commit_update
            _compile_graph_to_code_table _const_dlpack_exchange_api _crash_if_* _create_*
            _current_graph_task_execution_order _data_address _dist_autograd_init
            _dlpack_exchange_api _dump_* _dynamo_* _enable_mobile_interface_call_export
            _ensureCUDADeviceGuardSet _enter_dual_level _exit_dual_level _error_if_any_worker_fails
            _export_operator_list _export_opnames _fake_dispatch_* _faulty_agent_init
            _free_And_Remove_DeleterFn _freeze_module _fuse_to_static_module _gds_*
            _generate_upgraders_graph _graph_pool_handle _hack_do_not_use_clone_module_with_class
            _has_Standard_Deleter _import_ir_module_from_package _increment_version
            _initCrashHandler _initExtension _init_names _ivalue_debug_python_object
            _ivalue_tags_match _last_executed_optimized_graph _load_* _logging_set_logger
            _multiprocessing_init _nccl_* _new_symbolic_shape_symbol _nn_module_to_mobile
            _pickle_load_obj _pickle_save _propagate_* _quantize_ondevice_ptq_dynamic _register_*
            _reinit_DTensor_dispatch_logger _remove_* _rename_privateuse1_backend _replace_
            _replace_overloaded_method_decl _resolve_type _resolve_type_from_object _rpc_init
            _run_emit_module_hook _save_* _setenv _unsetenv _stash_obj_in_tls _storage_address
            _storage_id _storage_throw_on_* _swap_tensor_impl _tensors_data_ptrs_at_indices_equal
            _test_only_* _tracer_* _unregister_opaque_type _unsafe_reset_storage
            _unset_default_mobile_cpu_allocator _valgrind_toggle* _vmapmode_*
            _will_engine_execute_node _wrap_tensor_impl fork wait import_ir_module
            import_ir_module_from_buffer init_num_threads merge_type_from_type_comment parse_ir
            parse_type_comment unify_type_list _cuda_allocationTraceback _cuda_annotateMemory
            _cuda_attach_out_of_memory_observer _cuda_beginAllocate* _cuda_changeCurrentAllocator
            _cuda_cudaCachingAllocator_* _cuda_cudaHostAllocator _cuda_customAllocator
            _cuda_endAllocateToPool _cuda_getCheckpointState _cuda_getCurrentBlasHandle
            _cuda_getCurrentSolverHandle _cuda_getMemoryMetadata _cuda_getStreamFromExternal
            _cuda_init _cuda_jiterator_compile_and_launch_kernel _cuda_memorySnapshot
            _cuda_record_memory_history* _cuda_record_untuned_enable _cuda_releasePool
            _cuda_resetCublas* _cuda_tunableop_* _cudnn_clear_dropout_state
            """
        ),
    },
    # ---------------------------------------------------------------- autograd and functorch
    "torch._C._autograd": {
        Does.COMPUTES: _row(
            """
            kineto_available _is_kineto_stopped _supported_activities _get_data_attr
            _make_saved_tensor
            """
        ),
        Does.GUARDED: _row(
            """
            _top_saved_tensors_default_hooks _push_saved_tensors_default_hooks
            _pop_saved_tensors_default_hooks _saved_tensors_hooks_is_enabled
            _saved_tensors_hooks_enable _saved_tensors_hooks_disable
            _saved_tensors_hooks_get_disabled_error_message
            _saved_tensors_hooks_set_tracing
            """
        ),
        Does.ASKS: _row(
            """
            _get_sequence_nr _profiler_enabled _profiler_type
             _get_creation_meta
            _get_current_graph_task_keep_graph
            """
        ),
        Does.REFUSED: _row("*"),
    },
    # Those of its functions that transforms consist of: magpy/capture/tensors/functorch.py.
    "torch._C._functorch": {
        Does.COMPUTES: _row(
            """
            is_legacy_batchedtensor is_functionaltensor is_dead_tensor_wrapper get_unwrapped
            maybe_get_level maybe_get_bdim unwrap_if_dead _unwrap_batched
            is_functorch_wrapped_tensor is_batchedtensor is_gradtrackingtensor
            _assert_wrapped_functional
            """
        ),
        Does.ASKS: _row("_is_vmap_fallback_enabled"),
        Does.OPERATES: _row("reshape_dim_into reshape_dim_outof"),
        # No guard holds within a transform: what these find, transforms of the call have put there.
        Does.GUARDED: _row(
            """
            get_interpreter_stack peek_interpreter_stack get_single_level_autograd_function_allowed
            dlevel current_level maybe_current_level get_dynamic_layer_stack_depth
            get_inplace_requires_grad_allowed
            """
        ),
        Does.REFUSED: _row("*"),
    },
    "CInterpreter": {Does.COMPUTES: _row("key level"), Does.REFUSED: _row("*")},
    "CGradInterpreterPtr": {
        Does.COMPUTES: _row("__init__ key level lift prevGradMode"),
    },
    "CJvpInterpreterPtr": {Does.COMPUTES: _row("__init__ key level lift prevFwdGradMode")},
    "CVmapInterpreterPtr": {Does.COMPUTES: _row("__init__ key level batchSize randomness")},
    "CFunctionalizeInterpreterPtr": {Does.REFUSED: _row("*")},
    "DynamicLayer": {Does.REFUSED: _row("*")},
    "torch._C._FunctionBase": {
        # `apply` is called as a whole (magpy/capture/tensors/opaque_calls.py).
        Does.COMPUTES: _row("__new__ __init__ name _sequence_nr"),
        Does.REFUSED: _row("*"),
    },
    "torch._C._EngineBase": {
        # A backward pass: the operations around it are those that the recorder hears of.
        Does.OPERATES: _row("run_backward is_checkpoint_valid"),
        Does.REFUSED: _row("*"),
    },
    # Contexts, which are entered and left within the call, and obeyed by the operations inside.
    "_InferenceMode": {Does.GUARDED: _row("__init__ __enter__ __exit__")},
    "torch._C.DisableTorchFunction": {Does.GUARDED: _row("__new__ __init__ __enter__ __exit__")},
    "torch._C.DisableTorchFunctionSubclass": {
        Does.GUARDED: _row("__new__ __init__ __enter__ __exit__")
    },
    **{
        name: {Does.INSIDE: _row("__init__ __enter__ __exit__")}
        for name in _row(
            """
            _AutoDispatchBelowAutograd _AutoDispatchBelowADInplaceOrView _ExcludeDispatchKeyGuard
            _IncludeDispatchKeyGuard _ForceDispatchKeyGuard _PreserveDispatchKeyGuard
            _SetExcludeDispatchKeyGuard ExcludeDispatchKeyGuard _DisableAutocast
            _DisableTorchDispatch _EnableTorchFunction _DisableFuncTorch _DisablePythonDispatcher
            _EnablePythonDispatcher _EnablePreDispatch _RestorePythonTLSSnapshot
            """
        )
    },
    "_DispatchOperatorHandle": {
        Does.INSIDE: _row("redispatch_boxed schema"),
        Does.REFUSED: _row("*"),
    },
    # An operator whose kernels are written in Python, from 2.14 on.
    "torch._C._PyObjectDispatchFunc": {
        Does.OPERATES: _row("__call__"),
        Does.REFUSED: _row("*"),
    },
    "_SafeKernelFunction": {Does.INSIDE: _row("call_boxed"), Does.REFUSED: _row("*")},
    "SavedTensor": {Does.COMPUTES: _row("unpack"), Does.REFUSED: _row("*")},
    "_InputMetadata": {Does.REFUSED: _row("*")},
    "TensorGeometry": {Does.COMPUTES: _row("__init__ sizes strides storage_offset")},
    "_WeakTensorRef": {Does.REFUSED: _row("*")},
    "CppFunction": {Does.REFUSED: _row("*")},
    # ---------------------------------------------------------------- dispatcher and schemas
    "DispatchKeySet": {
        Does.COMPUTES: _row(
            """
            __init__ __or__ __sub__ __and__ __repr__ __eq__ __getstate__ __setstate__ raw_repr
            highestPriorityTypeId remove add has from_raw_repr
            """
        )
    },
    "FunctionSchema": {
        Does.COMPUTES: _row(
            """
            __init__ __eq__ __hash__ __str__ __repr__ __getstate__ __setstate__ _is_view_op
            is_backward_compatible_with check_forward_compatible_with
            """
        )
    },
    "HopSchema": {Does.COMPUTES: _row("__init__")},
    "Argument": {Does.COMPUTES: _row("has_default_value"), Does.REFUSED: _row("*")},
    "_AliasInfo": {Does.REFUSED: _row("*")},
    "torch._C._NodeBase": {Does.REFUSED: _row("*")},
    "_SDPAParams": {Does.COMPUTES: _row("__init__")},
    # ---------------------------------------------------------------- queues of work on devices
    "torch.Stream": {
        Does.COMPUTES: _row("__hash__ __repr__"),
        Does.IN_ORDER: _row(
            "__new__ synchronize wait_event wait_stream record_event query is_capturing"
        ),
        Does.REFUSED: _row("*"),  # also as a context
    },
    "torch.Event": {
        Does.COMPUTES: _row("__repr__"),
        Does.IN_ORDER: _row("__new__ record wait query elapsed_time synchronize"),
        Does.REFUSED: _row("*"),
    },
    "torch._C._CudaStreamBase": {
        Does.IN_ORDER: _row("__new__ query synchronize"),
        Does.COMPUTES: _row("priority_range"),
        Does.REFUSED: _row("*"),
    },
    "torch._C._CudaEventBase": {
        Does.IN_ORDER: _row("__new__ record wait query elapsed_time synchronize"),
        Does.REFUSED: _row("*"),
    },
    "torch._C._dynamo.guards": {
        Does.GUARDED: _row("set_is_in_mode_without_ignore_compile_internals"),
        Does.REFUSED: _row("*"),
    },
    # Those that are there once CUDA has been started.
    "torch.cuda": {Does.COMPUTES: _row("_get_device_properties")},
    "torch._C._cudart": {
        Does.COMPUTES: _row("cudaGetErrorString"),
        Does.REFUSED: _row("*"),
    },
    "torch._C._nvtx": {
        Does.IN_ORDER: _row("rangePushA rangePop markA"),
        Does.REFUSED: _row("*"),
    },
    "torch._C._itt": {
        Does.COMPUTES: _row("is_available"),
        Does.IN_ORDER: _row("rangePush rangePop mark"),
    },
    "torch._C._cudnn": {Does.COMPUTES: _row("getRuntimeVersion getCompileVersion getVersionInt")},
    "torch._C._cusparselt": {Does.COMPUTES: _row("getVersionInt"), Does.REFUSED: _row("*")},
    # ---------------------------------------------------------------- distributed
    **{
        name: {
            Does.COMPUTES: _row(
                """
                __init__ __repr__ __str__ __hash__ __eq__ __ne__ __fx_repr__ __getstate__
                __setstate__
                """
            ),
            Does.ASKS_VALUE: _row("is_partial is_replicate is_shard"),
            Does.REFUSED: _row("*"),
        }
        for name in (
            "Placement",
            *(f"torch._C._distributed.{n}" for n in ("Shard", "StridedShard", "Replicate")),
            "torch._C._distributed.Partial",
        )
    },
    "torch._C._distributed_c10d": {
        Does.ASKS: _row(
            """
            get_debug_level _resolve_process_group _get_work_registry_size
            _allow_inflight_collective_as_graph_input _current_process_group
            _get_comm_profiling_name _is_nvshmem_available
            """
        ),
        Does.COMPUTES: _row("_compute_bucket_assignment_by_size"),
        Does.REFUSED: _row("*"),
    },
    "torch.distributed.distributed_c10d": {Does.ASKS: _row("get_debug_level")},
    "torch.multiprocessing": {Does.REFUSED: _row("_prctl_pr_set_pdeathsig")},
    "ProcessGroup": {
        Does.ASKS: _row("rank size name get_group_store group_name group_desc _id _backend_id"),
        Does.COMMUNICATES: _row(
            """
            broadcast allreduce allreduce_coalesced reduce allgather _allgather_base
            allgather_coalesced allgather_into_tensor_coalesced gather scatter reduce_scatter
            _reduce_scatter_base reduce_scatter_tensor_coalesced alltoall_base alltoall send recv
            recv_anysource barrier
            """
        ),
        Does.REFUSED: _row("*"),
    },
    "Backend": {Does.ASKS: _row("rank size name _get_backend_name"), Does.REFUSED: _row("*")},
    "Logger": {Does.REFUSED: _row("*")},
    "Reducer": {Does.REFUSED: _row("*")},
    "Store": {Does.ACTS: _row("set"), Does.REFUSED: _row("*")},
    "Work": {Does.COMMUNICATES: _row("wait"), Does.REFUSED: _row("*")},
    "GradBucket": {Does.REFUSED: _row("*")},
    "ReduceOp": {
        Does.COMPUTES: _row(
            "__init__ __eq__ __hash__ __getstate__ __setstate__ __copy__ __deepcopy__"
        )
    },
    # ---------------------------------------------------------------- the rest, which nobody redoes
    "Future": {Does.REFUSED: _row("*")},
    "torch._C._monitor": {Does.ACTS: _row("log_event"), Does.REFUSED: _row("*")},
    "torch._C._monitor.Stat": {Does.REFUSED: _row("*")},
    # TorchScript: what its functions do their graphs tell (magpy/models/torchscript.py); what its
    # objects hold is in C++, where nobody sees what becomes of it.
    "ScriptList": {
        Does.OPERATES: _row(
            """
            __init__ __repr__ __bool__ __len__ __contains__ __getitem__ __iter__ __getstate__
            __setstate__ count
            """
        ),
        Does.REFUSED: _row("*"),
    },
    "ScriptDict": {
        Does.OPERATES: _row(
            "__init__ __repr__ __bool__ __len__ __contains__ __getitem__ __iter__ items keys"
        ),
        Does.REFUSED: _row("*"),
    },
    "ScriptListIterator": {Does.OPERATES: _row("__init__ __next__ __iter__")},
    "ScriptDictIterator": {Does.OPERATES: _row("__init__ __next__ __iter__")},
    "ScriptDictKeyIterator": {Does.OPERATES: _row("__init__ __next__ __iter__")},
    "ScriptObject": {
        Does.COMPUTES: _row(
            """
            __hash__ __eq__ __getstate__ __len__ __repr__ __str__ __copy__ __deepcopy__ __getattr__
            _get_method _has_method _method_names _properties _type
            """
        ),
        Does.REFUSED: _row("*"),
    },
    "ScriptModule": {
        Does.COMPUTES: _row(
            "__hash__ __eq__ __copy__ __deepcopy__ _get_forward_hooks _get_forward_pre_hooks"
        ),
        Does.REFUSED: _row("*"),
    },
    "ScriptMethod": {Does.OPERATES: _row("__call__"), Does.REFUSED: _row("*")},
    "torch.jit.ScriptFunction": {Does.OPERATES: _row("__call__"), Does.REFUSED: _row("*")},
    "ParameterDict": {Does.COMPUTES: _row("contains items getattr"), Does.REFUSED: _row("*")},
    "BufferDict": {Does.COMPUTES: _row("contains items getattr"), Does.REFUSED: _row("*")},
    "ModuleDict": {Does.COMPUTES: _row("contains items getattr"), Does.REFUSED: _row("*")},
}

# Options and values that the program makes and hands over.
PLAIN_OBJECTS = _row(
    """
    AllToAllOptions AllreduceCoalescedOptions AllreduceOptions AllgatherOptions BarrierOptions
    BroadcastOptions GatherOptions ReduceOptions ReduceScatterOptions ScatterOptions
    """
)
for _name in PLAIN_OBJECTS:
    _TABLE[_name] = {Does.COMPUTES: _row("*")}

_ENUM = "an enumeration"
_TABLE[_ENUM] = {
    Does.COMPUTES: _row(
        """
        __init__ __eq__ __ne__ __lt__ __gt__ __le__ __ge__ __hash__ __int__ __index__ __repr__
        __str__ __and__ __or__ __xor__ __invert__ __rand__ __ror__ __rxor__ __getstate__
        __setstate__ __call__
        """
    )
}

# Modules, and all below them, of which no program that is compiled calls anything.
_REFUSED_MODULES = _row(
    """
    torch._C._acc torch._C._aoti torch._C._cpu torch._C._distributed torch._C._distributed_autograd
    torch._C._distributed_rpc torch._C._dynamo torch._C._export torch._C._functionalization
    torch._C._instruction_counter torch._C._jit torch._C._jit_tree_views torch._C._lazy
    torch._C._lazy_ts_backend torch._C._monitor torch._C._nativert torch._C._onnx torch._C._profiler
    torch._C._te torch._C._verbose torch._C.cpp
    """
)

# TorchScript's compiler and its graphs, files, agents and the like, of which no program that is
# compiled calls anything.
_REFUSED_CLASSES = frozenset(
    _row(
        """
        AliasDb AnyType ArgumentSpec AwaitType Backend.Options BenchmarkConfig
        BenchmarkExecutionStats Block BoolType CUDAGraph CallStack Capsule ClassType Code
        CompilationUnit CompleteArgumentSpec ComplexType ConcreteModuleType
        ConcreteModuleTypeBuilder DDPLoggingData DeepCopyMemoTable DeserializationStorageContext
        DeviceObjType DictType EnumType ErrorReport ExecutionPlan FakeProcessGroup
        FakeProcessGroup.Options FakeStore FakeWork FileCheck FileStore FlightRecorderHook FloatType
        FutureType Gradient Graph GraphExecutorState HashStore IODescriptor InferredType IntType
        InterfaceType ListType LiteScriptModule LockingLogger LoggerBase MTIAGraph MemPool NCCLXStub
        NanCheckHook Node NoneType NoopLogger NumberType OperatorInfo OptionalType PostHookArgs
        PreHookArgs PrefixStore ProcessGroupGloo ProcessGroupGloo.Device ProcessGroupGloo._Options
        ProcessGroupNCCL ProcessGroupNCCL.NCCLConfig ProcessGroupNCCL.Options ProcessGroupNCCL2
        ProcessGroupNCCLLazy ProfilerEvent PutOptions PyObjectType PyTorchFileReader
        PyTorchFileWriter PythonCallbackWork RRef RRefType ReconfigureOptions ScriptClass
        ScriptClassFunction ScriptModuleSerializer ScriptObjectProperty SerializationStorageContext
        SignalOptions SourceContext StaticModule StaticModule.IndividualMetrics StreamObjType
        StringType SymBoolType SymIntType TCPStore TensorPipeRpcBackendOptions TensorType
        ThroughputBenchmark TracingState TupleType Type UnionType Use Value WaitSignalOptions Window
        WindowAttr WorkInfo _Await _CUDAGraph _CUDAPluggableAllocator _CUuuid _ControlCollectives
        _CudaDeviceProperties _DMAConnectivity _DispatchModule
        _DistributedBackendOptions _DummyDeviceGuard _DummyPrivateUse1Hook _GeneratorType
        _ITraceActivity _IllegalWork _KinetoEvent _MTIAGraph _MemPool _ProcessGroupWrapper
        _ProfilerDisableOptions _ProfilerResult _Request _Response _SafeKernelFunction
        _SchemaArgument _SchemaInfo _ShapeComputeGraphMapping _StoreCollectives _SymNode
        _SymmetricMemory _TensorIterator _TensorIteratorSpec _UpgraderEntry _UpgraderRange
        _WorkerServer _acceleratorGraph _cuda_CUDAAllocator _cuda_CUDAAllocator_AllocatorState
        torch._C._FastCudaLauncher torch._C._StaticCudaLauncher
        """
    )
)

# Special methods that C code of torch fills in for its own types and that look at nothing else.
_OF_VALUES = frozenset(
    _row(
        """
        __repr__ __str__ __hash__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __bool__ __int__
        __index__ __len__ __iter__ __next__ __getattribute__ __setattr__ __delattr__ __init__
        __new__ __reduce__ __reduce_ex__ __getitem__ __contains__ __add__ __mul__ __rmul__ __radd__
        """
    )
)


def is_pybind(cls: type) -> bool:
    """Whether a class was bound with pybind11, whatever metaclass Python has given it then."""
    return type(cls).__name__ == "pybind11_type" or "_pybind11_conduit_v1_" in vars(cls)


def home_of_class(cls: type) -> str:
    """The name under which a class written in C stands in the table."""
    if not is_pybind(cls):
        return f"{cls.__module__}.{cls.__qualname__}"
    if "__members__" in vars(cls):
        return _ENUM
    return f"{cls.__module__}.{cls.__qualname__}" if _is_below(cls.__module__) else cls.__qualname__


def _is_below(module: str) -> bool:
    return any(module == m or module.startswith(m + ".") for m in _REFUSED_MODULES)


def _torch_c() -> Any:
    """`torch._C`; who asks has a callable of torch's in hand."""
    return sys.modules["torch._C"]


@functools.cache
def _operators() -> frozenset[str]:
    """The names of the operators of `aten`."""
    names = _torch_c()._dispatch_get_all_op_names()
    return frozenset(n[6:].partition(".")[0] for n in names if n.startswith("aten::"))


def _derived(cls: type) -> Iterator[type]:
    found: list[type] = type.__subclasses__(cls)
    for c in found:
        yield c
        yield from _derived(c)


def pybind_classes() -> Iterator[type]:
    """The classes that torch has bound with pybind11 so far."""
    base = _torch_c().ScriptModule.__mro__[-2]
    for cls in _derived(base):
        if is_pybind(cls) and cls.__module__.partition(".")[0] == "torch":
            yield cls


class _Methods:
    """Which class has a method that pybind11 has made, which does not know it itself."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, str]] = {}
        self._classes = 0

    def home(self, f: Any) -> str | None:
        """The class that has it, as it stands in the table; None if none has it."""
        found = self._found.get(id(f))
        if found is None:
            classes = list(pybind_classes())
            if len(classes) != self._classes:
                self._look(classes)
                found = self._found.get(id(f))
        return None if found is None else found[1]

    def _look(self, classes: list[type]) -> None:
        self._classes = len(classes)
        for cls in classes:
            home = home_of_class(cls)
            for value in vars(cls).values():
                f = getattr(value, "__func__", value)
                if isinstance(f, types.BuiltinFunctionType):
                    self._found.setdefault(id(f), (f, home))


_methods = _Methods()


def _definer(cls: type, name: str) -> type:
    """The class written in C that has a method, whichever class of Python's has it, too."""
    return next((c for c in cls.__mro__ if name in vars(c) and _written_in_c(c)), cls)


def _written_in_c(cls: type) -> bool:
    return is_pybind(cls) or not cls.__flags__ & (1 << 9)  # a heap type


def home_of(f: Any) -> tuple[str, str] | None:
    """Where a callable written in C stands in the table, and its name there.

    Args:
        f: a function, a method (bound or not), a class, or an object that is called.

    Returns:
        None if it is none of torch's.
    """
    if isinstance(f, type):
        return home_of_class(f), "__init__" if is_pybind(f) else "__new__"
    name = getattr(f, "__name__", "")
    if isinstance(f, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return home_of_class(_definer(f.__objclass__, name)), name
    if not isinstance(f, (types.BuiltinFunctionType, types.MethodWrapperType)):
        cls = _definer(type(f), "__call__")
        return home_of_class(cls), "__call__"
    owner = f.__self__
    # Those that are generated stand in one class, under several names (`torch`, `torch._VF`).
    if getattr(_torch_c()._VariableFunctions, name, None) is f:
        return "torch._C._VariableFunctionsClass", name
    if getattr(_torch_c(), name, None) is f:
        return "torch._C", name  # which `torch` says is its own
    if isinstance(owner, types.ModuleType) or owner is None:
        return f.__module__ or getattr(owner, "__name__", ""), name
    if type(owner).__module__ == "pybind11_builtins" or type(owner).__name__ == "PyCapsule":
        home = _methods.home(f)
        return (f.__module__ or "", name) if home is None else (home, name)
    cls = owner if isinstance(owner, type) else type(owner)
    return home_of_class(_definer(cls, name)), name


def name_of(f: Any) -> str | None:
    """What people call a method that pybind11 has made ("Store.get"); None for other callables."""
    owner = getattr(f, "__self__", None)
    if not isinstance(f, types.BuiltinFunctionType) or owner is None:
        return None
    if type(owner).__module__ != "pybind11_builtins" and type(owner).__name__ != "PyCapsule":
        return None
    found = home_of(f)
    assert found is not None
    return found[1] if found[0] == "torch._C" else ".".join(found)


def does(f: Any) -> Does | None:
    """What a callable of torch's that is written in C does; None if nothing is known of it."""
    found = home_of(f)
    return None if found is None else row(*found)


@functools.cache
def row(home: str, name: str) -> Does | None:
    """What the table says of a name in a module or class; None if it has no row for it."""
    if home.startswith("torch._ops."):
        return Does.OPERATES  # of `torch.ops`
    if home in _GENERATED and name in _operators():
        return Does.OPERATES
    rows = _TABLE.get(home, {})
    for verdict, names in rows.items():
        if name in names:
            return verdict
    for verdict, names in rows.items():
        if any(n[-1] == "*" and name.startswith(n[:-1]) for n in names):
            return verdict
    if name == "_pybind11_conduit_v1_":
        return Does.COMPUTES  # how extensions hand objects to each other
    if home in _REFUSED_CLASSES or _is_below(home):
        return Does.REFUSED
    return Does.COMPUTES if name in _OF_VALUES and home[:6] == "torch." else None


# The namespaces of operators that communicate.
_OF_PROCESSES = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "symm_mem")


# Functions and methods of tensors that are written in C.
_NEVER_COMMUNICATE = (types.MethodDescriptorType, types.WrapperDescriptorType)


def communicates(func: Any) -> bool:
    """Whether an operation takes part in what several processes do, each of them once."""
    if type(func) in _NEVER_COMMUNICATE:
        return False
    space = getattr(func, "namespace", None)
    if space is None:
        space = str(getattr(func, "_qualified_op_name", "")).partition("::")[0]
    module = getattr(func, "__module__", None)
    return space in _OF_PROCESSES or (
        isinstance(module, str) and module.startswith("torch.distributed.")
    )


def is_value(obj: Any) -> bool:
    """Whether an object of torch's says where tensors are, and another one that says it will do.

    Placements of DTensors, and meshes of devices, which never change.
    """
    mesh: Any = sys.modules.get("torch.distributed.device_mesh")
    if mesh is not None and type(obj) is mesh.DeviceMesh:
        return True
    base = next((c for c in type(obj).__mro__ if is_pybind(c)), None)
    return base is not None and Does.ASKS_VALUE in _TABLE.get(home_of_class(base), {})


def tables() -> dict[str, dict[Does, tuple[str, ...]]]:
    """The rows, for the test that looks for what has none."""
    return _TABLE
