"""What a TorchScript function does, as its graph tells.

Owns whether it decides by data, and whether it writes to tensors.  Does not own how a call of it is
recorded.  Called by magpy/capture/calls.py.
Source: https://docs.pytorch.org/docs/stable/jit.html (torch.jit.ScriptFunction.inlined_graph)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

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


__all__ = ["Script", "look"]
