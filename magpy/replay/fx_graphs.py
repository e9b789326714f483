"""Operations as a torch.fx graph.

Owns building a graph of steps, with what torch.fx cannot print wrapped in functions, and the
switching of torch's modes in it.  Does not own which steps become a graph
(magpy/replay/segments.py and magpy/replay/passes/transform_regions.py, which call it).
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import _get_qualified_name

from magpy.frames.synthetic import operation
from magpy.ir.ops import OpStep, OutsideRef, Ref, Var
from magpy.ir.torch_modes import TorchModes
from magpy.ir.trees import Sizes, collect, rebuilt, variables
from magpy.models.backward import kept
from magpy.models.torch_ops import is_tensor_method, resolves, writes_first
from magpy.objects.plain_values import PLAIN_TYPES
from magpy.objects.types import isinstance


def safe(v: Any) -> bool:
    """Whether torch.fx can print an argument tree.

    What is printed of a NaN, and of a complex number's zeros, has lost the sign.
    """
    t = type(v)
    if t is complex or (t is float and v != v):
        return False
    if t is Ref or t in PLAIN_TYPES or t is range:
        return True
    if t in (tuple, list, torch.Size, Sizes):
        return all(safe(x) for x in v)
    if t is dict:
        return all(type(k) is str and safe(x) for k, x in v.items())
    return t is slice and safe(v.start) and safe(v.stop) and safe(v.step)


def substitute(v: Any, env: Any) -> Any:
    """The argument tree with every Ref replaced by env[var]."""

    def value(x: Any) -> Any:
        if isinstance(x, Ref):
            return env[x.var]
        return x.obj if isinstance(x, OutsideRef) else x

    return rebuilt(v, value)


def _tree_refs_in_order(v: Any, out: list[Var]) -> None:
    found: set[Var] = set()
    collect(v, found)
    out.extend(sorted(found - set(out)))


def operations(step: OpStep) -> int:
    """How many operations a step does: a transform (passes/transform_regions.py) has several."""
    return getattr(step.func, "operations", 1)


#: The mark of a node: the line of the program that makes the operation.
WHERE = "magpy_where"

#: The mark of a node that changes something: the input that it writes to, if it is an operation of
#: which doing it again tells whether it has begun (magpy/runtime/exceptions.py); else None.
CHANGES = "magpy_changes"

# What writes values that do not depend on those that were there, and what raises for the forms of
# its arguments only, before it writes.
_STORES = frozenset(
    [
        "__setitem__",
        "index_put_",
        "index_copy_",
        "index_fill_",
        "masked_fill_",
        "masked_scatter_",
        "copy_",
        "fill_",
        "__iadd__",
        "__isub__",
        "__imul__",
        "add_",
        "sub_",
        "mul_",
    ]
)


def changes(step: OpStep) -> bool:
    """Whether an operation changes something, or may."""
    return step.mutates or step.random or step.unrepeatable or step.whole


_DETACHES = frozenset([torch.Tensor.detach, torch.detach])


def detaches(step: OpStep) -> bool:
    """Whether the result of an operation knows nothing of autograd's of where it comes from."""
    if step.func in _DETACHES:
        return True
    return step.func is getattr and step.args[1] == "data"


_ASYNC = "_c10d_functional::_wrap_tensor_autograd"


def is_async(func: Any) -> bool:
    """Whether the result of an operation stands for a collective that may still be going on.

    It is a tensor of a class that waits when an operation is given it (`AsyncCollectiveTensor`,
    torch/distributed/_functional_collectives.py).
    """
    return type(func) is OpOverload and func._schema.name == _ASYNC


