"""The command line of the ParityBench runner: `python -m parity_tests --paritybench PATH`.

Owns: options, the order of files and modes, the exit status.  Does not own: anything that is
measured.
"""

from __future__ import annotations

import os

# One thread a process: the parent forks, and forked children must not wait for threads that they do
# not have.
for _name in (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "TORCHINDUCTOR_COMPILE_THREADS",
):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

import argparse  # noqa: E402
import sys  # noqa: E402
from collections.abc import Iterator, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402

from parity_tests import corpus, report, worker  # noqa: E402
from parity_tests.modes import MODES  # noqa: E402
from parity_tests.progress import Progress  # noqa: E402
from parity_tests.results import Results, SettingsDifferError  # noqa: E402


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The options; exits with a message when they make no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m parity_tests",
        description="Run ParityBench's test cases compiled and compare every call with eager.",
    )
    parser.add_argument(
        "--paritybench",
        type=Path,
        metavar="PATH",
        help="a checkout or bare repository of ParityBench",
    )
    parser.add_argument(
        "--mode", action="append", choices=list(MODES), help="may be repeated; magpy when left out"
    )
    parser.add_argument("--split", choices=["open", "held", "all"], default="open")
    parser.add_argument(
        "--shard", type=_shard, default=(1, 1), metavar="I/N", help="every N-th file, from the I-th"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--backend", choices=["eager", "aot_eager", "inductor"], default="eager")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--filter",
        metavar="NAME",
        help="files whose name holds NAME, the class NAME, or file:class",
    )
    parser.add_argument(
        "--timeout", type=float, default=60.0, help="seconds for one case under one mode"
    )
    parser.add_argument("--memory", type=float, default=6.0, help="GiB for one process")
    parser.add_argument(
        "--mutate",
        action="store_true",
        help="change what a program could change, and compare again",
    )
    parser.add_argument(
        "--mutate-seconds", type=float, default=30.0, help="for the changes of one case"
    )
    parser.add_argument(
        "--changes",
        type=int,
        default=0,
        metavar="N",
        help="with --mutate: a fixed sample of N changes for each case; all when left out",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("parity_results.jsonl"),
        help="JSON lines; resumed when there",
    )
    parser.add_argument("--fresh", action="store_true", help="start --out over")
    parser.add_argument(
        "--report",
        type=Path,
        metavar="DIR",
        help="write parity.md, parity.html and a plot into DIR",
    )
    parser.add_argument(
        "--only-report", nargs="+", type=Path, metavar="JSONL", help="no run: report these results"
    )
    arguments = parser.parse_args(argv)
    if not arguments.paritybench and not arguments.only_report:
        parser.error("--paritybench PATH is needed (a checkout of pytorch-jit-paritybench)")
    if arguments.jobs < 1:
        parser.error("--jobs must be at least 1")
    return arguments


def _shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is not I/N with 1 <= I <= N")
    return int(index), int(count)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the arguments ask for; 1 when something was wrong, stale or crashed under magpy."""
    arguments = parse_arguments(argv)
    if arguments.only_report:
        report.write_report(arguments.only_report, arguments.report or Path())
        return 0
    settings = worker.Settings(
        backend=arguments.backend,
        device=arguments.device,
        timeout=arguments.timeout,
        memory=arguments.memory,
        mutate=arguments.mutate,
        mutate_seconds=arguments.mutate_seconds,
        changes=arguments.changes,
        name_filter=arguments.filter,
    )
    modes = arguments.mode or ["magpy"]
    try:
        files = corpus.list_files(
            arguments.paritybench.resolve(), arguments.split, arguments.shard, arguments.filter
        )
        worker.warm_up(modes, files, arguments.backend)
        results = Results(arguments.out, settings, fresh=arguments.fresh)
    except (FileNotFoundError, SettingsDifferError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    try:
        run_files(files, modes, settings, results, arguments.jobs)
    finally:
        results.close()
    sys.stdout.write(report.as_table([arguments.out]) + "\n")
    if arguments.report:
        report.write_report([arguments.out], arguments.report)
    bad = [
        r
        for r in results.records
        if r["mode"] == "magpy" and r["status"] in ("wrong", "stale", "crash")
    ]
    return 1 if bad else 0


def run_files(
    files: list[Path], modes: list[str], settings: worker.Settings, results: Results, jobs: int
) -> None:
    """Run every file under every mode that the results do not hold yet, one mode after the other.

    What eager could not run for one mode is not tried again for the next.
    """
    todo = [
        (path, mode) for mode in modes for path in files if (path.stem, mode) not in results.files
    ]

    def jobs_to_do() -> Iterator[worker.Job]:
        for path, mode in todo:
            yield worker.Job(
                path,
                mode,
                finished=results.finished(path.stem, mode),
                left_out=results.left_out(path.stem),
            )

    progress = Progress(len(todo))

    def on_record(record: dict[str, object]) -> None:
        results.add_record(record)
        progress.record(record)

    def on_file(job: worker.Job, cases: int | None, error: str) -> None:
        results.add_file(job.path.stem, job.mode, cases, error)
        progress.file()

    worker.Pool(jobs, settings, on_record, on_file).run(jobs_to_do(), progress.tick)
    progress.show(end="\n")


if __name__ == "__main__":
    sys.exit(main())
