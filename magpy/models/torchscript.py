"""What a TorchScript function does, as its graph tells, and what its module holds.

Owns whether it decides by data, whether it writes to tensors, and the state on which the form of
its result depends.  Does not own how a call of it is recorded.  Called by
magpy/capture/python/c_calls.py and by guards. Source: https://docs.pytorch.org/docs/stable/jit.html
(torch.jit.ScriptFunction.inlined_graph)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from magpy.errors import an
from magpy.objects.plain_values import is_immutable
from magpy.objects.types import isinstance

# Nodes that make a value of what a tensor holds, and those by which such a value counts.
_READS = frozenset(
    [
        *("aten::Bool", "aten::Int", "aten::Float", "aten::Complex", "aten::item", "aten::equal"),
        *("aten::IntImplicit", "aten::FloatImplicit", "aten::ComplexImplicit", "aten::is_nonzero"),
        *("aten::ScalarImplicit", "aten::allclose", "aten::tolist", "prim::tolist"),
    ]
)
_BRANCHES = frozenset(["prim::If", "prim::Loop", "prim::RaiseException"])
_EFFECTS = frozenset(["prim::SetAttr", "prim::Print"])
# The types that are or may hold a list or a dict; a named tuple's names its class.
_CONTAINERS = re.compile(r"\[\]|\b(List|Dict|Any|Union|__torch__)\b")
# Nodes that make a container, which is nobody else's.
_MAKERS = frozenset(["prim::ListConstruct", "prim::DictConstruct", "aten::list", "aten::dict"])


@dataclass
class Script:
    """What one function does.

    Attributes:
        decides: in another call it may take another way, raise, or give back another argument,
            though nothing but data differs.
        affects: it prints, assigns attributes of its module, or may change a list or a dict that
            it was given, or that its module holds.
        writes: it may write to tensors.
    """

    decides: bool
    affects: bool
    writes: bool


def look(f: Any) -> Script:
    """What a scripted or traced function, method or module does."""
    graph = f.inlined_graph
    nodes = list(_nodes(graph))
    kinds = {node.kind() for node in nodes}
    return Script(
        bool(kinds & _BRANCHES) and any(map(_reads, nodes)),
        bool(kinds & _EFFECTS) or (_is_given(graph, nodes) and any(map(_changes, nodes))),
        any(any("Tensor" in kind for _, kind in _written(node)) for node in nodes),
    )


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _reads(node: Any) -> bool:
    return node.kind() in _READS and any(str(v.type()) == "Tensor" for v in node.inputs())


def _written(node: Any) -> Iterator[tuple[Any, str]]:
    """What a node may write to, and its type."""
    if "!" in node.schema():
        arguments = torch._C.parse_schema(node.schema()).arguments
        for a, v in zip(arguments, node.inputs(), strict=False):
            if a.alias_info is not None and a.alias_info.is_write:
                yield v, str(a.type)


def _is_given(graph: Any, nodes: list[Any]) -> bool:
    """Whether it is given a list or a dict, or its module holds one."""
    read = (v for node in nodes if node.kind() == "prim::GetAttr" for v in node.outputs())
    return any(_is_container(v.type()) for v in (*graph.inputs(), *read))


def _is_container(t: Any) -> bool:
    return t.kind() not in ("TensorType", "ClassType") and bool(_CONTAINERS.search(str(t)))


def _changes(node: Any) -> bool:
    """Whether it may change a container that is not its own."""
    return any(kind != "Tensor" and v.node().kind() not in _MAKERS for v, kind in _written(node))


def module_of(f: Any) -> Any:
    """The module, in C++, of a scripted or traced module or of a method of one; None: none."""
    if isinstance(f, torch.jit.ScriptModule):
        return f._c
    return f.owner if isinstance(f, torch._C.ScriptMethod) else None


def state(module: Any) -> str:
    """What a module in C++ holds, and those in it: plain values, and what tensors are like.

    As a text, which guards compare.

    Raises:
        TypeError: it holds something else, of which nobody can tell.
    """
    kind: Any = torch._C.ConcreteModuleType.from_jit_type(module._type())
    held = [(name, _told(module.getattr(name))) for name in sorted(kind.get_attributes())]
    inner = [(name, state(module.getattr(name))) for name, _ in kind.get_modules()]
    return repr((held, inner))


def _told(v: Any) -> Any:
    if isinstance(v, torch.Tensor):
        with torch._C.DisableTorchFunction():
            strides = v.stride() if v.layout is torch.strided else ()
            of = v.dtype, v.device, str(v.layout), tuple(v.shape), strides, v.requires_grad
        return type(v).__name__, *of
    if isinstance(v, (list, tuple)):
        return type(v).__name__, *map(_told, v)
    if isinstance(v, dict):
        return "dict", *((_told(k), _told(x)) for k, x in v.items())
    if not is_immutable(v):
        raise TypeError(f"a TorchScript module holds {an(type(v).__name__)}")
    return v


__all__ = ["Script", "look", "module_of", "state"]
