"""`python -m tests.fuzz --programs N --seed S [--jobs J]`: random programs, shortened failures.

Owns: processes (a batch of programs in each, so that a crash is found and survived), counting and
printing. Does not own: programs, worlds, shortening.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import gc
import os
import pathlib
import pickle
import re
import signal
import sys
import threading
import time
import warnings

import torch

import magpy
from tests.fuzz import dense, grammar, refused, shrink, worlds

# Seconds for a program; a compiler may take one for each of its graphs.
TIMEOUTS = {"eager": 12, "aot_eager": 90, "inductor": 90}
_TIMEOUT = TIMEOUTS["eager"]

# What makes the program of a seed, by name.
GRAMMARS = {"wide": grammar.program, "dense": dense.program, "refused": refused.program}
make_program = grammar.program

_WARM = """
import asyncio, torch
def f(t):
    t = torch.func.grad(lambda q: (q * q).sum())(t) + torch.vmap(torch.sin)(t)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return str(torch.utils.checkpoint.checkpoint(torch.tanh, t, use_reentrant=False))
target = f
def steps(f):
    yield f(torch.ones(2))
    yield torch.einsum("i,i", torch.ones(2), torch.ones(2))
"""

_NOTHING = """
target = None
def steps(f):
    yield None
"""


def warm_up(backend):
    """Loads what torch loads lazily, so that the children inherit it."""
    worlds.run(_WARM)
    c = magpy.compile(lambda t, n: t[:n] * t.shape[0], backend=backend, dynamic=True)
    c(torch.ones(3), 2)


def _apart(work, timeout):
    """Runs `work()` in a child; yields what it sends, then how it ended.

    `work` is a generator; every item is pickled to the parent.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(read)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            faulthandler.disable()  # the parent tells of a crash
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            with os.fdopen(write, "wb") as pipe:
                # A program that does not end dies of the alarm.
                signal.alarm(timeout)
                for item in work():
                    signal.alarm(timeout)
                    pickle.dump(item, pipe)
                    pipe.flush()
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        while True:
            try:
                yield pickle.load(pipe)
            except (EOFError, pickle.UnpicklingError):
                break
    _, status = os.waitpid(pid, 0)
    yield os.waitstatus_to_exitcode(status)


def report_on(source, seed, timeout=_TIMEOUT):
    """The report on one program, run in a process of its own."""

    def work():
        yield "start"
        warnings.simplefilter("ignore")
        report = worlds.run(source, seed)
        finding = report.finding
        if (
            finding is not None
            and finding.kind == "differs"
            and not worlds.deterministic(source, seed)
        ):
            report.finding = None
        yield report

    *items, status = _apart(work, timeout)
    if len(items) == 2:
        return items[1]
    finding = None
    if status == -signal.SIGALRM:
        if ends(lambda: source, seed):
            finding = worlds.Finding("hangs", -1, "does not end")
    elif status < 0:
        finding = worlds.Finding("crash", -1, signal.Signals(-status).name)
    return worlds.Report(finding=finding)


def check(source, seed, timeout=_TIMEOUT):
    """The finding of one program, run in a process of its own, or None."""
    return report_on(source, seed, timeout).finding


