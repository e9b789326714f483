"""What can run a test case: eager, magpy, torch.compile, TorchScript.

Owns: how each compiles a module, what it says about the calls that followed, which of its
exceptions are refusals.  Does not own: the calls and their comparison (`protocol`).  One class a
mode, in one table.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from dataclasses import dataclass
from typing import Any

import torch

from parity_tests.compare import EXACT, Rules

#: Inductor reorders floating point arithmetic; the paper allows it this much.
INDUCTOR = Rules(atol=1e-3, rtol=1e-3, layout=False)

#: AOTAutograd calls other overloads than eager, some of which round the last bits otherwise.
AOT = Rules(atol=1e-5, rtol=1e-5, unit_strides=False)


@dataclass
class Watch:
    """What a mode knows of a compiled module at one moment.

    Attributes:
        ran_eagerly: calls so far that ran eagerly, captures included; None when the mode cannot
            say.
        graphs: operator graphs in each entry; None when the mode cannot say.
        reasons: why calls ran eagerly, in the mode's words.
        capture_seconds: time spent in captures so far, as the mode measured it.
        captures: calls so far that were captured.
        uncompiled: graphs for which the backend failed.
    """

    ran_eagerly: int | None = None
    graphs: list[int] | None = None
    reasons: tuple[str, ...] = ()
    capture_seconds: float | None = None
    captures: int | None = None
    uncompiled: int = 0


class Mode:
    """Eager: compiles nothing.  The base of the other modes."""

    name = "eager"

    def warm_up(self, backend: str) -> None:
        """Import and compile once, in the parent, so that no test case pays for it."""

    def rules(self, backend: str) -> Rules:
        return {"inductor": INDUCTOR, "aot_eager": AOT}.get(backend, EXACT)

    def compile(self, module: torch.nn.Module, backend: str) -> Any:
        del backend
        return module

    def watch(self, compiled: Any) -> Watch:
        del compiled
        return Watch()

    def refused(self, error: BaseException) -> bool:
        """Whether an exception says that the mode cannot take the program (and is not a crash)."""
        del error
        return False

    def compares_state(self) -> bool:
        return True


class _Tiny(torch.nn.Module):
    """What a mode is warmed up with."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.relu(self.linear(x))


def _try_out(compiled: Any, backend: str) -> None:
    """Call a tiny compiled module twice, and once backward where a compiler works for that, too."""
    for _ in range(2):
        result = compiled(torch.ones(1, 2))
    if backend != "eager":
        result.sum().backward()


def _warm_backend(backend: str) -> str:
    """What to try in the parent for a backend: TorchInductor itself starts threads, and we fork."""
    if backend != "inductor":
        return backend
    importlib.import_module("torch._inductor.compile_fx")
    torch._inductor.config.compile_threads = 1
    return "aot_eager"


class _Misses(logging.Handler):
    """Keeps what magpy logs about calls that no entry fitted."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        _, found, why = record.getMessage().partition("no entry holds: ")
        if found:
            self.texts.append(f"captured again: {why}")


class Magpy(Mode):
    """magpy.compile, watched through magpy.stats and its log of misses."""

    name = "magpy"

    def __init__(self) -> None:
        self.misses = _Misses()

    def warm_up(self, backend: str) -> None:
        import magpy

        magpy.config.logs |= {"miss"}
        log = logging.getLogger("magpy")
        log.propagate = False
        log.addHandler(self.misses)
        for tried in dict.fromkeys(("eager", _warm_backend(backend))):
            _try_out(self.compile(_Tiny(), tried), tried)

    def compile(self, module: torch.nn.Module, backend: str) -> Any:
        import magpy

        magpy.reset()
        self.misses.texts.clear()
        return magpy.compile(module, backend=backend)

    def watch(self, compiled: Any) -> Watch:
        import magpy

        stats = magpy.stats(compiled)
        return Watch(
            ran_eagerly=stats.eager_calls + stats.captures,
            graphs=list(stats.segments),
            reasons=(*self.misses.texts, *(str(reason) for reason in stats.reasons)),
            capture_seconds=stats.capture_seconds,
            captures=stats.captures,
            uncompiled=stats.uncompiled,
        )


class Dynamo(Mode):
    """torch.compile(backend, fullgraph=True): a graph break is a refusal."""

    name = "dynamo"

    def warm_up(self, backend: str) -> None:
        for tried in dict.fromkeys(("eager", _warm_backend(backend))):
            _try_out(self.compile(_Tiny(), tried), tried)

    def compile(self, module: torch.nn.Module, backend: str) -> Any:
        torch._dynamo.reset()
        if backend == "inductor":
            torch._inductor.config.fallback_random = True
        return torch.compile(module, backend=backend, fullgraph=True)

    def refused(self, error: BaseException) -> bool:
        exc = torch._dynamo.exc
        return isinstance(error, (exc.Unsupported, exc.UserError, exc.FailOnRecompileLimitHit))


class TorchScript(Mode):
    """torch.jit.script: what it cannot script is a refusal."""

    name = "torchscript"

    def rules(self, backend: str) -> Rules:
        del backend
        return Rules(atol=1e-5, rtol=1e-5, layout=False, types=False, aliasing=False)

    def compile(self, module: torch.nn.Module, backend: str) -> Any:
        del backend
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return torch.jit.script(module)
            except Exception as error:
                raise ScriptRefusedError(str(error)) from error

    def refused(self, error: BaseException) -> bool:
        return isinstance(error, ScriptRefusedError)

    def compares_state(self) -> bool:
        return False  # a scripted module is another object, with its own attributes


class ScriptRefusedError(Exception):
    """TorchScript could not compile the program."""


MODES: dict[str, Mode] = {mode.name: mode for mode in (Magpy(), Dynamo(), TorchScript(), Mode())}
