"""Whether the calls that an entry serves cost more than eager ones.

Some calls of the program, after many that the entry has served, are timed: as many are served as
run eagerly, in turn, so nothing happens twice.  An entry loses by a wide margin and twice in a row,
or it stays.  Owns the order, the timing and the verdict.  Does not own which entries are timed, nor
what becomes of one that loses (magpy/runtime/compiled.py), nor the call (csrc/interp/dispatch.cpp:
no Python runs between the caller and the function).  Not timed are calls whose results go on to a
backward pass, which would have to be timed with them, and entries for many sizes.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from magpy.frames import signals
from magpy.objects import saved_tensors
from magpy.objects.types import isinstance

LEAST = 50
"""Calls that an entry serves before it is timed: by then nothing is done for the first time."""
WARM = 4
"""Calls of a round that are not timed: the program's own caches are filled."""
SAMPLES = 8
"""Timed calls of a round that are served, and as many that run eagerly."""
ROUNDS = 2
"""Rounds that an entry must lose."""
MARGIN = 1.2
"""An entry loses whose median is this many times eager's, ..."""
LEAST_MARGIN = 1.1
"""... if its fastest call is this many times eager's fastest, too."""
_MOST_USELESS = 3 * SAMPLES
_PLAIN = (type(None), bool, int, float, complex, str, bytes)

clock: Callable[[], float] = time.perf_counter
"""Gives seconds."""


class Contest:
    """A contest of one entry and eager, over some calls (`_interp.Compiled._magpy_contest`).

    Args:
        acts: the entry changes Python's objects.
        verdict: is told at the end: verdict(compiled, served, eager), of an entry that lost the
            medians of both in seconds, else None and None.
    """

    def __init__(
        self, acts: bool, verdict: Callable[[Any, float | None, float | None], None]
    ) -> None:
        """Nothing is timed yet."""
        self._acts = acts
        self._verdict = verdict
        self._lock = threading.Lock()
        self._turns = self._rounds = self._useless = 0
        self._times: dict[bool, list[float]] = {True: [], False: []}
        self._hits = 0
        self._start = 0.0

    def begin(self, compiled: Any) -> bool | None:
        """Whether a call is to run eagerly; None: it is not timed."""
        if not _suits(self._acts) or not self._lock.acquire(blocking=False):
            return None  # of another thread, or within a call that is timed
        self._hits = compiled._magpy_hits
        eager = self._is_eager()
        self._start = clock()
        return eager

    def _is_eager(self) -> bool:
        # No period: calls of a program may be dear and cheap in turn (Thue, 1906; Morse, 1921).
        return self._turns.bit_count() % 2 == 1

    def end(self, compiled: Any, result: Any) -> None:
        """A call is over that gave `result`, or raised: then that is the contest itself."""
        took = clock() - self._start
        try:
            with signals.held():
                self._note(compiled, took, result)
        except Exception as e:
            compiled._magpy_contest = None
            if signals.raised_by_handler(e):
                raise
        finally:
            self._lock.release()

    def _note(self, compiled: Any, took: float, result: Any) -> None:
        eager = self._is_eager()
        served = compiled._magpy_hits - self._hits
        if result is self or served != (0 if eager else 1):
            self._useless += 1
            if self._useless > _MOST_USELESS:
                self._finish(compiled, None, None)
            return
        if torch.is_grad_enabled() and not _is_at_end(result):
            self._finish(compiled, None, None)
            return
        self._turns += 1
        if self._turns > WARM:
            self._times[eager].append(took)
        if self._turns == WARM + 2 * SAMPLES:
            self._decide(compiled)

    def _decide(self, compiled: Any) -> None:
        served, eager = self._times[False], self._times[True]
        a, b = statistics.median(served), statistics.median(eager)
        if a <= MARGIN * b or min(served) <= LEAST_MARGIN * min(eager):
            self._finish(compiled, None, None)
            return
        self._rounds += 1
        self._turns, self._times = 0, {True: [], False: []}
        if self._rounds == ROUNDS:
            self._finish(compiled, a, b)

    def _finish(self, compiled: Any, served: float | None, eager: float | None) -> None:
        compiled._magpy_contest = None
        self._verdict(compiled, served, eager)


def begin(compiled: Any, verdict: Callable[[Any, float | None, float | None], None]) -> bool:
    """Has the one entry of a callable timed, once it has served some calls; whether it is."""
    made = compiled._magpy_entries
    if len(made) != 1 or made[0].hits < LEAST:
        return False
    info = made[0].tag
    if info.choice or info.dynamic.conditions is not None or not is_comparable():
        return False
    compiled._magpy_contest = Contest(info.acts, verdict)
    return True


def _suits(acts: bool) -> bool:
    """Whether a call that begins now may run either way, and costs what its time tells."""
    return not (
        torch._C._functorch.get_dynamic_layer_stack_depth()
        or saved_tensors.are_the_programs()  # a checkpoint's second pass is as its first one was
        or torch._C._is_tracing()
        or (acts and torch.is_grad_enabled())  # results may be kept anywhere
    )


def _is_at_end(result: Any) -> bool:
    """Whether no backward pass can begin from a result, as far as is known of its class."""
    return all(
        not v.requires_grad if isinstance(v, torch.Tensor) else type(v) in _PLAIN
        for v in pytree.tree_leaves(result)
    )


def is_comparable() -> bool:
    """Whether times of calls tell what they cost, and the choice may depend on them.

    What an accelerator does goes on after a call.  Who asks for deterministic algorithms gets the
    same roundings in each process, and so do processes that work together.
    """
    cuda: Any = torch.cuda
    accelerator = torch.accelerator.current_accelerator()
    return not (
        torch.are_deterministic_algorithms_enabled()
        or (torch.distributed.is_available() and torch.distributed.is_initialized())
        or (accelerator is not None and accelerator.type != "cuda")
        or cuda.is_initialized()
    )


__all__ = ["LEAST", "Contest", "begin", "is_comparable"]
