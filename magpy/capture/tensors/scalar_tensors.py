"""Gives operations tensors in place of numbers that differ from call to call.

A compiler's graph takes no `float` as an input, and one that Python does between two graphs costs
both of them fusion.  Owns which operations compute the same with a tensor of no dimensions, what
stands for them in a graph then, and what makes a tensor of integers in a graph.  Does not own the
tensors that are made of other numbers.  Called by magpy/capture/tensors/recorder.py.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

import torch

from magpy.capture.tensors.operation import Operation
from magpy.ir.ops import Ref, Var
from magpy.ir.trees import variables
from magpy.models.torch_ops import (
    FOREACH_WITH_SCALAR_TENSORS,
    MAY_DIVIDE_BY_ZERO,
    WITH_SCALAR_TENSOR,
    add_scaled,
    add_scaled_,
    addcdiv_,
    addcmul_scaled,
    addcmul_scaled_,
    foreach_add_scaled_,
    foreach_addcdiv_,
    scalar_bound,
    scalar_within,
    tensor_of_numbers,
)
from magpy.objects.types import isinstance
from magpy.shapes.repeated import in_transform

Made = Callable[..., Var]
"""Gives the variable of the tensor that is made of a number, given its own, it and a dtype.

What makes it may be told: `scalar_within` and `scalar_bound` leave some numbers to other calls.
"""


def take(
    op: Operation,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    made: Made,
    followed: Container[Var],
) -> None:
    """Changes what the step of an operation will be, if it computes the same.

    Args:
        op: the operation, prepared.
        args: what the program gives it.
        kwargs: what the program gives it by name.
        made: makes tensors of numbers.
        followed: the integers that graphs take as symbols.
    """
    if op.name in WITH_SCALAR_TENSOR and not kwargs:
        op.args = _operand(op, args, made, followed)
    elif op.name in _SUMS and len(args) == 2 and kwargs.keys() == {"alpha"}:
        _sum(op, args, kwargs["alpha"], made)
    elif op.name in _SCALED and len(args) == 3 and kwargs.keys() == {"value"}:
        _scaled(op, args, kwargs["value"], made)
    elif op.name in ("lerp", "lerp_") and len(args) == 3 and not kwargs:
        _interpolated(op, args, made)
    elif op.name in _BOUNDED:
        _clamped(op, args, kwargs, made)
    elif op.name == "_foreach_addcdiv_" and len(args) == 4 and not kwargs:
        if _each(op, args, made):
            op.instead = foreach_addcdiv_
    elif op.name in FOREACH_WITH_SCALAR_TENSORS and len(args) == 2:
        if not kwargs:
            _each(op, args, made)
        elif op.name == "_foreach_add_" and kwargs.keys() == {"alpha"}:
            _scaled_each(op, args, kwargs["alpha"], made)


def make(op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], symbols: Any) -> None:
    """Has a graph make a tensor of integers, some of which differ from call to call.

    Args:
        op: `torch.tensor` or what is like it, prepared.
        args: what the program gives it.
        kwargs: what the program gives it by name.
        symbols: those that a graph computes with, by variable.
    """
    if op.name not in ("tensor", "as_tensor") or len(args) != 1 or kwargs.keys() - _FORM:
        return
    numbers: list[Any] = []
    shape = _flat(args[0], op.args[0], numbers)
    if shape is None or len(numbers) > _MOST or kwargs.get("dtype") not in (None, torch.int64):
        return
    refs = [n for n in numbers if isinstance(n, Ref)]
    if refs and all(r.var in symbols for r in refs):
        device = kwargs.get("device")
        device = torch.get_default_device() if device is None else device
        op.instead, op.args, op.kwargs = tensor_of_numbers, (shape, device, *numbers), {}


# What stands for sums, and the sign of what is added.
_SUMS = {
    "add": (add_scaled, 1),
    "sub": (add_scaled, -1),
    "add_": (add_scaled_, 1),
    "sub_": (add_scaled_, -1),
}
# What stands for products that are added.
_SCALED = {"addcdiv_": addcdiv_, "addcmul_": addcmul_scaled_, "addcmul": addcmul_scaled}
# What clamps, and what it calls its bounds.
_BOUNDED = {
    "clamp": ("min", "max"),
    "clip": ("min", "max"),
    "clamp_": ("min", "max"),
    "clip_": ("min", "max"),
    "clamp_min": ("min",),
    "clamp_max": ("max",),
    "clamp_min_": ("min",),
    "clamp_max_": ("max",),
}
# Since 2.14 an element that equals a bound gets no gradient where that is a number, and half of it
# where it is a tensor.
_BOUNDS_PASS_ALIKE = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14)
#: What else `make` knows of a tensor that is made.
_FORM = {"dtype", "device"}
#: Integers beyond this are no elements of tensors, or soon will be none.
_LARGE = 2**62
#: How many integers a graph makes a tensor of: of more Python makes it.
_MOST = 16


def _flat(value: Any, plan: Any, found: list[Any]) -> tuple[int, ...] | None:
    """The sizes of nested lists of integers, which are added to `found` as a step keeps them."""
    if type(value) is int:
        found.append(plan)
        return ()
    if type(value) not in (list, tuple) or type(plan) not in (list, tuple):
        return None
    sizes = {_flat(v, p, found) for v, p in zip(value, plan, strict=True)}
    size = sizes.pop() if len(sizes) == 1 else None
    return None if size is None else (len(value), *size)


def _operand(
    op: Operation, args: tuple[Any, ...], made: Made, followed: Container[Var]
) -> tuple[Any, ...]:
    """The arguments of an operation with a tensor in place of a number that differs."""
    plan: tuple[Any, ...] = op.args
    of_integers = op.name not in MAY_DIVIDE_BY_ZERO
    if len(args) != 2:
        return plan
    for i, (v, ref) in enumerate(zip(args, plan, strict=True)):
        integer = type(v) is int and isinstance(ref, Ref) and ref.var not in followed
        other = args[1 - i]
        if (_differs(v, ref) and _takes(other)) or (
            integer
            and abs(v) < _LARGE
            and (_takes(other) or (of_integers and _takes_integer(other)))
        ):
            new = Ref(made(ref.var, v))
        elif (_differs(v, ref) or (integer and abs(v) < _LARGE)) and _rounds(other):
            new = Ref(made(ref.var, v, other.dtype))
        else:
            continue
        return (new, plan[1]) if i == 0 else (plan[0], new)
    return plan


def _sum(op: Operation, args: tuple[Any, ...], alpha: Any, made: Made) -> None:
    """Does so for a sum of which one part is scaled: a step of gradient descent."""
    ref = op.kwargs["alpha"]
    if _differs(alpha, ref) and _are_alike(args):
        op.instead, sign = _SUMS[op.name]
        if op.name.endswith("_"):
            op.by_whole = frozenset([op.args[0].var])
        number = Ref(made(ref.var, alpha, args[0].dtype, make=scalar_within))
        op.args, op.kwargs = (*op.args, number, sign), {}


def _interpolated(op: Operation, args: tuple[Any, ...], made: Made) -> None:
    """Does so for `lerp`: an average that moves."""
    *tensors, weight = args
    ref = op.args[2]
    if _differs(weight, ref) and _are_alike(tensors):
        op.args = (*op.args[:2], Ref(made(ref.var, weight, tensors[0].dtype, make=scalar_within)))


def _clamped(op: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], made: Made) -> None:
    """Does so for the bounds of a tensor's values: a ratio that is clipped ever closer."""
    names = _BOUNDED[op.name]
    tensor, given = args[0], dict(zip(names, args[1:], strict=False)) | kwargs
    refs = dict(zip(names, op.args[1:], strict=False)) | op.kwargs
    if len(args) > 1 + len(names) or not given.keys() <= set(names):
        return
    numbers = [v for v in given.values() if v is not None]
    if not numbers or not (
        all(_differs(given[n], refs[n]) and given[n] for n in given if given[n] is not None)
        and (_takes(tensor) or _rounds(tensor))
        and tensor.dtype in (torch.float32, torch.float64)
        and not in_transform()
        and (_BOUNDS_PASS_ALIKE or not _is_differentiated([tensor]))
    ):
        return
    bounds = [
        Ref(made(refs[n].var, given[n], tensor.dtype, make=scalar_bound))
        if given.get(n) is not None
        else None
        for n in ("min", "max")
    ]
    op.instead = torch.Tensor.clamp
    if op.name.endswith("_"):
        op.instead, op.by_whole = torch.Tensor.clamp_, frozenset([op.args[0].var])
    op.args, op.kwargs = (op.args[0], *bounds), {}


