"""Compiled graphs that serve other entries, too: one compilation for graphs that are alike.

Owns what it means that two graphs are alike: the same operations on the same kinds of inputs under
the same settings of torch.  Does not own compiling (magpy/backends/runner.py, which calls this).

A second capture often has the graph of the first: of another instance of a module, of another
string or number that no operation takes.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from magpy import _tensor
from magpy.ir.torch_modes import current_modes
from magpy.objects.types import isinstance

_PLAIN = (int, float, complex, bool, str, type(None), torch.dtype, torch.device, torch.layout)


class Compiled:
    """What a backend made of a graph, for inputs and settings that are alike.

    Args:
        order: the places of the graph's inputs in the order in which its operations take them.
        inputs: what it was compiled for.
    """

    def __init__(self, order: list[int], inputs: Sequence[Any]) -> None:
        """Notes the inputs and torch's state."""
        self.order = order
        self.metas = [_meta(inputs[i]) for i in order]
        self.state, self.modes = _tensor.TorchState(), current_modes()
        self.call: Callable[..., Any] | None = None

    def fits(self, order: list[int], inputs: Sequence[Any]) -> bool:
        """Whether it serves a graph with these inputs, now."""
        return (
            self.state.matches()
            and self.modes == current_modes()
            and len(order) == len(self.order)
            and all(map(_like, self.metas, (inputs[i] for i in order)))
        )

    def called_with(self, order: list[int]) -> Callable[..., Any]:
        """What it is for a graph whose inputs come in another order."""
        assert self.call is not None
        if order == self.order:
            return self.call
        places = [0] * len(order)
        for own, other in zip(self.order, order, strict=True):
            places[own] = other
        compiled = self.call

        def call(*inputs: Any) -> Any:
            return compiled(*[inputs[i] for i in places])

        return call


def _meta(v: Any) -> Any:
    return (_tensor.TensorMeta(v), v.is_leaf) if isinstance(v, torch.Tensor) else v


def _like(meta: Any, v: Any) -> bool:
    if isinstance(v, torch.Tensor):
        return type(meta) is tuple and meta[1] == v.is_leaf and bool(meta[0].matches(v))
    return type(v) is type(meta) and bool(v == meta)


class _Other(Exception):
    """Something in a graph has no form that could be compared."""


_made: dict[Any, weakref.WeakSet[Compiled]] = {}


def forms(graph: Any, apart: Any) -> tuple[Any, list[int]] | None:
    """What tells a graph from others, and its inputs in the order of their use.

    Args:
        graph: a `torch.fx.GraphModule`.
        apart: what else tells it from others.

    Returns:
        None if it cannot be compared: it holds something that is not a plain value.
    """
    places = {n: i for i, n in enumerate(graph.graph.find_nodes(op="placeholder"))}
    order: list[int] = []
    known: dict[Any, int] = {}

    def form(v: Any) -> Any:
        if isinstance(v, torch.fx.Node):
            if v not in known:
                order.append(places[v])
                known[v] = len(known)
            return "node", known[v]
        if type(v) in _PLAIN:
            return type(v), repr(v)
        if type(v) in (tuple, list, torch.Size):
            return type(v), *map(form, v)
        if type(v) is slice:
            return slice, form(v.start), form(v.stop), form(v.step)
        if isinstance(v, dict):
            return dict, *((k, form(x)) for k, x in v.items())
        raise _Other

    found: list[Any] = []
    try:
        for n in graph.graph.nodes:
            if n.op == "placeholder":
                continue
            if n.op not in ("call_function", "call_method", "output") or _is_users(n.target):
                return None
            found.append((n.target, form(n.args), form(n.kwargs)))
            known[n] = len(known)
    except (_Other, KeyError):
        return None
    order += [i for i in places.values() if i not in order]
    key = (tuple(found), len(places), apart)
    try:
        hash(key)
    except TypeError:
        return None
    return key, order


def _is_users(target: Any) -> bool:
    """Whether a graph calls Python of the program: a compiler looks into it, and at globals."""
    if not isinstance(target, types.FunctionType):
        return False
    return str(target.__module__).partition(".")[0] not in ("torch", "magpy")


def find(key: Any, order: list[int], inputs: Sequence[Any]) -> Compiled | None:
    """What was compiled for a graph like this."""
    return next((c for c in _made.get(key, ()) if c.call and c.fits(order, inputs)), None)


def keep(key: Any, compiled: Compiled) -> None:
    """Lets it serve others, as long as anybody keeps it."""
    if not _made.get(key):
        for other in [k for k, v in _made.items() if not v]:
            del _made[other]
    _made.setdefault(key, weakref.WeakSet()).add(compiled)


def forget() -> None:
    """Begins anew: what was compiled serves its own entries alone."""
    _made.clear()


__all__ = ["Compiled", "find", "forget", "forms", "keep"]
