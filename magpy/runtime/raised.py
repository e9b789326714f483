"""Where an entry that raised had got to: whether it had changed anything yet.

Owns finding that out from the exception.  Does not own what is done then
(magpy/runtime/compiled.py, the only caller of `untouched`).

An entry that changes something saves it only where a check may fail (magpy/runtime/entry.py).  An
operation that raises for its data is not expected; where it comes ahead of all changes the call can
run eagerly, which raises at the program's line.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable
from types import TracebackType

from magpy.capture.steps import HostStep, OpStep
from magpy.mock.graphs import CHANGES
from magpy.mock.segments import Plan, Segment


def unchanged_until(plan: Plan) -> list[Segment]:
    """The segments that run when nothing was changed yet; the last of them may change something."""
    found: list[Segment] = []
    for item in (*plan.prelude, *plan.items):
        step = item[0] if isinstance(item, tuple) else item
        if isinstance(step, Segment):
            found.append(step)
            if any(CHANGES in node.meta for node in step.graph.graph.nodes):
                break
        elif not isinstance(step, (OpStep, HostStep)) or step.mutates or step.random:
            break
    return found


def untouched(segments: Iterable[Segment], error: BaseException) -> bool:
    """Whether an exception comes of an operation ahead of all changes.

    Args:
        segments: those of `unchanged_until`.
        error: what the entry raised; its traceback begins in the mock function.
    """
    codes = {s.graph.forward.__code__: s for s in segments}
    tb: TracebackType | None = error.__traceback__
    while tb is not None and tb.tb_frame.f_code not in codes:
        tb = tb.tb_next
    if tb is None:
        return False
    code = tb.tb_frame.f_code
    # torch.fx writes a line for each operation: "name = ...".
    name = linecache.getline(code.co_filename, tb.tb_lineno).partition("=")[0].strip()
    for node in codes[code].graph.graph.nodes:
        if CHANGES in node.meta:
            return False
        if node.name == name:
            return True
    return False


__all__ = ["unchanged_until", "untouched"]
