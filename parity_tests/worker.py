"""Processes: a warm parent that forks for each file, with limits on time and memory for each case.

Owns: the fork, the pipe with its events, the limits, what is known when a child dies, how many
children run at once.
Does not own: what a child runs (`protocol`), what is kept of it (`results`).  Called by the command
line.

A child runs the cases of one file under one mode, in order, and says before each which one it
starts.  When it dies
or is killed, only that case is lost: the parent notes why and forks again for the rest of the file.
Where that was in the mutation check, eager alone makes the same change in the next child; if that
dies, too, it is a change that makes eager fail, and the case keeps what was compared before.
"""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import importlib
import json
import os
import re
import resource
import selectors
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from parity_tests import corpus, mutate, protocol, standins
from parity_tests.modes import MODES
from parity_tests.protocol import CRASH, LEFT_OUT, TIMEOUT, Record

#: How often the parent looks at deadlines and memory, in seconds.
POLL_SECONDS = 0.25

# The mutation check makes a second pair of worlds beside the one that has passed.
_WORLDS = 2
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Settings:
    """What one run does; a run resumes only results of the same settings.

    Attributes:
        timeout: wall seconds for eager's part of one case, for the compiled part after it, and for
            the mutation check beside its own budget; where eager took long, the later parts may
            take four times as long as eager did.
        memory: GiB that a child may grow by.
        mutate: whether the mutation check follows a case that passes.
        mutate_seconds, changes: budget of the mutation check for one case (0 changes: all).
        name_filter: `Class` or `file:Class`, or None.
    """

    backend: str = "eager"
    device: str = "cpu"
    timeout: float = 60.0
    memory: float = 6.0
    mutate: bool = False
    mutate_seconds: float = 30.0
    changes: int = 0
    name_filter: str | None = None


@dataclass
class Change:
    """A change of the mutation check.

    Attributes:
        index: the case's.
        number: the change's, in the order of the check.
        record: the case's before the change.
        lost: the case's if it is not eager that dies of the change.
    """

    index: int
    number: int
    record: dict[str, Any]
    lost: dict[str, Any] | None = None


@dataclass
class Job:
    """One file under one mode, and what is known of it so far.

    Attributes:
        finished: the cases that have been judged.
        left_out: records of the cases that eager cannot run, as another mode's turn has shown.
        change: the one that is being tried; with `lost`, the one that a child has died of.
    """

    path: Path
    mode: str
    finished: set[int] = field(default_factory=set)
    left_out: dict[int, dict[str, Any]] = field(default_factory=dict)
    running: int | None = None
    running_name: str = ""
    eager_done: bool = False
    allowed: float = 0.0
    memory: float = 0.0
    seen_over: int | None = None
    started: float = 0.0
    pid: int = 0
    pipe: int = -1
    directory: str = ""
    buffer: bytes = b""
    complete: bool = False
    killed_for: str = ""
    deaths: int = 0
    change: Change | None = None


