"""What graphs call to run autograd's engine, and what results are that were differentiated.

Owns these two functions; both may be traced by a compiler.  Does not own which backward passes
become operations of graphs (magpy/replay/passes/trace_backward.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch


def gradients(
    tensors: Sequence[torch.Tensor],
    leaves: Sequence[torch.Tensor],
    given: Sequence[torch.Tensor | None] | None,
    retain_graph: bool,
) -> tuple[torch.Tensor, ...]:
    """What a backward pass gives leaves that have no gradient so far.

    Each gradient has memory of its own, and lies in it as its leaf does, and is no view
    ("Gradient Layout Contract" in torch/csrc/autograd/functions/accumulate_grad.h).

    Args:
        tensors: what is differentiated.
        leaves: they require gradients.
        given: the gradients of the tensors; None for ones.
        retain_graph: whether the graph may be differentiated again.

    Raises:
        RuntimeError: as `torch.Tensor.backward` does.
    """
    found = torch.autograd.grad(
        tensors, leaves, given, retain_graph=retain_graph, allow_unused=True, materialize_grads=True
    )
    with torch.no_grad():
        owners = [id(_owner(g)) for g in found]
        times = Counter(owners)
        times.update(id(_owner(g)) for g in given or () if g is not None)
        return tuple(
            g.detach() if times[owner] == 1 and _lies_as(g, leaf) else _copied(g, leaf)
            for g, leaf, owner in zip(found, leaves, owners, strict=True)
        )


def _owner(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor whose memory it is."""
    base = tensor._base
    return tensor if base is None else base


def _lies_as(gradient: torch.Tensor, leaf: torch.Tensor) -> bool:
    if leaf.is_contiguous() or not _is_dense(leaf):
        return gradient.is_contiguous()
    return all(
        n == 1 or a == b
        for n, a, b in zip(leaf.shape, gradient.stride(), leaf.stride(), strict=True)
    )


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor fills the memory that it spans, each element once."""
    size = 1
    for stride, n in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if n > 1 and stride != size:
            return False
        size *= n
    return True


def _copied(gradient: torch.Tensor, leaf: torch.Tensor) -> torch.Tensor:
    if leaf.is_contiguous() or not _is_dense(leaf):
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


__all__ = ["differentiated", "gradients"]
