"""One test case under one mode: eager twice, then the compiled module three times beside eager.

Owns: the paper's protocol, the verdict on a case and the record of it.  Does not own: equality
(`compare`), mutations (`mutate`), processes and limits (`worker`).  Called in the forked child by
`worker`.

Two worlds are built from the same seed, one for eager and one for the compiled module.  Both are
called twice eagerly, which shows whether eager repeats itself and lets lazy parts come into being,
as in the paper.  Then one is compiled, and
they are called in turn and compared after every call: result, arguments, random number generators,
and the module with all that it holds.
"""

from __future__ import annotations

import copy
import random
import re
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from parity_tests import compare
from parity_tests.corpus import Case
from parity_tests.modes import Mode, Watch
from parity_tests.standins import StandInUsed

#: Seeds of the three calls of the protocol, and of one more, which would show a random number kept
#: as a constant; it may take another way through the program, so that only its outcome counts.
CALL_SEEDS = (0, 0, 0)
OTHER_SEED = 1

#: Where eager took longer than this, calls that can show nothing new are spared.
SLOW_SECONDS = 0.05

#: Directories in messages, which are nobody else's business and differ between machines.
_DIRECTORY = re.compile(r"(?<![\w.])(/[\w.+\-]+)+/")

#: Verdicts, best first.
PASS, REFUSED, LEFT_OUT = "pass", "refused", "left_out"
WRONG, STALE, CRASH, TIMEOUT = "wrong", "stale", "crash", "timeout"


@dataclass
class Record:
    """What a run says about one case under one mode; one line of the results file.

    Attributes:
        status: pass, refused, left_out (eager cannot run or repeat it), wrong, stale, crash or
            timeout.
        whole: no call after the first ran eagerly, and the backend took every graph.
        one_graph: whole, and the entry has at most one operator graph.
        reason: why it is not whole, was left out or failed, in one line.
        detail: the end of the traceback, for failures.
        eager_seconds, first_seconds: wall time of eager's first call, and of compiling plus the
            first call.
        first_cpu_seconds: the same in processor time of this process, which other processes disturb
            less.
        capture_seconds: the mode's own measure of capture, where it has one.
        mutations, skipped_mutations: how many were compared, and how many made eager fail or change
            nothing.
        seconds: wall time of the whole case.
        captures: captures that the compiled calls took; more than one means that a later call ran
            eagerly once more.
        graphs: operator graphs in each entry.
    """

    file: str
    index: int
    name: str
    mode: str
    status: str = LEFT_OUT
    whole: bool = False
    one_graph: bool = False
    reason: str = ""
    detail: str = ""
    eager_seconds: float = 0.0
    first_seconds: float = 0.0
    first_cpu_seconds: float = 0.0
    capture_seconds: float | None = None
    mutations: int = 0
    skipped_mutations: int = 0
    seconds: float = 0.0
    captures: int | None = None
    graphs: list[int] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class LeftOut(Exception):
    """Eager cannot run the case, or cannot repeat it."""


@dataclass
class World:
    """One construction of a case: its module, and its arguments as first made.

    Attributes:
        seconds, cpu_seconds: of the last call.
        draws: whether the last call drew random numbers.
    """

    module: Any
    args: list[Any]
    kwargs: dict[str, Any]
    callable: Any = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    draws: bool = False

    def call(self, seed: int) -> tuple[Any, Any, Any]:
        """Call on fresh copies of the inputs; returns the result and those copies afterwards."""
        args, kwargs = copy_inputs(self.args), copy_inputs(self.kwargs)
        seed_all(seed)
        before = compare.rng_state()
        start, cpu = time.perf_counter(), time.process_time()
        result = self.callable(*args, **kwargs)
        self.seconds, self.cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
        self.draws = compare.difference(before, compare.rng_state()) is not None
        return result, args, kwargs