def _are_alike(tensors: Sequence[Any]) -> bool:
    """Whether a kernel rounds what it computes with a number as with a tensor in its place.

    It does where nothing is broadcast; what autograd computes then it would compute otherwise.
    """
    return (
        all(map(_takes, tensors))
        and len({(t.dtype, t.device, t.shape) for t in tensors}) == 1
        and tensors[0].dtype in (torch.float32, torch.float64)
        and not _is_differentiated(tensors)
    )


def _is_differentiated(tensors: Sequence[Any]) -> bool:
    """Whether derivatives are computed of what an operation does with these tensors."""
    return in_transform() or (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))


def _scaled(op: Operation, args: tuple[Any, ...], value: Any, made: Made) -> None:
    """Does so for `addcdiv_`, with which optimizers take their step, and what is like it."""
    ref = op.kwargs["value"]
    if not _differs(value, ref) or _is_differentiated(args):
        return
    if _are_alike(args):
        number = made(ref.var, value, args[0].dtype, make=scalar_within)
    elif (
        op.name == "addcdiv_"
        and all(map(_takes, args))
        and len({(t.dtype, t.layout, t.device, t.shape) for t in args}) == 1
    ):
        number = made(ref.var, value)
    else:
        return
    op.args, op.kwargs = (*op.args, Ref(number)), {}
    op.instead = _SCALED[op.name]
    if op.name.endswith("_"):
        op.by_whole = frozenset([op.args[0].var])


