"""Starts the two processes of tests/distributed and joins what they found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

# What a case that waits for the other rank for ever may take, in seconds.
_MOST = 900


def run(names: list[str], modes: list[str], measured: bool) -> dict[str, list[dict[str, Any]]]:
    """The rows of both ranks for each case.

    Args:
        names: the cases.
        modes: "magpy" and "torch", in this order.
        measured: the share of operations in graphs is measured, too.
    """
    with tempfile.TemporaryDirectory() as folder:
        given = {"folder": folder, "names": names, "modes": modes, "measured": measured}
        # Regions as users have them, which most tests switch off.
        env = {**os.environ, "OMP_NUM_THREADS": "1", "MAGPY_REGIONS": "1"}
        children = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.distributed.worker",
                    json.dumps({"rank": rank, **given}),
                ],
                env=env,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        told = []
        for child in children:
            try:
                told.append(child.communicate(timeout=_MOST)[1])
            except subprocess.TimeoutExpired:
                child.kill()
                told.append(child.communicate()[1])
        rows: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for rank in range(2):
            path = os.path.join(folder, f"rank{rank}.jsonl")
            lines = open(path).read().splitlines() if os.path.exists(path) else []
            for line in lines:
                row = json.loads(line)
                rows[row["case"]].append(row)
        for name, found in rows.items():
            if len(found) < 2:
                found.append({"case": name, "lost": "".join(told)[-2000:]})
    return rows
