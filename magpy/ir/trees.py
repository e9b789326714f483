"""Argument trees: what operations and steps are given, in tuples, lists, dicts and slices.

Owns walking through them and making them anew.  Does not own how the recorder converts the
program's arguments to those of a step (magpy/capture/tensors/recorder.py).  Called by whatever
looks at steps or at the arguments of operations.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from magpy import _interp
from magpy.ir.ops import Fresh, HostStep, OpStep, OutsideRef, Ref, Var
from magpy.objects.types import is_named_tuple, isinstance


class Sizes(tuple[Any, ...]):
    """A torch.Size in the arguments of a host step, whose elements may be variables."""

    __slots__ = ()


# Arguments may hold themselves.  A C function returns tensors themselves or in a small structure of
# its own, never deeper.
_DEPTH = 4


def leaves(v: Any, depth: int = -1, closed: Callable[[Any], bool] | None = None) -> Iterator[Any]:
    """What an argument tree holds, in order, down to a depth if one is given.

    Args:
        v: the tree.
        depth: how far to go.
        closed: says of which containers it is not looked at what they hold.
    """
    inner: Iterable[Any]
    if closed is not None and isinstance(v, (list, dict)) and closed(v):
        return
    if isinstance(v, (tuple, list)):
        inner = v
    elif isinstance(v, dict):
        inner = v.values()
    elif isinstance(v, slice):
        inner = v.start, v.stop, v.step
    else:
        yield v
        return
    if depth:
        for x in inner:
            yield from leaves(x, depth - 1, closed)


def tensors(v: Any, closed: Callable[[Any], bool] | None = None) -> list[Any]:
    """The tensors in arguments or in what a function returned, in order; `closed` as of leaves."""
    return [x for x in leaves(v, _DEPTH, closed) if isinstance(x, torch.Tensor)]


def collect(v: Any, out: set[Var]) -> None:
    """Adds the variables in an argument tree to a set."""
    _interp.collect(v, out, Ref)  # each step of a capture is looked at in this way several times


def variables(v: Any) -> set[Var]:
    """The variables in an argument tree."""
    found: set[Var] = set()
    _interp.collect(v, found, Ref)
    return found


def has_ref(v: Any) -> bool:
    """Whether an argument tree refers to anything outside or to a variable."""
    return any(isinstance(x, (Ref, OutsideRef, Fresh)) for x in leaves(v))


def has_function(v: Any) -> bool:
    """Whether a Python function or a bound method is in an argument tree."""
    return any(isinstance(x, (types.FunctionType, types.MethodType)) for x in leaves(v))


def rebuilt(v: Any, change: Callable[[Any], Any]) -> Any:
    """An argument tree with other leaves.

    A torch.Size becomes a tuple, which operations take as well.
    """
    t = type(v)
    if t is tuple or t is torch.Size or t is Sizes:
        return tuple([rebuilt(x, change) for x in v])
    if t is list:
        return [rebuilt(x, change) for x in v]
    if t is dict:
        return {k: rebuilt(x, change) for k, x in v.items()}
    if t is slice:
        return slice(*[rebuilt(x, change) for x in (v.start, v.stop, v.step)])
    if is_named_tuple(t):
        return t(*[rebuilt(x, change) for x in v])
    return change(v)


def generators_of(step: OpStep | HostStep, known: Mapping[Var, Any] | None = None) -> Iterator[Any]:
    """The generators of random numbers from outside that a step draws from.

    Args:
        step: the step.
        known: which of them are variables.
    """
    if isinstance(step, HostStep) and step.owner is not None:
        yield step.owner
    if step.random:
        for v in leaves((step.args, step.kwargs)):
            given = v.obj if isinstance(v, OutsideRef) else v
            if isinstance(v, Ref) and known is not None:
                given = known.get(v.var)
            if isinstance(given, torch.Generator):
                yield given


__all__ = [
    "Sizes",
    "collect",
    "generators_of",
    "has_function",
    "has_ref",
    "leaves",
    "rebuilt",
    "tensors",
    "variables",
]