def seed_all(seed: int) -> None:
    """Seed every generator that a program can draw from.

    `torch.manual_seed` would format the stack in every call, for a device that is not there.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def copy_inputs(value: Any) -> Any:
    """Fresh copies of tensors and containers; modules and functions stay what they are."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if type(value) in (list, tuple):
        return type(value)(copy_inputs(item) for item in value)
    if type(value) is dict:
        return {key: copy_inputs(item) for key, item in value.items()}
    if isinstance(value, torch.nn.Module) or callable(value):
        return value
    return copy.deepcopy(value)


def to_device(value: Any, device: str) -> Any:
    """Move the tensors and modules among arguments."""
    if isinstance(value, (torch.Tensor, torch.nn.Module)):
        return value.to(device)
    if type(value) in (list, tuple):
        return type(value)(to_device(item, device) for item in value)
    if type(value) is dict:
        return {key: to_device(item, device) for key, item in value.items()}
    return value


def build(case: Case, device: str) -> World:
    """Construct a case from the fixed seed, in eval mode as the paper does."""
    seed_all(0)
    args, kwargs = case.init_args()
    module = case.module_class(*args, **kwargs)
    if not callable(module):
        raise LeftOut("the class builds something that cannot be called")
    if isinstance(module, torch.nn.Module):
        try:
            module.eval()
            if device != "cpu":
                module.to(device)
        except Exception as error:  # noqa: BLE001 - the paper ignores modules with an eval of their own that fails
            del error
    seed_all(0)
    args, kwargs = case.forward_args()
    return World(
        module, list(to_device(list(args), device)), to_device(dict(kwargs), device), module
    )


def run_case(
    case: Case,
    mode: Mode,
    backend: str = "eager",
    device: str = "cpu",
    mutate: Callable[[Case, Mode, str, str, Record, tuple[World, World]], None] | None = None,
    on_eager: Callable[[], None] = lambda: None,
    on_passed: Callable[[], None] = lambda: None,
) -> Record:
    """Judge one case; never raises for what the case or the mode does.

    `on_eager` is called once eager has run and repeated the case, so that a later death is not
    eager's, and `on_passed` before the mutation check.
    """
    record = Record(case.file, case.index, case.name, mode.name)
    start = time.perf_counter()
    try:
        pair = warm_pair(case, device, record)
        on_eager()
        _check_compiled(pair, mode, backend, record)
        if mutate is not None and record.status == PASS:
            on_passed()
            mutate(case, mode, backend, device, record, pair)
    except LeftOut as error:
        record.status, record.reason = LEFT_OUT, str(error)
    record.seconds = round(time.perf_counter() - start, 4)
    return record


def warm_pair(case: Case, device: str, record: Record | None = None) -> tuple[World, World]:
    """Two worlds that eager has been called in twice, with the same seed.

    Where eager is slow and its two calls have left the module as it was, the other world is spared
    them.

    Raises:
        LeftOut: when eager fails or does not repeat.
    """
    try:
        eager, other = make_pair(case, device)
        first = eager.call(0)[0]
        if record is not None:
            record.eager_seconds = round(eager.seconds, 6)
        second = eager.call(0)[0]
        found = compare.difference(first, second, compare.Rules(aliasing=False))
        if (
            eager.seconds < SLOW_SECONDS
            or compare.difference(eager.module, other.module) is not None
        ):
            for _ in range(2):
                other.call(0)
    except LeftOut:
        raise
    except StandInUsed as error:
        raise LeftOut(f"needs a package that is missing: {error}") from error
    except Exception as error:
        raise LeftOut(f"eager fails: {one_line(error)}") from error
    if found is not None:
        raise LeftOut(f"eager does not repeat: {found}")
    return eager, other


def make_pair(case: Case, device: str) -> tuple[World, World]:
    """Eager's world and the world to compile, equal at the start.

    Raises:
        LeftOut: when two constructions from one seed differ.
    """
    try:
        eager, other = build(case, device), build(case, device)
        mine = (eager.module, eager.args, eager.kwargs)
        found = compare.difference(mine, (other.module, other.args, other.kwargs))
    except (LeftOut, StandInUsed):
        raise
    except Exception as error:
        raise LeftOut(f"eager fails: {one_line(error)}") from error
    if found is not None:
        raise LeftOut(f"two constructions from one seed differ: {found}")
    return eager, other


