"""What graphs call for backward passes, what is done with the gradients, and with results.

Owns these functions.  Does not own which backward passes become operations of graphs
(magpy/replay/passes/trace_backward.py).
"""

from __future__ import annotations

import contextlib
import functools
import pkgutil
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy

from magpy import _tensor
from magpy.objects.buffers import is_dense

BACKWARD = "magpy_backward"
"""The mark (`meta["custom"]`) of a compiler's nodes that belong to a backward pass."""


def gradients(
    tensors: Sequence[torch.Tensor],
    leaves: Sequence[torch.Tensor],
    given: Sequence[torch.Tensor | None] | None,
    held: Sequence[torch.Tensor | None],
    retain_graph: bool,
    heard: Sequence[torch.Tensor] = (),
) -> tuple[torch.Tensor, ...]:
    """Makes a backward pass without a change of any `Tensor.grad`.

    Each new gradient has memory of its own, and lies in it as its leaf does, and is no view
    ("Gradient Layout Contract" in torch/csrc/autograd/functions/accumulate_grad.h).

    Args:
        tensors: what is differentiated.
        leaves: they require gradients.
        given: the gradients of the tensors; None for ones.
        held: for each leaf the gradient that it has, to which is added in place, or None.
        retain_graph: whether the graph may be differentiated again.
        heard: what was computed on the way, whose gradients hooks are given.

    Returns:
        The gradients of the leaves that have none, and those of what is heard of.

    Raises:
        RuntimeError: as `torch.Tensor.backward` does.
    """
    plain = all(type(t) in (torch.Tensor, torch.nn.Parameter) for t in (*tensors, *leaves))
    if (
        plain
        and not heard
        and not torch._C._len_torch_dispatch_stack()
        and all(
            of is not None and _tensor.gradient(leaf) is of
            for leaf, of in zip(leaves, held, strict=True)
        )
    ):
        # No more than one gradient is there at a time, beside those that are added to.
        if leaves:  # else the call made all of them, and looks at no gradient
            torch.autograd.backward(tensors, given, retain_graph=retain_graph, inputs=leaves)
        return ()
    found, more = _traced(tensors, leaves, given, held, retain_graph, heard)
    return *(g for g, of in zip(found, held, strict=True) if of is None), *more


def derivatives(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    grad_outputs: Sequence[torch.Tensor | None] | None,
    retain_graph: bool | None,
    create_graph: bool,
    allow_unused: bool,
    materialize_grads: bool,
) -> tuple[torch.Tensor | None, ...]:
    """`torch.autograd.grad` in a graph; a compiler's nodes of it are marked as a backward pass's.

    Raises:
        RuntimeError: as `torch.autograd.grad` does.
    """
    with _marked():
        return torch.autograd.grad(
            outputs,
            inputs,
            grad_outputs,
            retain_graph=retain_graph,
            create_graph=create_graph,
            allow_unused=allow_unused,
            materialize_grads=materialize_grads,
        )


def new_leaf(value: torch.Tensor) -> torch.Tensor:
    """A tensor that the call made, from where on it requires gradients (`requires_grad_()`)."""
    return value.detach().requires_grad_()


def give_gradient(leaf: torch.Tensor, gradient: torch.Tensor) -> None:
    """Gives a leaf that had no gradient when the call began the one that a pass has made.

    Another thread may have given it one by now, to which autograd would have added.
    """
    now = leaf.grad
    if now is None:
        leaf.grad = gradient  # no other thread runs between these lines: nothing is called
    else:
        with torch.no_grad():
            now.add_(gradient)


def _traced(
    tensors: Sequence[torch.Tensor],
    leaves: Sequence[torch.Tensor],
    given: Sequence[torch.Tensor | None] | None,
    held: Sequence[torch.Tensor | None],
    retain_graph: bool,
    heard: Sequence[torch.Tensor],
) -> tuple[list[Any], Sequence[torch.Tensor]]:
    """What a compiler can trace, without a change of any gradient that a leaf has."""
    ends = (*leaves, *heard)
    traced = torch._C._len_torch_dispatch_stack() > 0
    with _marked():
        found = torch.autograd.grad(
            tensors,
            ends,
            given,
            retain_graph=retain_graph,
            allow_unused=True,
            materialize_grads=True,
        )
    if not traced and not any(of is not None for of in held):
        results: list[Any] = _tensor.own_gradients(found, leaves, given)
        with torch.no_grad():
            for i, g in enumerate(results):
                if g is None:
                    results[i] = _copied(found[i], leaves[i])
        return results, found[len(leaves) :]
    results = []
    with torch.no_grad():
        owners = [id(_owner(g)) for g in found]
        times = Counter([*owners, *(id(_owner(g)) for g in given or () if g is not None)])
        for g, leaf, owner, of in zip(found, leaves, owners, held, strict=False):
            if of is not None:
                results.append(of.add_(g))
            elif times[owner] == 1 and _lies_as(g, leaf):
                results.append(g.detach())  # as AccumulateGrad does: the tensor is nobody else's
            else:
                results.append(_copied(g, leaf))
    return results, found[len(leaves) :]


