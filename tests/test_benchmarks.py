"""The benchmark suite's own arithmetic: what it counts, and what its report says of it."""

import argparse
import json
import random

import pytest
import torch

import magpy
from benchmarks import __main__ as program
from benchmarks import (
    checked,
    generating,
    gpu_code,
    measure,
    report,
    serving,
    steps,
    suite,
    systems,
    warm_start,
)
from benchmarks.models import SUITE
from tests.comparison import assert_same


def record(name, batch, **seconds):
    rows = {
        system: {"seconds": s, "low": s * 0.9, "high": s * 1.1, "memory": 1000, "graphs": "1"}
        for system, s in seconds.items()
    }
    for system in ("torch.compile", "magpy"):
        if system in rows:
            rows[system] |= {"start": 5.0, "backend": 4.0, "overhead": 1e-5}
    return {"case": name, "batch": batch, "device": "cpu", "dtype": "float32", "systems": rows}


RECORDS = [
    record("A", 1, **{"eager": 4e-3, "torch.compile": 2e-3, "magpy": 1e-3}),
    record("B", 1, **{"eager": 1e-3, "torch.compile": 1e-3, "magpy": 2e-3}),
    {
        "case": "C",
        "batch": 16,
        "device": "cpu",
        "dtype": "float32",
        "systems": {"eager": {"error": "OSError: gone"}, "magpy": {"error": "wrong result"}},
    },
    {"case": "D", "batch": 1, "device": "cpu", "systems": {}, "error": "not done after 9 s"},
    {
        "varying": "batch",
        "device": "cpu",
        "labels": ["2", "3"],
        "systems": {
            "eager": {"first": 1.0, "graphs": "-", "difference": 0.0, "steps": [2e-3, 4e-3]},
            "magpy": {"first": 2.0, "graphs": "2", "difference": 1e-6, "steps": [1e-3, 2e-3]},
        },
    },
]
NAMES = ["eager", "torch.compile", "magpy"]


def test_only_cases_that_both_ran_count():
    assert report.speedups(RECORDS[:4], "magpy") == {"A batch 1": 4.0, "B batch 1": 0.5}
    over = report.speedups(RECORDS[:4], "magpy", "torch.compile")
    assert over == {"A batch 1": 2.0, "B batch 1": 0.5}


def test_the_report_says_means_losses_and_failures():
    text = report.markdown(RECORDS, NAMES, "cpu")
    assert "- magpy: 1.41x eager (geometric mean, 2 of 4 cases; least 0.50x, B batch 1;" in text
    assert "- magpy: 1.00x torch.compile (geometric mean, 2 of 4 cases;" in text
    assert "- C batch 16, magpy: wrong result" in text
    assert "- D batch 1: not done after 9 s" in text
    assert "4 ms ±10%" in text and "1 ms ±10%, 4.00x" in text
    row = next(line for line in text.splitlines() if line.startswith("| batch") and "magpy" in line)
    assert [c.strip() for c in row.split("|")[3:6]] == ["2 s", "2", "2.00x"]
    costs = [line for line in text.splitlines() if line.startswith("| A ")][1]
    assert [c.strip() for c in costs.split("|")[3:9]] == [
        "1 s",
        "1 s",
        "4 s",
        "4 s",
        "10 us",
        "10 us",
    ]


def test_the_report_is_written_and_read_again(tmp_path):
    report.write(RECORDS, NAMES, tmp_path, "suite-cpu", "cpu")
    assert json.loads((tmp_path / "suite-cpu.json").read_text())["cases"] == RECORDS
    assert (tmp_path / "suite-cpu.md").read_text().startswith("# Speed of the suite")


def test_a_case_that_is_measured_again_takes_the_place_of_the_old(tmp_path):
    old = [r | {"magpy": "aaaa"} for r in RECORDS]
    report.write(old, NAMES, tmp_path, "suite-cpu", "cpu")
    found = report.read(tmp_path, "suite-cpu")
    assert found == old
    again = RECORDS[1] | {"magpy": "bbbb"}
    report.put(found, again)
    assert found == [old[0], again, *old[2:]]
    text = report.markdown(found, NAMES, "cpu")
    assert f"Measured at commit aaaa, except at bbbb: {report.title(again)}." in text
    assert "Measured at commit" not in report.markdown(old, NAMES, "cpu")
    assert report.read(tmp_path, "other") == []


def options(**given):
    found = {"case": None, "quick": False, "batch": None, "part": "1/1", **given}
    return argparse.Namespace(**found)


