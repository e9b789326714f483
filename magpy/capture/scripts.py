"""What a TorchScript function does, as its graph tells, and what its module holds.

Owns whether it decides by data, whether it writes to tensors, and the state on which the form of
its result depends.  Does not own how a call of it is recorded.  Called by magpy/capture/calls.py
and by guards.
Source: https://docs.pytorch.org/docs/stable/jit.html (torch.jit.ScriptFunction.inlined_graph)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from magpy.capture.steps import is_immutable
from magpy.kinds import isinstance

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


@dataclass
class Script:
    """What one function does.

    Attributes:
        decides: in another call it may take another way, raise, or give back another argument,
            though nothing but data differs.
        affects: it prints, or assigns attributes of its module.
        writes: it may write to tensors.
    """

    decides: bool
    affects: bool
    writes: bool


def look(f: Any) -> Script:
    """What a scripted or traced function, method or module does."""
    nodes = list(_nodes(f.inlined_graph))
    kinds = {node.kind() for node in nodes}
    return Script(
        bool(kinds & _BRANCHES) and any(map(_reads, nodes)),
        bool(kinds & _EFFECTS),
        any(map(_writes, nodes)),
    )


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _reads(node: Any) -> bool:
    return node.kind() in _READS and any(str(v.type()) == "Tensor" for v in node.inputs())


def _writes(node: Any) -> bool:
    if "!" not in node.schema():
        return False
    arguments = torch._C.parse_schema(node.schema()).arguments
    return any(
        a.alias_info is not None and a.alias_info.is_write and "Tensor" in str(a.type)
        for a in arguments
    )


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
        raise TypeError(f"a TorchScript module holds a {type(v).__name__}")
    return v


__all__ = ["Script", "look", "module_of", "state"]
