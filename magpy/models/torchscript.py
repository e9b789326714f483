"""What a TorchScript function does, as its graph tells.

Owns whether it decides by data, and whether it writes to tensors.  Does not own how a call of it is
recorded.  Called by magpy/capture/python/torch_calls.py.
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


@dataclass
class Script:
    """What one function does.

    Attributes:
        decides: in another call it may take another way, raise, or give back another argument,
            though nothing but data differs.
        affects: it prints, or changes a list or a dict, which it may have been given.
        writes: it may write to tensors.
        branches: which way it takes goes by something, sizes and numbers perhaps.
    """

    decides: bool
    affects: bool
    writes: bool
    branches: bool


def look(f: Any) -> Script:
    """What a scripted or traced function does."""
    nodes = list(_nodes(f.inlined_graph))
    kinds = {node.kind() for node in nodes}
    written = {kind for node in nodes for kind in _written(node)}
    return Script(
        bool(kinds & _BRANCHES) and any(map(_reads, nodes)),
        "prim::Print" in kinds or any(kind != "Tensor" for kind in written),
        any("Tensor" in kind for kind in written),
        bool(kinds & _BRANCHES),
    )


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _reads(node: Any) -> bool:
    return node.kind() in _READS and any(str(v.type()) == "Tensor" for v in node.inputs())


def _written(node: Any) -> Iterator[str]:
    """The types of what a node may write to."""
    if "!" in node.schema():
        for a in torch._C.parse_schema(node.schema()).arguments:
            if a.alias_info is not None and a.alias_info.is_write:
                yield str(a.type)


__all__ = ["Script", "look"]
