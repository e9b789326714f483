"""Graphs for sizes that vary, in the form that torch's compilers take them.

Owns the sizes as inputs of a graph.  Does not own the symbols (magpy/capture/symbols.py) nor the
compiling (magpy/runtime/entry.py, which calls this).

TorchDynamo gives a compiler every free symbol as an input of the graph beside the tensors whose
size it is, and passes of AOTAutograd and TorchInductor rely on it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import fx


def with_sizes(
    graph: fx.GraphModule, inputs: list[Any]
) -> tuple[fx.GraphModule, list[Any], list[tuple[int, int]]]:
    """A copy of a graph that takes the sizes of its inputs, too.

    Args:
        graph: the graph, whose inputs are tensors and integers.
        inputs: fake tensors and symbols for them.

    Returns:
        The copy, whose first inputs are sizes; its inputs; and for each size the input and the
        dimension that it is of.
    """
    known = {n.node.expr for n in inputs if isinstance(n, torch.SymInt)}
    sizes: list[Any] = []
    places: list[tuple[int, int]] = []
    for i, tensor in enumerate(inputs):
        shape: Any = tensor.shape if isinstance(tensor, torch.Tensor) else ()
        for dim, size in enumerate(shape):
            expr = size.node.expr if isinstance(size, torch.SymInt) else None
            if expr is not None and expr.is_Symbol and expr not in known:
                known.add(expr)
                sizes.append(size)
                places.append((i, dim))
    if not places:
        return graph, inputs, places
    changed = copy.deepcopy(graph.graph)
    with changed.inserting_before(next(iter(changed.nodes))):
        for k in range(len(places)):
            changed.placeholder(f"size{k}")
    module = fx.GraphModule(torch.nn.Module(), changed, class_name="Segment")
    return module, [*sizes, *inputs], places


def giving_sizes(compiled: Callable[..., Any], places: list[tuple[int, int]]) -> Callable[..., Any]:
    """What takes the inputs of the graph as it was and calls what was made of the copy."""
    if not places:
        return compiled

    def call(*inputs: Any) -> Any:
        return compiled(*[inputs[i].size(dim) for i, dim in places], *inputs)

    return call


__all__ = ["giving_sizes", "with_sizes"]
