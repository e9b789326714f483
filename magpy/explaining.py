"""`magpy.explain`: what a call was captured as, or why it was not, as text, pictures and a page.

Owns the `Explanation`.  Does not own captures or entries; it makes its own of the function it is
given, with the backend "eager", and leaves the function's own entries alone.  The page tells of
those, if there are any.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from magpy import _interp, backends
from magpy.backends.runner import EntryInfo
from magpy.capture import session
from magpy.errors import Refusal
from magpy.guards import draw as reference_graph
from magpy.guards import words
from magpy.guards.analysis import analyze
from magpy.ir.capture import Outcome
from magpy.runtime import entry as entries
from magpy.runtime import module as modules
from magpy.runtime import page, report


@dataclass(slots=True)
class Explanation:
    """What came of one watched call.

    Attributes:
        captured: whether the call can be served by an entry.
        reason: why not, in the user's words, or "".
        value: what the call returned (None when it raised).
        operations: tensor operations in the operator graph.
        segments: graphs in the entry.
        guards: what must hold before the entry is used, one by one: what is looked at, and what is
            asked of it.
        guard_summary: the same, grouped: what is asked of the arguments, of `self`, of globals.
        mock: the generated function that redoes the call.
        graphs: the code of each segment.
        events: how many reads and writes of outside objects were seen.
        reference_graph: networkx graph of the outside objects that were read.
        report: what `save` writes.
        regions: of a compiled callable that runs in part, how many stretches are compiled; else 0.
        in_python: the lines that are left to Python there, each with the reason.
    """

    captured: bool
    reason: str = ""
    value: Any = None
    operations: int = 0
    segments: int = 0
    guards: list[str] = field(default_factory=list)
    guard_summary: str = ""
    mock: str = ""
    graphs: list[str] = field(default_factory=list)
    events: int = 0
    reference_graph: Any = None
    modules: list[Any] = field(default_factory=list)
    report: Any = None
    regions: int = 0
    in_python: list[tuple[str, str]] = field(default_factory=list)

    def __str__(self) -> str:
        """A page of text."""
        if not self.captured and self.regions:
            left = "; ".join(f"{where}, {why}" for where, why in self.in_python)
            parts = "1 region" if self.regions == 1 else f"{self.regions} regions"
            return f"runs in part: {parts}; left to Python: {left or 'nothing'}"
        if not self.captured:
            return f"runs eagerly: {self.reason}"
        lines = [
            f"captured: {self.operations} tensor operations in {self.segments} "
            f"graph{'s' if self.segments != 1 else ''}, "
            f"{self.events} events watched",
            f"{self.reference_graph.number_of_nodes()} outside objects, "
            f"{self.reference_graph.number_of_edges()} reads that reached them",
            "",
            f"guards ({len(self.guards)}):",
            *(f"  {line}" for line in self.guard_summary.splitlines()),
            "",
            *(
                f"graph {i}:\n" + "\n".join(f"  {line}" for line in g.strip().splitlines()[:80])
                for i, g in enumerate(self.graphs)
            ),
            "",
            "mock code:",
            *(f"  {line}" for line in self.mock.splitlines()[:120]),
        ]
        return "\n".join(lines)

    __repr__ = __str__

    def save(self, path: str | Path) -> None:
        """Writes a page of HTML that needs nothing beside it.

        It shows the source, each line with how it runs, the operator graphs, the guards with how
        often each failed, what happened in calls, and the generated code.  Of a compiled callable
        that has been called it tells what that has by now, of others what this call was.
        """
        Path(path).write_text(page.html(self.report), encoding="utf-8")

    def draw(self, path: str | Path) -> None:
        """Draws the reference graph to `path`, the operator graph to `NAME.graph.SUFFIX`.

        Raises:
            ValueError: nothing was captured.
            ImportError: matplotlib is not installed and the path does not end in .dot.
        """
        if self.reference_graph is None:
            raise ValueError(f"nothing was captured: {self.reason}")
        path = Path(path)
        reference_graph.draw(self.reference_graph, path)
        for i, module in enumerate(self.modules):
            part = "" if i == 0 else f"{i}"
            reference_graph.draw(
                _operator_graph(module), path.with_name(f"{path.stem}.graph{part}{path.suffix}")
            )


def _operator_graph(module: Any) -> Any:
    import networkx as nx

    graph = nx.MultiDiGraph()
    graph.add_node("call", label="inputs", kind="root")
    for node in module.graph.nodes:
        if node.op == "placeholder":
            continue
        target = getattr(node.target, "__name__", str(node.target))
        graph.add_node(node.name, label=target if node.op != "output" else "output", kind="module")
        sources = [n.name for n in node.all_input_nodes if n.op != "placeholder"] or ["call"]
        for source in sources:
            graph.add_edge(source, node.name, label="")
    return graph


def explain(f: Any, *args: Any, **kwargs: Any) -> Explanation:
    """Calls `f(*args, **kwargs)` once, watched, and tells what was captured.

    The call is a real one: its effects happen.  What it gives is text (`print`), a page
    (`.save("report.html")`) and a picture of the objects that were read (`.draw("objects.svg")`).

    Raises:
        Exception: whatever the call raises.
    """
    compiled = f if isinstance(f, _interp.Compiled) else None
    if modules.is_compiled(f):
        compiled, f = modules.callable_of(f), modules.original_of(f)
    elif compiled is not None:
        f = f._magpy_wrapped
    if not callable(f):
        raise TypeError(f"magpy.explain needs a function, method or module, not {type(f).__name__}")
    outcome = session.run(f, args, kwargs)
    if outcome.exception is not None:
        raise outcome.exception
    made, info = _explained(f, outcome)
    if compiled is not None and compiled._magpy_driver is not None:
        stats = compiled._magpy_options.stats(compiled)
        made.regions, made.in_python = stats.regions, stats.in_python
    if compiled is not None and compiled._magpy_options.journal.history:
        made.report = report.of_compiled(compiled)
    else:
        made.report = report.of_call(f, info, made.reason)
    return made


def _explained(f: Any, outcome: Outcome) -> tuple[Explanation, EntryInfo | None]:
    """What came of a watched call, and what Python keeps of the entry."""
    if outcome.failure is not None:
        text = f"magpy failed ({outcome.stage}): {outcome.failure}"
        return Explanation(False, text, outcome.value), None
    if outcome.capture is None:
        return Explanation(False, str(outcome.refusal), outcome.value), None
    capture = outcome.capture
    try:
        analysis = analyze(capture, trace=True)
        _, info = entries.build(capture, backends.eager, lambda *_: _interp.MISS, analysis)
        assert info.program is not None
    except Refusal as r:
        return Explanation(False, str(r), outcome.value), None
    made = Explanation(
        True,
        value=outcome.value,
        operations=info.nodes,
        segments=len(info.segments),
        guards=[": ".join(pair) for pair in words.listing(capture.f, info.program)],
        guard_summary=words.summary(capture.f, info.program),
        mock=info.text,
        graphs=[s.graph.code for s in info.segments],
        events=capture.events,
        reference_graph=reference_graph.picture(analysis.graph),
        modules=[s.graph for s in info.segments],
    )
    return made, info
