"""Verdicts on single cases, without processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from parity_tests import corpus, protocol
from parity_tests.modes import MODES
from parity_tests.mutate import Check, draw, mutations
from tests.parity.hand_made import LINEAR, case_file


def load(tmp_path: Path, body: str, *classes: str) -> list[corpus.Case]:
    return corpus.load_cases(case_file(tmp_path, "hand_made", body, list(classes)))


def judge(case: corpus.Case, mode: str, **options: object) -> protocol.Record:
    return protocol.run_case(case, MODES[mode], **options)  # type: ignore[arg-type]


def test_eager_passes_itself(tmp_path: Path) -> None:
    record = judge(load(tmp_path, LINEAR, "Linear")[0], "eager")
    assert (record.status, record.whole) == ("pass", True)


@pytest.mark.parametrize(
    ("mode", "part"),
    [("shifted", "result: values"), ("drawing", "random number"), ("scribbling", "scale")],
)
def test_a_wrong_result_state_or_generator_is_wrong(tmp_path: Path, mode: str, part: str) -> None:
    record = judge(load(tmp_path, LINEAR, "Linear")[0], mode)
    assert record.status == "wrong"
    assert part in record.reason


def test_an_exception_of_the_compiled_module_is_a_crash(tmp_path: Path) -> None:
    record = judge(load(tmp_path, LINEAR, "Linear")[0], "raising")
    assert record.status == "crash"
    assert "KeyError" in record.reason


def test_what_eager_cannot_run_is_left_out(tmp_path: Path) -> None:
    body = "class Broken(nn.Module):\n    def forward(self, x):\n        return x @ x\n"
    record = judge(load(tmp_path, body, "Broken")[0], "eager")
    assert record.status == "left_out"
    assert "eager fails" in record.reason


def test_what_eager_does_not_repeat_is_left_out(tmp_path: Path) -> None:
    body = """
class Counts(nn.Module):
    n = 0
    def forward(self, x):
        self.n += 1
        return x * self.n
"""
    record = judge(load(tmp_path, body, "Counts")[0], "eager")
    assert "does not repeat" in record.reason


def test_a_missing_package_is_stood_in_for_and_its_use_left_out(tmp_path: Path) -> None:
    body = (
        "import no_such_package.part as part\nfrom torch.nn import NoSuchLayer\n"
        "class Uses(nn.Module):\n    def forward(self, x):\n        return part.transform(x)\n"
        + LINEAR
    )
    uses, linear = load(tmp_path, body, "Uses", "Linear")
    assert "missing" in judge(uses, "eager").reason
    assert judge(linear, "eager").status == "pass"


def test_a_magpy_case_is_whole_and_one_graph(tmp_path: Path) -> None:
    record = judge(load(tmp_path, LINEAR, "Linear")[0], "magpy")
    assert (record.status, record.whole, record.one_graph) == ("pass", True, True)


def test_a_compiler_that_does_not_look_again_is_stale(tmp_path: Path) -> None:
    case = load(tmp_path, LINEAR, "Linear")[0]
    assert judge(case, "remembering").status == "pass"
    record = judge(case, "remembering", mutate=Check(seconds=20))
    assert record.status == "stale"
    assert record.reason.startswith("after ")


@pytest.mark.parametrize("mode", ["eager", "magpy"])
def test_mutations_leave_an_honest_compiler_right(tmp_path: Path, mode: str) -> None:
    record = judge(load(tmp_path, LINEAR, "Linear")[0], mode, mutate=Check(seconds=30))
    assert (record.status, record.reason) == ("pass", "")
    assert record.mutations > 15


def test_mutations_cover_every_kind_and_undo_themselves(tmp_path: Path) -> None:
    body = """
class Rich(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.BatchNorm1d(3)
        self.flag, self.n, self.f, self.s, self.none = True, 2, 0.5, "relu", None
        self.items, self.table = [1, 2], {"a": 1}
    def forward(self, x, k=1):
        return self.fc(x) * self.n
"""
    path = case_file(tmp_path, "rich_case", body, [])
    path.write_text(
        path.read_text()
        + "TESTCASES=[(Rich, lambda: ([],{}), lambda: ([torch.rand(2,3)],{'k': 2}), True)]\n"
    )
    case = corpus.load_cases(path)[0]
    world, untouched = protocol.make_pair(case, "cpu")
    kinds = set()
    for change in draw(mutations(world), ""):
        kinds.add(change.kind)
        try:
            undo = change.apply(world)
        except Exception:  # noqa: BLE001, S112 - a change that does not apply to this module
            continue
        undo()
        found = protocol.compare.difference(
            (untouched.module, untouched.args, untouched.kwargs),
            (world.module, world.args, world.kwargs),
        )
        assert found is None, f"{change.label}: {found}"
    assert {
        "mode",
        "bool attribute 0",
        "int attribute 0",
        "float attribute 0",
        "str attribute 0",
        "NoneType attribute 0",
        "list shortened",
        "dict extended",
        "parameter values",
        "parameter replaced",
        "requires_grad",
        "parameter dtype",
        "submodule",
        "hook",
        "input batch",
        "input dtype",
        "input stride",
        "input number",
    } <= kinds


def test_inputs_are_copied_and_modules_are_not() -> None:
    layer = torch.nn.Linear(1, 1)
    original = [torch.ones(2), {"k": (torch.zeros(1), layer)}]
    copied = protocol.copy_inputs(original)
    assert copied[0] is not original[0]
    assert copied[1]["k"][1] is layer
