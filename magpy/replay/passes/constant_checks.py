"""Which checks come out alike in every call, because nothing that varies goes into them.

Owns the rules.  A library may compute with tensors what follows from sizes alone (transformers look
in this way whether position ids, which they have just made with `torch.arange`, are those of packed
sequences): the guard has found the sizes, and to compute the rest again in every call, operation by
operation and ahead of the graph, would find nothing new.  Nor does it where a gradient is read a
second time and nobody gave the tensor another one since the guard or a step found it.  Called by
magpy/replay/pipeline.py.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from magpy.ir.ops import (
    Bind,
    BindArray,
    CheckValue,
    HostStep,
    OpStep,
    Record,
    Ref,
    Step,
    Var,
    has_gradient,
)
from magpy.ir.trees import leaves, variables
from magpy.objects.types import isinstance
from magpy.replay.passes.totality import runs_python

_CONSTANTS = (
    *(int, float, bool, str, type(None), type(...)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
)
# Functions in C run no code of the program.
_IN_C = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)


def without_constant_checks(steps: list[Step], needed: set[Var], record: Record) -> list[Step]:
    """The steps without the checks that always hold, and without what only these need.

    Independent of the inputs is what operations of torch in C, that draw no random number, make of
    constants and of such values, as long as nobody changes its memory.  Floating-point numbers are
    left out: how a sum is rounded depends on the number of threads.

    Args:
        steps: what the run did, in order.
        needed: variables that the result and the effects use.
        record: what is known of the variables.
    """
    independent: set[Var] = set()
    dropped: set[int] = set()
    makers: set[int] = set()
    for step in steps:
        if not isinstance(step, (OpStep, HostStep)):
            continue
        if step.mutates or isinstance(step, BindArray):
            # What shares memory with something that is written, or with an array, which anybody may
            # write to, is not followed any further.
            changed = {record.storages.get(v, 0) for v in variables((step.args, step.kwargs))}
            independent = {v for v in independent if record.storages.get(v, 0) not in changed}
        elif not step.random and not step.unrepeatable and _follows(step, independent):
            if isinstance(step, OpStep):
                made = {v for _, v in step.outs}
                if not made & record.floating and not made & record.types.keys():
                    independent |= made
                    makers.add(id(step))
            elif (
                isinstance(step, CheckValue)
                and not step.outs
                # What is made of no tensor comes from elsewhere: a clock takes constants, too.
                and variables((step.args, step.kwargs))
            ):
                dropped.add(id(step))
    if not dropped:
        return steps
    used, kept = set(needed), []
    for step in reversed(steps):
        if id(step) in dropped:
            continue
        if id(step) in makers and isinstance(step, OpStep) and not used & {v for _, v in step.outs}:
            continue
        if isinstance(step, (OpStep, HostStep)):
            used |= variables((step.args, step.kwargs))
        kept.append(step)
    kept.reverse()
    return kept


def without_known_gradients(steps: list[Step], record: Record, metas: dict[int, Any]) -> list[Step]:
    """The steps without the checks that a tensor has the gradient that it is known to have.

    To look at it would also keep a gradient that the program has let go of.

    Args:
        steps: what the run did, in order.
        record: what is known of the variables.
        metas: the metadata that tensors from outside had when the call began, by identity.
    """
    vars_of = {id(t): v for v, t in record.inputs.items()}
    known = {
        vars_of[id(t)]: vars_of.get(id(gradient))
        for t, gradient in record.gradients
        if id(t) in vars_of
    }
    switched = set().union(*map(_switched, steps))
    settled = {
        v
        for v, t in record.inputs.items()
        if type(t) is torch.Tensor
        and not t.requires_grad
        and v not in switched
        and id(t) in metas
        and metas[id(t)].matches(t)
    }
    kept: list[Step] = []
    for step in steps:
        of = step.args[0] if isinstance(step, HostStep) and step.args else None
        if isinstance(step, HostStep) and isinstance(of, Ref):
            if step.func is has_gradient and known.get(of.var) == step.args[1].var:
                continue
            if step.func is torch.Tensor.requires_grad_ and of.var in settled:
                continue  # a gradient that is set to zero, which requires none anyway
            if step.func is getattr and step.args[1] == "grad":
                known.update(dict.fromkeys([of.var], next((v for _, v in step.outs), None)))
            elif step.func is setattr and step.args[1] == "grad":
                given = step.args[2]
                known[of.var] = given.var if isinstance(given, Ref) else None
            elif step.mutates:
                known.clear()
        elif isinstance(step, (OpStep, HostStep)) and (
            step.mutates if isinstance(step, HostStep) else runs_python(step)
        ):
            known.clear()
        kept.append(step)
    return kept


def _switched(step: Step) -> set[Var]:
    """The tensors that a step may have require gradients."""
    if not isinstance(step, (OpStep, HostStep)) or not step.args:
        return set()
    if step.func is setattr:
        switches = step.args[1] == "requires_grad"
    else:
        switches = step.func is torch.Tensor.requires_grad_ and step.args[1:] != (False,)
    return variables(step.args[:1]) if switches else set()


def _follows(step: OpStep | HostStep, independent: set[Var]) -> bool:
    name = getattr(step.func, "__name__", "empty")
    if type(step.func) not in _IN_C or "empty" in name or name.startswith(("new", "from_")):
        return False  # memory as it is found, or others'

    if isinstance(step, HostStep) and step.owner is not None:
        return False
    if isinstance(step, Bind) and step.symbolic:
        return False
    return all(_constant(v, independent) for v in leaves((step.args, step.kwargs)))


def _constant(v: Any, independent: set[Var]) -> bool:
    return v.var in independent if isinstance(v, Ref) else type(v) in _CONSTANTS


__all__ = ["without_constant_checks", "without_known_gradients"]
