"""A module that a call imports first: the call runs eagerly, the next one is captured whole."""

import sys

import pytest
import torch

import magpy
from magpy.capture.refusals import RefusalBox
from tests.comparison import assert_same

MODULE = """
import threading
here = threading.local()
here.names = [line for line in open(__file__) if line]
table = dict.fromkeys(map(str, range(100)))
def double(x):
    return x * 2
"""


@pytest.fixture(autouse=True)
def _regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module that is not imported yet, whose code no call could be redone with."""
    (tmp_path / "magpy_tests_imported_late.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "magpy_tests_imported_late"
    sys.modules.pop("magpy_tests_imported_late", None)


def test_the_call_that_imports_is_eager_and_no_line_is_left_to_python(module):
    def f(x):
        y = x.relu() + 1
        from magpy_tests_imported_late import double

        return double(y).sum()

    compiled = magpy.compile(f, backend="eager")
    for i in range(4):
        x = torch.full((2,), float(i))
        assert_same(compiled(x), (x.relu() + 1).mul(2).sum())
    stats = magpy.stats(compiled)
    assert stats.eager_calls == 1 and stats.captures == 1 and stats.hits == 2
    assert not stats.in_python
    assert ["is imported. The next call finds it" in r for r in stats.reasons] == [True]


def test_what_the_module_does_is_not_watched(module, monkeypatch):
    refused, refuse = [], RefusalBox.refuse

    def noted(self, reason, *more, **named):
        refused.append(reason)
        refuse(self, reason, *more, **named)

    monkeypatch.setattr(RefusalBox, "refuse", noted)

    def f(x):
        import magpy_tests_imported_late

        return magpy_tests_imported_late.double(x)

    compiled = magpy.compile(f, backend="eager")
    assert_same(compiled(torch.ones(2)), torch.ones(2) * 2)
    assert refused == [f"{module} is imported"]


def test_an_import_that_fails_raises_as_in_eager():
    def f(x):
        try:
            import magpy_tests_that_nobody_wrote  # noqa: F401
        except ImportError:
            return x + 1
        return x

    compiled = magpy.compile(f, backend="eager")
    for _ in range(3):
        assert_same(compiled(torch.ones(2)), torch.ones(2) + 1)
