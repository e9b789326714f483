"""Options and isolation for every test.

`@pytest.mark.sampled(n)` is for many cases of one mechanism: one in n runs, always the same ones,
and with `--long` all of them.

Importing this must not import torch: the torch-free tests run where there is none.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import zlib

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
    if config.getoption("--long"):
        return
    named = any("::" in arg for arg in config.args)  # what somebody asks for by its name runs
    skip = pytest.mark.skip(reason="takes minutes: pass --long")
    left_out = []
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if "long" in item.keywords:
            item.add_marker(skip)
        elif sampled and not named and zlib.crc32(item.name.encode()) % sampled.args[0]:
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        without = {id(item) for item in left_out}
        items[:] = [item for item in items if id(item) not in without]


@pytest.fixture(autouse=True, scope="module")
def few_objects():
    """A collection looks at what the module's tests make, not at all that torch has imported."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def same_start():
    """Every test starts from the same seeds, and leaves torch's global state as it was."""
    random.seed(0)
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    # Not `torch.manual_seed`: without a GPU it keeps the stack of each call for the time when CUDA
    # is initialized.
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)
    # pytest listens to loggers that do not propagate. This one's writer would then describe each
    # symbol and condition of a shape environment with its stack, for nobody.
    trace_log = torch._logging._internal.trace_log
    trace_log.propagate = True
    if not os.environ.get("TORCH_TRACE"):
        trace_log.handlers.clear()
    families = sys.modules.get("magpy.runtime.families")
    if families is not None:
        families.forget()  # a function of another run of the same test is alike
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    yield
    torch.set_grad_enabled(grad)
    torch.set_default_dtype(dtype)
