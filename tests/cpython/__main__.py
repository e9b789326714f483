"""Runs CPython's regression tests with and without instrumentation and compares every outcome.

Owns: which modules run, what is expected to differ (the tables in README.md), the verdict. Does not
own: running one module (`worker.py`, in a subprocess). Called as
`python -m tests.cpython [--quick] [--moved | --watched | --drivers SEED] [names...]` with any
CPython that `magpy._interp` was built for (torch is not needed), and by test_regression.py.

A test that fails without instrumentation as well does not count. Any other difference must be in
the table, and what is in the table must differ: an unexpected failure and an unexpected success
both fail the run.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

QUICK = (
    "test_grammar test_generators test_scope test_super test_raise test_with test_patma test_iter "
    "test_unpack_ex test_named_expressions test_keywordonlyarg test_positional_only_arg "
    "test_property test_class test_sys_settrace"
).split()

ALL = sorted(
    {
        *QUICK,
        *(
            "test_coroutines test_asyncgen test_descr test_exceptions test_contextlib "
            "test_functools test_dataclasses test_enum test_dict test_list test_set "
            "test_itertools test_traceback test_inspect"
        ).split(),
    }
)

DRIVERS = 4  # the mode of worker.py

# What these test is which frames there are, and the code in them.
NOT_AS_DRIVERS = "test_sys_settrace test_traceback test_inspect".split()
ONLY_AS_DRIVERS = "test_except_star test_fstring test_contextlib_async".split()

TIMEOUT = 600  # seconds for one module; the slowest, test_set, needs about two minutes


@dataclass(frozen=True)
class Expected:
    """One row of the table in README.md."""

    versions: tuple[str, ...]  # or "watched" or "drivers"
    pattern: str  # of test ids, as in fnmatch
    reason: str


@dataclass
class Verdict:
    """What a module's two runs showed."""

    module: str
    tests: int = 0
    frames: int = 0
    problems: list[str] = field(default_factory=list)
    explained: list[str] = field(default_factory=list)


def expected_differences(*about: str) -> list[Expected]:
    """The rows of README.md's tables that are about any of `about` ("3.12", "watched")."""
    rows = []
    for line in (HERE / "README.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 3 and cells[0] and cells[0][0] in "3wd":
            row = Expected(tuple(cells[0].split(", ")), cells[1].strip("`"), cells[2])
            if not set(about).isdisjoint(row.versions):
                rows.append(row)
    return rows


def run_worker(
    module: str, mode: int, folder: Path, seed: int = 0
) -> dict[str, dict[str, str]] | str:
    """One run of a module in a subprocess; a sentence when it gave no report."""
    output = folder / f"{module}.{mode}.json"
    cwd = folder / f"{module}.{mode}"
    cwd.mkdir()
    command = [sys.executable, str(HERE / "worker.py"), module, str(output), str(mode), str(seed)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=env,
            timeout=TIMEOUT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"did not end within {TIMEOUT} s"
    if not output.exists():
        return f"ended with status {done.returncode} and no report:\n{done.stderr[-3000:]}"
    report: dict[str, dict[str, str]] = json.loads(output.read_text())
    return report


def judge(module: str, mode: int, expected: list[Expected], folder: Path, seed: int = 0) -> Verdict:
    """Runs a module both ways."""
    verdict = Verdict(module)
    plain, twin = run_worker(module, 0, folder), run_worker(module, mode, folder, seed)
    if isinstance(plain, str) or isinstance(twin, str):
        for name, report in (("CPython alone", plain), ("instrumented", twin)):
            if isinstance(report, str):
                verdict.problems.append(f"{name}: {report}")
        return verdict
    verdict.tests = len(twin["outcomes"])
    counts = twin["counts"]
    verdict.explained += [what for what in counts if what.startswith("dropped")]
    if mode == DRIVERS:
        verdict.frames = int(counts["regions run"])
        verdict.explained.append(
            f"{counts.get('split', 0)} of {counts.get('functions', 0)} functions in "
            f"{counts.get('regions', 0)} regions"
        )
    else:
        verdict.frames = int(counts["twin_frames"])
    # A module may have no function of which a statement is left to compile.
    least = bool(counts.get("split")) if mode == DRIVERS else verdict.tests
    if verdict.frames < least or int(counts.get("failed", 0)):
        verdict.problems.append(f"not everything was instrumented: {counts}")
    before, after = plain["outcomes"], twin["outcomes"]
    used = set()
    for test in sorted({*before, *after}):
        was, now = before.get(test, "absent"), after.get(test, "absent")
        if was == now or {was, now} <= {"fail", "error"}:
            continue
        row = next((row for row in expected if fnmatch.fnmatchcase(test, row.pattern)), None)
        if row is not None:
            used.add(row)
            verdict.explained.append(f"{test}: {was} -> {now} ({row.reason})")
        else:
            verdict.problems.append(f"{test}: {was} -> {now}\n{twin['details'].get(test, '')}")
    for row in expected if mode != DRIVERS else ():  # which of these differ, the seed decides
        matching = [test for test in before if fnmatch.fnmatchcase(test, row.pattern)]
        if matching and row not in used:
            verdict.problems.append(f"{row.pattern} is in README.md but does not differ any more")
    return verdict


def main(argv: list[str] | None = None) -> int:
    """Runs the modules named on the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.cpython", description=__doc__)
    parser.add_argument("names", nargs="*", help="test modules; all by default")
    parser.add_argument("--quick", action="store_true", help="only the ones that take seconds")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--moved", action="store_true", help="also move every frame's place")
    how.add_argument("--watched", action="store_true", help="a capture session for each test")
    how.add_argument("--drivers", metavar="SEED", type=int, help="functions cut at random places")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="modules run at a time")
    options = parser.parse_args(argv)
    names = list(dict.fromkeys(options.names)) or (QUICK if options.quick else ALL)
    if options.drivers is not None and not options.names:
        names = [name for name in names if name not in NOT_AS_DRIVERS]
        names += [] if options.quick else ONLY_AS_DRIVERS
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    mode = 3 if options.watched else 2 if options.moved else 1
    about = ["watched"] if options.watched else []
    if options.drivers is not None:
        mode, about = DRIVERS, ["drivers"]
    expected = expected_differences(version, *about)
    failed = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        concurrent.futures.ThreadPoolExecutor(options.jobs) as pool,
    ):
        verdicts = pool.map(
            lambda name: judge(name, mode, expected, Path(folder), options.drivers or 0), names
        )
        for verdict in verdicts:
            state = "FAILED" if verdict.problems else "ok"
            what = "regions run" if mode == DRIVERS else "frames"
            print(
                f"{verdict.module}: {state}, {verdict.tests} tests, {verdict.frames} {what}",
                flush=True,
            )
            for text in verdict.explained:
                print(f"    {text}")
            for text in verdict.problems:
                print(f"    {text}", flush=True)
            failed += bool(verdict.problems)
    print(f"CPython {version}: {len(names) - failed} of {len(names)} modules as without magpy")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
