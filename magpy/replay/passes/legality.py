"""Which captures cannot become entries, as their operations and their plan tell.

Owns the refusals of these.  Does not own those of entries that could not take back what they did
(magpy/replay/passes/undo.py) nor those of what is done within a transform
(magpy/replay/passes/transform_regions.py).  Called by magpy/replay/pipeline.py.
"""

from __future__ import annotations

from magpy.capture.session import definition
from magpy.errors import Refusal, an
from magpy.guards.analysis import Analysis
from magpy.ir.capture import Capture
from magpy.ir.ops import EffectStep, HostStep, OpStep, Record, Step, Var, Wrapped
from magpy.ir.recipes import spec_vars
from magpy.models.torch_callables import communicates
from magpy.objects.quiet import modes_of_the_program
from magpy.objects.types import isinstance
from magpy.replay import segments
from magpy.replay.passes.totality import Totality
from magpy.replay.segments import Segment


def gives_away_an_object(capture: Capture, analysis: Analysis) -> Refusal | None:
    """Why a call that is done as a whole must not keep an object that it is given, or None."""
    for obj, where in capture.record.kept.values():
        if id(obj) in analysis.relative:
            return Refusal(
                f"{an(type(obj).__name__)} that is another one in every call is given to a "
                "function that magpy records as one operation",
                where,
                "Give it what it needs of the object",
            )
    return None


def keeps_a_tensor_of_a_transform(capture: Capture, needed: set[Var]) -> Refusal | None:
    """Why a tensor of a transform must not outlive it, or None."""
    lost = {v for v in needed if capture.record.types.get(v) is Wrapped}
    if not lost:
        return None
    return Refusal(
        "a tensor of a transform (grad, vmap, jvp, ...) is kept, returned or printed, which "
        "stands for something within the transformed function only",
        _given_at(capture, lost),
        "Return what is needed of it from the function (has_aux=True)",
    )


def _given_at(capture: Capture, variables: set[Var]) -> str:
    """The line of an effect that is given one of these, or that of the function."""
    for step in capture.record.steps:
        if isinstance(step, EffectStep) and step.sites:
            found: set[Var] = set()
            spec_vars([step.args, list(step.kwargs.values())], found, set())
            if found & variables:
                return "{}:{} ({})".format(*step.sites[-1])
    return definition(capture.f)


def check_after_unrepeatable(plan: segments.Plan, total: Totality) -> Refusal | None:
    """Why a check can fail after what must happen once, or None.

    Nobody can take back what autograd's engine did to a graph that was there before the call, and
    the eager call would do it again.
    """
    what = remedy = ""
    on: HostStep | None = None
    if modes_of_the_program():
        # They hear of each operation once, and of none that is done to check a value.
        what = "operations of which modes hear that were entered before the call"
    for item in plan.items:
        step = item[0] if isinstance(item, tuple) else item
        if (isinstance(step, Segment) and step.communicates) or (
            isinstance(step, (OpStep, HostStep)) and communicates(step.func)
        ):
            what = (
                "a collective, or a function that magpy records as one operation and that "
                "communicated or drew random numbers"
            )
            on = None
        elif isinstance(step, (Segment, OpStep, HostStep)) and step.unrepeatable:
            what = "a backward pass that went on to what was computed before the call"
            remedy = "Make the pass outside of the compiled function"
            steps = step.steps if isinstance(step, Segment) else [step]
            on = next((s for s in steps if isinstance(s, HostStep) and s.engine is not None), on)
        if isinstance(step, HostStep) and what and total.decides(step):
            name = step.args[1] if step.func is getattr else getattr(step.func, "__name__", "")
            read = "a gradient" if name == "grad" else "a value that depends on data"
            # Where Python makes the pass, all that comes after it may be compiled.
            return _refused_at(on or step, f"{read} is read after {what}", remedy)
    return None


def _refused_at(step: HostStep, reason: str, remedy: str) -> Refusal:
    refusal = Refusal(reason, step.where, remedy)
    refusal.frames = [] if step.engine is None else list(step.engine.frames)
    return refusal


def _goes_on(step: Step) -> bool:
    return isinstance(step, HostStep) and step.engine is not None and step.engine.goes_on


def raises_after_change(capture: Capture) -> Refusal | None:
    """Why an exception could come too late for what the call does to Python's objects, or None.

    A graph from before the call may be freed by the time of another one: the pass then raises after
    tensors or gradients were changed, which nobody takes back, and before anything of Python's is.
    """
    steps = capture.record.steps
    effects = bool(capture.effects) or any(isinstance(s, EffectStep) for s in steps)
    if not (effects or capture.record.mutated):
        return None
    for step in steps:
        if isinstance(step, HostStep) and _goes_on(step):
            return _refused_at(
                step,
                "a backward pass goes on to what was computed before the call, which changes "
                "something else, too",
                "Make the pass outside of the compiled function",
            )
    return None


def hooks_need_a_pass(record: Record) -> Refusal | None:
    """A refusal where hooks were given gradients of a pass that no operation makes."""
    for step in record.steps:
        if isinstance(step, HostStep) and step.engine is not None and step.engine.heard:
            text = "a backward pass calls hooks of modules, and no graph makes it"
            refusal = Refusal(text, step.where)
            refusal.drives = True
            return refusal
    return None


__all__ = [
    "check_after_unrepeatable",
    "gives_away_an_object",
    "hooks_need_a_pass",
    "keeps_a_tensor_of_a_transform",
    "raises_after_change",
]
