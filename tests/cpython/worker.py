"""Runs one of CPython's test modules and writes each test's outcome as JSON.

Owns: what happens inside the subprocess. Does not own: which modules run and what is expected of
them (`tests/cpython/__main__.py`, the caller). Run as a script:
`worker.py MODULE OUTPUT MODE`, with the repository root on `PYTHONPATH`; modes are those of
`_interp.instrument_all`, 0 being CPython alone, 3: each test is watched by a capture session, and
4: the module's functions run as drivers (`drivers.py`), cut by the seed, a fourth argument.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
import traceback
import unittest
from pathlib import Path
from types import TracebackType
from typing import Any

Failure = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


class Outcomes(unittest.TestResult):
    """Keeps one word for each test id; a failed subtest fails its test."""

    def __init__(self) -> None:
        super().__init__()
        self.outcomes: dict[str, str] = {}
        self.details: dict[str, str] = {}

    def _failed(self, test: unittest.TestCase, outcome: str, err: Failure) -> None:
        self.outcomes[test.id()] = outcome
        self.details[test.id()] = "".join(traceback.format_exception(*err))

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.outcomes.setdefault(test.id(), "ok")

    def addError(self, test: unittest.TestCase, err: Failure) -> None:
        self._failed(test, "error", err)

    def addFailure(self, test: unittest.TestCase, err: Failure) -> None:
        self._failed(test, "fail", err)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self.outcomes[test.id()] = "skip"

    def addExpectedFailure(self, test: unittest.TestCase, err: Failure) -> None:
        self.outcomes[test.id()] = "expected failure"

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:
        self.outcomes[test.id()] = "unexpected success"

    def addSubTest(
        self, test: unittest.TestCase, subtest: unittest.TestCase, err: Failure | None
    ) -> None:
        if err is not None:
            self._failed(test, "fail", err)


WATCHED = 3
DRIVERS = 4


class Handler:
    """Answers the session as `magpy.capture.python.callbacks.Handler` does, without tensors."""

    def classify(self, function: object) -> int:
        """The verdict on a C callable; those that need a real handler count as readers."""
        from magpy.models import callables

        verdict = int(callables.classify(function))
        return 1 if verdict >= 9 else verdict

    def touch(self, value: object, deep: bool) -> None:
        """An object is looked into by C code: nothing to note."""

    def joined_call(self, *call: object) -> object:
        """`sum` of a generator is called: the interpreter makes the call."""
        from magpy import _interp

        return _interp.ABSENT

    def c_result(self, *call: object) -> None:
        """A C function gave a tensor: there are none."""


def watch_every_test(counts: dict[str, int]) -> None:
    """Makes each test case run in a capture session of its own, whose log is thrown away."""
    from magpy import _interp
    from magpy.instrument import rewrite  # noqa: F401 - registers itself

    run_alone = unittest.TestCase.run

    def run(
        self: unittest.TestCase, result: unittest.TestResult | None = None
    ) -> unittest.TestResult | None:
        if _interp.session_active():
            return run_alone(self, result)
        session = _interp.Session(Handler())
        try:
            done: unittest.TestResult | None = session.run(run_alone, (self, result), {})
            return done
        finally:
            counts["events"] = counts.get("events", 0) + session.events
            if session.failure is not None:
                counts[f"dropped: {session.failure}"] = 1
            session.clear()

    unittest.TestCase.run = run  # type: ignore[method-assign]


def main() -> None:
    """Runs the module named on the command line."""
    module, output, mode = sys.argv[1], sys.argv[2], int(sys.argv[3])
    faulthandler.enable()
    from test import support

    support.use_resources = []  # no network, no audio, nothing that takes minutes
    support.verbose = 0
    counts: dict[str, int] = {}
    result = Outcomes()
    loader = unittest.defaultTestLoader
    interp: Any = None
    drivers: Any = None
    name = f"test.{module}"
    if mode == WATCHED:
        watch_every_test(counts)
    elif mode == DRIVERS:
        from tests.cpython.drivers import Drivers

        drivers = Drivers(int(sys.argv[4]))
        drivers.install()
        drivers.load(name)
    elif mode:
        from magpy import _interp
        from magpy.instrument import rewrite  # noqa: F401 - registers itself

        interp = _interp
        interp.instrument_all(mode)
    loader.loadTestsFromModule(importlib.import_module(name)).run(result)
    if interp is not None:
        interp.instrument_all(0)
    if drivers is not None:
        drivers.remove()
        counts |= drivers.counts
        for function, crash in drivers.crashes.items():
            result.outcomes[f"split of {function}"] = "error"
            result.details[f"split of {function}"] = crash
    elif mode:
        from magpy import _interp

        counts |= _interp.hook_counts()
    report = {"outcomes": result.outcomes, "details": result.details, "counts": counts}
    Path(output).write_text(json.dumps(report))
    sys.stdout.flush()
    # Threads and exit functions that a test left behind are not the subject.
    os._exit(0)


if __name__ == "__main__":
    main()
