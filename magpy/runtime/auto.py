"""`magpy.compile(f, mode="auto")`: which way of serving a call is the fastest.

The program's own calls are measured: each is served by one candidate, in turn, so nothing happens
twice, whatever the call changes or draws.  Every candidate gives what eager gives.

Owns the measuring and the choice for one entry.  Does not own where the entry goes then
(magpy/runtime/compiled.py).
"""

from __future__ import annotations

import copy
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from magpy import _interp
from magpy.backends import Backend
from magpy.backends.inductor import Inductor, stepped
from magpy.backends.runner import EntryInfo, Runner
from magpy.objects.types import isinstance

WARM = 2
"""Calls of each candidate that are not timed: the first ones compile, load and allocate."""
SAMPLES = 7
"""Calls of each candidate that are timed."""
MARGIN = 0.02
"""Part of eager's time that the guard may take where eager is the fastest."""


def candidates(backend: Backend, runners: list[Runner]) -> dict[str, Backend]:
    """The compilers to be tried beside eager."""
    on_cuda = any(
        isinstance(t, torch.Tensor) and t.device.type == "cuda" for r in runners for t in r.fixed
    )
    # With gradients the time of a backward pass, and the memory that it needs, would count too.
    if not isinstance(backend, Inductor) or not on_cuda or torch.is_grad_enabled():
        return {"compiled": backend}
    graphs = Inductor(None, {**(backend.options or {}), "triton.cudagraphs": True})

    def compile_graphs(gm: Any, inputs: list[Any]) -> Callable[..., Any]:
        try:
            return owned(stepped(graphs(copy.deepcopy(gm), inputs)))
        except Exception:  # noqa: BLE001 - what else it may be, it is not the fastest
            return backend(copy.deepcopy(gm), inputs)

    # A compiler may change the graph that it is given.
    return {
        "compiled": lambda gm, inputs: backend(copy.deepcopy(gm), inputs),
        "compiled with CUDA graphs": compile_graphs,
    }


def owned(run: Callable[..., Any]) -> Callable[..., Any]:
    """The same, with results that the next run does not overwrite."""

    def call(*inputs: Any) -> tuple[Any, ...]:
        outside = {_memory(t) for t in inputs if isinstance(t, torch.Tensor)}
        copies: dict[int, torch.UntypedStorage] = {}
        results = []
        for t in run(*inputs):
            if isinstance(t, torch.Tensor) and _memory(t) not in outside:
                # Results that share memory go on sharing it.
                memory = copies.get(_memory(t))
                if memory is None:
                    memory = copies[_memory(t)] = _copy(t.untyped_storage())
                t = torch.empty(0, dtype=t.dtype, device=t.device).set_(
                    memory, t.storage_offset(), t.size(), t.stride()
                )
            results.append(t)
        return tuple(results)

    return call


def _copy(memory: Any) -> Any:
    return memory.clone()


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class Trial:
    """An entry that is being measured.

    Attributes:
        choice: the fastest candidate, or "" as long as it is not known.
        times: seconds of the timed calls, by candidate.
    """

    def __init__(self, entry: Any, info: EntryInfo, backend: Backend) -> None:
        """Nothing is measured yet; graphs that are compiled already are the backend's work."""
        self.entry = entry
        self.info = info
        self.backends = candidates(backend, info.runners)
        self.made: dict[str, dict[str, Callable[..., Any] | None]] = {
            name: {} for name in self.backends
        }
        self.made["compiled"] = {r.name: r.segment.compiled for r in info.runners}
        self.times: dict[str, list[float]] = {name: [] for name in ("eager", *self.backends)}
        self.calls = dict.fromkeys(self.times, 0)
        self.choice = ""
        self.lock = threading.Lock()
        self.cuda = len(self.backends) > 1

    def holds(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the call is one that the entry can serve."""
        return bool(self.entry.guard.check(args, kwargs))

    def serve(self, wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call by the candidate whose turn it is; MISS if the entry does not fit.

        A call of another thread, or one within the call that is timed, runs eagerly meanwhile.
        """
        if not self.lock.acquire(blocking=False):
            return wrapped(*args, **kwargs)
        try:
            name = min(self.calls, key=lambda n: self.calls[n])
            run = wrapped if name == "eager" else self._select(name)
            start = self._now()
            result = run(*args, **kwargs)
            took = self._now() - start
            if name != "eager":
                self._keep(name)
            self._note(name, took if result is not _interp.MISS else None)
            return result
        finally:
            self.lock.release()

    def _now(self) -> float:
        if self.cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    def _select(self, name: str) -> Any:
        for r in self.info.runners:
            if not r.segment.native:
                r.backend = self.backends[name]
            r.use(self.made[name].get(r.name))
        return self.entry

    def _keep(self, name: str) -> None:
        self.made[name] = {r.name: r.segment.compiled for r in self.info.runners}

    def _note(self, name: str, took: float | None) -> None:
        self.calls[name] += 1
        if self.calls[name] > WARM and took is not None:
            self.times[name].append(took)
        if all(len(t) >= SAMPLES for t in self.times.values()):
            medians = {n: statistics.median(t) for n, t in self.times.items()}
            self.choice = min(medians, key=lambda n: medians[n])

    def _guard_takes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        """Seconds of a check of the guard that nothing interrupts."""
        times = []
        for _ in range(SAMPLES):
            start = time.perf_counter()
            self.entry.guard.check(args, kwargs)
            times.append(time.perf_counter() - start)
        return min(times)

    def settle(self, wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The entry that serves from now on; None when eager does, and a guard costs too much."""
        self.info.choice = self.choice
        if self.choice != "eager":
            self._select(self.choice)
            return self.entry
        self.info.runners = []
        self.info.mock = None
        for s in self.info.segments:
            s.compiled = None
        if self._guard_takes(args, kwargs) > MARGIN * statistics.median(self.times["eager"]):
            return None
        return _interp.Entry(self.entry.guard, wrapped, None, self.info)
