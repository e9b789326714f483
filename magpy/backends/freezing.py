"""Parameters folded into a graph: `magpy.compile(f, options={"freezing": True})` in `no_grad`.

TorchInductor then lays weights out as its kernels like them and computes what follows from them
alone once and for all.  Here every call first compares the weights' version counters and addresses
with those of the time when they were folded; once one has changed, the graph with weights as inputs
serves.

Owns the folded graph and that check.  Does not see what no version counter tells: values changed
through `weight.data` or through numpy (docs/semantics.md).  Called by magpy/backends/inductor.py.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from magpy import _tensor


def fold(
    gm: Any, inputs: list[Any], fixed: int, compile_graph: Callable[[Any, list[Any]], Any]
) -> Callable[..., Any]:
    """A graph compiled with its first inputs as constants.

    Args:
        gm: the graph.
        inputs: its inputs, real tensors the first of them.
        fixed: how many inputs are the same tensors in every call.
        compile_graph: compiles a graph for inputs.
    """
    weights = inputs[:fixed]
    if any(_tensor.tensor_version(t) < 0 for t in weights):
        return _called(compile_graph(gm, inputs))  # inference tensors do not count their changes
    plain = copy.deepcopy(gm)
    seen = _state(weights)
    folded = compile_graph(_with_constants(gm, weights), inputs[fixed:])
    chosen: list[Callable[..., Any]] = []

    def call(*args: Any) -> Any:
        if not chosen:
            if _state(weights) == seen:
                return folded(*args[fixed:])
            chosen.append(compile_graph(plain, list(args)))
        return chosen[0](*args)

    return call


def _called(run: Any) -> Callable[..., Any]:
    return run  # type: ignore[no-any-return]


def _state(weights: list[torch.Tensor]) -> list[int]:
    return [
        *map(_tensor.tensor_version, weights),
        *map(torch.Tensor.data_ptr, weights),
    ]


def _with_constants(gm: Any, weights: list[torch.Tensor]) -> Any:
    gm = copy.deepcopy(gm)
    places = list(gm.graph.find_nodes(op="placeholder"))[: len(weights)]
    for i, (place, weight) in enumerate(zip(places, weights, strict=True)):
        name = f"weight{i}"
        if isinstance(weight, torch.nn.Parameter):
            gm.register_parameter(name, weight)
        else:
            gm.register_buffer(name, weight)
        with gm.graph.inserting_before(place):
            place.replace_all_uses_with(gm.graph.get_attr(name))
        gm.graph.erase_node(place)
    gm.meta.clear()
    gm.recompile()
    return gm
