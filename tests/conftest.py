"""Options and isolation for every test.

Importing this must not import torch: the torch-free tests run where there is none.
"""

from __future__ import annotations

import os
import random
import sys

import pytest

# The operations of every capture are checked after every pass, in processes of tests, too.
os.environ.setdefault("MAGPY_VERIFY", "1")
# Most tests are about what one entry redoes, and when it is refused.  Those of regions set
# `magpy.config.regions` (tests/runtime/test_driver.py, tests/regions).
os.environ.setdefault("MAGPY_REGIONS", "0")
# What a machine that does other work is slow at says nothing.
os.environ.setdefault("MAGPY_NOTICE_SLOWER", "0")


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="also run tests that take minutes")


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--long"):
        skip = pytest.mark.skip(reason="takes minutes: pass --long")
        for item in items:
            if "long" in item.keywords:
                item.add_marker(skip)


@pytest.fixture(autouse=True)
def same_start():
    """Every test starts from the same seeds, and leaves torch's global state as it was."""
    random.seed(0)
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    torch.manual_seed(0)
    families = sys.modules.get("magpy.runtime.families")
    if families is not None:
        families.forget()  # a function of another run of the same test is alike
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    yield
    torch.set_grad_enabled(grad)
    torch.set_default_dtype(dtype)
