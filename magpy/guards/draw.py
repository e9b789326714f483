"""The reference graph as a networkx graph, for `explain` and pictures.

Owns how it is drawn.  Does not own the graph (magpy/guards/graph.py) nor what is written at its
edges (magpy/guards/edges.py).  Called by magpy/explaining.py; nothing at run time uses this module.
"""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import networkx as nx
import torch

from magpy.guards.checks import ABSENT, c_leaf
from magpy.guards.edges import InstanceDict
from magpy.guards.graph import ReferenceGraph
from magpy.guards.names import MODULE_TABLES, own_name
from magpy.guards.words import LIBRARIES, OF_MODULES
from magpy.objects.types import isinstance, module_name

_COLOURS = {
    "tensor": "#e4572e",
    "module": "#4c78a8",
    "function": "#54a24b",
    "container": "#eeca3b",
    "object": "#b0b0b0",
    "root": "#b279a2",
}


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


def _of_library(obj: Any) -> bool:
    """Whether an object is a function, a class or a module of Python, torch or numpy."""
    name = own_name(obj)
    return isinstance(obj, types.GetSetDescriptorType) or (
        name is not None and name.partition(".")[0] in LIBRARIES
    )


def picture(graph: ReferenceGraph) -> nx.MultiDiGraph:
    """The reference graph for people: its nodes are addresses, with text of the objects there.

    An instance and its `__dict__` are one node, and so are a module and its dicts of parameters,
    buffers and modules.  What is not the user's (functions and classes of libraries, empty dicts
    that every module has for its own use) is marked as "inner", and not drawn.  Of a read that gave
    no object (a plain value, nothing at all) the node itself tells.  No object is kept alive.
    """
    shown = nx.MultiDiGraph()
    shown.add_node("call", label="call", kind="root", reads=[])
    owner = {id(e.value): e.source for e, _ in graph.edges if isinstance(e, InstanceDict)}
    of_modules = [
        e
        for e, _ in graph.edges
        if isinstance(e.key, str)
        and e.key in OF_MODULES
        and isinstance(e.value, dict)
        and isinstance(owner.get(id(e.source)), torch.nn.Module)
    ]
    tables = {id(e.value): owner[id(e.source)] for e in of_modules if e.key in MODULE_TABLES}
    hidden = {id(e.value) for e in of_modules if not e.value} - tables.keys()
    owner |= tables

    def node(obj: Any) -> Any:
        if obj is graph.run:
            return "call"
        obj = owner.get(id(obj), obj)
        if id(obj) not in shown:
            inner = _of_library(obj) or id(obj) in hidden
            shown.add_node(id(obj), label=_label(obj), kind=_kind(obj), reads=[], inner=inner)
        return id(obj)

    for edge, checks in graph.edges:
        if isinstance(edge, InstanceDict) or id(edge.value) in tables:
            continue
        start = node(edge.source)
        names = list(dict.fromkeys(check[0] for check in checks))
        if edge.gives_object and edge.value is not ABSENT and not c_leaf(edge.value):
            end = node(edge.value)
            shown.add_edge(start, end, label=edge.label(), words=edge.words(), checks=names)
        else:
            gave = repr(edge.value)[:40] if c_leaf(edge.value) else ""
            gave = "absent" if edge.value is ABSENT else gave
            shown.nodes[start]["reads"].append(edge.words() + (gave and f" is {gave}"))
    return shown


def _quoted(text: str) -> str:
    return '"{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"'))


def _tooltip(edge: dict[str, Any]) -> str:
    if "words" not in edge:
        return ""
    checked = ", ".join(edge["checks"]) or "nothing to check"
    return f", tooltip={_quoted(edge['words'] + ': ' + checked)}"


def _dot(graph: nx.MultiDiGraph) -> str:
    lines = ["digraph reference_graph {", "  rankdir=LR;"]
    lines += [
        f"  n{abs(hash(n))} [label={_quoted(str(d.get('label')))}];"
        for n, d in graph.nodes(data=True)
    ]
    lines += [
        f"  n{abs(hash(a))} -> n{abs(hash(b))} [label={_quoted(d['label'])}{_tooltip(d)}];"
        for a, b, d in graph.edges(data=True)
    ]
    return "\n".join([*lines, "}"]) + "\n"


def draw(graph: nx.MultiDiGraph, path: str | Path, limit: int = 160) -> None:
    """Writes a picture of the graph (.png, .svg, .pdf by matplotlib; .dot as text).

    Args:
        graph: made by `picture`, or another one with a node "call".
        path: where to write; its suffix says the format.
        limit: nodes drawn, those nearest to the call first.

    Raises:
        ImportError: matplotlib is not installed and the path does not end in .dot.
    """
    path = Path(path)
    graph = graph.subgraph([n for n, d in graph.nodes(data=True) if not d.get("inner")])
    depth = nx.single_source_shortest_path_length(graph, "call")
    near = sorted(depth, key=lambda n: (depth[n], graph.nodes[n].get("kind") == "function"))[:limit]
    part = graph.subgraph(near)
    if path.suffix == ".dot":
        path.write_text(_dot(part))
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
