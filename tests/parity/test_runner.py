"""Processes, limits, resuming, the report and the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from parity_tests import __main__ as command
from parity_tests import corpus, report
from parity_tests.progress import Progress
from parity_tests.results import Results, SettingsDifferError, read_results
from parity_tests.worker import Settings
from tests.parity.hand_made import LINEAR, case_file

Run = Callable[..., Results]


def statuses(results: Results) -> dict[str, str]:
    return {record["name"]: record["status"] for record in results.records}


@pytest.mark.parametrize(
    ("mode", "settings", "verdict"),
    [
        ("dying", {}, "crash"),
        ("hanging", {"timeout": 2.0}, "timeout"),
        ("hoarding", {"memory": 1.0}, "crash"),
    ],
)
def test_a_case_that_dies_hangs_or_hoards_takes_no_other_down(
    tmp_path: Path, run: Run, mode: str, settings: dict[str, Any], verdict: str
) -> None:
    path = case_file(tmp_path, "three", LINEAR, ["Linear", "Relu", "Tanh"])
    results = run([path], mode, **settings)
    assert statuses(results) == {"Linear": "pass", "Relu": verdict, "Tanh": "pass"}


def test_eager_killing_the_process_is_left_out(tmp_path: Path, run: Run) -> None:
    body = "class Dies(nn.Module):\n    def forward(self, x):\n        os.abort()\n" + LINEAR
    results = run([case_file(tmp_path, "dies", body, ["Dies", "Linear"])], "eager")
    assert statuses(results) == {"Dies": "left_out", "Linear": "pass"}


NEEDY = """
class Needy(nn.Module):
    def __init__(self):
        super().__init__()
        self.count = 1

    def forward(self, x):
        if self.count != 1 or self.training:
            NEED
        return x * 2
"""


@pytest.mark.parametrize(
    ("need", "settings"),
    [
        ("os.abort()", {}),
        ("time.sleep(60)", {"timeout": 1.0}),
        ("kept = [torch.ones(2**20) for _ in range(2**10)]", {"memory": 1.0}),
    ],
)
def test_a_change_that_ends_eager_is_skipped(
    tmp_path: Path, run: Run, need: str, settings: dict[str, Any]
) -> None:
    body = "import time\n" + NEEDY.replace("NEED", need) + LINEAR
    path = case_file(tmp_path, "needy", body, ["Needy", "Linear"])
    results = run([path], "eager", mutate=True, mutate_seconds=1.0, **settings)
    assert statuses(results) == {"Needy": "pass", "Linear": "pass"}
    first, second = results.records
    assert first["skipped_mutations"] >= 1
    assert second["mutations"] >= 1


def test_a_change_that_only_ends_the_compiled_module_is_a_crash(tmp_path: Path, run: Run) -> None:
    path = case_file(tmp_path, "three", LINEAR, ["Linear", "Tanh"])
    results = run([path], "dying in training", mutate=True, mutate_seconds=5.0)
    assert statuses(results) == {"Linear": "crash", "Tanh": "pass"}
    assert results.records[0]["reason"].startswith("after module.train()")
    assert "SIGABRT" in results.records[0]["reason"]


def test_what_eager_cannot_run_is_not_tried_for_the_next_mode(tmp_path: Path, run: Run) -> None:
    body = f"""
