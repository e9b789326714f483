"""Entries that do not serve yet: their graphs are being compiled, or ways to serve are measured.

Owns these lists of a compiled callable, what serves its calls meanwhile, and where an entry goes
when it may serve.  Does not own the compiling in another process (magpy/runtime/background.py) nor
the measuring (magpy/runtime/auto.py).  Called by magpy/runtime/compiled.py.
"""

from __future__ import annotations

from typing import Any, Protocol

from magpy import _interp, config
from magpy.backends import Backend
from magpy.backends.inductor import Inductor
from magpy.backends.runner import BackendError, EntryInfo
from magpy.ir.capture import Capture
from magpy.runtime import entry as entries
from magpy.runtime.auto import Trial
from magpy.runtime.background import Pending, serve
from magpy.runtime.journal import Journal


class Owner(Protocol):
    """What of a callable's manager is asked and told."""

    options: Any
    backend: Backend
    journal: Journal

    def backend_failed(self, compiled: Any, error: BackendError) -> None:
        """Says that the backend failed for a graph; with `fullgraph`, raises its error."""


class Waiting:
    """The entries of one callable that do not serve yet.

    Args:
        elsewhere: compiles the graphs in another process; None if they are compiled here.
    """

    def __init__(self, elsewhere: Inductor | None) -> None:
        """None yet."""
        self.elsewhere = elsewhere
        self.pending: list[Pending] = []
        self.trials: list[Trial] = []

    def __len__(self) -> int:
        """How many there are."""
        return len(self.pending) + len(self.trials)

    def compile(self, owner: Owner, capture: Capture, new: Any, info: EntryInfo) -> Pending | None:
        """Has the graphs of a new entry compiled, or begins that; None: the entry need not wait.

        With one graph all inputs are alive: it is compiled in the first call, as users of
        torch.compile expect.

        Raises:
            BackendError: the backend failed.
            CannotFollowError: a graph takes something that was not followed.
        """
        first = info.runners[0] if info.runners else None
        if info.dynamic.symbols is not None and entries.compile_symbolic(info, capture.record):
            return None
        inputs = entries.example_inputs(capture, first.segment) if first is not None else None
        if self.elsewhere is not None and first is not None:
            wait = Pending(new, info, self.elsewhere)
            if inputs is not None:
                wait.send(first, inputs)
            if wait.unable is None:
                return wait
            _not_elsewhere(owner, wait)
            wait.ready()
        at_once = owner.options.mode != "auto"  # else the calls that are measured compile
        if at_once and len(info.runners) == 1 and inputs is not None and info.runners[0].compiles:
            info.runners[0].compiled_or_python(inputs)
        return None

    def install(self, owner: Owner, compiled: Any, entry: Any, info: EntryInfo) -> None:
        """Lets an entry serve the calls that come next, or measures first whether it is to."""
        if owner.options.mode == "auto" and owner.options.backend != "eager" and info.runners:
            self.trials.append(Trial(entry, info, owner.backend))
        else:
            compiled._magpy_entries = [entry, *compiled._magpy_entries]

    def take_up(self, owner: Owner, compiled: Any, failures: bool = True) -> None:
        """Lets the entries whose graphs are there serve the calls that come next.

        Args:
            owner: the manager of `compiled`.
            compiled: the callable.
            failures: tells of those that failed, too.
        """
        for wait in list(self.pending):
            try:
                if not wait.ready():
                    continue
            except BackendError as e:
                if not failures:
                    continue
                if owner.options.fullgraph:
                    self.pending.clear()
                owner.backend_failed(compiled, e)
                wait.without_failures()
                if not wait.ready():
                    continue
            try:
                self.pending.remove(wait)  # of several threads one goes on
            except ValueError:
                continue
            if wait.unable is not None:
                _not_elsewhere(owner, wait)
            self.install(owner, compiled, wait.entry, wait.info)

    def serve(
        self, owner: Owner, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[bool, Any]:
        """Whether one of them fits, and what it gives.

        That is MISS where the call is to run eagerly until the graph is there.
        """
        if self.pending:
            waiting = list(self.pending)
            self.take_up(owner, compiled)
            if compiled._magpy_plain:
                return True, _interp.MISS
            served, result = serve(waiting, args, kwargs)
            if served:
                return True, result
        for trial in list(self.trials):
            if trial.holds(args, kwargs):
                result = self._measure(owner, compiled, trial, args, kwargs)
                if result is not _interp.MISS or compiled._magpy_plain:
                    return True, result
        return False, _interp.MISS

    def _measure(
        self,
        owner: Owner,
        compiled: Any,
        trial: Trial,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        wrapped = compiled._magpy_wrapped
        result = trial.serve(wrapped, args, kwargs)
        if not trial.choice:
            return result
        try:
            self.trials.remove(trial)  # of several threads one goes on
        except ValueError:
            return result
        entry = trial.settle(wrapped, args, kwargs)
        name = owner.journal.name
        config.log("capture", "%s: %s is the fastest: %s", name, trial.choice, trial.times)
        if entry is not None:
            compiled._magpy_entries = [entry, *compiled._magpy_entries]
        elif not (compiled._magpy_entries or len(self)):
            owner.journal.note("eager is the fastest, and to look for an entry would take too long")
            compiled._magpy_plain = True
        return result


def _not_elsewhere(owner: Owner, wait: Pending) -> None:
    owner.journal.note(f"not compiled in the background: {wait.unable}")


__all__ = ["Waiting"]