def _each(op: Operation, args: tuple[Any, ...], made: Made) -> bool:
    """Does so for the last argument of an operation on lists: a number for each tensor, or one."""
    *lists, values = args
    *plans, refs = op.args
    if not _are_lists(lists, plans):
        return False
    if type(values) in (list, tuple) and type(refs) in (list, tuple):
        if not all(map(_differs, values, refs)) or len(values) != len(lists[0]):
            return False
        given: Any = [Ref(made(ref.var, v)) for v, ref in zip(values, refs, strict=True)]
    elif _differs(values, refs) and lists[0]:
        # For one tensor that stands for all of them torch has no `_foreach_sub_`, and fails to
        # trace `_foreach_add_`.
        given = [Ref(made(refs.var, values))] * len(lists[0])
    else:
        return False
    op.args = (*plans, given)
    if op.name.endswith("_"):
        op.by_whole = _written(plans)
    return True


def _scaled_each(op: Operation, args: tuple[Any, ...], value: Any, made: Made) -> None:
    """Does so for the factor of a sum of lists."""
    ref = op.kwargs["alpha"]
    if _differs(value, ref) and _are_lists(args, op.args):
        op.args, op.kwargs = (*op.args, Ref(made(ref.var, value))), {}
        op.instead, op.by_whole = foreach_add_scaled_, _written(op.args)


def _differs(value: Any, ref: Any) -> bool:
    """Whether an argument is a number that may be another one in another call."""
    return type(value) is float and isinstance(ref, Ref)


def _takes(t: Any) -> bool:
    """Whether a tensor and one of no dimensions give another like the first one."""
    return (
        type(t) in (torch.Tensor, torch.nn.Parameter)
        and t.is_floating_point()
        and t.layout is torch.strided
        and t.dim() > 0
    )


def _rounds(t: Any) -> bool:
    """Whether a tensor of no dimensions (a loss) has an operation round a number to its dtype.

    In half precision kernels compute with the number itself. Unlike a number, another tensor of no
    dimensions would decide the dtype of the result: it has to have the same.
    """
    return (
        type(t) in (torch.Tensor, torch.nn.Parameter)
        and t.dtype in (torch.float32, torch.float64)
        and t.layout is torch.strided
        and t.dim() == 0
        and not in_transform()  # whose tangents have another dtype
    )


def _takes_integer(t: Any) -> bool:
    """Likewise for one of no dimensions of integers."""
    return type(t) is torch.Tensor and t.dtype is torch.int64 and t.dim() > 0


def _are_lists(lists: Sequence[Any], plans: Sequence[Any]) -> bool:
    """Whether these are lists of as many tensors, each like those at its place in the others."""
    return (
        all(type(a) in (list, tuple) for a in (*lists, *plans))
        and len({len(a) for a in lists}) == 1
        and all(_takes(t) for a in lists for t in a)
        and all(
            len({(t.dtype, t.device, t.shape) for t in same}) == 1
            for same in zip(*lists, strict=True)
        )
    )


def _written(plans: Sequence[Any]) -> frozenset[Var]:
    """What an operation on lists writes to: its first list."""
    return frozenset(variables(plans[0]))


__all__ = ["Made", "make", "take"]
