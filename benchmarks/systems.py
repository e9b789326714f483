"""How each system compiles a module, behind one function.

Owns: the calls into torch.compile, magpy, TorchScript, LazyTensor and XLA, where each of them can
be used, what "reset" means for each, and the seconds spent inside TorchInductor. Does not own:
timing of calls or comparison.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Compiled = Callable[..., Any]

#: The two that the programs beside the suite compare.
PAIR = ("torch.compile", "magpy")


@dataclass(frozen=True)
class System:
    """One way to run a module.

    Attributes:
        compile: (module, backend, example arguments) -> callable.
        usable: Whether it makes sense on a device ("cpu" or "cuda").
        compiles: A backend decides how it runs: capture and compilation can be told apart.
    """

    compile: Callable[[nn.Module, Any, tuple[Any, ...]], Compiled]
    usable: Callable[[str], bool] = lambda device: True
    compiles: bool = False


def _torch_compile(model: nn.Module, backend: Any, _: Any, **options: Any) -> Compiled:
    torch._dynamo.utils.counters.clear()  # `graphs` counts from here on
    compiled: Compiled = torch.compile(model, backend=backend, **options)
    return compiled


def _magpy(model: nn.Module, backend: Any, _: Any, **options: Any) -> Compiled:
    import magpy

    compiled: Compiled = magpy.compile(model, backend=backend, **options)
    return compiled


def _torchscript(model: nn.Module, _: Any, example: tuple[Any, ...]) -> Compiled:
    # Scripting keeps the branches but knows little of Python; tracing knows one path only.
    try:
        scripted: Compiled = torch.jit.script(model)
    except Exception:  # noqa: BLE001  (whatever it refuses with, tracing is next)
        scripted = torch.jit.trace(model, example, check_trace=False, strict=False)
    return scripted


def _on_device(model: nn.Module, device: str, step: Callable[[], Any]) -> Compiled:
    """A module that records operations on a device of its own and runs them at the end of a call.

    Arguments are moved there once, as its users do.
    """
    model = model.to(device)
    moved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def call(*args: Any) -> Any:
        for t in args:
            if isinstance(t, torch.Tensor) and id(t) not in moved:
                moved[id(t)] = t, t.to(device)
        result = model(*(moved[id(t)][1] if id(t) in moved else t for t in args))
        step()
        return result

    return call


def _lazytensor(model: nn.Module, _: Any, __: Any) -> Compiled:
    import torch._lazy
    import torch._lazy.ts_backend

    _start_lazy()
    return _on_device(model, "lazy", lambda: torch._lazy.mark_step("lazy:0", wait=True))


@functools.cache
def _start_lazy() -> None:
    torch._lazy.ts_backend.init()


def _xla(model: nn.Module, _: Any, __: Any) -> Compiled:
    import torch_xla.core.xla_model as xla  # type: ignore[import-not-found]

    return _on_device(model, str(xla.xla_device()), lambda: xla.mark_step(wait=True))


def _cuda(device: str) -> bool:
    return device == "cuda"


def _installed(_: str) -> bool:
    return importlib.util.find_spec("torch_xla") is not None


_REDUCED = {"mode": "reduce-overhead"}
_SYSTEMS = {
    "eager": System(lambda model, _, __: model),
    "torch.compile": System(_torch_compile, compiles=True),
    # Without an accelerator the mode changes nothing.
    "torch.compile reduce-overhead": System(
        functools.partial(_torch_compile, **_REDUCED), _cuda, compiles=True
    ),
    "magpy": System(_magpy, compiles=True),
    "magpy reduce-overhead": System(functools.partial(_magpy, **_REDUCED), _cuda, compiles=True),
    "magpy auto": System(functools.partial(_magpy, mode="auto"), compiles=True),
    "torchscript": System(_torchscript),
    "lazytensor": System(_lazytensor, lambda device: device == "cpu"),
    "xla": System(_xla, _installed),
}
#: Names in tables.
SYSTEMS = tuple(_SYSTEMS)


def usable(device: str) -> list[str]:
    """The systems that can run on a device ("cpu" or "cuda") of this machine."""
    return [name for name, system in _SYSTEMS.items() if system.usable(device)]


def compiles(system: str) -> bool:
    """Whether it captures graphs for a backend."""
    return _SYSTEMS[system].compiles


def compile_with(
    system: str, model: nn.Module, backend: Any = "inductor", example: tuple[Any, ...] = ()
) -> Compiled:
    """`model` compiled by `system`; nothing is captured before the first call, except TorchScript.

    Args:
        system: One of `SYSTEMS`.
        model: A module that no other system has compiled.
        backend: A backend's name or function (torch.compile and magpy).
        example: Arguments for TorchScript's tracing.

    Raises:
        ValueError: the system is not known.
    """
    if system not in _SYSTEMS:
        raise ValueError(f"unknown system {system!r}; known: {', '.join(SYSTEMS)}")
    return _SYSTEMS[system].compile(model, backend, example)


def settle(system: str, compiled: Compiled, example: tuple[Any, ...], limit: int = 100) -> str:
    """Calls until `mode="auto"` has chosen; what it chose ("" for every other system)."""
    if system != "magpy auto":
        return ""
    import magpy

    for _ in range(limit):
        choices = magpy.stats(compiled).choices
        if choices and all(choices):
            return "/".join(dict.fromkeys(choices))
        compiled(*example)
    return "undecided"


@contextlib.contextmanager
def backend_seconds() -> Iterator[list[float]]:
    """Gathers the seconds of every compilation by TorchInductor, whoever asks for it."""
    from torch._inductor import compile_fx as module

    inner = module.compile_fx
    spent: list[float] = []
    depth = 0

    @functools.wraps(inner)
    def timed(*args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        start = time.perf_counter()
        depth += 1
        try:
            return inner(*args, **kwargs)
        finally:
            depth -= 1
            if not depth:  # TorchInductor calls itself for the settings that it is given
                spent.append(time.perf_counter() - start)

    module.compile_fx = timed
    try:
        yield spent
    finally:
        module.compile_fx = inner


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


def graphs(system: str, compiled: Compiled) -> str:
    """How many graphs one call runs, as far as the system tells."""
    if system.startswith("magpy"):
        import magpy

        stats = magpy.stats(compiled)
        if not stats.segments:
            return "0"
        return "/".join(str(n) for n in dict.fromkeys(stats.segments))
    if system.startswith("torch.compile"):
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
