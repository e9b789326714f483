"""Random programs and the shortened programs that once failed, eager and compiled in step.

`--long` runs many more. `python -m tests.fuzz` runs as many as wanted, and shortens what fails.
"""

from __future__ import annotations

import ctypes
import pathlib
import random

import pytest
import torch

from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.fuzz import __main__ as fuzz
from tests.fuzz import dense, shrink, tables, worlds

REGRESSIONS = sorted((pathlib.Path(__file__).parent / "regressions").glob("*.py"))


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def run(seeds):
    batch = fuzz.Batch()
    batch.run(seeds)
    told = "\n".join(f"seed {seed}: {finding}" for seed, finding in batch.failures)
    assert not batch.failures, f"{told}\nshorten: python -m tests.fuzz --programs 1 --seed SEED"
    return batch


@pytest.fixture(scope="module", autouse=True)
def warm():
    fuzz.warm_up("aot_eager")


@pytest.fixture(params=SAMPLED_BACKENDS)
def backend(request, monkeypatch):
    monkeypatch.setattr(worlds, "backend", request.param)
    return request.param


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_shortened_program_does_as_eager(path, backend, monkeypatch):
    """And an entry is used, unless the first line says why it is not.

    That is `# eager: REASON`, or `# anew: WHY` where what the program reads is new in each call.
    """
    # A file of its own: which names count is known by file and line, for as long as a process runs.
    monkeypatch.setattr(worlds, "FILE", f"<fuzz {path.stem}>")
    text = path.read_text()
    report = fuzz.report_on(text, 0, fuzz.TIMEOUTS[backend])
    assert report.finding is None
    first = text.partition("\n")[0]
    if first.startswith("# eager: "):
        reason = first.removeprefix("# eager: ")
        assert any(reason in r for r in report.reasons), report.reasons
        assert not report.hits, "entries are used: the first line is no longer true"
    elif first.startswith("# anew: "):
        assert report.captures
        assert not report.hits, "entries are used: the first line is no longer true"
    else:
        assert report.hits, report.reasons


def test_random_programs_do_as_eager():
    batch = run(range(60))
    assert batch.total.hits > 30, "entries are used"


def test_random_programs_of_few_objects_do_as_eager(monkeypatch):
    monkeypatch.setattr(fuzz, "make_program", dense.program)
    batch = run(range(90))
    assert batch.total.hits > 100, "entries are used"


@pytest.mark.parametrize("group", dense.GROUPS)
def test_programs_of_a_group_differ_and_can_be_compiled(group):
    texts = {dense.program_of(group, random.Random(seed)) for seed in range(40)}
    assert len(texts) == 40
    for text in texts:
        worlds.compiled_source(text)


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 20000, 500))
def test_many_random_programs_do_as_eager(first):
    run(range(first, first + 500))


def all_do_as_eager(programs):
    failed, hits = [], 0
    for name, text in programs:
        report = fuzz.report_on(text, 0)
        hits += report.hits
        if report.finding is not None:
            failed.append(f"{name}: {report.finding}")
    assert not failed, "\n".join(failed)
    assert hits


def test_some_looks_at_what_a_call_changes_do_as_eager():
    # A step that shares no factor with the length of the table comes by every kind and every look.
    all_do_as_eager(list(tables.programs())[::23])


@pytest.mark.long
@pytest.mark.parametrize("kind", tables.KINDS)
def test_all_looks_at_what_a_call_changes_do_as_eager(kind):
    all_do_as_eager(tables.programs([kind]))


FORGETFUL = """
import torch
count = 0
unused = 7
def f(t):
    global count
    for _ in range(2):
        count += 1
    return t + 1
target = f
def steps(f):
    yield attempt(f, torch.ones(2))
    yield attempt(f, torch.ones(2))
"""


class Forgetful:
    """Calls a function once and then answers the same."""

    def __init__(self, f):
        self.f, self.result = f, None

    def __call__(self, *args):
        if self.result is None:
            self.result = self.f(*args)
        return self.result


def test_worlds_that_differ_are_found():
    finding = worlds.run(FORGETFUL, wrap=Forgetful).finding
    assert finding.kind == "differs"
    assert finding.step == 1


KEEPING = """
import torch
leaf = torch.tensor([0.5], requires_grad=True)
kept = []
def f(p):
    kept.append(1 + p)
    p.data = p.detach().sum()
    return p
target = f
def steps(f):
    global kept
    r = f(leaf)
    yield r
    kept = None
    backward(r)
    yield r
"""


def test_what_only_shows_because_an_entry_keeps_something_is_told_apart():
    assert worlds.run(KEEPING).finding.kind == "differs"
    assert fuzz.needs_deaths(lambda: KEEPING, 0)
    assert not fuzz.needs_deaths(lambda: FORGETFUL, 0, Forgetful)


LATE = """
import torch
counts, seen = torch.zeros(2), []
def f(p):
    LINE
    return torch.linalg.inv(p)
target = f
def steps(f):
    yield attempt(f, torch.eye(2))
    yield attempt(f, torch.eye(2))
    yield attempt(f, torch.zeros(2, 2))
"""


def test_what_an_operation_leaves_that_raises_late_is_told_apart():
    changes = worlds.run(LATE.replace("LINE", "seen.append(1); counts.add_(1)"))
    assert changes.late and changes.finding is None and changes.steps == 2
    plain = worlds.run(LATE.replace("LINE", "seen.append(1)"))
    assert not plain.late and plain.finding is None and plain.steps == 3


def test_a_failing_program_is_shortened():
    def fails(source):
        try:
            found = worlds.run(source, wrap=Forgetful).finding
        except Exception:
            return False
        return found is not None and "count" in found.text

    short = shrink.shrink(FORGETFUL, fails, 10)
    assert fails(short)
    assert "unused" not in short
    assert "for " not in short


def test_a_crash_is_survived():
    crash = (
        "import ctypes\ndef f():\n    pass\ntarget = f\n"
        "def steps(f):\n    ctypes.string_at(0)\n    yield 1\n"
    )
    finding = fuzz.check(crash, 0)
    assert finding.kind == "crash"


def test_a_program_whose_making_crashes_is_survived(monkeypatch):
    monkeypatch.setattr(fuzz, "make_program", lambda seed: ctypes.string_at(0))
    batch = fuzz.Batch()
    batch.run([7, 8])
    assert batch.dropped == {"eager crashes": 2}
    assert not batch.failures