class Fails(nn.Module):
    def forward(self, x):
        with open({str(tmp_path / "tries")!r}, "a") as stream:
            stream.write("x")
        raise RuntimeError("no")
{LINEAR}"""
    results = run([case_file(tmp_path, "fails", body, ["Fails", "Linear"])], "eager", "shifted")
    assert [(r["mode"], r["name"], r["status"]) for r in results.records] == [
        ("eager", "Fails", "left_out"),
        ("eager", "Linear", "pass"),
        ("shifted", "Fails", "left_out"),
        ("shifted", "Linear", "wrong"),
    ]
    assert (tmp_path / "tries").read_text() == "x"


def test_a_file_that_cannot_be_imported_is_noted(tmp_path: Path, run: Run) -> None:
    results = run([case_file(tmp_path, "bad", "raise RuntimeError('no')", [])], "eager")
    assert results.files["bad", "eager"]["error"] == "RuntimeError: no"


def test_a_stopped_run_goes_on_where_it_was(tmp_path: Path, run: Run) -> None:
    files = [
        case_file(tmp_path, name, LINEAR, ["Linear", "Relu", "Tanh"]) for name in ("one", "two")
    ]
    run(files, "eager")
    path = tmp_path / "results.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"two"' not in line][
        :-1
    ]  # the first file's end and the second file are lost
    path.write_text(
        "".join(kept[:-1]) + kept[-1][:20]
    )  # and the last record was cut off while it was written
    before = len(read_results(path)[1])
    assert before == 2
    results = run(files, "eager")
    assert len(results.records) == 6
    assert set(results.files) == {("one", "eager"), ("two", "eager")}
    whole = read_results(path)[1]
    assert sorted((r["file"], r["index"]) for r in whole) == [
        (f, i) for f in ("one", "two") for i in range(3)
    ]
    written = path.read_text().splitlines()
    assert len([line for line in written if '"index"' in line]) == 6, (
        "a case that was known ran again"
    )


def test_results_of_other_settings_are_not_mixed(tmp_path: Path) -> None:
    Results(tmp_path / "r.jsonl", Settings()).close()
    with pytest.raises(SettingsDifferError, match="--fresh"):
        Results(tmp_path / "r.jsonl", Settings(backend="inductor"))


def record(name: str, mode: str, status: str = "pass", **values: Any) -> dict[str, Any]:
    base = {
        "file": "f",
        "index": 0,
        "name": name,
        "mode": mode,
        "status": status,
        "whole": status == "pass",
        "one_graph": status == "pass",
        "reason": "",
        "detail": "",
        "eager_seconds": 0.1,
        "first_seconds": 0.2,
        "first_cpu_seconds": 0.2,
        "mutations": 3,
        "seconds": 1.0,
        "skipped_mutations": 0,
    }
    return {**base, **values}


def test_the_report_counts_and_renders(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    rows = [
        record("A", "magpy", index=0),
        record("B", "magpy", index=1, status="wrong", reason="call 2: result: values <differ>"),
        record("C", "magpy", index=2, file="g", one_graph=False, reason="[2] graphs"),
        record("D", "magpy", index=3, file="g", status="left_out", reason="eager fails: x"),
        record("A", "dynamo", index=0, first_seconds=2.0, first_cpu_seconds=2.0),
        record("B", "dynamo", index=1, status="refused", reason="Unsupported: call of 'f' at 0x12"),
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report.write_report([path], tmp_path / "out")
    text = (tmp_path / "out" / "parity.md").read_text()
    magpy = next(line for line in text.splitlines() if line.startswith("| magpy"))
    assert [cell.strip() for cell in magpy.split("|")][2:10] == [
        "3",
        "2",
        "2 (66.67%)",
        "1 (50.00%)",
        "1 (33.33%)",
        "0 (0.00%)",
        "0",
        "1",
    ]
    assert "ratio 0.100" in text
    assert "wrong" in text
    page = (tmp_path / "out" / "parity.html").read_text()
    assert "values &lt;differ&gt;" in page
    assert page.count("<table>") >= 2


def test_the_plot_is_drawn_where_matplotlib_is(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the plot needs matplotlib")
    path = report.plot_capture([("a", 0.1, 1.0), ("b", 0.2, 0.5)], tmp_path / "plot.svg")
    assert path is not None
    assert path.read_text().lstrip().startswith("<?xml")


def test_reasons_are_grouped_without_what_is_particular() -> None:
    rows = [
        record("A", "magpy", reason="/a/b/test_x.py:12: attribute 'w' read"),
        record("B", "magpy", reason="/c/test_y.py:7: attribute 'v' read"),
    ]
    ((_, count, _),) = report.group(rows)
    assert count == 2


def test_the_halves_part_the_files_and_shards_part_a_half(tmp_path: Path) -> None:
    for index in range(20):
        case_file(tmp_path, f"test_{index}", LINEAR, ["Linear"])
    halves = [corpus.list_files(tmp_path, split, (1, 1)) for split in ("open", "held", "all")]
    assert sorted(halves[0] + halves[1]) == halves[2]
    shards = [path for i in (1, 2, 3) for path in corpus.list_files(tmp_path, "all", (i, 3))]
    assert sorted(shards) == halves[2]


def test_the_progress_line_says_what_was_found() -> None:
    progress = Progress(4)
    progress.record(record("A", "magpy"))
    progress.record(record("B", "magpy", status="stale"))
    progress.file()
    assert "1/4 files, 2 cases, whole 1" in progress.line()
    assert "stale 1" in progress.line()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "--paritybench PATH is needed"),
        (["--paritybench", "x", "--shard", "3/2"], "is not I/N"),
        (["--paritybench", "x", "--mode", "jax"], "invalid choice"),
        (["--paritybench", "x", "--jobs", "0"], "at least 1"),
    ],
)
def test_wrong_arguments_are_explained(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        command.main(argv)
    assert message in capsys.readouterr().err


def test_a_path_that_does_not_exist_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--paritybench", str(tmp_path / "nowhere"), "--mode", "eager"]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_the_command_runs_a_directory_and_prints_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "generated"
    directory.mkdir()
    case_file(directory, "test_a", LINEAR, ["Linear", "Relu"])
    out = tmp_path / "r.jsonl"
    argv = [
        "--paritybench",
        str(tmp_path),
        "--split",
        "all",
        "--mode",
        "eager",
        "--jobs",
        "1",
        "--out",
        str(out),
    ]
    assert command.main(argv) == 0
    assert "| eager | 2 | 1 |" in capsys.readouterr().out
    assert command.main([*argv, "--filter", "test_a:Relu", "--fresh"]) == 0
    assert "| eager | 1 | 1 |" in capsys.readouterr().out