def test_parts_are_all_of_it_and_nothing_twice():
    whole = program.jobs(options())
    assert {name for name, batch in whole if batch} == {c.name for c in SUITE}
    parts = [job for i in (1, 2, 3) for job in program.jobs(options(part=f"{i}/3"))]
    assert sorted(parts) == sorted(whole)
    assert len(set(whole)) == len(whole)
    for part in ("0/3", "4/3", "x", "1", "1/0"):
        with pytest.raises(ValueError, match="is not I/N"):
            program.jobs(options(part=part))


@pytest.mark.parametrize("system", ["eager", "torchscript", "magpy"])
def test_every_system_gives_the_model_s_result(system):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()
    x = torch.randn(2, 4)
    with torch.no_grad():
        compiled = systems.compile_with(system, model, "eager", (x,))
        assert measure.worst_difference(compiled(x), model(x)) == 0.0


def test_an_unknown_system_is_named():
    with pytest.raises(ValueError, match="unknown system 'nothing'; known: eager, "):
        systems.compile_with("nothing", torch.nn.Identity())


def test_systems_of_accelerators_are_not_used_without_one():
    assert [s for s in systems.usable("cpu") if "reduce" in s] == []
    assert [s for s in systems.usable("cuda") if "reduce" in s] == [
        "torch.compile reduce-overhead",
        "magpy reduce-overhead",
    ]


def test_the_memory_of_a_call_is_what_it_holds_at_most():
    x = torch.ones(1000, 1000)

    def call():
        y = x + 1
        z = y * 2
        del y
        return z.sum()

    assert 8_000_000 <= measure.peak_memory(call) < 8_100_000
    assert measure.peak_memory(lambda: x) == 0


def test_only_the_outermost_compilation_is_counted(monkeypatch):
    from torch._inductor import compile_fx as module

    def compile_fx(depth):
        return depth and module.compile_fx(depth - 1)

    monkeypatch.setattr(module, "compile_fx", compile_fx)
    with systems.backend_seconds() as spent:
        module.compile_fx(2)
        module.compile_fx(0)
    assert len(spent) == 2
    assert module.compile_fx is compile_fx


def test_a_wrong_result_is_not_timed(monkeypatch):
    monkeypatch.setattr(
        systems,
        "compile_with",
        lambda system, model, *_: lambda *x: model(*x) if system == "eager" else x,
    )
    found = suite.measured(
        "LSTM", 1, suite.Settings(("eager", "torchscript"), rounds=2, budget=0.01)
    )
    assert found["systems"]["torchscript"]["error"] == "wrong result"
    assert "seconds" not in found["systems"]["torchscript"]
    assert found["systems"]["eager"]["seconds"] > 0
    assert found["systems"]["eager"]["memory"] > 0


def test_generating_serves_requests_of_other_sizes(monkeypatch):
    monkeypatch.setattr(generating, "REQUESTS", [(2, 4), (2, 6), (3, 5), (4, 8), (3, 7)])
    name, captures, hits, eager, share, *_ = generating.measured("GPT-2", "eager", 4)
    assert (name, captures, hits, eager) == ("GPT-2", "3", "17", "0")
    assert float(share) > 0.9


@pytest.mark.parametrize("make", serving.HANDLERS, ids=lambda m: m.__name__)
def test_what_surrounds_a_line_for_python_runs_in_graphs(make, monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)
    torch.manual_seed(0)
    handler = make(16)
    c = magpy.compile(handler, backend="eager")
    x = torch.randn(2, 3, 16)
    with torch.no_grad():
        for _ in range(10):
            found = c(x)
        if make is not serving.next_of_iterator:
            assert_same(found, handler(x))
    stats = magpy.stats(c)
    assert stats.share > 0.9, stats


def test_a_line_for_python_costs_regions_and_not_the_call(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)
    whole, one, two = serving.cost(2, 0.01)
    assert (whole[0], one[0], two[0]) == ("whole", "one_region", "two_regions")
    assert 0 < float(one[2]) < 100
    assert 0 < float(two[2]) < 100


def test_a_whole_step_is_one_graph():
    name, eager, *ratios, graphs, captures, peak, _, ours = steps.measured("MLP, SGD", "eager", 3)
    assert (name, graphs, captures) == ("MLP, SGD", 1, 2)
    assert eager > 0 and len(ratios) == 2 and min(ratios) > 0
    assert peak > 0 and ours <= 1.1


@pytest.mark.parametrize("kind", ["served", "trained"])
def test_a_process_tells_what_its_start_took(kind):
    found = warm_start.child(f"MLP, {kind}", "magpy", "eager")
    assert list(found["seconds"]) == ["first", "second", "other size"]
    first, second, other = (wall for wall, _ in found["seconds"].values())
    assert 0 < first < second and other > 0
    cells = warm_start.row("MLP", "magpy", [found | {"found": n, "not found": 0} for n in (1, 2)])
    assert cells[:2] == ["MLP", "magpy"] and cells[-2:] == ["2", "0"]
    assert cells[2].startswith(f"{first:.1f} s (")


