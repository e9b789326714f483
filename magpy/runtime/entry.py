"""Entries: a capture made into guard, mock function and compiled segments.

Owns the assembly and the life of the segments (compiled when first needed).  Does not own the
decision to capture or to give up (magpy/runtime/compiled.py).
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

from magpy import _interp, config, faults
from magpy.backends import Backend, eager
from magpy.backends.runner import BackendError, Dynamic, EntryInfo, Runner
from magpy.backends.symbolic_inputs import lack_symbols
from magpy.errors import Refusal
from magpy.frames import signals
from magpy.guards.analysis import Analysis, analyze
from magpy.guards.names import Program
from magpy.ir.aliasing import unchanged
from magpy.ir.capture import Capture
from magpy.ir.ops import TUPLES, Binding, Check, EffectStep, HostStep, OpStep, Part, Record
from magpy.objects.number_lists import form_of
from magpy.objects.quiet import modes_of_the_program
from magpy.objects.types import isinstance
from magpy.replay import pipeline
from magpy.replay.codegen import Code
from magpy.replay.fx_graphs import operations
from magpy.replay.passes.schedule import ignores_modes
from magpy.replay.passes.undo import changes_outside
from magpy.replay.pipeline import Lowering
from magpy.replay.segments import Segment
from magpy.runtime import hearing
from magpy.runtime.exceptions import unchanged_until, untouched
from magpy.saving.places import Unable
from magpy.saving.portable import Portable, Recording, freeze
from magpy.shapes.speculation import MOST_PARTS, PLAIN

# The events that tell of one value in a container, a class, a cell or a slot.
_HOLDING = ("dict_key", "cell", "type_attr", "list_item", "attr_c")
_TELLING = frozenset([*_HOLDING, "snap"])
# Longer lists of numbers are compared.
_MOST_NUMBERS = 128


def _numbers(capture: Capture, analysis: Analysis) -> list[tuple[str | None, Any, Any, Any, bool]]:
    """Where the numbers are that a capture read; see `Dynamic.numbers`."""
    numbers: list[tuple[str | None, Any, Any, Any, bool]] = []
    for kind, holder, key, value in capture.log:
        if kind not in _TELLING:
            continue
        plain = kind in _HOLDING and type(value) in PLAIN
        if not plain and kind != "snap" and type(value) not in TUPLES:
            continue
        found = analysis.relative.get(id(holder))
        expr, anchor = (None, holder) if found is None else (found.expr, None)
        if plain:
            numbers.append((expr, anchor, key, value, False))
        elif kind == "dict_key" and type(key) in (int, str):
            numbers += [(expr, anchor, *p, False) for p in _parts(key, value)]
        elif kind == "snap" and _may_vary(capture, holder, value, found is not None):
            numbers += [
                (expr, anchor, i, v, False) for i, v in enumerate(value) if type(v) in (int, float)
            ]
            if isinstance(holder, list):
                for i, v in enumerate(value):
                    numbers += [(expr, anchor, *p, False) for p in _parts(i, v)]
    if capture.record.relied:
        for holder, key, value in capture.record.counters:
            found = analysis.relative.get(id(holder))
            expr, anchor = (None, holder) if found is None else (found.expr, None)
            numbers.append((expr, anchor, key, value, True))
    return numbers


def _parts(key: Any, value: Any) -> list[tuple[Part, Any]]:
    """The numbers of a tuple that a dict or list holds at a key, with their places.

    Such as the two rates of an optimizer, one of which a schedule sets; sizes of a batch.
    """
    if type(value) not in TUPLES or len(value) > MOST_PARTS:
        return []
    if any(type(v) not in (int, float) for v in value):
        return []
    return [(Part(key, i), v) for i, v in enumerate(value)]


def _may_vary(capture: Capture, holder: Any, value: Any, given: bool) -> bool:
    """Whether numbers of a list or deque of which all was read are inputs where they differ.

    Args:
        capture: what was captured.
        holder: the list or deque.
        value: what it held.
        given: each call has another one. Where a tensor was made of one of those, it is an input as
            a whole (magpy/capture/tensors/lists.py).
    """
    if not given:
        return isinstance(holder, (list, collections.deque)) and len(value) <= _MOST_NUMBERS
    return (
        type(holder) is list
        and len(value) <= MOST_PARTS
        and id(holder) not in capture.record.of_lists
    )


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
        # Such modes would hear what a compiler does, and not what the program does.
        backend = eager
    for v in unchanged(capture.record):
        # How a view was made decides what may be done to it in place, and nothing else.
        meta = capture.metas.get(id(capture.record.inputs[v]))
        if meta is not None:
            meta.ignore_view()
    faults.check("refgraph")
    portable: Portable | str | None = None
    if analysis is None:
        analysis, world = _analysis(capture)
        if world is not None:
            portable = _frozen(capture, analysis, world)  # before passes change the steps
    faults.check("guard")
    guard = analysis.guard()
    program = [s for s in capture.record.steps if isinstance(s, OpStep)]
    low = pipeline.run(capture, analysis, backend is not eager)
    info = _info(low, guard, backend)
    info.portable = portable
    info.in_order = not info.acts and hearing.keeps_order(low, program)
    code = Code(capture, analysis, low.plan, low.total)
    info.mock, info.text = code.function(
        info.runners,
        lambda error, saved, early: recover(info, error, saved, early),
        lambda error: untouched(info.ahead, error),
        low.undo,
    )
    if config.logs:
        _log(info, guard)
    return _interp.Entry(guard, info.mock, code.reads(), info), info


def _analysis(capture: Capture) -> tuple[Analysis, Recording | None]:
    """The analysis; of modules that vary it is about these alone if there is no other way.

    And what it was answered, for another process, if entries are to travel.
    """
    world = Recording() if config.saving else None
    try:
        return analyze(capture, world), world
    except Refusal:
        if not capture.instances_vary:
            raise
        capture.instances_vary = False
        world = Recording() if config.saving else None
        return analyze(capture, world), world


def _frozen(capture: Capture, analysis: Analysis, world: Recording) -> Portable | str:
    """The capture for other processes, or why it cannot travel."""
    try:
        return freeze(capture, analysis, world)
    except Unable as e:
        return str(e)
    except Exception as e:
        if signals.raised_by_handler(e):
            raise
        return f"magpy failed: {type(e).__name__}: {e}"  # the call has nothing to do with it


def _info(low: Lowering, guard: Any, backend: Backend) -> EntryInfo:
    """What is kept of an entry, still without its code."""
    capture, analysis, plan = low.capture, low.analysis, low.plan
    record = capture.record
    symbols = record.symbols
    dynamic = Dynamic(
        symbols=symbols if symbols is not None and symbols.sources else None,
        conditions=analysis.conditions,
        places=[
            (analysis.relative[id(t)].expr, capture.metas[id(t)])
            for t in record.inputs.values()
            if id(t) in analysis.relative and id(t) in capture.metas
        ],
        numbers=_numbers(capture, analysis),
        wholes=frozenset(
            found.expr
            for kind, holder, *_ in capture.log
            if kind == "snap" and (found := analysis.relative.get(id(holder))) is not None
        ),
        lists=list(_made_of(capture, analysis)),
        pinned=record.pinned,
        of_lists=bool(record.of_lists),
    )
    info = EntryInfo(guard, plan.segments, dynamic)
    info.program = Program(analysis.npos, analysis.kwnames, analysis.checks, analysis.anchors)
    info.mutates = changes_outside(record)
    info.ahead = unchanged_until(plan, low.copies) if info.mutates and not low.undo.saves else []
    outside = _outside_graphs(low)
    info.outside = [(s.where, getattr(s.func, "__name__", ""), n) for s, n in outside]
    info.repeated = sum(operations(s) for s in low.copies if isinstance(s, OpStep))
    info.acts = bool(capture.effects) or any(isinstance(s, EffectStep) for s in record.steps)
    info.changes = frozenset(id(e.obj) for e in capture.effects)
    info.leaves = _leaves(low)
    info.runners = [Runner(s, backend, info) for s in plan.segments]
    return info


def _made_of(capture: Capture, analysis: Analysis) -> Iterator[tuple[str | None, Any, list[Any]]]:
    """The lists of which a capture made tensors; see `Dynamic.lists`."""
    for kind, holder, _, held in capture.log:
        if kind != "snap" or id(holder) not in capture.record.of_lists:
            continue
        found = analysis.relative.get(id(holder))
        if found is not None:
            yield found.expr, None, list(held)
        elif len(form_of(list(held)) or ()) > 1:  # of one row each number is an input (`_numbers`)
            yield None, holder, list(held)


def _leaves(low: Lowering) -> HostStep | None:
    """The first step at which a call may turn out to be another one, after operations."""
    ran = False
    for item in low.plan.items:
        step = item[0] if isinstance(item, tuple) else item
        if ran and isinstance(step, (Binding, Check)):
            return step
        ran = ran or isinstance(step, (Segment, OpStep))
    return None


def _outside_graphs(low: Lowering) -> list[tuple[Any, int]]:
    """The steps that Python does one by one, and how many tensor operations each of them is."""
    found: list[tuple[Any, int]] = []
    for item in low.plan.items:
        step = item[0] if isinstance(item, tuple) else item
        if isinstance(step, OpStep):
            found.append((step, operations(step)))
        elif (
            isinstance(step, HostStep)
            and step.engine is None
            and (step.outs or step.writes)
            and not ignores_modes(step)  # `p.grad` is read or set: an attribute, no operation
        ):
            found.append((step, 1))
    return found


def _log(info: EntryInfo, guard: Any) -> None:
    config.log("guards", "guard:\n%s", "\n".join(guard.describe()))
    config.log("mock", "mock:\n%s", info.text)
    for s in info.segments:
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

    symbols = info.dynamic.symbols
    runners = [r for r in info.runners if r.backend is not eager] if symbols.free() else []
    for runner in runners:
        inputs = [symbols.example(v, record.inputs) for v in runner.segment.inputs]
        if lack_symbols(inputs):
            runner.by_python()
            continue
        # A compiler finds out more about the sizes: what it compiles later would come too late.
        with functorch.patch(force_non_lazy_backward_lowering=True), symbols.any_size():
            runner.compile(inputs, sizes=True)
    symbols.fill(info.dynamic.conditions)
    info.dynamic.of_data = symbols.checks
    info.dynamic.symbols = None
    return bool(runners)


__all__ = ["BackendError", "EntryInfo", "Runner", "build", "compile_symbolic", "example_inputs"]
