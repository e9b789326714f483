"""What every test of soundness runs in."""

import pytest

from tests.fuzz import worlds


@pytest.fixture(autouse=True)
def _file_of_its_own(request, monkeypatch):
    """Which names count is known by file and line, for as long as a process runs."""
    monkeypatch.setattr(worlds, "FILE", f"<fuzz {request.node.nodeid}>")