def _check_compiled(pair: tuple[World, World], mode: Mode, backend: str, record: Record) -> None:
    eager, other = pair
    start, cpu = time.perf_counter(), time.process_time()
    try:
        other.callable = mode.compile(other.module, backend)
        compile_seconds, compile_cpu = time.perf_counter() - start, time.process_time() - cpu
        before: Watch | None = None
        after = Watch()
        for number, seed in enumerate((*CALL_SEEDS, OTHER_SEED)):
            if seed == OTHER_SEED and eager.seconds > SLOW_SECONDS and not eager.draws:
                break  # another seed is the same call again
            found = call_other(call_eager(eager, seed), eager, other, seed, mode, backend)
            if number == 0:
                record.first_seconds = round(compile_seconds + other.seconds, 6)
                record.first_cpu_seconds = round(compile_cpu + other.cpu_seconds, 6)
                before = mode.watch(other.callable)
            if found is not None:
                record.status, record.reason = WRONG, f"call {number + 1}: {found}"
                return
            if number < len(CALL_SEEDS):
                after = mode.watch(other.callable)
        _judge(after, before or Watch(), record)
    except LeftOut:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a compiler raises is a verdict on it
        record.status = REFUSED if mode.refused(error) else CRASH
        record.reason = one_line(error)
        record.detail = "".join(traceback.format_exception(error))[-3000:]


def call_eager(eager: World, seed: int) -> tuple[Any, Any]:
    """Call eager's world; returns its result and arguments, and the generators' state after it.

    Raises:
        LeftOut: when eager fails.
    """
    try:
        return eager.call(seed), compare.rng_state()
    except Exception as error:
        raise LeftOut(f"eager fails: {one_line(error)}") from error


def call_other(
    expected: tuple[Any, Any], eager: World, other: World, seed: int, mode: Mode, backend: str
) -> str | None:
    """Call the compiled world and compare it with what eager did; returns the first difference.

    Raises:
        LeftOut: when a stand-in shows up.
        Exception: what the compiled module raised.
    """
    actual = other.call(seed)
    random_actual = compare.rng_state()
    rules = mode.rules(backend)
    try:
        if not mode.compares_state():
            return _name_roots(compare.difference(expected[0], actual, rules))
        found = compare.difference((*expected[0], eager.module), (*actual, other.module), rules)
    except StandInUsed as error:
        raise LeftOut(f"needs a package that is missing: {error}") from error
    if found is None and backend == "eager":
        found = compare.difference(expected[1], random_actual)
        found = found and f"random number generators: {found}"
    return _name_roots(found)


def _name_roots(found: str | None) -> str | None:
    """Say result, args, kwargs and module for the places in the compared tuple."""
    if found is None:
        return None
    for index, root in enumerate(("result", "args", "kwargs", "module")):
        if found.startswith(f"[{index}]"):
            return root + found[3:]
    return found


def _judge(after: Watch, before: Watch, record: Record) -> None:
    record.status = PASS
    record.captures = after.captures
    record.graphs = list(after.graphs or [])
    record.capture_seconds = after.capture_seconds
    record.whole = not after.uncompiled and (
        after.ran_eagerly is None or after.ran_eagerly == before.ran_eagerly
    )
    record.one_graph = record.whole and (
        after.graphs is None or (len(after.graphs) == 1 and after.graphs[0] <= 1)
    )
    if not record.whole:
        record.reason = (
            one_line(after.reasons[-1]) if after.reasons else "captured again, without a reason"
        )
    elif not record.one_graph:
        record.reason = f"{after.graphs} graphs"


def one_line(error: BaseException | str) -> str:
    """An exception's class and message, in one short line."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return " ".join(_DIRECTORY.sub("", text).split())[:400]