class GraphBuilder:
    """Builds the graph of one segment."""

    def __init__(self, start: TorchModes) -> None:
        """An empty graph whose operations start under `start`."""
        self.graph = fx.Graph()
        self.env: dict[Var, fx.Node] = {}
        #: Of what stands for collectives: what is given out, and the result that is waited for.
        self._async: dict[Var, tuple[fx.Node, fx.Node]] = {}
        self._start = start
        self._now = start
        self._want = start
        self._autocast: dict[str, fx.Node] = {}
        self._inference: fx.Node | None = None
        self.nodes = 0

    def placeholder(self, var: Var) -> None:
        """Adds an input."""
        self.env[var] = self.graph.placeholder(f"v{var}")

    def modes(self, modes: TorchModes) -> None:
        """From here on operations want `modes`."""
        self._want = modes

    def _switch(self, want: TorchModes) -> None:
        now, g = self._now, self.graph
        if want == now:
            return
        assert want.settings == now.settings, "a graph runs under one set of them"
        casts = want.autocast != now.autocast or want.cache != now.cache
        if casts or want.inference != now.inference:
            # Inside, as inference mode puts back what of autocast it found.
            for node in reversed(self._autocast.values()):
                g.call_function(torch.amp.autocast_mode._exit_autocast, (node,))
            self._autocast.clear()
            casts = want.autocast != self._start.autocast or want.cache != self._start.cache
        if want.inference != now.inference:
            if self._inference is not None:
                g.call_function(torch.autograd.grad_mode._exit_inference_mode, (self._inference,))
                self._inference = None
            if want.inference != self._start.inference:
                self._inference = g.call_function(
                    torch.autograd.grad_mode._enter_inference_mode, (want.inference,)
                )
        if want.grad != now.grad or want.inference != now.inference:
            g.call_function(torch._C._set_grad_enabled, (want.grad,))
        if casts:
            for device, enabled, dtype in want.autocast:
                self._autocast[device] = g.call_function(
                    torch.amp.autocast_mode._enter_autocast,
                    (device, dtype, enabled, want.cache),
                )
        self._now = want

    def op(self, step: OpStep, keep: bool = False) -> None:
        """Adds one operation.

        Args:
            step: the operation.
            keep: a backward pass takes its result as it is now (magpy/models/backward.py, `kept`).
        """
        self._switch(self._want)
        self.nodes += operations(step)
        func: Any = step.func if step.site is None else operation(step.func, step.site)
        name = _name_of(func) if keep and safe(step.args) and safe(step.kwargs) else ""
        args = step.args if not name else (name, *step.args)
        if keep and not name:
            func = functools.partial(kept, func)
        node = self._call(kept if name else func, args, step.kwargs, step.hidden)
        node.meta[WHERE] = step.where
        if changes(step):
            node.meta[CHANGES] = self._stored_to(step)
        for path, var in step.outs:
            value = node
            for key in path:
                value = self.graph.call_function(operator.getitem, (value, key))
            self.env[var] = value
            if is_async(step.func) and isinstance(step.args[0], Ref):
                self._async[var] = value, self.env[step.args[0].var]

    def _wait(self, given: Any) -> None:
        """Operations of the graph wait for the collectives whose results they are given.

        A compiler's code reads memory, and asks no class to wait.
        """
        for var in self._async.keys() & variables(given) if self._async else ():
            value, result = self._async[var]
            if self.env[var] is value:
                wait = _nameable(torch.ops._c10d_functional.wait_tensor.default)
                self.env[var] = self.graph.call_function(wait, (result,))

    def _stored_to(self, step: OpStep) -> fx.Node | None:
        if step.random or step.unrepeatable or step.whole or step.site is not None:
            return None
        plain = writes_first(step.func) and "out" not in step.kwargs and step.args
        if not plain or step.func.__name__ not in _STORES or not isinstance(step.args[0], Ref):
            return None
        accumulates = step.func.__name__ == "index_put_" and len(step.args) + len(step.kwargs) > 3
        known = {step.args[0].var} >= step.writes
        return self.env.get(step.args[0].var) if known and not accumulates else None

    def _call(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], hidden: bool
    ) -> fx.Node:
        g, env = self.graph, self.env
        self._wait((args, kwargs))
        if not (safe(args) and safe(kwargs)):
            order: list[Var] = []
            _tree_refs_in_order((args, kwargs), order)
            return g.call_function(
                _with_constants(func, args, kwargs, order), tuple(env[v] for v in order)
            )
        fx_args, fx_kwargs = substitute(args, env), substitute(kwargs, env)
        method = args or isinstance(func, types.FunctionType)
        if method and not hidden and is_tensor_method(func):
            return g.call_method(func.__name__, fx_args, fx_kwargs)
        if func in IN_PLACE and not isinstance(fx_args[0], fx.Node):
            # torch.fx writes the in-place operators as statements, which need a name to assign to.
            func = IN_PLACE[func]
        return g.call_function(_nameable(func), fx_args, fx_kwargs)

    def finish(self, outputs: Iterable[Var]) -> fx.Graph:
        """Closes the graph."""
        self._switch(self._start)
        given = {v: value for v, (value, _) in self._async.items()}
        self.graph.output(tuple(given.get(v, self.env[v]) for v in outputs))
        return self.graph


def module_of(graph: fx.Graph) -> fx.GraphModule:
    """The graph as a module, whose Python code is written and compiled at once."""
    return fx.GraphModule(torch.nn.Module(), graph, class_name="Segment")


def _with_constants(func: Any, args: Any, kwargs: Any, order: list[Var]) -> Callable[..., Any]:
    """The operation as a function of its tensors only: torch.fx cannot print the rest."""

    def call(*tensors: Any) -> Any:
        env = dict(zip(order, tensors, strict=True))
        return func(*substitute(args, env), **substitute(kwargs, env))

    call.__name__ = f"op_{getattr(func, '__name__', 'call')}".replace("<", "").replace(">", "")
    call.__module__ = __name__
    return call


IN_PLACE: dict[Any, Any] = {
    operator.iadd: operator.add,
    operator.iand: operator.and_,
    operator.ifloordiv: operator.floordiv,
    operator.ilshift: operator.lshift,
    operator.imatmul: operator.matmul,
    operator.imod: operator.mod,
    operator.imul: operator.mul,
    operator.ior: operator.or_,
    operator.ipow: operator.pow,
    operator.irshift: operator.rshift,
    operator.isub: operator.sub,
    operator.itruediv: operator.truediv,
    operator.ixor: operator.xor,
}


def _name_of(func: Any) -> str:
    """The name that leads to one of torch's operations, or ""."""
    own = getattr(func, "__name__", "")
    if is_tensor_method(func) and getattr(torch.Tensor, own, None) is func:
        return f"torch.Tensor.{own}"
    if not resolves(func):
        return ""
    name = _get_qualified_name(func)
    return name if name.startswith(("torch.", "_operator.")) else ""


def _nameable(func: Any) -> Any:
    """torch.fx prints a function by its name; what has none is wrapped."""
    if isinstance(func, (types.FunctionType, types.BuiltinFunctionType)) and resolves(func):
        return func

    def call(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    name = getattr(func, "__name__", type(func).__name__)
    call.__name__ = f"call_{name}" if name.isidentifier() else "call"
    call.__module__ = __name__
    return call


__all__ = [
    "CHANGES",
    "IN_PLACE",
    "WHERE",
    "GraphBuilder",
    "module_of",
    "operations",
    "safe",
    "substitute",
]
