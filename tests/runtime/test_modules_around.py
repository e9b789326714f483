"""DistributedDataParallel around a compiled module: what the program finds in it."""

from __future__ import annotations

import copy
import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import magpy


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.layer(x).relu()


@pytest.fixture
def wrapped(tmp_path: Path) -> Iterator[Any]:
    """A module in DistributedDataParallel, in a group of one process."""
    before = os.environ.get("GLOO_SOCKET_IFNAME")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield DistributedDataParallel(Net())
    dist.destroy_process_group()
    # gloo's threads let go of Python's objects, for which the group waits with the GIL held.
    time.sleep(0.2)
    if before is None:
        del os.environ["GLOO_SOCKET_IFNAME"]


def test_the_module_inside_is_the_programs(wrapped: Any) -> None:
    compiled = magpy.compile(wrapped, backend="eager")
    assert isinstance(compiled, DistributedDataParallel)
    assert compiled.module is wrapped.module
    assert compiled.module in list(compiled.children())
    assert list(compiled.state_dict()) == list(wrapped.state_dict())


def test_its_calls_are_served_and_its_gradients_are_eagers(wrapped: Any) -> None:
    compiled = magpy.compile(wrapped, backend="eager")
    x = torch.randn(3, 4)
    wrapped(x).sum().backward()
    expected = [p.grad.clone() for p in wrapped.parameters()]
    for _ in range(4):
        wrapped.zero_grad()
        compiled(x).sum().backward()
        assert all(
            torch.equal(p.grad, g) for p, g in zip(wrapped.parameters(), expected, strict=True)
        )
    assert magpy.stats(compiled).hits == 3


def test_another_module_put_inside_is_compiled(wrapped: Any) -> None:
    compiled = magpy.compile(wrapped, backend="eager")
    x = torch.randn(3, 4)
    compiled(x)
    wrapped.module = Net()
    for _ in range(3):
        assert torch.equal(compiled(x), wrapped.module(x))
    assert magpy.stats(compiled).hits == 2


def test_copies_are_compiled_modules_of_their_own(wrapped: Any) -> None:
    compiled = magpy.compile(wrapped, backend="eager")
    x = torch.randn(3, 4)
    compiled(x)
    # The first copy shows that modules vary, the entry that is made then serves all others.
    copies = (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled)))
    for made, hits in zip(copies, (2, 3), strict=True):
        assert made.module is not compiled.module
        for _ in range(3):
            assert torch.equal(made(x), wrapped(x))
        assert magpy.stats(made).hits == hits
