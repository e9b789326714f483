"""What is known of torch's operations by their names and signatures.

Owns tables of names, and what a property's accessor or a legacy constructor stands for.  Does not
own what an operation does in one run (magpy/capture/tensors/recorder.py), nor functions that are no
operations (magpy/models/callables.py).  Asked by all rooms that follow it.
"""

from __future__ import annotations

import contextlib
import math
import types
from typing import Any

import torch
import torch.nn.functional as F
from torch._ops import OpOverload, OpOverloadPacket
from torch.fx.node import _get_qualified_name

from magpy import _interp
from magpy.objects.quiet import apart, unheard
from magpy.objects.types import isinstance


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names of tensor attributes, methods and torch functions whose results follow from metadata alone.
METADATA = _names(
    """
    shape size dim ndim ndimension numel nelement stride storage_offset dtype device layout
    is_cuda is_cpu is_xpu is_mps is_meta is_mkldnn is_vulkan is_ipu is_xla is_maia is_mtia
    is_ort is_sparse is_sparse_csr is_quantized is_nested is_contiguous is_floating_point
    is_complex is_signed is_leaf requires_grad element_size itemsize nbytes get_device names
    is_conj is_neg is_inference has_names output_nr grad_fn _version is_shared is_pinned
    is_same_size result_type can_cast broadcast_shapes dense_dim sparse_dim _is_view
    retains_grad name qscheme dim_order __len__ __hash__ _backward_hooks
    _post_accumulate_grad_hooks _has_symbolic_sizes_strides is_non_overlapping_and_dense
    __cuda_array_interface__ is_tensor is_storage promote_types is_distributed is_set_to
    is_grad_enabled is_inference_mode_enabled get_default_dtype _nested_tensor_size _base _dimV
    _dimI __dir__ is_autocast_enabled is_autocast_cpu_enabled get_autocast_dtype
    get_autocast_gpu_dtype get_autocast_cpu_dtype __class__ _is_zerotensor
    is_warn_always_enabled isinstance has_torch_function_variadic device_module
    _is_all_true_meta
    """
)
# Of these, what no guard on a tensor covers: what becomes of the memory that it shares, and what is
# said of the tensor itself.
OF_MEMORY = _names("storage_offset _version is_shared is_pinned is_set_to _is_view _base")
OF_TENSOR = _names(
    "output_nr grad_fn retains_grad name _backward_hooks _post_accumulate_grad_hooks __dir__"
)
# What no guard and no size of a dense tensor tells.
OF_PARTS = _names("sparse_dim dense_dim qscheme")
# These change torch's modes, which are noted at every operation instead.
MODE_SETTERS = _names(
    """
    _set_grad_enabled set_grad_enabled set_autocast_enabled set_autocast_dtype
    set_autocast_cache_enabled autocast_increment_nesting autocast_decrement_nesting
    clear_autocast_cache set_autocast_cpu_enabled set_autocast_gpu_dtype set_autocast_cpu_dtype
    _enter_autocast _exit_autocast _enter_inference_mode _exit_inference_mode
    """
)
# Operations that no traced graph can hold: they change what a tensor is, or run the autograd
# engine.
HOST_METHODS = _names(
    """
    backward requires_grad_ register_hook register_post_accumulate_grad_hook retain_grad set_
    share_memory_ detach_ resize_ resize_as_ __setstate__ _set_requires_grad rename_ grad
    zero_grad_ untyped_storage
    """
)
# Of these, what the eager backend's graph can hold when it is done to a tensor that the run made.
INSIDE_METHODS = frozenset(
    ["requires_grad_", "requires_grad", "data", "detach_", "resize_", "resize_as_", "grad"]
)
# Metadata that a data-dependent shape shows in.
SHAPE_READS = _names(
    """
    shape size numel nelement stride nbytes __len__ is_contiguous storage_offset is_same_size
    broadcast_shapes is_non_overlapping_and_dense dim_order _has_symbolic_sizes_strides
    """
)
# Operations whose results have as many dimensions as the sizes of what they are given say, or
# another dtype where there is nothing.
RANK_FOLLOWS = _names(
    """
    squeeze squeeze_ squeeze_copy cov corrcoef bincount norm matrix_norm matrix_rank pinv trapezoid
    trapz
    """
)
# What a sparse tensor consists of: how many elements that has is data.
SPARSE_PARTS = _names(
    """
    coalesce _coalesce _values _indices values indices crow_indices col_indices ccol_indices
    row_indices sparse_compressed_tensor sparse_coo_tensor
    """
)
# The types of the operators of `torch.ops`.
OPERATORS = (OpOverload, OpOverloadPacket)
# Operations whose results share memory with what they are given, or not, as its sizes say.
MAY_SHARE = _names("contiguous reshape reshape_as flatten ravel")
#: What gives a tensor the form of a view of it.
MOVES = _names("t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_")
# What gives a tensor another form in place: views that were made before lie otherwise than those
# that are made afterwards, and its sizes are others.
FORMS = MOVES | _names("as_strided_ resize_ resize_as_ set_ __set__ setattr swap_tensors")
# Operations that give as many tensors as those sizes say.
SPLITS = _names(
    """
    unbind split chunk tensor_split split_with_sizes unsafe_split unsafe_chunk hsplit vsplit dsplit
    __iter__ tolist meshgrid broadcast_tensors unflatten unbind_copy split_copy
    split_with_sizes_copy
    """
)
# Data is read to check for errors only, the shape of the result does not follow from it.
STATIC_RESULT = _names(
    """
    inv cholesky solve inv_ex cholesky_ex eigh eig eigvalsh eigvals svd svdvals qr  pinv
    slogdet det logdet matrix_rank lu lu_factor lu_solve ldl_factor matrix_exp solve_ex inverse
    cholesky_inverse gaussian_nll_loss embedding embedding_bag multi_head_attention_forward
    ctc_loss lstm gru rnn_tanh rnn_relu _VF
    multinomial bernoulli cdist  histc grid_sample rrelu affine_grid nll_loss cross_entropy
    index_put_ index_put index_copy index_add scatter scatter_ __setitem__ masked_fill
    masked_fill_ normal bernoulli_ multi_margin_loss multilabel_margin_loss
     dropout to copy_ quantile nanquantile cov corrcoef clamp cumsum istft
       fake_quantize_per_tensor_affine lerp add sub mul
    scaled_dot_product_attention _fused_sgd_ _fused_adam_ _fused_adamw_ _fused_adagrad_
    """
)


