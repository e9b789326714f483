"""CUDA's tests run where there is a CUDA: a real one, or the stand-in of tests/cuda/stub."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what is in this folder where torch finds no CUDA."""
    if torch.cuda.is_available():
        return
    here = os.path.dirname(os.path.abspath(__file__))
    mark = pytest.mark.skip(reason="no CUDA here, nor its stand-in (tests/cuda/stub)")
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(mark)


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """Each test begins, and leaves, on device 0 and its default stream, without cuDNN."""
    torch.cuda.init()
    torch.backends.cudnn.enabled = False  # the stand-in has none
    yield
    torch.cuda.set_device(0)
    torch.cuda.set_stream(torch.cuda.default_stream())


class Counts:
    """What the stand-in has counted: launches, events recorded, synchronizations, waits."""

    def __init__(self) -> None:
        """Connects to it."""
        library = ctypes.CDLL(os.path.join(os.environ["CUDA_STUB"], "libcudashim.so"))
        self._counts = library.cudashim_counts

    def __call__(self) -> tuple[int, ...]:
        """The counts so far."""
        found = (ctypes.c_long * 4)()
        self._counts(found)
        return tuple(found)


@pytest.fixture
def counts() -> Counts:
    """Counts of launches and the like, which only the stand-in tells."""
    if "CUDA_STUB" not in os.environ:
        pytest.skip("only the stand-in of tests/cuda/stub counts launches")
    return Counts()
