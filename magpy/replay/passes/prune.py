"""Leaves out what nobody uses: sizes that are computed for nothing, results of transforms.

Owns these two passes.  Does not own the checks that always hold
(magpy/replay/passes/constant_checks.py).  Called by magpy/replay/pipeline.py.
"""

from __future__ import annotations

from magpy.ir.ops import Bind, HostStep, OpStep, Step, Var
from magpy.ir.trees import collect
from magpy.objects.types import isinstance
from magpy.replay.passes import transform_regions


def used_sizes(steps: list[Step], needed: set[Var]) -> list[Step]:
    """The steps without those that compute a size which nobody uses."""
    used, kept = set(needed), []
    for step in reversed(steps):
        if isinstance(step, Bind) and step.symbolic and step.result not in used:
            continue
        if isinstance(step, (OpStep, HostStep)):
            collect((step.args, step.kwargs), used)
        kept.append(step)
    kept.reverse()
    return kept


def used_results(steps: list[Step], needed: set[Var]) -> list[Step]:
    """The steps, where regions of transforms give only what somebody uses.

    The rest may be tensors that mean nothing outside of the transform.
    """
    if not any(
        isinstance(s, OpStep) and isinstance(s.func, transform_regions.Region) for s in steps
    ):
        return steps
    used, kept = set(needed), []
    for step in reversed(steps):
        if isinstance(step, (OpStep, HostStep)):
            collect((step.args, step.kwargs), used)
        kept.append(transform_regions.used_only(step, used) if isinstance(step, OpStep) else step)
    kept.reverse()
    return kept


__all__ = ["used_results", "used_sizes"]