# Recurrent networks: how many steps a packed sequence has is data, and torch's fake kernels for
# others go through them one by one, which fixes their number.
_RECURRENT = frozenset(["lstm", "gru", "rnn_tanh", "rnn_relu", "_pad_packed_sequence"])

# Operations whose result has the same metadata whatever the value of their Python numbers.
ARITHMETIC = _names(
    """
    add sub mul div true_divide rsub pow __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__
    __truediv__ __rtruediv__ __rdiv__ __pow__ __rpow__ __iadd__ __isub__ __imul__ __itruediv__
    add_ sub_ mul_ div_ pow_ fill_ clamp clamp_ clip clip_ lt gt le ge eq ne
    __lt__ __gt__ __le__ __ge__
    __eq__ __ne__ masked_fill masked_fill_ where lerp addcmul addcdiv maximum minimum __setitem__
    floor_divide remainder fmod __floordiv__ __mod__ multiply divide subtract leaky_relu elu
    lerp_ addcmul_ addcdiv_ multiply_ divide_ subtract_ clamp_min clamp_max clamp_min_ clamp_max_
    __ipow__ remainder_ fmod_ floor_divide_ full_like
    _foreach_add_ _foreach_sub_ _foreach_mul_ _foreach_div_ _foreach_pow _foreach_pow_
    _foreach_add _foreach_sub _foreach_mul _foreach_div _foreach_lerp_ _foreach_addcmul_
    _foreach_addcdiv_ _fused_sgd_ _fused_adam_ _fused_adamw_ _fused_adagrad_
    """
)
# Operations that give, and raise, for a size of 1 what they do for others: new memory, or always a
# view, of sizes that follow by one rule. Broadcasting of sizes that differ is asked about.
FOR_ANY_SIZE = (ARITHMETIC - {"__setitem__"}) | _names(
    """
    __radd__ __and__ __or__ __xor__ __invert__ __neg__ __abs__ neg abs sign exp exp2 expm1 log
    log2 log10 log1p sqrt rsqrt square reciprocal sin cos tan tanh sigmoid erf erfc floor ceil
    round trunc isnan isinf isfinite logical_and logical_or logical_not logical_xor bitwise_and
    bitwise_or bitwise_not relu relu6 gelu silu mish hardtanh __contains__ hardswish hardsigmoid
    softplus logsigmoid selu celu softmax log_softmax layer_norm rms_norm native_layer_norm
    embedding linear bilinear matmul __matmul__ __rmatmul__ mm bmm mv addmm baddbmm
    scaled_dot_product_attention cat concat stack sum mean prod any all cumsum cumprod logsumexp
    sort argsort tril triu clone zeros_like ones_like empty_like rand_like randn_like repeat
    mse_loss binary_cross_entropy_with_logits cosine_similarity unsqueeze transpose permute t mT
    movedim swapaxes detach dropout to type_as float double half bfloat16 int long bool cpu cuda
    view view_as expand expand_as broadcast_to _grouped_mm grouped_mm index_add index_copy
    normalize scaled_mm joined_turns lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
    new_zeros new_ones new_empty new_full full_like
    """
)
# Those that may raise where a size is too small.
BOUNDED = _names(
    """
    __getitem__ select narrow topk gather index_select take_along_dim scatter scatter_add
    unflatten one_hot repeat_interleave cross_entropy nll_loss split chunk unbind tensor_split
    split_with_sizes max_pool1d max_pool2d avg_pool1d avg_pool2d adaptive_avg_pool1d
    adaptive_avg_pool2d interpolate pad amax amin max min argmax argmin norm
    """
)
#: Those that choose a kernel by how many images there are, too.
CONVOLUTIONS = _names("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d")
# Operations whose result has the same metadata whatever the value of their Python floats, save
# that some return their argument, or nothing but zeros, for 0.0 and 1.0.
TAKES_FLOATS = _names(
    """
    dropout dropout_ dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout
    feature_dropout gumbel_softmax full new_full fill_diagonal_ normal normal_ uniform_ bernoulli
    bernoulli_ exponential_ cauchy_ log_normal_ layer_norm rms_norm group_norm batch_norm
    instance_norm normalize cosine_similarity pairwise_distance cross_entropy nll_loss huber_loss
    smooth_l1_loss margin_ranking_loss triplet_margin_loss hinge_embedding_loss
    cosine_embedding_loss multi_margin_loss poisson_nll_loss gaussian_nll_loss celu selu relu6 rrelu
    hardtanh hardshrink softshrink softplus threshold _threshold logit nan_to_num addmm addmv addr
    addbmm baddbmm renorm norm dist cdist isclose scaled_dot_product_attention clamp_max_ index_fill
    index_fill_ index_add index_add_ sub_ rsub logaddexp heaviside copysign hypot xlogy fmax fmin
    float_power clip_grad_norm_ clip_grad_value_
    """
)
# Those of integers that raise where they divide by zero; what a compiler makes of it may not.
MAY_DIVIDE_BY_ZERO = _names("floor_divide __floordiv__ remainder fmod __mod__")
# Of ARITHMETIC, the ones that compute the same with a tensor of no dimensions in place of a
# number, if the other operand is a floating-point tensor that has dimensions, or one of int64
# (https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc).
WITH_SCALAR_TENSOR = MAY_DIVIDE_BY_ZERO | _names(
    """
    add sub mul div true_divide rsub multiply divide subtract add_ sub_ mul_ div_ __add__ __radd__
    __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __rdiv__ __iadd__ __isub__ __imul__
    __itruediv__ lt gt le ge eq ne __lt__ __gt__ __le__ __ge__ __eq__ __ne__
    """
)
# Operations on lists of tensors that take such a list in place of one of numbers.
FOREACH_WITH_SCALAR_TENSORS = _names(
    """
    _foreach_add _foreach_mul _foreach_div _foreach_sub
    _foreach_add_ _foreach_mul_ _foreach_div_ _foreach_sub_
    """
)
# The in-place operators: `__iadd__` and so on.
IN_PLACE = _names("add and div floordiv lshift matmul mod mul or pow rshift sub truediv xor")
# Operations that take a value and give a tensor of fixed shape: done between segments.
HOST_SCALARS = frozenset(
    ["tensor", "as_tensor", "scalar_tensor", "asarray", "from_numpy", "new_tensor"]
)


