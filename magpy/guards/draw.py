"""The reference graph as a networkx graph, for `explain` and pictures.

Owns the nodes and edges made of a log and their drawing.  Does not own the guards
(magpy/guards/analysis.py); nothing at run time uses this module.
"""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import networkx as nx
import torch

from magpy import _interp
from magpy.guards.checks import c_leaf
from magpy.ir.capture import Capture
from magpy.objects.types import isinstance, module_name

_ABSENT = _interp.ABSENT
_COLOURS = {
    "tensor": "#e4572e",
    "module": "#4c78a8",
    "function": "#54a24b",
    "container": "#eeca3b",
    "object": "#b0b0b0",
    "root": "#b279a2",
}
# What is written on the edge of a read.
_LABELS = {"dict_key": "{!s}", "type_attr": ".{}", "attr_c": ".{}", "cell": "cell"}


def _kind(obj: Any) -> str:
    if isinstance(obj, torch.Tensor):
        return "tensor"
    if isinstance(obj, torch.nn.Module):
        return "module"
    if isinstance(obj, (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)):
        return "function"
    if isinstance(obj, (dict, list, tuple, set)):
        return "container"
    return "object"


def _label(obj: Any) -> str:
    if isinstance(obj, torch.Tensor):
        return f"{type(obj).__name__}{list(obj.shape)}"
    if isinstance(obj, types.ModuleType):
        return module_name(obj)
    if isinstance(obj, (types.FunctionType, types.BuiltinFunctionType, type)):
        return str(obj.__name__)
    return type(obj).__name__


def build(capture: Capture) -> nx.MultiDiGraph:
    """The reference graph of a capture: nodes are outside objects, edges are reads.

    An instance and its `__dict__` are one node.  Immutable leaves are values on edges (attribute
    "value"), never nodes.
    """
    graph = nx.MultiDiGraph()
    owner: dict[int, Any] = {}

    def node(obj: Any) -> int:
        obj = owner.get(id(obj), obj)
        if id(obj) not in graph:
            graph.add_node(id(obj), label=_label(obj), kind=_kind(obj))
        return id(obj)

    def edge(source: Any, label: str, value: Any) -> None:
        start = node(source)
        if value is _ABSENT or c_leaf(value):
            reads = graph.nodes[start].setdefault("reads", [])
            reads.append((label, "absent" if value is _ABSENT else repr(value)[:40]))
        else:
            graph.add_edge(start, node(value), label=label)

    graph.add_node("call", label="call", kind="root")
    graph.add_edge("call", node(capture.f), label="callable")
    for i, a in enumerate(capture.args):
        if not c_leaf(a):
            graph.add_edge("call", node(a), label=f"arg {i}")
    for k, a in capture.kwargs.items():
        if not c_leaf(a):
            graph.add_edge("call", node(a), label=f"arg {k}")
    for kind, obj, key, value in capture.log:
        if kind == "link_dict":
            owner[id(value)] = obj
            node(obj)
        elif kind in _LABELS:
            edge(obj, _LABELS[kind].format(key), value)
        elif kind == "list_item":
            edge(obj, f"[{key}]", value)
        elif kind == "snap":
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for place, v in items:
                edge(obj, f"[{place!r}]"[:24], v)
    return graph


def draw(graph: nx.MultiDiGraph, path: str | Path, limit: int = 160) -> None:
    """Writes a picture of the graph (.png, .svg, .pdf by matplotlib; .dot as text).

    Args:
        graph: made by `build`.
        path: where to write; its suffix says the format.
        limit: nodes drawn, those nearest to the call first.

    Raises:
        ImportError: matplotlib is not installed and the path does not end in .dot.
    """
    path = Path(path)
    depth = nx.single_source_shortest_path_length(graph, "call")
    near = sorted(depth, key=lambda n: (depth[n], graph.nodes[n].get("kind") == "function"))[:limit]
    part = graph.subgraph(near)
    if path.suffix == ".dot":
        lines = ["digraph reference_graph {", "  rankdir=LR;"]
        lines += [
            f'  n{abs(hash(n))} [label="{d.get("label")}"];' for n, d in part.nodes(data=True)
        ]
        lines += [
            f'  n{abs(hash(a))} -> n{abs(hash(b))} [label="{d["label"]}"];'
            for a, b, d in part.edges(data=True)
        ]
        path.write_text("\n".join([*lines, "}"]) + "\n")
        return
    import matplotlib

    matplotlib.use("Agg", force=False)
    from matplotlib import pyplot as plt

    shown = nx.DiGraph(part)
    for n in shown:
        shown.nodes[n]["layer"] = depth[n]
    layout = nx.multipartite_layout(shown, subset_key="layer")
    width = max(8.0, 2.6 * (1 + max(depth[n] for n in shown)))
    rows = max(sum(1 for n in shown if depth[n] == layer) for layer in set(depth.values()))
    figure = plt.figure(figsize=(width, max(5.0, min(60.0, 0.3 * rows))))
    colours = [_COLOURS[shown.nodes[n].get("kind", "object")] for n in shown]
    nx.draw_networkx(
        shown,
        layout,
        node_color=colours,
        node_size=60,
        font_size=5,
        width=0.4,
        arrowsize=4,
        labels={n: shown.nodes[n].get("label", "") for n in shown},
    )
    names = {(a, b): d["label"][:18] for a, b, d in part.edges(data=True)}
    nx.draw_networkx_edge_labels(
        shown, layout, names, font_size=3.5, rotate=False, bbox={"alpha": 0}
    )
    plt.axis("off")
    plt.title(
        f"{len(graph)} outside objects, {graph.number_of_edges()} reads"
        + (f" (nearest {limit} shown)" if len(graph) > limit else ""),
        fontsize=7,
    )
    figure.savefig(path, dpi=160, bbox_inches="tight")
    plt.close(figure)
