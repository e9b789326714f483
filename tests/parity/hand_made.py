"""Files in ParityBench's style made by hand, and compilers that misbehave in known ways."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from parity_tests.modes import Mode

HEADER = """import os, sys, time, random
import torch
import torch.nn as nn
from _paritybench_helpers import _mock_config
"""


def case_file(directory: Path, name: str, body: str, classes: list[str]) -> Path:
    """Write a file of cases; every class takes no arguments and a (2, 3) tensor."""
    cases = "".join(
        f"({c}, lambda: ([], {{}}), lambda: ([torch.rand(2, 3)], {{}}), True)," for c in classes
    )
    path = directory / f"{name}.py"
    path.write_text(f"{HEADER}{body}\nTESTCASES = [{cases}]\n")
    return path


LINEAR = """
class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.scale = 2.0
    def forward(self, x):
        return self.fc(x) * self.scale
class Relu(nn.Module):
    def forward(self, x):
        return x.relu()
class Tanh(nn.Module):
    def forward(self, x):
        return x.tanh()
"""


class FakeMode(Mode):
    """A mode whose compiled module is `make(module)`."""

    def __init__(self, name: str, make: Callable[[Any], Any]) -> None:
        self.name = name
        self.make = make

    def compile(self, module: Any, backend: str) -> Any:
        return self.make(module)


def remembering(module: Any) -> Any:
    """A compiler that never looks again: for the same arguments, the first call's answer."""
    memory: list[Any] = []

    def call(x: Any) -> Any:
        if memory and memory[0].equal(x) and memory[0].dtype == x.dtype:
            return memory[1]
        memory[:] = [x, module(x)]
        return memory[1]

    return call


def dying(module: Any) -> Any:
    return (lambda _x: os.abort()) if type(module).__name__ == "Relu" else module


def dying_in_training(module: Any) -> Any:
    def call(x: Any) -> Any:
        return os.abort() if module.training else module(x)

    return call if type(module).__name__ == "Linear" else module


def hanging(module: Any) -> Any:
    return (lambda _x: time.sleep(60)) if type(module).__name__ == "Relu" else module


def hoarding(module: Any) -> Any:
    def call(_x: Any) -> Any:
        kept = []
        for _ in range(4000):
            kept.append(torch.ones(1 << 20))
            time.sleep(0.001)
        return kept

    return call if type(module).__name__ == "Relu" else module
