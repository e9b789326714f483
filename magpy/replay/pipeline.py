"""The passes that make the plan of an entry of a capture, by name and in their order.

Owns the list, what the passes work on, leaving out optional ones for debugging
(`magpy.config.skip_passes`), and printing and checking the steps between passes.  Does not own what
a pass does (magpy/replay/passes, magpy/replay/segments.py), the guard (magpy/guards) nor the code
(magpy/replay/codegen.py).  Called by magpy/runtime/entry.py.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from magpy import config
from magpy.errors import InternalError, OptionError, Refusal
from magpy.guards.analysis import Analysis
from magpy.ir import aliasing, printer
from magpy.ir.capture import Capture
from magpy.ir.ops import EffectStep, OpStep, Path, Record, Ref, Step, Var
from magpy.ir.recipes import spec_vars
from magpy.ir.verify import verify
from magpy.objects.types import isinstance
from magpy.replay import segments
from magpy.replay.passes import legality, prune, transform_regions
from magpy.replay.passes.constant_checks import (
    without_constant_checks,
    without_known_gradients,
)
from magpy.replay.passes.hoist import Hoist
from magpy.replay.passes.native import keep_differentiable, keep_native
from magpy.replay.passes.schedule import schedule
from magpy.replay.passes.totality import Totality
from magpy.replay.passes.trace_backward import carrying, trace_backward
from magpy.replay.passes.undo import Undo, undo
from magpy.replay.segments import Plan, Segment

# So many elements in all are rather saved than that a graph is cut.
_SAVED = 4096


@dataclass(slots=True)
class Lowering:
    """A capture on its way to an entry: what the passes read and change.

    Attributes:
        capture: the passes replace the steps of its record.
        analysis: of its log: what the guard checks, and where the inputs come from.
        compiled: a compiler takes the graphs, and not Python.
        needed: variables that the result and the effects use.
        possible: the memories that each variable may have.
        total: the steps that cannot raise.
        steps: all, in the order in which they are done.
        ahead: how many of them are done ahead of everything else.
        few: Python does these one by one.
        copies: those of them that make copies of tensors from outside, or change these.
        carry: variables that may carry autograd's graph, where a compiler takes the graphs.
        runs: the steps as runs of operations, and single steps between them.
        plan: the runs as segments.
        undo: what the entry saves of what it changes.
    """

    capture: Capture
    analysis: Analysis
    compiled: bool
    needed: set[Var]
    possible: dict[Var, set[int]] = field(default_factory=dict)
    total: Totality = field(default_factory=lambda: Totality(()))
    steps: list[Step] = field(default_factory=list)
    ahead: int = 0
    few: bool = False
    copies: list[Step] = field(default_factory=list)
    carry: set[Var] = field(default_factory=set)
    runs: list[Any] = field(default_factory=list)
    plan: Plan = field(default_factory=Plan)
    undo: Undo = field(default_factory=lambda: Undo(0, -1, ()))

    @property
    def record(self) -> Record:
        """What the run did to tensors."""
        return self.capture.record


@dataclass(frozen=True, slots=True)
class Pass:
    """A step of the way from a capture to a plan.

    Attributes:
        name: its name in logs and in `magpy.config.skip_passes`.
        run: does it.
        optional: what it does makes an entry faster, or possible; without it entries are right.
    """

    name: str
    run: Callable[[Lowering], None]
    optional: bool = False


def needed_variables(capture: Capture) -> set[Var]:
    """The variables that the result and the effects of a capture use."""
    out: set[Var] = set()
    seen: set[int] = set()
    spec_vars(capture.result, out, seen)
    for e in capture.effects:
        specs = [getattr(e, name, None) for name in ("spec", "stores", "content")]
        spec_vars(specs, out, seen)
    for step in capture.record.steps:
        if isinstance(step, EffectStep):
            spec_vars([step.args, list(step.kwargs.values())], out, seen)
    return out


def _refuse(refusal: Refusal | None) -> None:
    if refusal is not None:
        raise refusal


def _check_escapes(low: Lowering) -> None:
    _refuse(legality.gives_away_an_object(low.capture, low.analysis))


def _collapse_transforms(low: Lowering) -> None:
    record = low.record
    transform_regions.collapse(record, record.transform_spans, low.capture.start_modes)
    _refuse(legality.keeps_a_tensor_of_a_transform(low.capture, low.needed))


def _constant_checks(low: Lowering) -> None:
    steps = without_known_gradients(low.record.steps, low.record, low.capture.metas)
    low.record.steps = without_constant_checks(steps, low.needed, low.record)


def _trace_backward(low: Lowering) -> None:
    start = low.capture.start_modes
    low.record.steps = trace_backward(low.record, start, low.needed, low.compiled)


def _hooks(low: Lowering) -> None:
    _refuse(legality.hooks_need_a_pass(low.record))


def _unused_sizes(low: Lowering) -> None:
    low.record.steps = prune.used_sizes(low.record.steps, low.needed)


def _unused_results(low: Lowering) -> None:
    low.record.steps = prune.used_results(low.record.steps, low.needed)


def _analyze(low: Lowering) -> None:
    record = low.record
    low.total = Totality(record.steps, record.data_dependent | record.complex)
    low.possible = aliasing.possible(record.steps, record.storages)
    low.steps = record.steps


def _hoist(low: Lowering) -> None:
    record = low.record
    inputs = {v: t for v, t in record.inputs.items() if v not in record.swapped}
    hoist = Hoist(
        low.steps,
        low.capture.start_modes,
        record.storages,
        low.possible,
        inputs,
        record.elements,
        functools.partial(carrying, low.steps, record, low.capture.start_modes),
    )
    hoist.run(low.total)
    found = hoist.result()
    low.steps, low.ahead, low.copies = [*found.ahead, *found.rest], len(found.ahead), found.copies
    low.few = found.few
    record.storages.update(found.storages)
    low.possible.update({v: {n} for v, n in found.storages.items()})
    if record.symbols is not None:
        for copy, v in found.like.items():
            record.symbols.stands_for(copy, v, record.inputs.get(v))


def _costly(low: Lowering) -> set[int]:
    """The memories that the call changes, if it costs to save what is in them."""
    record = low.record
    if sum(record.elements.get(v, 0) for v in record.mutated) <= _SAVED:
        return set()
    return set().union(*(low.possible.get(v, set()) for v in record.mutated))


def _schedule(low: Lowering) -> None:
    if low.compiled:
        low.carry = carrying(low.steps, low.record, low.capture.start_modes)
    low.runs = schedule(
        low.steps,
        low.ahead,
        low.few,
        low.record.storages,
        low.possible,
        low.record.types if low.compiled else None,
        low.total,
        _costly(low),
        low.capture.start_modes,
        low.needed,
        low.carry,
    )


def _build_graphs(low: Lowering) -> None:
    record, relative = low.record, low.analysis.relative
    low.plan = segments.build_graphs(
        low.runs,
        low.needed,
        low.capture.start_modes,
        {v for v, t in record.inputs.items() if id(t) not in relative and v not in record.swapped},
        record.storages,
        record.fresh,
        low.compiled,
        low.carry,
    )


def _keep_differentiable(low: Lowering) -> None:
    keep_differentiable(low.plan, low.carry, low.capture.again)


def _keep_native(low: Lowering) -> None:
    if low.compiled:
        keep_native(low.plan, low.analysis, low.record, low.possible, low.carry)


def _check_order(low: Lowering) -> None:
    _refuse(
        legality.check_after_unrepeatable(low.plan, low.total)
        or legality.raises_after_change(low.capture)
    )


def _undo(low: Lowering) -> None:
    low.undo = undo(low.plan, low.record, low.total, low.possible)


#: In this order.  Names are documented in docs/ARCHITECTURE.md.
PASSES = (
    # A call that is done as a whole keeps no object that is another one in every call.
    Pass("check-escapes", _check_escapes),
    # One operation for each region in which a transform (grad, vmap, jvp) is active.
    Pass("collapse-transforms", _collapse_transforms),
    # Leaves out checks that follow from constants alone, and what only they need.
    Pass("constant-checks", _constant_checks, optional=True),
    # A backward pass is an operation of the graph; `.grad` is assigned when all is computed.
    Pass("trace-backward", _trace_backward, optional=True),
    # What hooks of modules did needs the gradients that such an operation gives.
    Pass("hooks", _hooks),
    # Leaves out sizes that nobody uses.
    Pass("unused-sizes", _unused_sizes, optional=True),
    # Transforms give only what somebody uses: the rest may mean nothing outside of them.
    Pass("unused-results", _unused_results),
    # Finds the steps that cannot raise, and the memories that variables may share.
    Pass("analyze", _analyze),
    # Checks that follow from the inputs by few operations go ahead of the graphs.
    Pass("hoist-checks", _hoist, optional=True),
    # Orders the steps that remain: what Python does between operations waits until it is needed.
    Pass("schedule", _schedule),
    # A torch.fx graph for each run of operations.
    Pass("build-graphs", _build_graphs),
    # Python runs the graphs that the call itself differentiates where a compiler's would not do.
    Pass("keep-differentiable", _keep_differentiable),
    # Python runs the graphs that change inputs in a way that compilers cannot follow.
    Pass("keep-native", _keep_native),
    # No check can fail, and nothing raise, after what cannot be repeated.
    Pass("check-order", _check_order),
    # What of what the entry changes is saved, and until when.
    Pass("undo", _undo),
)


def passes() -> list[Pass]:
    """The passes that are not left out.

    Raises:
        OptionError: one is to be left out that is not there, or without which entries are wrong.
    """
    optional = [p.name for p in PASSES if p.optional]
    for name in sorted(config.skip_passes.difference(optional)):
        raise OptionError(
            f"the pass {name!r} cannot be left out; those that can: {', '.join(optional)}"
        )
    return [p for p in PASSES if p.name not in config.skip_passes]


def as_steps(low: Lowering) -> list[Step]:
    """The steps, in the order in which the entry does them by now.

    A segment stands as one operation; effects come when everything else is done.
    """
    if not (low.plan.items or low.runs):
        return low.steps or low.record.steps
    steps: list[Step] = []
    for item in low.plan.items or low.runs:
        if isinstance(item, Segment):
            outs: list[tuple[Path, Var]] = [((i,), v) for i, v in enumerate(item.outputs)]
            called = OpStep(
                item.graph, tuple(map(Ref, item.inputs)), {}, outs, random=item.draws > 0
            )
            called.unrepeatable = item.unrepeatable
            called.where = f"segment {item.index}, {item.nodes} operations"
            steps.append(called)
        elif not isinstance(item, tuple):
            steps.append(item)
        elif isinstance(item[1], list):
            steps += item[1]
        else:
            steps.append(item[0])
    return sorted(steps, key=lambda s: isinstance(s, EffectStep))


def _verify(low: Lowering, steps: list[Step], name: str) -> None:
    inputs, storages = low.record.inputs, low.record.storages
    try:
        verify(steps, inputs, low.needed, storages)
    except InternalError as e:
        raise InternalError(f"after {name}: {e}") from None


def _log(low: Lowering, steps: list[Step], name: str) -> None:
    config.log("passes", "after %s:\n%s", name, printer.text(steps))


class _Watch:
    """Checks and prints the steps after each pass that has changed them, where that is asked."""

    def __init__(self, low: Lowering) -> None:
        self._low = low
        self._last: list[Any] = []

    def after(self, name: str) -> None:
        """Looks at what a pass has left."""
        if not config.verify and "passes" not in config.logs:
            return
        low = self._low
        steps = as_steps(low)
        now = low.plan.items or low.runs or steps
        if len(now) == len(self._last) and all(map(operator.is_, now, self._last)):
            return
        self._last = now
        if "passes" in config.logs:
            _log(low, steps, name)
        if config.verify:
            _verify(low, steps, name)


def run(capture: Capture, analysis: Analysis, compiled: bool) -> Lowering:
    """Takes a capture through all passes.

    Args:
        capture: the steps of its record are replaced.
        analysis: of its log.
        compiled: a compiler takes the graphs, and not Python.

    Raises:
        Refusal: the capture cannot be an entry.
        OptionError: as of `passes`.
        InternalError: a pass has made steps that contradict each other (`magpy.config.verify`).
    """
    low = Lowering(capture, analysis, compiled, needed_variables(capture))
    watch = _Watch(low)
    watch.after("the capture")
    for p in passes():
        p.run(low)
        watch.after(p.name)
    return low


__all__ = ["PASSES", "Lowering", "Pass", "needed_variables", "passes", "run"]