def makes_tensor_of_numbers(func: Any, name: str, args: tuple[Any, ...]) -> bool:
    """Whether an operation makes a tensor of the numbers that it is given, as those of its data.

    Legacy constructors (`torch.LongTensor`) do of a list; numbers are sizes to them.
    """
    if name in HOST_SCALARS:
        return True
    legacy = isinstance(func, type) and (func is torch.Tensor or type(func) is _LEGACY)
    return legacy and bool(args) and type(args[0]) in (list, tuple)


_LEGACY = type(torch.LongTensor)


def accessor_of(func: Any) -> tuple[str, str] | None:
    """("get" | "set" | "del", name) when `func` is the accessor of a tensor property."""
    owner = getattr(func, "__self__", None)
    if owner is None or not isinstance(
        owner, (types.GetSetDescriptorType, property, types.MemberDescriptorType)
    ):
        return None
    kind = {"__get__": "get", "__set__": "set", "__delete__": "del", "__delattr__": "del"}.get(
        func.__name__
    )
    if kind is None:
        return None
    name = getattr(owner, "__name__", None)
    if name is None and isinstance(owner, property):
        name = getattr(owner.fget, "__name__", None)
    return (kind, name) if isinstance(name, str) else None


def _parameters(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# The arguments of operations that may write running statistics.
_FUNCTIONAL = "input running_mean running_var weight bias"
_BUILTIN = "input weight bias running_mean running_var"
STATISTICS_OF: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (F.batch_norm, _parameters(f"{_FUNCTIONAL} training")),
    (F.instance_norm, _parameters(f"{_FUNCTIONAL} use_input_stats")),
    (torch.batch_norm, _parameters(f"{_BUILTIN} training")),
    (torch.native_batch_norm, _parameters(f"{_BUILTIN} training")),
    (torch.instance_norm, _parameters(f"{_BUILTIN} use_input_stats")),
)


