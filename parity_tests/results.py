"""The results file: JSON lines that a stopped run resumes from.

Owns: the file's format, appending, reading back, refusing to mix settings.  Does not own: what a
record means (`protocol.Record`) or how it is shown (`report`).

The first line describes the run; each further line is a case's record, or says that a file is
complete under a mode. A line is written at once, and a last line that was cut off by a kill is
dropped on reading.
"""

from __future__ import annotations

import json
import platform
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from parity_tests.protocol import LEFT_OUT
from parity_tests.worker import Settings

#: Settings that decide a verdict; a run with others starts a file of its own.
_DECIDING = ("backend", "device", "mutate", "changes", "name_filter")


class SettingsDifferError(ValueError):
    """The results file holds another run's results."""


class Results:
    """One results file, open for appending."""

    def __init__(self, path: Path, settings: Settings, *, fresh: bool = False) -> None:
        self.path = path
        self.records: list[dict[str, Any]] = []
        self.files: dict[tuple[str, str], dict[str, Any]] = {}
        header = describe_run(settings)
        if fresh or not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            self.stream = path.open("w")
            self.append({"run": header})
            return
        run, self.records, self.files = read_results(path)
        for name in _DECIDING:
            if run.get(name) != header[name]:
                raise SettingsDifferError(
                    f"{path} holds results with {name}={run.get(name)!r}, "
                    f"this run has {header[name]!r}; "
                    f"name another file with --out, or pass --fresh to start over"
                )
        _drop_cut_line(path)
        self.stream = path.open("a")

    def finished(self, file: str, mode: str) -> set[int]:
        """The cases of a file that a mode has been judged on."""
        return {
            record["index"]
            for record in self.records
            if record["file"] == file and record["mode"] == mode
        }

    def left_out(self, file: str) -> dict[int, dict[str, Any]]:
        """The records of a file's cases that eager could not run or repeat, whatever the mode."""
        return {
            record["index"]: record
            for record in self.records
            if record["file"] == file and record["status"] == LEFT_OUT
        }

    def add_record(self, record: dict[str, Any]) -> None:
        self.records.append(record)
        self.append(record)

    def add_file(self, file: str, mode: str, cases: int | None, error: str) -> None:
        entry = {"complete": file, "mode": mode, "cases": cases, "error": error}
        self.files[file, mode] = entry
        self.append(entry)

    def close(self) -> None:
        self.stream.close()

    def append(self, line: dict[str, Any]) -> None:
        self.stream.write(json.dumps(line) + "\n")
        self.stream.flush()


def describe_run(settings: Settings) -> dict[str, Any]:
    """What must be known to read the figures: settings, versions, machine."""
    return {
        **asdict(settings),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "magpy": _magpy_version(),
        "machine": machine(),
        "started": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    }


def _magpy_version() -> str:
    module = sys.modules.get("magpy")
    return str(getattr(module, "__version__", "")) if module else ""


def machine() -> str:
    """The processor's model and the number of processors, without the machine's name."""
    import os

    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{model}, {os.cpu_count()} processors"


def read_results(
    path: Path,
) -> tuple[dict[str, Any], list[dict[str, Any]], dict[tuple[str, str], dict[str, Any]]]:
    """A results file's run description, records (the last of each case) and completed files."""
    run: dict[str, Any] = {}
    records: dict[tuple[str, str, int], dict[str, Any]] = {}
    files: dict[tuple[str, str], dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue  # the line that a kill cut off
        if "run" in entry:
            run = entry["run"]
        elif "complete" in entry:
            files[entry["complete"], entry["mode"]] = entry
        else:
            records[entry["file"], entry["mode"], entry["index"]] = entry
    return run, list(records.values()), files


def _drop_cut_line(path: Path) -> None:
    """Cut a file back to its last whole line, so that the next one starts a line."""
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        with path.open("r+b") as stream:
            stream.truncate(content.rfind(b"\n") + 1)
