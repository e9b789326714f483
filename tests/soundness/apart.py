"""Programs as text that run in processes of their own (tests/fuzz), for tables of programs.

Owns: the fixture that a module of such tests imports. Does not own the programs.
"""

import pytest
import torch

from tests.fuzz import __main__ as fuzz


@pytest.fixture(scope="module", autouse=True)
def children_ready():
    """Children inherit what torch has loaded, and no threads, which a fork would leave behind."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    fuzz.warm_up("eager")
    yield
    torch.set_num_threads(threads)