def ends(program, seed, times=1):
    """Whether what `program()` gives is over soon, and well, when nothing of it is compiled.

    Some programs make their own state many times larger in every call; some crash torch, or have it
    write beside its memory, which shows in one of several times.
    """

    def work():
        warnings.simplefilter("ignore")
        source = program()
        for _ in range(times):
            yield source is not None and worlds.run(source, seed, wrap=lambda f: f).steps
            gc.collect()

    *ended, status = _apart(work, _TIMEOUT // 4)
    return status == 0 and len(ended) == times and ended[0] is not False


def repeats(program, seed):
    """Whether what `program()` gives does the same twice in a process that has done nothing yet.

    Torch shows some warnings once in a process.
    """

    def work():
        warnings.simplefilter("ignore")
        yield worlds.run(program(), seed, wrap=lambda f: f).finding is None

    first, *_ = _apart(work, _TIMEOUT // 4)
    return first is True


def needs_deaths(program, seed, wrap=None):
    """Whether what `program()` gives is as eager where nothing dies that was seen from outside.

    docs/semantics.md assumes that nobody can tell how long an entry keeps what it compares with.
    What is as eager the second time, whatever dies, has another reason: it fails. For nothing to
    die that the first step replaces, all is looked at ahead of it; both times, because a look may
    be a reason, too.
    """

    def again(immortal):
        def work():
            warnings.simplefilter("ignore")
            report = worlds.run(program(), seed, wrap, immortal=immortal, looked_at=True)
            yield report.finding is None

        first, *_ = _apart(work, _TIMEOUT // 4)
        return first

    return again(immortal=True) is True and again(immortal=False) is False


def similar(finding):
    """What stays the same when a failing program is shortened."""
    if finding is None:
        return None
    if finding.kind == "internal":
        return finding.kind, re.sub(r"\d+", "#", finding.text)[:60]
    return finding.kind, finding.text.partition("]")[0]


def shorten(source, seed, finding, seconds):
    """The shortest program found that fails alike, and its finding."""
    wanted = similar(finding)
    short = shrink.shrink(source, lambda text: similar(check(text, seed, 5)) == wanted, seconds)
    return short, check(short, seed) or finding


class Batch:
    """Seeds run in children; collects totals and failures."""

    def __init__(self, verbose=False):
        self.programs = 0
        self.dropped = collections.Counter()
        self.total = worlds.Report()
        self.reasons = collections.Counter()
        self.failures = []
        self.verbose = verbose

    def run(self, seeds, size=100):
        """Runs the programs of the seeds."""
        seeds = list(seeds)
        while seeds:
            batch, done, current = seeds[:size], 0, None
            timeout = TIMEOUTS[worlds.backend]
            for item in _apart(lambda: _batch(batch), timeout):  # noqa: B023 - used up at once
                if isinstance(item, tuple):
                    kind, seed, value = item
                    if kind == "start":
                        current = seed
                    else:
                        done += 1
                        self._take(seed, value)
                        current = None
                else:
                    status = item
            if status != 0 and current is not None:
                self._ended(current, status, batch[:done])
                done += 1
            elif status != 0:
                self.failures.append(
                    (
                        batch[min(done, len(batch) - 1)],
                        worlds.Finding("crash", -1, f"status {status} at exit"),
                    )
                )
                done = max(done, 1)
            seeds = seeds[max(done, 1) :]

    def _ended(self, seed, status, before):
        """A program that ended its process, after those of the seeds `before`."""
        if status == -signal.SIGALRM:
            if not ends(lambda: make_program(seed), seed):
                self.dropped["endless"] += 1
                return
            # Some make their state larger in every call, and the machine may be busy.
            report = report_on(make_program(seed), seed, 10 * TIMEOUTS[worlds.backend])
            if report.finding is None or report.finding.kind != "hangs":
                self._take(seed, report)
                return
            finding = report.finding
        else:
            # What torch has written beside its memory shows later, in another program perhaps.
            for each in (seed, *reversed(before)):
                # The programs are made there too: to make one is to run parts of it.
                if not ends(lambda: make_program(each) or _NOTHING, each, times=12):  # noqa: B023
                    self.dropped["eager crashes"] += 1
                    return
            finding = worlds.Finding("crash", -1, f"status {status}")
        self.programs += 1
        self.failures.append((seed, finding))

    def _take(self, seed, report):
        if report is None:
            self.dropped["no program"] += 1
            return
        if report.finding is not None and not ends(lambda: make_program(seed), seed, times=12):
            self.dropped["eager crashes"] += 1
            return
        finding = report.finding
        differs = finding is not None and finding.kind == "differs"
        if differs and not repeats(lambda: make_program(seed), seed):
            report.finding, report.varies = None, True
        elif differs and needs_deaths(lambda: make_program(seed), seed):
            print(f"  seed {seed}: needs what dies to be dead: {finding.text:.160}", flush=True)
            report.finding = None
            self.dropped["needs deaths"] += 1
        if report.varies:
            self.dropped["not deterministic"] += 1
        if report.late:
            self.dropped["raises late"] += 1
        self.programs += 1
        t = self.total
        t.steps += report.steps
        t.captures += report.captures
        t.hits += report.hits
        t.calls += report.calls
        t.drivers += report.drivers
        for reason in report.reasons:
            self.reasons[re.sub(r"'[^']*'|\d+|\S*<fuzz>\S*|\([^()]*\)", "_", reason)[:100]] += 1
        if report.finding is not None:
            self.failures.append((seed, report.finding))


def _batch(seeds):
    warnings.simplefilter("ignore")
    gc.freeze()  # what was there before needs no look in every collection
    for seed in seeds:
        gc.collect()  # what a former program has left may warn as it dies
        yield "start", seed, None
        yield "end", seed, run_seed(seed)


def run_seed(seed):
    """The report on the program of a seed, or None if there is no program."""
    source = make_program(seed)
    if source is None:
        return None
    try:
        report = worlds.run(source, seed)
    except Exception as error:
        return worlds.Report(finding=worlds.Finding("harness", -1, repr(error)[:300]))
    finding = report.finding
    if finding is not None and finding.kind == "differs" and not worlds.deterministic(source, seed):
        report.finding, report.varies = None, True
    return report


def main():
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the first program's number")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--show", action="store_true", help="print the program of --seed and its finding"
    )
    parser.add_argument("--shrink", type=float, default=30.0, help="seconds for each failure")
    parser.add_argument("--shorten", type=int, default=10, help="failures that are shortened")
    parser.add_argument(
        "--reasons", type=int, default=10, help="reasons for eager calls that are printed"
    )
    parser.add_argument("--backend", default="eager", help="what compiles the graphs")
    parser.add_argument("--save", type=pathlib.Path, help="directory for the failing programs")
    parser.add_argument(
        "--grammar", choices=GRAMMARS, default="wide", help="of all there is, or of few things"
    )
    options = parser.parse_args()
    global make_program
    make_program = GRAMMARS[options.grammar]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    worlds.backend = options.backend
    if options.show:
        print(make_program(options.seed), flush=True)
        print(check(make_program(options.seed), options.seed))
        return 0
    warm_up(options.backend)
    start = time.monotonic()
    seeds = range(options.seed, options.seed + options.programs)
    batches = _all(seeds, max(1, options.jobs))
    seconds = time.monotonic() - start
    return _tell(batches, seconds, options)


def _all(seeds, jobs, every=30.0):
    """Batches that together have run the seeds; says how far they are now and then."""
    batches = [Batch() for _ in range(jobs)]
    workers = [
        threading.Thread(target=batch.run, args=(seeds[i::jobs],), daemon=True)
        for i, batch in enumerate(batches)
    ]
    start = time.monotonic()
    for worker in workers:
        worker.start()
    told: set[int] = set()
    while any(worker.is_alive() for worker in workers):
        next_time = time.monotonic() + every
        for worker in workers:
            worker.join(max(0.0, next_time - time.monotonic()))
        for seed, finding in [x for b in batches for x in b.failures if x[0] not in told]:
            print(f"  seed {seed}: {finding.kind}: {finding.text:.160}", flush=True)
            told.add(seed)
        print(f"{_counts(batches, time.monotonic() - start)}", flush=True)
    return batches


def _counts(batches, seconds):
    programs = sum(b.programs for b in batches)
    total = {
        n: sum(getattr(b.total, n) for b in batches)
        for n in ("steps", "calls", "hits", "captures", "drivers")
    }
    kinds = collections.Counter(f.kind for b in batches for _, f in b.failures)
    dropped = sum((b.dropped for b in batches), collections.Counter())
    return (
        f"{programs} programs, {total['steps']} steps, {total['calls']} calls,"
        f" {total['hits']} hits, {total['captures']} captures, {total['drivers']} driven,"
        f" {kinds['differs']} differences, {kinds['crash']} crashes, {kinds['hangs']} hangs,"
        f" {kinds['internal'] + kinds['harness']} internal failures;"
        f" left out: {dict(dropped)};"
        f" {seconds:.0f} s, {programs / max(seconds, 1e-9):.1f} programs/s"
    )


def _tell(batches, seconds, options):
    failures = sorted(x for b in batches for x in b.failures)
    print(f"seeds {options.seed} to {options.seed + options.programs - 1}")
    print(_counts(batches, seconds))
    reasons = sum((b.reasons for b in batches), collections.Counter())
    for reason, count in reasons.most_common(options.reasons):
        print(f"  {count:5} {reason}")
    for i, (seed, finding) in enumerate(failures):
        print(
            f"seed {seed}: {finding.kind} at step {finding.step}: {finding.text:.300}", flush=True
        )
        if i >= options.shorten:
            continue
        source = make_program(seed)
        short, finding = shorten(source, seed, finding, options.shrink)
        print(
            f"{short}\n# -> {finding.kind} at step {finding.step}: {finding.text:.300}\n",
            flush=True,
        )
        if options.save:
            options.save.mkdir(parents=True, exist_ok=True)
            (options.save / f"seed_{seed}.py").write_text(f"# {finding}\n{short}\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
