"""Entries: a capture made into guard, mock function and compiled segments.

Owns the assembly and the life of the segments (compiled when first needed).  Does not own the
decision to capture or to give up (magpy/runtime/compiled.py).
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from magpy import _interp, config, faults
from magpy.backends import Backend, eager
from magpy.backends.runner import BackendError, EntryInfo, Runner
from magpy.capture.session import definition
from magpy.errors import Refusal
from magpy.guards.analysis import Analysis, analyze
from magpy.guards.names import Program
from magpy.ir.capture import Capture
from magpy.ir.ops import EffectStep, Part, Record, Var, Wrapped
from magpy.ir.recipes import spec_vars
from magpy.objects.quiet import modes_of_the_program
from magpy.objects.types import isinstance
from magpy.replay import segments
from magpy.replay.codegen import Code
from magpy.replay.passes import transform_regions
from magpy.replay.passes.constant_checks import without_settled
from magpy.replay.passes.native import keep_native
from magpy.replay.passes.totality import Certain
from magpy.replay.passes.undo import (
    _changes,
    cannot_undo,
    may_not_fit,
    needs_undo,
    once_ahead,
    raises_late,
)
from magpy.replay.segments import Segment
from magpy.runtime.exceptions import unchanged_until, untouched


def _needed(capture: Capture) -> set[Var]:
    out: set[Var] = set()
    seen: set[int] = set()
    spec_vars(capture.result, out, seen)
    for e in capture.effects:
        specs: list[Any] = [
            getattr(e, "spec", None),
            getattr(e, "stores", None),
            getattr(e, "content", None),
        ]
        spec_vars(specs, out, seen)
    for step in capture.record.steps:
        if isinstance(step, EffectStep):
            spec_vars([step.args, list(step.kwargs.values())], out, seen)
    return out


def _given_at(capture: Capture, variables: set[Var]) -> str:
    """The line of an effect that is given one of these, or that of the function."""
    for step in capture.record.steps:
        if isinstance(step, EffectStep) and step.sites:
            found: set[Var] = set()
            spec_vars([step.args, list(step.kwargs.values())], found, set())
            if found & variables:
                return "{}:{} ({})".format(*step.sites[-1])
    return definition(capture.f)


# The events that tell of one value in a container, a class, a cell or a slot.
_HOLDING = ("dict_key", "cell", "type_attr", "list_item", "attr_c")
# Longer lists of numbers are compared.
_MOST_NUMBERS = 128
_MOST_PARTS = 8


def _numbers(capture: Capture, analysis: Analysis) -> list[tuple[str | None, Any, Any, Any, bool]]:
    """Where the numbers are that a capture read; see `EntryInfo.numbers`."""
    numbers: list[tuple[str | None, Any, Any, Any, bool]] = []
    for kind, holder, key, value in capture.log:
        found = analysis.relative.get(id(holder))
        expr, anchor = (None, holder) if found is None else (found.expr, None)
        if kind in _HOLDING and type(value) in (int, float):
            if kind != "list_item" or found is None:
                numbers.append((expr, anchor, key, value, False))
        elif (
            kind == "dict_key"
            and type(key) in (int, str)
            and type(value) is tuple
            and len(value) <= _MOST_PARTS
        ):
            # Such as the two rates of an optimizer, one of which a schedule sets.
            if all(type(v) is float for v in value):
                numbers += [(expr, anchor, Part(key, i), v, False) for i, v in enumerate(value)]
        elif (
            kind == "snap"
            and isinstance(holder, (list, collections.deque))
            and found is None
            and len(value) <= _MOST_NUMBERS
        ):
            numbers += [
                (None, holder, i, v, False) for i, v in enumerate(value) if type(v) in (int, float)
            ]
    if capture.record.relied:
        for holder, key, value in capture.record.counters:
            found = analysis.relative.get(id(holder))
            expr, anchor = (None, holder) if found is None else (found.expr, None)
            numbers.append((expr, anchor, key, value, True))
    return numbers


def build(
    capture: Capture,
    backend: Backend,
    recover: Callable[[Any, BaseException, Any, bool], Any],
    analysis: Analysis | None = None,
) -> tuple[Any, EntryInfo]:
    """An `_interp.Entry` for a capture.

    Args:
        capture: what was captured.
        backend: compiles its graphs, at their first run.
        recover: called as recover(info, exception, saved, early) when something inside the mock
            function raises before its effects.
        analysis: that of the capture; None: it is made here.

    Raises:
        Refusal: the capture cannot be an entry.
    """
    if modes_of_the_program():
        backend = eager  # they would hear what a compiler does, and not what the program does
    if capture.record.swapped:
        backend = eager  # no compiler follows what memory a tensor has from outside
    faults.check("refgraph")
    analysis = analysis or analyze(capture)
    faults.check("guard")
    guard = analysis.guard()
    for obj, where in capture.record.kept.values():
        if id(obj) in analysis.relative:
            raise Refusal(
                f"a {type(obj).__name__} that is another one in every call is given to a function "
                "that magpy records as one operation",
                where,
                "Give it what it needs of the object",
            )
    inputs = capture.record.inputs
    fixed = {v for v, t in inputs.items() if id(t) not in analysis.relative}
    transform_regions.collapse(capture.record, capture.record.transform_spans, capture.start_modes)
    needed = _needed(capture)
    lost = {v for v in needed if capture.record.types.get(v) is Wrapped}
    if lost:
        raise Refusal(
            "a tensor of a transform (grad, vmap, jvp, ...) is kept, returned or printed, which "
            "stands for something within the transformed function only",
            _given_at(capture, lost),
            "Return what is needed of it from the function (has_aux=True)",
        )
    capture.record.steps = without_settled(capture.record.steps, needed, capture.record)
    certain = Certain(capture.record.steps, capture.record.loose)
    plan = segments.cut(
        capture.record.steps,
        needed,
        capture.start_modes,
        fixed,
        capture.record.storages,
        types=None if backend is eager else capture.record.types,
        numbers=certain if backend is eager else None,
    )
    if backend is not eager:
        keep_native(plan, analysis, capture.record)
    why = once_ahead(plan, certain) or raises_late(capture)
    if why is not None:
        raise why
    late = needs_undo(plan, capture.record, certain) or bool(
        capture.record.caught and _changes(capture.record)
    )
    kept = cannot_undo(capture.record)
    if late and kept is not None:
        raise kept
    late = late or (kept is None and may_not_fit(capture.record))
    info = EntryInfo(guard, None, "", plan.segments, sum(s.nodes for s in plan.segments), None)
    info.mutates = _changes(capture.record)
    info.late = late
    info.ahead = unchanged_until(plan) if info.mutates and not late else []
    runners = [Runner(s, backend, info) for s in plan.segments]
    info.runners = runners
    symbols = capture.record.symbols
    info.symbols = symbols if symbols is not None and symbols.sources else None
    info.pinned = capture.record.pinned
    info.conditions = analysis.conditions
    info.program = Program(analysis.npos, analysis.kwnames, analysis.checks, analysis.anchors)
    info.places = [
        (analysis.relative[id(t)].expr, capture.metas[id(t)])
        for t in inputs.values()
        if id(t) in analysis.relative and id(t) in capture.metas
    ]
    info.numbers = _numbers(capture, analysis)
    code = Code(capture, analysis, plan)
    info.mock, info.text = code.function(
        runners,
        lambda error, saved, early: recover(info, error, saved, early),
        lambda error: untouched(info.ahead, error),
        late,
    )
    if config.logs:
        _log(info, guard, plan)
    return _interp.Entry(guard, info.mock, False, info), info


def _log(info: EntryInfo, guard: Any, plan: Any) -> None:
    config.log("guards", "guard:\n%s", "\n".join(guard.describe()))
    config.log("mock", "mock:\n%s", info.text)
    for s in plan.segments:
        config.log("graph", "graph %d:\n%s", s.index, s.graph.code)


def example_inputs(capture: Capture, segment: Segment) -> list[Any] | None:
    """The inputs of a segment, or None if they are not there any more as the call found them."""
    inputs = capture.record.inputs
    if not all(v in inputs for v in segment.inputs):
        return None  # made within the call
    found = [inputs[v] for v in segment.inputs]
    # The call may have changed what they are, and not only their values.
    same = (id(t) not in capture.metas or capture.metas[id(t)].matches(t) for t in found)
    return found if all(same) else None


def compile_symbolic(info: EntryInfo, record: Record) -> bool:
    """Compiles every graph of an entry for all sizes that its symbols may have.

    Returns:
        Whether it did: there is nothing to do when Python runs the graphs, or no symbol is left.

    Raises:
        BackendError: the backend failed.
        CannotFollowError: a graph takes something that was not followed.
    """
    import torch._functorch.config as functorch

    symbols = info.symbols
    runners = [r for r in info.runners if r.backend is not eager] if symbols.free() else []
    for runner in runners:
        inputs = [symbols.example(v, record.inputs) for v in runner.segment.inputs]
        # A compiler finds out more about the sizes: what it compiles later would come too late.
        with functorch.patch(force_non_lazy_backward_lowering=True):
            runner.compile(inputs, sizes=True)
    symbols.fill(info.conditions)
    info.symbols = None
    return bool(runners)


__all__ = ["BackendError", "EntryInfo", "Runner", "build", "compile_symbolic", "example_inputs"]
