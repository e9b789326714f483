"""Regions: the steps during which a transform of torch's was active, as one operation.

Owns making one step of them, which is done from the beginning to the end or not at all, and doing
that step.  Does not own where transforms are active (magpy/capture/tensors/functorch.py).  Called
by magpy/replay/pipeline.py; magpy/replay/passes/prune.py tells which of their results are used.

Between two of these steps nothing else can be done: what Python looks at there would have to be
looked at in the middle, and an entry be left in the middle.  So all that follows from plain numbers
goes ahead of a region, and whatever follows from its tensors refuses the capture.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from magpy.capture.tensors.functorch import Span, restore, state
from magpy.errors import Refusal
from magpy.ir.ops import (
    Bind,
    Binding,
    EffectStep,
    HostStep,
    ModeStep,
    OpStep,
    Record,
    Ref,
    Step,
    Var,
    Wrapped,
    calls_on_tensors,
)
from magpy.ir.torch_modes import TorchModes
from magpy.ir.trees import collect, variables
from magpy.models.torch_ops import ARITHMETIC, operation_name
from magpy.objects.types import isinstance
from magpy.replay.fx_graphs import GraphBuilder, module_of

# What a region consists of.
_PARTS = OpStep, ModeStep
_REASON = "within a function that torch transforms (grad, vmap, jvp, ...)"


class Region:
    """Does the steps of a region.

    Args:
        steps: operations and changes of torch's modes.
        inputs: the variables that it takes, in order.
        outputs: those that it gives.
        modes: torch's modes when it begins.
        memory: a number for the memory of each variable.
        counts: it takes numbers that a compiler cannot follow.
    """

    def __init__(
        self,
        steps: list[Step],
        inputs: list[Var],
        outputs: list[Var],
        modes: TorchModes,
        memory: dict[Var, int],
        counts: bool,
    ) -> None:
        """Nothing is built before the first call."""
        self.__name__ = "transformed"
        self.counts = counts
        self.steps, self.inputs, self.outputs = steps, inputs, outputs
        self.modes, self.memory = modes, memory
        self.operations = sum(isinstance(s, OpStep) for s in steps)
        self.draws = sum(isinstance(s, OpStep) and s.random for s in steps)
        self._graph: Any = None

    def giving(self, used: set[Var]) -> Region:
        """The same region with only those of its results that are used."""
        outputs = [v for v in self.outputs if v in used]
        return Region(self.steps, self.inputs, outputs, self.modes, self.memory, self.counts)

    @property
    def shares(self) -> bool:
        """Whether results share memory, with each other or with what it takes."""
        found = [self.memory.get(v, 0) for v in (*self.outputs, *self.inputs)]
        given = {self.memory.get(v, 0) for v in self.outputs} - {0}
        return any(found.count(m) > 1 for m in given)

    @property
    def graph(self) -> Any:
        """Its operations as a torch.fx graph."""
        if self._graph is None:
            builder = GraphBuilder(self.modes)
            for v in self.inputs:
                builder.placeholder(v)
            for step in self.steps:
                if isinstance(step, ModeStep):
                    builder.modes(step.modes)
                elif isinstance(step, OpStep):
                    builder.op(step)
            self._graph = module_of(builder.finish(self.outputs))
        return self._graph

    def __call__(self, *values: Any) -> Any:
        """The results; whatever it raises, no transform stays active."""
        before = state()
        try:
            return self.graph.forward(
                *values
            )  # no module of the program: global hooks hear nothing
        except BaseException:
            restore(before)
            raise


def collapse(record: Record, spans: list[Span], start: TorchModes) -> None:
    """Makes one step of each region of a record.

    Args:
        record: its steps are replaced.
        spans: the regions.
        start: torch's modes when the run began.

    Raises:
        Refusal: Python looks at something in the middle of a region, or switches a setting there.
    """
    if not spans:
        return
    if spans[-1].end < 0:
        raise Refusal("the call leaves a transform of torch.func, or a level of duals, active")
    spans = _joined(record, spans)
    steps: list[Step] = []
    done, modes = 0, start
    for span in spans:
        before = record.steps[done : span.start]
        modes = _last_modes(before, modes)
        steps += before
        inside = record.steps[span.start : span.end]
        if any(isinstance(s, ModeStep) and s.modes.settings != modes.settings for s in inside):
            raise Refusal("a setting of torch's is switched within a transform of torch.func")
        if any(isinstance(s, ModeStep) and s.modes.inference != modes.inference for s in inside):
            # A transform keeps the thread's dispatch keys and puts them back, and so does inference
            # mode: where they were not nested as they were in the run, torch's state is spoilt.
            raise Refusal("torch.func transforms in inference mode", "", "Use torch.no_grad()")
        steps += _one(record, inside, span, modes)
        after = _last_modes(inside, modes)
        if after != modes:
            steps.append(ModeStep(after))
        done, modes = span.end, after
    record.steps = steps + record.steps[done:]


def _last_modes(steps: Iterable[Step], modes: TorchModes) -> TorchModes:
    for step in steps:
        if isinstance(step, ModeStep):
            modes = step.modes
    return modes


def _joined(record: Record, spans: list[Span]) -> list[Span]:
    """The spans, made longer where a tensor of a transform is used after it (vjp, jacrev).

    No compiler's graph can give out such a tensor.
    """
    found: list[Span] = []
    for i, span in enumerate(spans):
        if found and span.start < found[-1].end:
            continue
        longer = Span(span.start, span.end, set(span.changed))
        while (last := _last_use(record, longer)) is not None:
            longer.end = max([last + 1, *(s.end for s in spans[i:] if s.start <= last)])
        steps = record.steps[span.start : longer.end]
        made = _made(steps)
        if longer.end > span.end:
            if all(isinstance(s, _PARTS) or _ahead(s, steps, made, record) for s in steps):
                longer.changed.update(*(s.changed for s in spans[i:] if s.start < longer.end))
            else:
                longer.end = span.end
        found.append(longer)
    return found


def _last_use(record: Record, span: Span) -> int | None:
    """The last step after a span that takes a tensor of its transforms."""
    made = _made(record.steps[span.start : span.end])
    own = {v for v in made if record.types.get(v) is Wrapped}
    for i in range(len(record.steps) - 1, span.end - 1, -1):
        step = record.steps[i]
        if isinstance(step, (OpStep, HostStep)) and variables((step.args, step.kwargs)) & own:
            return i
    return None


def _made(steps: Iterable[Step]) -> set[Var]:
    made: set[Var] = set()
    for s in steps:
        if isinstance(s, OpStep):
            made.update(v for _, v in s.outs)
    return made


def _ahead(step: Step, steps: list[Step], made: set[Var], record: Record) -> bool:
    """Whether a step within a region can be done ahead of it."""
    if isinstance(step, EffectStep):
        return True  # effects wait for the end
    assert isinstance(step, HostStep)
    found = variables((step.args, step.kwargs))
    if step.mutates or step.unrepeatable or step.gradients is not None or _may_not_move(step):
        return False
    # What an operation gives is the transform's, and so is what it draws.
    if (step.random and step.owner is None) or any(
        record.types.get(v) is Wrapped for _, v in step.outs
    ):
        return False
    if found & made:
        return False
    # Nothing may have changed by then what it looks at; sizes are those that symbols stand for.
    return (
        found.isdisjoint(record.storages)
        or (isinstance(step, Bind) and step.symbolic)
        or not any(isinstance(s, OpStep) and _writes(s) for s in steps)
    )


def _may_not_move(step: HostStep) -> bool:
    return calls_on_tensors(step)


def _writes(step: OpStep) -> bool:
    return step.mutates and getattr(step.func, "__name__", "") != "requires_grad_"


def _one(record: Record, steps: list[Step], span: Span, modes: TorchModes) -> list[Step]:
    """One operation in place of these steps, with what goes ahead of it and after it."""
    made = _made(steps)
    ahead: list[Step] = []
    inside: list[Step] = []
    effects: list[Step] = []
    for step in steps:
        if isinstance(step, EffectStep):
            effects.append(step)
        elif not isinstance(step, HostStep):
            inside.append(step)
        elif _ahead(step, steps, made, record):
            ahead.append(step)
            if isinstance(step, Binding):
                record.types.pop(step.result, None)  # made outside, it is a plain tensor
        else:
            raise _refusal(step)
    operations = [s for s in inside if isinstance(s, OpStep)]
    used: set[Var] = set()
    for s in operations:
        collect((s.args, s.kwargs), used)
    inputs = sorted(used - made)
    writes = _written(record, operations, inputs) | (span.changed & set(inputs))
    outputs = sorted(made)
    counts = _counts(record, operations, inputs)
    region = Region(inside, inputs, outputs, modes, record.storages, counts)
    whole = OpStep(
        region,
        tuple(Ref(v) for v in inputs),
        {},
        [((i,), v) for i, v in enumerate(outputs)],
        random=region.draws > 0,
        mutates=bool(writes),
        unrepeatable=any(s.unrepeatable for s in operations),
        writes=frozenset(writes),
        leaves=any(s.leaves for s in operations),
        where=next((s.where for s in operations if s.where), ""),
    )
    return [*ahead, whole, *effects]


def _counts(record: Record, steps: list[OpStep], inputs: list[Var]) -> bool:
    """Whether a region takes numbers that a compiler cannot follow through transforms.

    It can those that only decide sizes, if they are symbols.
    """
    numbers = {v for v in inputs if v not in record.storages}
    symbols = record.symbols.numbers if record.symbols is not None else ()
    return any(v not in symbols for v in numbers) or any(
        operation_name(s.func) in ARITHMETIC and variables((s.args, s.kwargs)) & numbers
        for s in steps
    )


def _written(record: Record, steps: list[OpStep], inputs: list[Var]) -> set[Var]:
    """Which inputs of a region its operations change themselves, and not through a transform."""
    found: set[Var] = set()
    memory: set[int] = set()
    for s in steps:
        if not _writes(s):
            continue
        targets = set(s.writes) or variables((s.args[:1], s.kwargs.get("out")))
        found |= targets
        memory |= {record.storages.get(v, 0) for v in targets}
    memory.discard(0)
    return {v for v in inputs if v in found or record.storages.get(v) in memory}


def _refusal(step: HostStep) -> Refusal:
    name = getattr(step.func, "__name__", "")
    if step.mutates or calls_on_tensors(step):
        what = f"{name} is called"
    else:
        what = "the data of a tensor is looked at"
    return Refusal(
        f"{what} {_REASON}", step.where, "Do this outside of the function, or with its result"
    )


def used_only(step: OpStep, used: set[Var]) -> OpStep:
    """A step without those results that nobody uses, where it can be told to leave them out."""
    if not isinstance(step.func, Region):
        return step
    region = step.func.giving(used)
    return replace(step, func=region, outs=[((i,), v) for i, v in enumerate(region.outputs)])


def only_python(step: OpStep) -> bool:
    """Whether only Python can do a region.

    Compilers lose what views hang on and what is changed through a transform,
    and take no numbers.
    """
    region = step.func
    return isinstance(region, Region) and (step.mutates or region.shares or region.counts)


__all__ = ["Region", "collapse", "only_python", "used_only"]
