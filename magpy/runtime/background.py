"""Entries whose graphs are compiled in another process: `magpy.compile(f, background=True)`.

Owns what happens with an entry between its capture and the moment when all its graphs are there.
Does not own the other process (magpy/backends/process.py).  Called by magpy/runtime/compiled.py
on misses; everything here runs on the threads of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magpy import _interp
from magpy.backends import process
from magpy.backends.inductor import STATIC_INPUTS, Inductor
from magpy.backends.runner import BackendError, EntryInfo, Runner


class Pending:
    """An entry that waits for its graphs.

    A graph goes to the other process when its inputs are known for the first time.  Those of a
    first graph are known at the capture; behind a value that depends on data they are known when
    the entry is run, which then runs the graphs operation by operation.
    """

    def __init__(self, entry: Any, info: EntryInfo, backend: Inductor) -> None:
        """Nothing is on its way yet."""
        self.entry = entry
        self.info = info
        self.backend = backend
        self.jobs: dict[int, process.Job] = {}
        self.unable: str | None = None
        self.runners: list[Runner] = []
        for runner in info.runners:
            if runner.backend is not backend:
                runner.use(runner.segment.graph.forward)  # a graph that no compiler may have
                continue
            runner.stand_in = self._stand_in
            self.runners.append(runner)

    def send(self, runner: Runner, inputs: list[Any]) -> None:
        """Has a graph compiled."""
        index = runner.segment.index
        runner.segment.graph.meta[STATIC_INPUTS] = len(runner.fixed)
        if index in self.jobs or self.unable is not None:
            return
        try:
            with runner.modes():
                job = process.job(self.backend, runner.segment.graph, runner.examples(inputs))
        except process.Unable as e:
            self.unable = str(e)
            return
        except Exception as e:  # noqa: BLE001 - tensors that only the compiler itself can tell of
            self.unable = f"{type(e).__name__}: {e}"
            return
        self.jobs[index] = job
        process.submit(job)

    def _stand_in(self, runner: Runner, inputs: tuple[Any, ...]) -> Callable[..., Any]:
        self.send(runner, list(inputs))
        run: Callable[..., Any] = runner.segment.graph.forward
        return run

    @property
    def complete(self) -> bool:
        """Whether every graph is on its way, or there."""
        return len(self.jobs) == len(self.runners)

    def ready(self) -> bool:
        """Whether the entry can serve calls; it does so from then on.

        Raises:
            BackendError: the backend failed.
        """
        for job in self.jobs.values():
            if job.lost:
                process.submit(job)
            elif job.state == "failed":
                raise BackendError(job.text)
            elif job.state == "unable":
                self.unable = self.unable or job.text
        if self.unable is None:
            if not self.complete or any(j.state != "ok" for j in self.jobs.values()):
                return False
            for runner in self.runners:
                result = self.jobs[runner.segment.index].result
                assert result is not None
                runner.use(runner.finished(result))
        for runner in self.runners:
            runner.stand_in = None  # what has no graph is compiled here when it is first run
        return True

    def without_failures(self) -> None:
        """Has Python run the graphs for which the backend failed."""
        for runner in list(self.runners):
            job = self.jobs.get(runner.segment.index)
            if job is not None and job.state == "failed":
                self.runners.remove(runner)
                del self.jobs[runner.segment.index]
                runner.stand_in = None
                runner.by_python()

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs the entry to learn the inputs of its later graphs; MISS if it does not fit."""
        return self.entry(*args, **kwargs)

    def holds(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the call is one that the entry will serve."""
        return bool(self.entry.guard.check(args, kwargs))


def serve(
    pending: list[Pending], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[bool, Any]:
    """(whether a pending entry fits the call, then also its result; MISS for it to run eagerly)."""
    for p in pending:
        if not p.holds(args, kwargs):
            continue
        if not p.complete and p.unable is None:
            result = p.run(args, kwargs)
            if result is _interp.MISS:
                continue
            return True, result
        return True, _interp.MISS
    return False, None