def warm_up(modes: Iterable[str], files: Iterable[Path] = (), backend: str = "eager") -> None:
    """Import and try everything that every child needs, in the parent."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    standins.prepare()
    for name in modes:
        MODES[name].warm_up(backend)
    import_shared(files)


#: What so many files of a run import is imported once, before they are run.
SHARED_BY = 8

_IMPORT = re.compile(r"^(?:from|import) (\w+(?:\.\w+)*)", re.MULTILINE)


def import_shared(files: Iterable[Path]) -> None:
    """Import what many files import, so that each of them finds it there."""
    named = collections.Counter(
        name for path in files for name in set(_IMPORT.findall(path.read_text(errors="replace")))
    )
    for name, count in named.items():
        if count >= SHARED_BY and name not in sys.modules:
            with contextlib.suppress(Exception):  # then it fails where it is needed
                importlib.import_module(name)


class Pool:
    """Runs jobs in up to `size` children at once and hands on what they report.

    Args:
        on_record: called with each case's record.
        on_file: called with (job, number of cases or None when the file cannot be imported) when a
            job is complete.
    """

    def __init__(
        self,
        size: int,
        settings: Settings,
        on_record: Callable[[dict[str, Any]], None],
        on_file: Callable[[Job, int | None, str], None],
    ) -> None:
        self.size = size
        self.settings = settings
        self.on_record = on_record
        self.on_file = on_file
        self.jobs: list[Job] = []
        self.counts: dict[int, int | None] = {}
        self.import_errors: dict[int, str] = {}
        self.selector = selectors.DefaultSelector()

    def run(self, jobs: Iterable[Job], tick: Callable[[], None] = lambda: None) -> None:
        """Run every job; on an interrupt the children are killed and what is known is kept."""
        waiting = iter(jobs)
        try:
            while True:
                while len(self.jobs) < self.size and (job := next(waiting, None)) is not None:
                    self._start(job)
                if not self.jobs:
                    return
                for key, _ in self.selector.select(POLL_SECONDS):
                    self._read(key.data)
                for job in list(self.jobs):
                    self._enforce(job)
                tick()
        finally:
            for job in self.jobs:
                _kill(job.pid)
                self._reap(job)

    def _start(self, job: Job) -> None:
        read_end, write_end = os.pipe()
        job.directory = tempfile.mkdtemp(prefix="parity_case_")
        job.started, job.killed_for, job.running, job.buffer = time.monotonic(), "", None, b""
        job.memory = self.settings.memory
        job.allowed = max(self.settings.timeout, 60.0)  # for importing the file
        pid = os.fork()
        if pid == 0:
            os.close(read_end)
            _child(job, self.settings, write_end)
        os.close(write_end)
        os.set_blocking(read_end, False)
        job.pid, job.pipe = pid, read_end
        self.jobs.append(job)
        self.selector.register(read_end, selectors.EVENT_READ, job)

    def _read(self, job: Job) -> None:
        try:
            chunk = os.read(job.pipe, 1 << 16)
        except BlockingIOError:
            return
        if not chunk:
            self._ended(job)
            return
        job.buffer += chunk
        *lines, job.buffer = job.buffer.split(b"\n")
        for line in lines:
            self._event(job, json.loads(line))

    def _event(self, job: Job, event: dict[str, Any]) -> None:
        kind = event.pop("event")
        if kind == "file":
            self.counts[id(job)] = event["cases"]
            self.import_errors[id(job)] = event["error"]
        elif kind == "start":
            job.running, job.running_name, job.started = (
                event["index"],
                event["name"],
                time.monotonic(),
            )
            job.eager_done, job.allowed = False, self.settings.timeout
            job.memory = self.settings.memory
            if job.change is not None and job.change.lost is not None:
                job.memory *= _WORLDS
                job.allowed += self.settings.mutate_seconds
        elif kind == "eager":
            took, job.started = time.monotonic() - job.started, time.monotonic()
            job.eager_done, job.allowed = True, max(self.settings.timeout, 4 * took)
        elif kind == "passed":
            job.started, job.allowed = (
                time.monotonic(),
                job.allowed + self.settings.mutate_seconds,
            )
            job.memory = _WORLDS * self.settings.memory
        elif kind == "change":
            job.change = Change(event["index"], event["number"], event["record"])
        elif kind == "in eager":
            self._compared_with_eager(job, event["label"], event["taken"])
        elif kind == "result":
            self._judged(job, event)
        elif kind == "done":
            job.complete = True

    def _judged(self, job: Job, record: dict[str, Any]) -> None:
        job.finished.add(record["index"])
        job.running, job.change, job.started = None, None, time.monotonic()
        self.on_record(record)

    def _compared_with_eager(self, job: Job, label: str, taken: bool) -> None:
        """Judge a case that a child has died of, now that eager has tried the same change."""
        change = job.change
        assert change is not None
        assert change.lost is not None
        if taken:
            change.lost["reason"] = f"after {label}: {change.lost['reason']}"
            self._judged(job, change.lost)
        else:
            change.record["skipped_mutations"] += 1
            self._judged(job, change.record)

    def _enforce(self, job: Job) -> None:
        """Kill a child that is past a limit; its pipe then ends."""
        if job.killed_for:
            return
        if time.monotonic() - job.started > job.allowed:
            job.killed_for = "time"
        elif _resident(job.pid) > job.memory * 2**30:
            # Seen once it may be what the case before this one is giving back.
            if job.seen_over == job.running:
                job.killed_for = "memory"
            job.seen_over = job.running
        else:
            job.seen_over = None
        if job.killed_for:
            _kill(job.pid)

    def _reap(self, job: Job) -> int:
        status = 0
        with contextlib.suppress(ChildProcessError):
            status = os.waitstatus_to_exitcode(os.waitpid(job.pid, 0)[1])
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(job.pid, signal.SIGKILL)  # what the program itself has started
        shutil.rmtree(job.directory, ignore_errors=True)
        return status

    def _ended(self, job: Job) -> None:
        self.selector.unregister(job.pipe)
        os.close(job.pipe)
        self.jobs.remove(job)
        tail = _tail(Path(job.directory) / "output")
        status = self._reap(job)
        if not job.complete:
            job.deaths += 1
            self._lost(job, status, tail)
            if self.counts.get(id(job)) is not None and job.deaths < 50:
                self._start(job)
                return
        self.on_file(job, self.counts.get(id(job)), self.import_errors.get(id(job), ""))

    def _lost(self, job: Job, status: int, tail: str) -> None:
        """Note what is known of the case that was running when its process ended."""
        if job.running is None:
            self.import_errors[id(job)] = f"process ended between cases: {job.killed_for or status}"
            return
        reason = {
            "time": f"more than {job.allowed:g} s",
            "memory": f"more than {job.memory:g} GiB",
        }.get(job.killed_for, f"the process died ({_signal_name(status)})")
        record = Record(job.path.stem, job.running, job.running_name, job.mode)
        record.status = TIMEOUT if job.killed_for == "time" else CRASH
        record.seconds = round(time.monotonic() - job.started, 3)
        record.reason, record.detail = reason, tail
        change = job.change
        if change is not None and change.lost is not None:
            self._compared_with_eager(job, reason, taken=False)
            return
        if change is not None:
            change.lost = {**change.record, **_verdict(record)}
            job.running = None
            return
        if not job.eager_done:
            record.status, record.reason = LEFT_OUT, f"eager fails: {reason}"
        self._judged(job, record.as_json())


def _verdict(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in ("status", "seconds", "reason", "detail")}


def _child(job: Job, settings: Settings, write_end: int) -> None:
    """The forked child: never returns."""
    code = 1
    try:
        _confine(job, settings)

        def send(**event: Any) -> None:
            os.write(write_end, json.dumps(event).encode() + b"\n")

        _run_file(job, settings, send)
        code = 0
    except BaseException:  # noqa: BLE001 - the child must not run the parent's code
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


def _confine(job: Job, settings: Settings) -> None:
    """Take a child's terminal, directory, memory and core dumps away."""
    os.setpgid(0, 0)
    torch.set_num_threads(1)  # the parent's thread pool does not exist here
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(job.directory)
    output = os.open("output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    faulthandler.enable(2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**30, 2**30))
    if settings.device == "cpu":  # CUDA reserves address space without using it
        used = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
        limit = used + int(settings.memory * 2**30)
        most = used + int(_WORLDS * settings.memory * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, most if settings.mutate else limit))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("900")


