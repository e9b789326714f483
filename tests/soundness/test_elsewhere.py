"""Runs further cases, where they lie beside the checkout or MAGPY_SOUNDNESS names their place."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


def directory():
    named = os.environ.get("MAGPY_SOUNDNESS")
    found = Path(named) if named else Path(__file__).parents[3] / "shared" / "soundness"
    return found if (found / "run.py").is_file() else None


@pytest.mark.slow
@pytest.mark.skipif(directory() is None, reason="no further cases beside this checkout")
@pytest.mark.parametrize("backend", ["eager"])
def test_cases_elsewhere_are_ok(backend, tmp_path):
    out = tmp_path / "cases.jsonl"
    done = subprocess.run(
        [sys.executable, "run.py", "--compiler", "magpy", "--backend", backend, "--out", str(out)],
        cwd=directory(),
        env={**os.environ, "MAGPY_REGIONS": "1", "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    assert rows, done.stderr[-2000:]
    bad = [f"{r['case']}: {r['status']} {r['why']}" for r in rows if r["status"] != "ok"]
    assert not bad, "\n".join(bad)
