"""Every program of our own under magpy: equal to eager, and served by entries after one call."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from pathlib import Path

import pytest

from parity_tests import corpus, programs, protocol
from parity_tests.compare import difference
from parity_tests.modes import MODES

#: Programs of which a later call runs eagerly, and why.
RUNS_EAGERLY = {
    "autograd:Checkpointed": "the block is captured where the entry first calls it",
    "autograd:CheckpointedSequence": "the blocks are captured where the entry first calls them",
    "autograd:TemporaryHook": "a handle takes the next number of a class attribute in every call",
    "autograd:TensorHook": "a gradient hook on an activation is refused",
    "autograd:VmapJacobian": "torch.func's transforms hand the program tensors of their own",
    "data_dependent:PythonRandom": "the coin fell on its other side, another way that is captured",
    "data_dependent:TeacherForcing": "the coins fell another way, which is captured",
    "effects:GlobalCounter": "a number that differs in every call is known as such from the second",
    "effects:Warns": "a warning under filters that the call itself has set is refused",
    "python_idioms:MatchStatement": "patterns of classes and of keys are refused",
    "python_idioms:AbstractStrategy": "a C function that magpy does not know is refused",
    "state:CallCounter": "a number that differs in every call is known as such from the second",
    "state:CounterInResult": "a number that differs in every call is known as such from the second",
    "state:HistoryList": "a list of another length in every call",
    "state:OutsideObject": "a list that every call replaces by one with another object in it",
}

FILES = [
    path for path in sorted(Path(programs.__file__).parent.glob("*.py")) if path.stem != "__init__"
]
CASES = {
    f"{case.file}:{case.name}": case
    for path in FILES
    for case in corpus.load_cases(path, stand_in=False)
}


def test_there_are_programs_enough() -> None:
    assert len(CASES) >= 150


def test_every_class_that_is_a_module_of_a_case_is_unique() -> None:
    for path in FILES:
        names = [case.name for case in corpus.load_cases(path, stand_in=False)]
        assert len(names) == len(set(names))


def nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings and logs go to streams; pytest keeps both in lists and handlers of its own."""
    spec = importlib.util.find_spec("warnings")
    assert spec is not None
    assert spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    monkeypatch.setattr(warnings, "_showwarnmsg_impl", fresh._showwarnmsg_impl)
    monkeypatch.setattr(logging.root, "handlers", [])


@pytest.mark.parametrize("name", CASES)
def test_program_is_right_and_captured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody_listens(monkeypatch)
    eager, other = protocol.make_pair(CASES[name], "cpu")
    mode = MODES["magpy"]
    for _ in range(2):
        eager.call(0)
        other.call(0)
    other.callable = mode.compile(other.module, "eager")
    ran_eagerly = None
    for number, seed in enumerate((0, 0, 0, 1)):
        expected = protocol.call_eager(eager, seed)
        found = protocol.call_other(expected, eager, other, seed, mode, "eager")
        assert found is None, f"call {number + 1}: {found}"
        watch = mode.watch(other.callable)
        if number == 0:
            ran_eagerly = watch.ran_eagerly
    if name not in RUNS_EAGERLY:
        assert watch.ran_eagerly == ran_eagerly, watch.reasons


@pytest.mark.parametrize("name", CASES)
def test_program_runs_and_worlds_are_comparable(name: str) -> None:
    """Eager agrees with itself in two worlds, so that a difference under magpy is magpy's."""
    eager, other = protocol.make_pair(CASES[name], "cpu")
    for seed in (0, 1):
        first, second = eager.call(seed), other.call(seed)
        assert difference((*first, eager.module), (*second, other.module)) is None
