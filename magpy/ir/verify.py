"""Refuses steps that contradict themselves or each other: a pass, or the recorder, has a bug then.

Owns the rules that hold of steps before and after every pass.  Does not own when they are checked
(`magpy.config.verify`, in tests; magpy/replay/pipeline.py).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from magpy.errors import InternalError
from magpy.ir.ops import (
    Bind,
    Binding,
    Call,
    Check,
    EffectStep,
    HostStep,
    ModeStep,
    OpStep,
    Step,
    Var,
)
from magpy.ir.printer import line
from magpy.ir.recipes import spec_vars
from magpy.ir.trees import variables
from magpy.objects.types import isinstance


def verify(
    steps: Iterable[Step],
    inputs: Iterable[Var],
    needed: Iterable[Var],
    storages: Container[Var],
    again: Iterable[Var] = (),
) -> set[Var]:
    """Checks steps.

    Args:
        steps: in their order.
        inputs: the variables that are defined before them.
        needed: the variables that must be defined after them.
        storages: the variables of which it is known which memory they have.
        again: variables that other steps have defined before these, and that may be defined again.

    Returns:
        The variables that are defined after them.

    Raises:
        InternalError: a rule is broken; it names the operation.
    """
    known = set(inputs)
    before = set(again)
    values = set(before)  # arrays among others: what they came from tells their memory
    for step in steps:
        written = step.writes - values if isinstance(step, (OpStep, HostStep)) else ()
        for problem in (*_uses(step, known | before, storages, written), *_own(step)):
            raise InternalError(f"{problem}: {line(step)}")
        if isinstance(step, Binding):
            values.add(step.result)
        for v in step.defined if isinstance(step, (OpStep, HostStep)) else ():
            if v in known:
                raise InternalError(f"%{v} is defined a second time: {line(step)}")
            known.add(v)
    known |= before
    for v in sorted(needed):
        if v not in known:
            raise InternalError(f"%{v} is needed, and no operation defines it")
    return known


def used(step: Step) -> set[Var]:
    """The variables that a step takes."""
    found: set[Var] = set()
    if isinstance(step, EffectStep):
        spec_vars([step.args, list(step.kwargs.values())], found, set())
    elif isinstance(step, (OpStep, HostStep)):
        found = variables((step.args, step.kwargs)) | step.writes
    return found


def _uses(
    step: Step, known: set[Var], storages: Container[Var], written: Iterable[Var]
) -> Iterator[str]:
    for v in sorted(used(step) - known):
        yield f"%{v} is used before it is defined"
    for v in sorted(written):
        if v not in storages:
            yield f"%{v} is written, and its memory is not known"


def _own(step: Step) -> Iterator[str]:
    """What of a step contradicts itself."""
    if isinstance(step, (ModeStep, EffectStep)):
        return
    if step.writes and not step.mutates:
        yield "it writes to variables and changes nothing"
    if isinstance(step, OpStep):
        return
    if isinstance(step, Binding) and step.outs:
        yield "its result is a variable, and parts of it are others"
    if isinstance(step, Call) and step.outs:
        yield "its result is not looked at, and parts of it are variables"
    if isinstance(step, Bind) and not isinstance(step.expected, type):
        yield "the class of its result is not known"
    if isinstance(step, Bind) and step.symbolic and (step.mutates or step.random or step.owner):
        yield "a size that follows from sizes has an effect"
    if step.gradients is not None and not step.mutates:
        yield "autograd's engine adds to gradients, and nothing is changed"
    if type(step) in (HostStep, Check, Binding):
        yield "nobody knows what becomes of its result"


__all__ = ["used", "verify"]
