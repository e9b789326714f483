"""The misbehaving compilers as modes, and a runner over hand-made files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from parity_tests import worker
from parity_tests.modes import MODES
from parity_tests.results import Results
from parity_tests.standins import StandInModule
from tests.parity.hand_made import (
    FakeMode,
    dying,
    dying_in_training,
    hanging,
    hoarding,
    remembering,
)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Small tensors gain nothing from threads, and the runner's children have one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _modules_as_before() -> Iterator[None]:
    """The runner's files and stand-ins stay in `sys.modules` of its process; other tests follow."""
    before = dict(sys.modules)
    yield
    for name, module in list(sys.modules.items()):
        made_here = isinstance(module, StandInModule) or getattr(module, "__spec__", None) is None
        if made_here and before.get(name) is not module:
            if name in before:
                sys.modules[name] = before[name]
            else:
                del sys.modules[name]


@pytest.fixture(autouse=True)
def _fake_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = {
        "shifted": lambda module: lambda x: module(x) + 1,
        "raising": lambda module: lambda x: {}[x],
        "drawing": lambda module: lambda x: (module(x), torch.rand(1))[0],
        "scribbling": lambda module: lambda x: (module(x), setattr(module, "scale", 3.0))[0],
        "remembering": remembering,
        "dying": dying,
        "dying in training": dying_in_training,
        "hanging": hanging,
        "hoarding": hoarding,
    }
    for name, make in fakes.items():
        monkeypatch.setitem(MODES, name, FakeMode(name, make))


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Results]:
    """Run a directory's files under modes; returns the results."""

    def runner(files: list[Path], *modes: str, **settings: Any) -> Results:
        from parity_tests.__main__ import run_files

        chosen = worker.Settings(**settings)
        results = Results(tmp_path / "results.jsonl", chosen)
        run_files(files, list(modes), chosen, results, jobs=1)
        results.close()
        return results

    return runner
