"""What a package does when it is first used is refused then, and is nothing to leave to Python."""

import importlib
import sys

import pytest
import torch

import magpy
from tests.comparison import assert_same

PACKAGE = """
class Backend:
    pass

class OfTorch(Backend):
    def double(self, x):
        return x * 2

found = []

def backend():
    if not found:
        found.extend(cls() for cls in Backend.__subclasses__())
    return found[0]

def asked(x):
    return backend().double(x) + len(Backend.__subclasses__())
"""


@pytest.fixture(autouse=True)
def regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that is installed for one test."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "package_of_a_test.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(folder)
    yield importlib.import_module("package_of_a_test")
    del sys.modules["package_of_a_test"]


def test_the_first_use_of_a_package_leaves_no_line_to_python(package):
    def f(x):
        y = x.relu() + 1
        return package.backend().double(y).sum()

    compiled = magpy.compile(f, backend="eager")
    for i in range(6):
        x = torch.full((2,), float(i))
        assert_same(compiled(x), (x.relu() + 1).mul(2).sum())
    stats = magpy.stats(compiled)
    assert stats.eager_calls == 1 and stats.captures == 1 and not stats.in_python, stats


def test_a_line_that_is_refused_again_is_left_to_python(package):
    package.backend()

    def f(x):
        y = x.relu() + 1
        return package.asked(y).sum()

    compiled = magpy.compile(f, backend="eager")
    for i in range(6):
        x = torch.full((2,), float(i))
        assert_same(compiled(x), f(x))
    stats = magpy.stats(compiled)
    assert stats.eager_calls == 2 and stats.in_python, stats.reasons


def test_one_graph_is_asked_for(package):
    package.backend()
    compiled = magpy.compile(lambda x: package.asked(x), backend="eager", fullgraph=True)
    with pytest.raises(magpy.CaptureError, match="__subclasses__"):
        for _ in range(2):
            compiled(torch.ones(2))
