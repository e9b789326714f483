"""Graphs for sizes that vary, in the form that torch's compilers take them.

Owns the sizes and strides as inputs of a graph.  Does not own the symbols
(magpy/shapes/symbols.py) nor the compiling (magpy/runtime/entry.py, which calls this).

TorchDynamo gives a compiler every free symbol as an input of the graph beside the tensors whose
size or stride it is, and passes of AOTAutograd and TorchInductor rely on it.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from magpy.shapes.conditions import Read

_NOTE = "_dynamo_propagated_dynamic_indices"


def with_sizes(
    graph: fx.GraphModule, inputs: list[Any]
) -> tuple[fx.GraphModule, list[Any], list[tuple[int, Read, int]]]:
    """A copy of a graph that takes the sizes of its inputs, too.

    Args:
        graph: the graph, whose inputs are tensors and integers.
        inputs: fake tensors and symbols for them.

    Returns:
        The copy, whose first inputs are sizes and strides; its inputs; and for each of them the
        input that it is of, how it is read, and the dimension.
    """
    known = {n.node.expr for n in inputs if isinstance(n, torch.SymInt)}
    sizes: list[Any] = []
    places: list[tuple[int, Read, int]] = []
    for i, tensor in enumerate(inputs):
        if not isinstance(tensor, torch.Tensor):
            continue
        for read in (torch.Tensor.size, torch.Tensor.stride):
            for dim in range(tensor.dim()):
                size: Any = read(tensor, dim)
                expr = size.node.expr if isinstance(size, torch.SymInt) else None
                if expr is not None and expr.is_Symbol and expr not in known:
                    known.add(expr)
                    sizes.append(size)
                    places.append((i, read, dim))
    if not places:
        return graph, inputs, places
    changed = copy.deepcopy(graph.graph)
    with changed.inserting_before(next(iter(changed.nodes))):
        for k in range(len(places)):
            changed.placeholder(f"size{k}")
    module = fx.GraphModule(torch.nn.Module(), changed, class_name="Segment")
    return module, [*sizes, *inputs], places


def lack_symbols(inputs: list[Any]) -> bool:
    """Whether an input is computed of sizes (`x.numel()`) that no input has.

    A compiler would write code that reads these sizes.
    """
    known: set[Any] = set()
    needed: set[Any] = set()
    for v in inputs:
        if isinstance(v, torch.Tensor):
            read = [n.node.expr for n in (*v.shape, *v.stride()) if isinstance(n, torch.SymInt)]
            known.update(e for e in read if e.is_Symbol)
            needed.update(s for e in read for s in e.free_symbols)
        elif isinstance(v, torch.SymInt):
            expr = v.node.expr
            (known if expr.is_Symbol else needed).update(expr.free_symbols)
    return not needed <= known


def of_sizes_alone(inputs: list[Any]) -> contextlib.AbstractContextManager[object]:
    """Where a graph that takes no tensor is compiled (positions, a mask): it makes its own ones.

    Compilers find the environment of the sizes by a tensor.
    """
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensor, FakeTensorMode

    numbers = [n for n in inputs if isinstance(n, torch.SymInt)]
    if not numbers or any(isinstance(t, FakeTensor) for t in inputs):
        return contextlib.nullcontext()
    return tracing(TracingContext(FakeTensorMode(shape_env=numbers[0].node.shape_env)))


def giving_sizes(
    compiled: Callable[..., Any], places: list[tuple[int, Read, int]]
) -> Callable[..., Any]:
    """What takes the inputs of the graph as it was and calls what was made of the copy."""
    if not places:
        return compiled

    def call(*inputs: Any) -> Any:
        outputs = compiled(*[read(inputs[i], dim) for i, read, dim in places], *inputs)
        for t in outputs if isinstance(outputs, (tuple, list)) else ():  # it is told of that
            # What AOTAutograd notes there for graphs that come after it, the program would see.
            if isinstance(t, torch.Tensor) and _NOTE in t.__dict__:
                del t.__dict__[_NOTE]
        return outputs

    return call


__all__ = ["giving_sizes", "lack_symbols", "of_sizes_alone", "with_sizes"]
