"""What every test of soundness runs in."""

import importlib.util
import warnings

import pytest

from tests.fuzz import worlds


@pytest.fixture(autouse=True)
def _file_of_its_own(request, monkeypatch):
    """Which names count is known by file and line, for as long as a process runs."""
    monkeypatch.setattr(worlds, "FILE", f"<fuzz {request.node.nodeid}>")


@pytest.fixture
def shown_as_ever(monkeypatch):
    """Warnings are written to a stream, as outside of pytest, which keeps them in a list."""
    spec = importlib.util.find_spec("warnings")
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    monkeypatch.setattr(warnings, "_showwarnmsg_impl", fresh._showwarnmsg_impl)
