"""The steps of a run as text: a line for each, with its variables, its effects and its place.

Owns the form.  Does not own who prints when (magpy/replay/pipeline.py: `MAGPY_LOGS=passes`).  No
code of the program runs: of its objects only the class is shown.  An example:

    %2 = Tensor.add_(%0, 1.0)  [writes %0]  # model.py:12 (forward)
    check Tensor.item(%2) equals 3.0  # model.py:13 (forward)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from magpy.ir.ops import (
    Bind,
    BindArray,
    Binding,
    Check,
    EffectStep,
    Fresh,
    HostStep,
    ModeStep,
    OpStep,
    OutsideRef,
    Ref,
    Step,
    Var,
)
from magpy.ir.recipes import Const, New, Outside, Value
from magpy.ir.torch_modes import TorchModes
from magpy.objects.plain_values import is_plain
from magpy.objects.types import attribute, isinstance

# Longer values are cut.
_LONGEST = 60


def text(steps: Iterable[Step]) -> str:
    """Steps, a line for each."""
    return "\n".join(map(line, steps))


def line(step: Step) -> str:
    """A step in a line."""
    if isinstance(step, ModeStep):
        return f"modes {modes(step.modes)}"
    if isinstance(step, EffectStep):
        where = "{}:{} ({})".format(*step.sites[-1]) if step.sites else ""
        said = f"effect {call(step)}"
    else:
        where = step.where
        said = _host(step) if isinstance(step, HostStep) else _assigned(step, call(step))
        effects = ", ".join(_effects(step))
        said += f"  [{effects}]" if effects else ""
    return f"{said}  # {where}" if where else said


def call(step: OpStep | HostStep | EffectStep) -> str:
    """The call that a step makes, with its arguments."""
    given = [argument(v) for v in step.args]
    given += [f"{k}={argument(v)}" for k, v in step.kwargs.items()]
    return f"{function(step.func)}({', '.join(given)})"


def function(func: Any) -> str:
    """The name of a function, with that of its class or module."""
    name = attribute(func, "__name__")
    if not isinstance(name, str):
        return f"<{type(func).__name__}>"
    owner = attribute(func, "__objclass__")
    if owner is None:
        module = attribute(func, "__module__")
        return f"{module}.{name}" if isinstance(module, str) else name
    return f"{owner.__name__.removesuffix('Base')}.{name}"


def modes(m: TorchModes) -> str:
    """Torch's modes, of autocast only the devices that it is on for."""
    found = [f"grad={m.grad}", f"inference={m.inference}"]
    found += [f"autocast({device}, {dtype})" for device, enabled, dtype in m.autocast if enabled]
    found += [f"{name}({argument(keys)})={argument(value)}" for name, keys, value in m.settings]
    return " ".join(found)


def argument(v: Any) -> str:
    """An argument tree of a step, or a recipe."""
    t = type(v)
    if isinstance(v, (Ref, Value)):
        return f"%{v.var}"
    if isinstance(v, (OutsideRef, Outside, Fresh)):
        return f"<{type(v.obj).__name__}>"
    if isinstance(v, New):
        return f"<new {v.kind}>"
    if isinstance(v, Const):
        return argument(v.value)
    if t in (tuple, list):
        inner = ", ".join(map(argument, v))
        return f"[{inner}]" if t is list else f"({inner})"
    if t is dict:
        inner = ", ".join(f"{argument(k)}: {argument(x)}" for k, x in v.items())
        return f"{{{inner}}}"
    if t is slice:
        return ":".join("" if x is None else argument(x) for x in (v.start, v.stop, v.step))
    if not is_plain(v):
        return v.__name__ if isinstance(v, type) else f"<{t.__name__}>"
    said = repr(v)
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."


def _assigned(step: OpStep | HostStep, value: str) -> str:
    targets = ", ".join(f"%{v}" for _, v in step.outs)
    return f"{targets} = {value}" if targets else value


def _host(step: HostStep) -> str:
    called = _assigned(step, call(step))
    if isinstance(step, Binding):
        what = "array " if isinstance(step, BindArray) else ""
        return f"%{step.result}: {what}{argument(step.expected)} = {called}"
    if isinstance(step, Check):
        return f"check {called} equals {argument(step.expected)}"
    return f"call {called}"


def _names(variables: Iterable[Var]) -> str:
    return " ".join(f"%{v}" for v in sorted(variables))


def _effects(step: OpStep | HostStep) -> Iterable[str]:
    if step.mutates:
        yield f"writes {_names(step.writes)}" if step.writes else "writes"
    if step.random:
        yield "random"
    if step.unrepeatable:
        yield "unrepeatable"
    if isinstance(step, HostStep):
        if step.owner is not None:
            yield f"draws from <{type(step.owner).__name__}>"
        if step.gradients is not None:
            yield "runs autograd"
        if isinstance(step, Bind) and step.symbolic:
            yield "symbolic"
        if step.in_order:
            yield "in order"
        if step.arithmetic is not None:
            yield "leaves where numpy would warn"


__all__ = ["argument", "call", "function", "line", "modes", "text"]
