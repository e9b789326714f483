"""Two processes train as in eager, bit for bit, and what torch.compile captures is captured."""

from __future__ import annotations

from typing import Any

import pytest

from tests.distributed.cases import CASES
from tests.distributed.launch import run


@pytest.fixture(scope="module")
def rows() -> dict[str, list[dict[str, Any]]]:
    """What both ranks found, of all cases."""
    return run(list(CASES), ["magpy"], measured=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_both_ranks_compute_what_eager_computes(
    name: str, rows: dict[str, list[dict[str, Any]]]
) -> None:
    found = rows[name]
    assert len(found) == 2
    for row in found:
        assert "lost" not in row, row["lost"]
        assert "impossible" not in row, row["impossible"]
        assert row["magpy"]["right"], row["magpy"]
        assert row["magpy"]["hits"] > 0, row["magpy"]["reasons"]
        assert row["magpy"]["captures"] <= 8, row["magpy"]["reasons"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["tensor_parallel", "sequence_parallel", "dtensor_operations", "dtensor_redistributed"]
)
def test_how_dtensors_move_is_part_of_one_graph(
    name: str, rows: dict[str, list[dict[str, Any]]]
) -> None:
    for row in rows[name]:
        assert set(row["magpy"]["segments"]) == {1}
        assert row["magpy"]["share"] > 0.9
