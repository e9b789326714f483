"""How each system compiles a module, behind one function.

Owns: the calls into torch.compile, magpy and TorchScript, and what "reset" means for each. Does not
own: timing or comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

#: Name in tables -> what it is.
SYSTEMS = ("eager", "torch.compile", "magpy", "torchscript")

Compiled = Callable[..., Any]


def constant_backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Compiled:
    """Computes the graph once and returns that result from then on.

    What is left of a call is the system's own work: guards, dispatch, rebuilding the result.
    """
    results: list[Any] = []

    def graph(*args: Any) -> Any:
        if not results:
            results.append(gm(*args))
        return results[0]

    return graph


def compile_with(
    system: str, model: nn.Module, backend: Any = "inductor", example: tuple[Any, ...] = ()
) -> Compiled:
    """`model` compiled by `system`; nothing is captured before the first call, except TorchScript.

    Args:
        system: One of `SYSTEMS`.
        model: A module that no other system has compiled.
        backend: A backend's name or function (torch.compile and magpy).
        example: Arguments for TorchScript's tracing.
    """
    if system == "eager":
        return model
    if system == "torch.compile":
        compiled: Compiled = torch.compile(model, backend=backend)
        return compiled
    if system == "magpy":
        import magpy

        made: Compiled = magpy.compile(model, backend=backend)
        return made
    if system == "torchscript":
        # Scripting keeps the branches but knows little of Python; tracing knows one path only.
        try:
            scripted: Compiled = torch.jit.script(model)
        except Exception:  # noqa: BLE001  (whatever it refuses with, tracing is next)
            scripted = torch.jit.trace(model, example, check_trace=False, strict=False)
        return scripted
    raise ValueError(f"unknown system {system!r}; known: {', '.join(SYSTEMS)}")


def graphs(system: str, compiled: Compiled) -> str:
    """How many graphs one call runs, as far as the system tells."""
    if system == "magpy":
        import magpy

        stats = magpy.stats(compiled)
        if not stats.segments:
            return "0"
        return "/".join(str(n) for n in dict.fromkeys(stats.segments))
    if system == "torch.compile":
        return str(torch._dynamo.utils.counters["stats"].get("unique_graphs", 0))
    return "-"


def reset() -> None:
    """Forgets everything that torch.compile and magpy have compiled."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    try:
        import magpy
    except ImportError:
        return
    magpy.reset()
