"""What a pass of autograd's engine reaches, which its arguments do not tell.

Owns the walk through autograd's graph to the leaves whose gradients a pass adds to and to the
Python functions that run in it.  Does not own what these can reach (magpy/unwatched/changes.py),
nor what follows of it for a step (magpy/capture/tensors/recorder.py).  Called by
magpy/capture/tensors/engine.py.

Source: https://docs.pytorch.org/docs/stable/notes/autograd.html#how-autograd-encodes-the-history
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.nn.modules._functions import BackwardHookFunction
from torch.utils.checkpoint import CheckpointFunction

from magpy import _tensor
from magpy.ir.trees import tensors
from magpy.objects import contents as held
from magpy.objects.types import isinstance, module_name
from magpy.unwatched.changes import names_in

# What adds to the gradients of leaves.
ADDS = (torch.Tensor.backward, torch.autograd.backward)
# What runs the engine.
RUNS = (*ADDS, torch.autograd.grad)

# Functions of torch's that run Python of the program.
_CALL_BACK = (BackwardHookFunction, CheckpointFunction)

# Where in the arguments it is said whether a graph of the pass itself is made.
_CREATE_GRAPH = {torch.Tensor.backward: 3, torch.autograd.backward: 3, torch.autograd.grad: 4}


def keeps_graph(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call runs the engine in such a way that what it gives can be differentiated."""
    if func not in _CREATE_GRAPH:
        return False
    place = _CREATE_GRAPH[func]
    return bool(kwargs.get("create_graph") or (len(args) > place and args[place]))


def frees_all(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call runs the engine so that nothing it comes through is differentiated again."""
    kept = ("retain_graph", "create_graph", "grad_variables", "inputs")
    return func in ADDS and not any(args[2:]) and not any(kwargs.get(k) for k in kept)


def gradients_of(func: Any, accessor: Any, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """The tensors whose gradients, each of its sizes, a call gives in their order; else none."""
    if accessor == ("get", "grad"):
        return (args[0],)
    if func is not torch.autograd.grad or kwargs.get("is_grads_batched") or len(args) > 6:
        return ()
    of = args[1] if len(args) > 1 else kwargs["inputs"]
    return tuple(of) if isinstance(of, (tuple, list)) else (of,)


@dataclass(frozen=True, slots=True)
class Reach:
    """What a pass reaches.

    Attributes:
        leaves: the tensors whose gradients it may add to.
        nodes: of autograd's graph.
        functions: the Python functions that run in it: hooks, and those of a
            `torch.autograd.Function`.
    """

    leaves: list[torch.Tensor]
    nodes: set[Any]
    functions: list[Any]


def memory_of(tensor: Any) -> int:
    """Which memory a tensor has now; 0 if that is not one."""
    try:
        return int(_tensor.storage_id(tensor))
    except (RuntimeError, NotImplementedError, TypeError):
        return 0


def reach(roots: Any, watched: Callable[[Any], bool] | None = None) -> Reach:
    """What a pass from the tensors among some arguments reaches.

    Args:
        roots: the arguments.
        watched: says of a node that the Python which runs there is watched.
    """
    todo: list[Any] = []
    found: dict[int, torch.Tensor] = {}
    functions: list[Any] = []
    for t in tensors(roots):
        made_by = made_by_of(t)
        if made_by is not None:
            todo.append(made_by)
        elif t.requires_grad:
            found[id(t)] = t
    seen: dict[Any, None] = dict.fromkeys(todo)  # in order: guards compare what is found
    while todo:
        node = todo.pop()
        if isinstance(node, BackwardCFunction) and not (watched is not None and watched(node)):
            cls = type(node)._forward_cls  # type: ignore[attr-defined]
            functions += [cls if cls in _CALL_BACK else cls.backward, cls.vjp]
        leaf = getattr(node, "variable", None)  # of an AccumulateGrad
        if isinstance(leaf, torch.Tensor) and not node.next_functions:
            found[id(leaf)] = leaf
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen[following] = None
                todo.append(following)
    for node in seen:
        if node.next_functions and not (watched is not None and watched(node)):
            functions += _tensor.node_hooks(node)
    for t in found.values():
        functions += _hooks_of(t)
    return Reach(list(found.values()), set(seen), functions)


def made_by_of(tensor: torch.Tensor) -> Any:
    """The node that made a tensor; None for one that autograd forbids to look at: a pass raises."""
    try:
        return tensor.grad_fn
    except RuntimeError:
        return None


def functions_at(tensor: Any) -> tuple[Any, ...]:
    """The Python functions that run where a pass of the engine comes to a tensor, and beyond it."""
    if not isinstance(tensor, torch.Tensor):
        return ()
    if made_by_of(tensor) is not None:
        return tuple(reach((tensor,)).functions)
    return tuple(_hooks_of(tensor))


def _hooks_of(leaf: torch.Tensor) -> list[Any]:
    """The hooks of a leaf, and of the node that adds to its gradient, once each."""
    dicts = (leaf._backward_hooks, leaf._post_accumulate_grad_hooks)
    found = [h for hooks in dicts if hooks for h in hooks.values()]
    # While there is such a node, it has those of the leaf, too.
    own = set(map(id, found))
    return found + [h for h in _tensor.node_hooks(leaf) if id(h) not in own]


_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def looks_around(cls: Any) -> bool:
    """Whether the backward pass of a `torch.autograd.Function` looks at more than it is given.

    That may be another then: a number in a global, an attribute of a class, an object in a closure,
    which it may change, too.
    """
    todo: list[Any] = [cls.backward, cls.vjp, cls.jvp]
    seen: set[int] = set()
    while todo:
        v = todo.pop()
        if id(v) in seen:
            continue
        seen.add(id(v))
        if isinstance(v, (types.FunctionType, types.ModuleType, types.BuiltinFunctionType)):
            if isinstance(v, types.FunctionType):
                todo += _named(v)
        elif not (isinstance(v, type) and (_foreign(v) or issubclass(v, torch.autograd.Function))):
            return True
    return False


def _named(function: types.FunctionType) -> list[Any]:
    """What a function names or encloses; of modules and classes, what it may name in them."""
    held = [c.cell_contents for c in function.__closure__ or () if c != types.CellType()]
    if _foreign(function):
        # A decorator's constants stay what they are.
        return [v for v in held if not isinstance(v, _PLAIN)]
    names = set(names_in(function.__code__))
    held += [function.__globals__[n] for n in names if n in function.__globals__]
    inner: list[Any] = []
    for v in held:
        if isinstance(v, (type, types.ModuleType)) and not _foreign(v):
            for place in v.__mro__ if isinstance(v, type) else (v,):
                space = vars(place)
                inner += [space[n] for n in names if n in space and not _foreign(place)]
    return held + [v.__func__ if isinstance(v, staticmethod) else v for v in inner]


def _foreign(v: Any) -> bool:
    """Whether something is torch's or Python's own, and looks at nothing of the program."""
    if isinstance(v, types.FunctionType):
        name = v.__globals__.get("__name__")
    else:
        name = module_name(v) if isinstance(v, types.ModuleType) else v.__module__
    return held.of_library(name)


def goes_on(nodes: set[Any], tensor: torch.Tensor) -> bool:
    """Whether a pass goes on to what a tensor was made of, having come to the tensor."""
    if not tensor.requires_grad:
        return False
    try:
        return tensor.grad_fn in nodes
    except RuntimeError:
        return True  # a view that autograd forbids to change
