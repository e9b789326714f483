"""The mutation check can fail: where magpy leaves a kind of guard out, it finds what goes stale."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magpy import _interp
from magpy.guards.analysis import Analysis
from parity_tests import corpus, protocol
from parity_tests.modes import MODES
from parity_tests.mutate import Check
from tests.parity.hand_made import case_file

BODY = """
class Guarded(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.scale, self.kind, self.sizes = 2.0, "relu", [1, 2]
    def forward(self, x):
        x = self.fc(x) * self.scale + x.shape[0]
        if self.fc.weight.requires_grad:
            x = x + 1
        for size in self.sizes:
            x = x + size
        return x.relu() if self.kind == "relu" else x
"""


def judge(directory: Path, **budget: Any) -> protocol.Record:
    case = corpus.load_cases(case_file(directory, "guarded", BODY, ["Guarded"]))[0]
    return protocol.run_case(case, MODES["magpy"], mutate=Check(seconds=60, **budget))


def plain_values(checks: list[Any], anchors: dict[str, Any]) -> None:
    anchors["dicts"] = [
        (d, [read for read in reads if read[2] != "leaf"]) for d, reads in anchors["dicts"]
    ]


def parts(checks: list[Any], anchors: dict[str, Any]) -> None:
    gone = {"weight", "bias", "fc"}
    anchors["dicts"] = [
        (d, [read for read in reads if read[0] not in gone or "training" in d])
        for d, reads in anchors["dicts"]
    ]


def anchored(name: str) -> Callable[[list[Any], dict[str, Any]], None]:
    def drop(checks: list[Any], anchors: dict[str, Any]) -> None:
        assert anchors[name]
        anchors[name] = []

    return drop


def arguments(checks: list[Any], anchors: dict[str, Any]) -> None:
    checks[:] = [check for check in checks if check[0] != "tensor"]


def test_without_a_fault_nothing_is_stale(tmp_path: Path) -> None:
    record = judge(tmp_path)
    assert (record.status, record.reason, record.whole) == ("pass", "", True)
    assert record.mutations > 20


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (plain_values, {"module.scale changed", "module.kind changed"}),
        (parts, {"module.fc.weight replaced", "module.fc.bias replaced", "another Linear"}),
        (anchored("lists"), {"module.sizes"}),
        (anchored("dict_keys"), {"a forward hook"}),
        (anchored("tensors"), {"module.fc.weight.requires_grad flipped"}),
        (arguments, {"one more row"}),
    ],
    ids=["plain values", "parts", "lists", "hooks", "tensors", "arguments"],
)
def test_a_guard_left_out_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Any, found: set[str]
) -> None:
    def guard(self: Analysis) -> Any:
        fault(self.checks, self.anchors)
        return _interp.Guard(self.npos, self.kwnames, self.nregs, self.checks, self.anchors)

    monkeypatch.setattr(Analysis, "guard", guard)
    record = judge(tmp_path)
    assert record.status == "stale"
    assert any(part in record.reason for part in found), record.reason


def test_a_sample_of_changes_is_fixed(tmp_path: Path) -> None:
    first, second = (judge(tmp_path, count=6) for _ in range(2))
    assert first.mutations + first.skipped_mutations == 6
    assert (first.mutations, first.skipped_mutations) == (
        second.mutations,
        second.skipped_mutations,
    )
