"""The quick part of CPython's regression tests; `python -m tests.cpython` runs all of them."""

import os
import subprocess
import sys
from pathlib import Path

from tests.cpython import __main__ as runner


def run(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "tests.cpython", "-j", str(min(4, os.cpu_count() or 1)), *arguments],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_quick_modules_instrumented_give_the_same_outcomes():
    run("--quick")


def test_modules_with_every_frame_moved_give_the_same_outcomes():
    run("--moved", "test_generators", "test_scope", "test_super")


def test_modules_watched_by_a_session_give_the_same_outcomes():
    run("--watched", "test_grammar", "test_generators", "test_scope", "test_patma", "test_with")


def test_modules_whose_functions_are_drivers_give_the_same_outcomes():
    run("--drivers", "1", "test_generators", "test_scope", "test_with", "test_patma", "test_raise")


def test_expected_differences_are_read_from_the_readme():
    rows = runner.expected_differences("3.12")
    assert any("test_20_async_for_loop" in row.pattern for row in rows)
    assert all(row.reason for row in rows)
    assert not runner.expected_differences("2.7")