def kept(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Does an operation whose result a backward pass takes as it is now.

    A compiler's backward pass may compute a result once more, of what the operation was given, and
    a copy may be taken for what it is a copy of.  Where that is written to before the pass
    (MoCo's queue), eager's gradients are those of the values that there were.

    Args:
        func: the operation, or its qualified name.
        args: what it is given, with `kwargs`.
        kwargs: see `args`.
    """
    if type(func) is str:
        func = _named(func)
    if not torch._C._len_torch_dispatch_stack():
        return func(*args, **kwargs)
    meta = torch.fx.traceback.current_meta  # of the nodes that are made
    before = meta.get(_RECOMPUTE)
    meta[_RECOMPUTE] = CheckpointPolicy.MUST_SAVE
    try:
        return func(*args, **kwargs)
    finally:
        meta[_RECOMPUTE] = before


_RECOMPUTE = "recompute"
_named = functools.cache(pkgutil.resolve_name)


def is_kept(node: Any) -> bool:
    """Whether the result of a compiler's node is taken as it is: `kept` has made it."""
    return node.meta.get(_RECOMPUTE) is CheckpointPolicy.MUST_SAVE


def _marked() -> contextlib.AbstractContextManager[Any]:
    """Marks the nodes that are made in the block, if somebody looks at operations."""
    traced = torch._C._len_torch_dispatch_stack() > 0
    return torch.fx.traceback.annotate({BACKWARD: True}) if traced else contextlib.nullcontext()


def _owner(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor whose memory it is."""
    base = tensor._base
    return tensor if base is None else base


def _lies_as(gradient: torch.Tensor, leaf: torch.Tensor) -> bool:
    if leaf.numel() < 2:
        return False  # a stride of 0 is that of a view, and fake tensors do not tell those here
    if leaf.is_contiguous() or not is_dense(leaf):
        return gradient.is_contiguous()
    return all(
        n == 1 or a == b
        for n, a, b in zip(leaf.shape, gradient.stride(), leaf.stride(), strict=True)
    )


def _copied(gradient: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    # A dimension of size 1 may have any stride, which the copy has as well.
    in_order = leaf.is_contiguous() and not any(type(n) is int and n == 1 for n in leaf.shape)
    if in_order or not is_dense(leaf):
        return gradient.clone(memory_format=torch.contiguous_format)
    return gradient.new_empty_strided(leaf.shape, leaf.stride()).copy_(gradient)


class _Differentiated(torch.autograd.Function):
    """The end of a graph that is not there any more."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, anchor: torch.Tensor) -> torch.Tensor:
        """The value, as a result of the graph."""
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Autograd's own error."""
        raise RuntimeError(
            "Trying to backward through the graph a second time (or directly access saved tensors "
            "after they have already been freed). Saved intermediate values of the graph are freed "
            "when you call .backward() or autograd.grad(). Specify retain_graph=True if you need "
            "to backward through the graph a second time or if you need to access saved tensors "
            "after calling backward."
        )


_ANCHOR = torch.zeros((), requires_grad=True)


def differentiated(value: torch.Tensor) -> torch.Tensor:
    """A tensor of these values that requires gradients, and whose graph was freed by a pass."""
    return _Differentiated.apply(value, _ANCHOR)  # type: ignore[no-any-return, no-untyped-call]


PASSES = (gradients, derivatives)
"""What makes a pass of autograd's engine."""

__all__ = [
    "PASSES",
    "derivatives",
    "differentiated",
    "give_gradient",
    "gradients",
    "is_kept",
    "kept",
    "new_leaf",
]