def test_a_loaded_entry_serves_where_a_process_begins():
    name, *cells = warm_start.started("MLP", "eager", 1)
    assert name == "MLP" and len(cells) == 3 and cells[2].endswith("x)")


def test_calls_are_compared_while_entries_come_and_go(monkeypatch):
    monkeypatch.setattr(checked, "SUITE", [c for c in SUITE if c.name in ("LSTM", "BlockDrop")])
    monkeypatch.setattr(steps, "PROGRAMS", {"MLP, SGD": steps.PROGRAMS["MLP, SGD"]})
    monkeypatch.setattr(checked, "_CHANGES", 0.3)
    for name in ("saving", "max_entries", "max_captures"):
        monkeypatch.setattr(magpy.config, name, getattr(magpy.config, name))
    found = checked.run(3600, "eager", 0, 60)  # the calls end it, however busy the machine is
    assert (found["calls"], found["differences"]) == (60, 0)
    assert all(found[n] for n in ("hits", "captures", "reset", "anew"))


def test_a_difference_is_found(monkeypatch):
    def wrong(f, **options):
        def call(*args):
            found = f(*args)
            return found + 1 if isinstance(found, (float, torch.Tensor)) else None

        return call

    monkeypatch.setattr(magpy, "compile", wrong)
    draw = random.Random(0)
    for world in (checked.Model("LSTM", "eager", draw), checked.Step("MLP, SGD", "eager", draw)):
        with pytest.raises(checked.Difference):
            world.call()


def test_what_is_compared_is_all_that_a_tensor_is():
    t = torch.tensor([1.0, float("nan")])
    others = (
        t + 1,
        t.double(),
        t[:1],
        t[None],
        t.clone().requires_grad_(),
        torch.stack([t, t], 1)[:, 0],
    )
    checked.compared([t], [t.clone()], True, "")
    for other in others:
        with pytest.raises(checked.Difference):
            checked.compared([t], [other], True, "")
    checked.compared(1.0, 1.0000001, False, "")
    for a, b in ((1.0, 1.1), (1, 2), (None, t), ((ValueError, "a"), (ValueError, "b"))):
        with pytest.raises(checked.Difference):
            checked.compared(a, b, False, "")


def figures(**other):
    found = {"graphs": 1, "kinds": 2, "nodes": 9, "fused": 4, "outside": 0, "size": 4_200_000}
    counted = {"triton": 3, "library": 2, "torch": 1, "copies": 0, "copied": 0}
    launches = gpu_code.Launches(**{k: other.pop(k, v) for k, v in counted.items()})
    return gpu_code.Figures(launches=launches, **{**found, **other})


def test_what_a_gpu_has_more_to_do_is_said():
    assert figures().more_than(figures()) == []
    assert figures(kinds=9, graphs=5, nodes=50).more_than(figures()) == []
    assert figures().more_than(figures(triton=4, size=9_000_000)) == []
    more = figures(triton=4, outside=1, size=4_200_001).more_than(figures())
    assert more == [
        "Triton kernels 4 > 3",
        "launches 7 > 6",
        "launches outside 1 > 0",
        "bytes 4200001 > 4200000",
    ]


def test_the_table_of_what_is_generated_for_a_gpu():
    times = {
        name: measure.Timing(s, s, s, s)
        for name, s in {"eager": 2e-3, "torch.compile": 1e-3, "magpy": 5e-4}.items()
    }
    rows = gpu_code.rows("A", {"torch.compile": figures(), "magpy": figures(copies=2)}, times)
    ends = [["0", "4.2 MB", "1 ms", "0.50"], ["0", "4.2 MB", "500 us", "0.25"]]
    assert [row[-4:] for row in rows] == ends
    assert rows[1][:8] == ["A", "magpy", "1", "3", "2", "9", "4", "8"]
    text = gpu_code.markdown(rows, ["A: launches 8 > 6"])
    assert "- A: launches 8 > 6" in text and "In no case" not in text
    assert "In no case" in gpu_code.markdown(rows, [])


def test_launches_are_counted_over_the_stand_in_only(monkeypatch, capsys):
    monkeypatch.delenv("CUDA_STUB", raising=False)
    monkeypatch.setattr("sys.argv", ["gpu_code"])
    assert gpu_code.main() == 2
    assert "tests/cuda/stub" in capsys.readouterr().out