def _run_file(job: Job, settings: Settings, send: Callable[..., None]) -> None:
    mode = MODES[job.mode]
    check = mutate.Check(settings.mutate_seconds, settings.changes) if settings.mutate else None
    try:
        cases = corpus.load_cases(job.path)
    except Exception as error:  # noqa: BLE001 - a file that cannot be imported is counted, like a case
        send(event="file", cases=None, error=protocol.one_line(error))
        send(event="done")
        return
    cases = [case for case in cases if _selected(case, settings.name_filter)]
    send(event="file", cases=len(cases), error="")

    limit, most = resource.getrlimit(resource.RLIMIT_AS)

    def passed() -> None:
        send(event="passed")
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    if check is not None:
        check.on_change = lambda number, record: send(
            event="change", index=record.index, number=number, record=record.as_json()
        )
    for case in cases:
        if case.index in job.finished:
            continue
        if case.index in job.left_out:
            known = {**job.left_out[case.index], "mode": job.mode, "seconds": 0.0}
            send(event="result", **known)
            continue
        send(event="start", index=case.index, name=case.name)
        if job.change is not None and job.change.index == case.index:
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            label, taken = mutate.in_eager(case, settings.device, job.change.number)
            send(event="in eager", label=label, taken=taken)
            continue
        resource.setrlimit(resource.RLIMIT_AS, (limit, most))
        record = protocol.run_case(
            case,
            mode,
            settings.backend,
            settings.device,
            check,
            on_eager=lambda: send(event="eager"),
            on_passed=passed,
        )
        send(event="result", **record.as_json())
    send(event="done")


def _selected(case: corpus.Case, name_filter: str | None) -> bool:
    if not name_filter:
        return True
    if ":" in name_filter:
        return case.name == name_filter.partition(":")[2]
    return name_filter in case.file or name_filter == case.name


def _resident(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(fields[1]) - int(fields[2])) * _PAGE


def _kill(pid: int) -> None:
    for send_signal in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send_signal(pid, signal.SIGKILL)


def _signal_name(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name
    return f"signal {-status}"


def _tail(path: Path) -> str:
    try:
        return path.read_bytes()[-3000:].decode(errors="replace")
    except OSError:
        return ""