def operation_name(func: Any) -> str:
    """The name of an operation, without that of its overload (`torch.ops.aten.t_.default`)."""
    if type(func) is OpOverload:
        func = func.overloadpacket
    return getattr(func, "__name__", "")


def resizable(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Those of an operation's arguments to which it may give other sizes.

    What is given as `out` is resized. An operator of `torch.ops` writes what its schema says.
    """
    if type(func) is OpOverloadPacket:
        overloads: list[str] = func.overloads()  # type: ignore[no-untyped-call]
        func = getattr(func, overloads[0]) if len(overloads) == 1 else func
    if type(func) is OpOverload:
        names = [a.name for a in func._schema.arguments]
        given = dict(zip(names, args, strict=False)) | kwargs
        written = [a.name for a in func._schema.arguments if a.alias_info and a.alias_info.is_write]
        return [given[name] for name in written if name in given]
    return args[:1] if operation_name(func) in FORMS else (), kwargs.get("out")


def goes_by_data(func: Any) -> bool:
    """Whether torch's fake kernel for an operation asks for values of tensors.

    It puts conditions on sizes for the values that it takes there, before it finds that out.
    """
    return operation_name(func) in _RECURRENT


def would_write(func: Any, accessor: tuple[str, str] | None, kwargs: dict[str, Any]) -> bool:
    """Whether an operation that raised changes a tensor where it does not raise, by its name."""
    if accessor is not None:
        return accessor[0] != "get"
    name = getattr(func, "__name__", "")
    return (
        name in HOST_METHODS
        or name in ("__setitem__", "__delitem__")
        or (name.endswith("_") and not name.endswith("__"))
        or (name.startswith("__i") and name.endswith("__") and name[3:-2] in IN_PLACE)
        or kwargs.get("out") is not None
        or bool(kwargs.get("inplace"))
    )


def accessor_call(accessor: tuple[str, str], args: Any) -> tuple[Any, Any]:
    """The function and arguments that do what a property's accessor does."""
    kind, name = accessor
    if kind == "get":
        return getattr, (args[0], name)
    if kind == "set":
        return setattr, (args[0], name, args[1])
    return delattr, (args[0], name)


_NOTHING = contextlib.nullcontext()


def scalar_tensor(value: float, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A number as a tensor of no dimensions that operations may take and keep.

    No mode of the program hears of it.

    Args:
        value: the number.
        dtype: what it is rounded to; float64 or int64 if None.
    """
    own = torch.int64 if type(value) is int else torch.float64
    modes = apart() if torch._C._len_torch_dispatch_stack() else _NOTHING
    inference = torch.inference_mode(False) if torch.is_inference_mode_enabled() else _NOTHING
    with unheard(), modes, inference:
        if dtype is None or _holds(dtype, value):
            return torch.scalar_tensor(value, dtype=dtype or own, device="cpu")
        return torch.scalar_tensor(value, dtype=own, device="cpu").to(dtype)  # infinity


def _holds(dtype: torch.dtype, value: float) -> bool:
    """Whether a number is one of a dtype's when it is rounded; torch says so of no other."""
    return not math.isfinite(value) or abs(value) <= torch.finfo(dtype).max


def scalar_within(value: float, dtype: torch.dtype) -> Any:
    """As `scalar_tensor`; None for what the dtype does not hold, of which operations raise."""
    return scalar_tensor(value, dtype) if _holds(dtype, value) else None


def scalar_bound(value: float, dtype: torch.dtype) -> Any:
    """As `scalar_within`; None for zero: which zero `clamp` gives a zero differs with a tensor."""
    return scalar_within(value, dtype) if value else None


def addcdiv_(
    tensor: torch.Tensor, a: torch.Tensor, b: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """`tensor.addcdiv_(a, b, value=...)` with a tensor of no dimensions for the number.

    In the order of the kernel for CPUs (aten/src/ATen/native/cpu/PointwiseOpsKernel.cpp).
    """
    return tensor.add_(value * a / b)


def foreach_addcdiv_(
    tensors: list[torch.Tensor],
    a: list[torch.Tensor],
    b: list[torch.Tensor],
    values: list[torch.Tensor],
) -> None:
    """`torch._foreach_addcdiv_` with a tensor of no dimensions for each number.

    In the order of the kernels for CPUs, as `addcdiv_`, or of those for other devices
    (aten/src/ATen/native/cuda/ForeachFunctors.cuh).
    """
    if a[0].device.type == "cpu":
        changes = torch._foreach_div(torch._foreach_mul(a, values), b)
    else:
        changes = torch._foreach_mul(torch._foreach_div(a, b), values)
    torch._foreach_add_(tensors, changes)


def foreach_add_scaled_(
    tensors: list[torch.Tensor], others: list[torch.Tensor], alpha: torch.Tensor
) -> None:
    """`torch._foreach_add_(tensors, others, alpha=...)` with a tensor for the number.

    On a CPU rounded as that is (see `add_scaled`); kernels of other devices take no such tensor.
    """
    alphas = [alpha] * len(others)
    if tensors[0].device.type == "cpu":
        torch._foreach_addcmul_(tensors, others, alphas)
    else:
        torch._foreach_add_(tensors, torch._foreach_mul(others, alphas))


def add_scaled(a: torch.Tensor, b: torch.Tensor, alpha: torch.Tensor, sign: int) -> torch.Tensor:
    """`torch.add(a, b, alpha=...)` with a tensor of no dimensions for the number.

    Rounded once, as the kernel for CPUs does (aten/src/ATen/native/cpu/BinaryOpsKernel.cpp).

    Args:
        a: the first one.
        b: what is added.
        alpha: what that is multiplied by.
        sign: -1 to subtract it.
    """
    return torch.addcmul(a, b, alpha, value=sign)


def add_scaled_(a: torch.Tensor, b: torch.Tensor, alpha: torch.Tensor, sign: int) -> torch.Tensor:
    """As `add_scaled`, in place."""
    return a.addcmul_(b, alpha, value=sign)


def addcmul_scaled(
    tensor: torch.Tensor, a: torch.Tensor, b: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """`torch.addcmul(tensor, a, b, value=...)` with a tensor of no dimensions for the number.

    Rounded as the kernel for CPUs does (aten/src/ATen/native/cpu/PointwiseOpsKernel.cpp).
    """
    return torch.addcmul(tensor, a * value, b)


def addcmul_scaled_(
    tensor: torch.Tensor, a: torch.Tensor, b: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """As `addcmul_scaled`, in place."""
    return tensor.addcmul_(a * value, b)


def tensor_of_numbers(shape: tuple[int, ...], device: Any, *numbers: Any) -> torch.Tensor:
    """`torch.tensor` of integers, which makes a constant of each of them in a compiler's graph."""
    made = [torch.scalar_tensor(n, dtype=torch.int64, device=device) for n in numbers]
    return torch.stack(made).reshape(shape) if shape else made[0]


def sized(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A legacy constructor that is given a torch.Size, as the factory that it stands for.

    A graph keeps a torch.Size as a tuple, which the constructor would take for data.
    """
    if kwargs or not args or type(args[-1]) is not torch.Size:
        return func, args, kwargs
    if len(args) == 2 and func is torch.Tensor.new and args[0].layout is torch.strided:
        return torch.Tensor.new_empty, args, kwargs
    if len(args) == 1 and func is torch.Tensor:
        return torch.empty, args, {"dtype": torch.get_default_dtype()}
    if len(args) == 1 and type(func) is type(torch.FloatTensor) and not func.is_sparse:
        device = torch.device("cuda") if func.is_cuda else torch.device("cpu")
        return torch.empty, args, {"dtype": func.dtype, "device": device}
    return func, args, kwargs


def writes_first(func: Any) -> bool:
    """Whether an operation is a method of torch's that changes its tensor and nothing else."""
    if not isinstance(func, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return False
    name = func.__name__
    return issubclass(torch.Tensor, func.__objclass__) and (
        name == "__setitem__"
        or (name.startswith("__i") and name[3:-2] in IN_PLACE)
        or (name.endswith("_") and not name.endswith("__"))
    )


def resolves(func: Any) -> bool:
    """Whether the qualified name, which torch.fx prints, leads to this very function."""
    try:
        name = _get_qualified_name(func)
    except (RuntimeError, AttributeError):
        return False
    if not all(part.isidentifier() for part in name.split(".")):
        return False
    if not name.startswith("torch."):
        return True  # bound by object in the generated module
    found: Any = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    return found is func


def looked_up(func: Any) -> list[tuple[Any, str]]:
    """Where the code that torch.fx prints of an operation looks for it, each time it runs.

    Returns:
        Pairs of a module, or `torch.Tensor`, and a name; none of what is bound by object.
    """
    name = getattr(func, "__name__", "")
    if is_tensor_method(func):
        return [(torch.Tensor, name)]
    if not isinstance(func, (types.FunctionType, types.BuiltinFunctionType)) or not resolves(func):
        return []
    first, *parts = _get_qualified_name(func).split(".")
    found: list[tuple[Any, str]] = []
    owner: Any = torch
    for part in parts if first == "torch" else ():
        found.append((owner, part))
        owner = getattr(owner, part)
    return found


_METHODS = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


def is_tensor_method(func: Any) -> bool:
    """Whether tensors have it by its name."""
    return isinstance(func, _METHODS) and (_interp.type_lookup(torch.Tensor, func.__name__) is func)
