"""What stands behind a compiled callable: when a call is captured, and when no more is.

Owns this policy, its limits and its counts.  Does not own what is done about misses that repeat
(magpy/runtime/repeated_misses.py), entries that wait (magpy/runtime/waiting.py), what is told
(magpy/runtime/journal.py) and counted (magpy/runtime/figures.py), how a callable runs in part
(magpy/runtime/driver.py), dispatch (csrc/interp/dispatch.cpp), nor how a capture is done
(magpy/capture) or made into an entry (magpy/runtime/entry.py).  Called by the dispatcher on a miss
and by magpy/api.py.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import gc
import inspect
import operator
import time
import traceback
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from magpy import _interp, backends, config
from magpy.backends import process, reuse
from magpy.backends.inductor import Inductor
from magpy.backends.runner import BackendError, EntryInfo, compiler_elsewhere, compiler_turns
from magpy.capture import session
from magpy.errors import CaptureError, InternalError, Refusal, hide_frames
from magpy.frames import signals
from magpy.frames.locations import in_package
from magpy.guards.words import Difference
from magpy.instrument.code_accesses import loop_names
from magpy.instrument.regions import Region
from magpy.ir.capture import Capture, Differing, Outcome
from magpy.ir.ops import Check, HostStep
from magpy.objects import saved_tensors
from magpy.objects.quiet import unheard
from magpy.objects.types import attribute, isinstance
from magpy.replay.pipeline import needed_variables
from magpy.replay.rolled import roll
from magpy.runtime import below_hooks, checkpoints, contest, families
from magpy.runtime import entry as entries
from magpy.runtime.background import Pending
from magpy.runtime.blocks import Blocks
from magpy.runtime.driver import Driver, Drivers, bound, unwrapped
from magpy.runtime.families import Family, family_of
from magpy.runtime.figures import FIRST, Share, Stats, stats_of, sums_of
from magpy.runtime.journal import Journal
from magpy.runtime.misses import Misses, goes_by_instance
from magpy.runtime.part import Part
from magpy.runtime.recovery import failed_of, recover_of
from magpy.runtime.repeated_misses import STORM, RepeatedMisses, with_what_varies
from magpy.runtime.waiting import Waiting
from magpy.shapes.fake_ops import CannotFollowError
from magpy.shapes.speculation import Memory
from magpy.unwatched.reachability import is_torchs_hook

_TRANSFORMED = (
    "a transform of torch.func (grad, vmap, jvp, ...) was given the compiled function. Compile "
    "the function that makes the transform: magpy.compile(vmap(f)), not vmap(magpy.compile(f))"
)
_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
#: Captures in a row that come to nothing for what should pass, after which it is refused.
_MOST_PASSING = 8
#: So many calls of a callable that a driver runs may still be captured whole.
_MOST_WHOLE = 8
#: In so many of these a driver has compiled something, or does not run the callable any more.
_MOST_IN_VAIN = 6
#: How often what "need not be refused again" is refused at one line before that runs in Python.
_MOST_FIRST_TIMES = 3
#: After so many calls it is said that nothing of a callable is compiled.
_MOST_UNTIL_SETTLED = 7
#: So many calls that raise at one line are watched before that runs in Python.
_MOST_RAISED = 1
#: So many calls that an entry serves make up for one that raises.
_SERVED_FOR_ONE = 4
# Not a WeakSet: a handler of a signal might run in its callback, and what it raised would be lost.
_all: dict[int, weakref.ref[Any]] = {}


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one `magpy.compile`."""

    backend: Any = "inductor"
    fullgraph: bool = False
    dynamic: bool | None = None
    mode: str | None = None
    options: dict[str, Any] | None = None
    background: bool = False

    def key(self) -> tuple[Any, ...]:
        """What tells them from other options; it has a hash if theirs have."""
        given = tuple(sorted((self.options or {}).items()))
        return self.backend, self.fullgraph, self.dynamic, self.mode, given


class Manager:
    """The Python half of a compiled callable."""

    def __init__(
        self,
        wrapped: Any,
        options: Options,
        part: Part | None = None,
    ) -> None:
        """Keeps the options; nothing is captured before the first call."""
        self.options = options
        found = unwrapped(wrapped)
        self.code = None if found is None else found[0].__code__
        #: The parameters by the places of arguments, as `Memory` has them.
        self.names: dict[int | str, str] = {}
        if found is not None:
            named = found[0].__code__.co_varnames[: found[0].__code__.co_argcount]
            self.names = {n: n for n in named}
            self.names |= dict(enumerate(named[found[1] is not None :]))
        #: What it is to its driver, where it is a region's.
        self.part = part
        self.drivers: Drivers | None = None
        #: Whether one of them runs the callable where no entry answers.
        self.driven = False
        #: Whether the capture at hand must not go by what differs from call to call.
        self.steered = False
        #: The causes of misses after which a call was refused.
        self.refused_for: set[Any] = set()
        self.backend = backends.resolve(options.backend, options.mode, options.options)
        self.name = attribute(wrapped, "__qualname__") or type(wrapped).__name__
        self.elsewhere: Inductor | None = None
        if options.background and isinstance(self.backend, Inductor):
            process.prepare()
            self.elsewhere = self.backend
        self.reset_counts()

    def reset_counts(self) -> None:
        """Forgets what happened so far."""
        self.captures = 0
        self.refused = 0
        self.uncompiled = 0
        self.row = 0
        #: Captures in a row that came to nothing.
        self.passed = 0
        self.base_calls = 0
        self.base_hits = 0
        self.base_misses = 0
        self.base_mixed = 0
        self.share = Share()
        self.capture_seconds = 0.0
        self.compile_seconds = 0.0
        whole = None if self.part is None else self.part.driver.drivers
        self.journal = Journal(self.name, set() if whole is None else whole.warned)
        self.gave_up = False
        #: Whether an entry was timed, or is.
        self.contested = False
        self.missed = Misses()
        self.waiting = Waiting(self.elsewhere)
        self.drivers = None
        self.driven = False
        self.refused_for = set()
        self.family: Family | None = None
        #: Entries of the family that were captured in calls of this callable.
        self.shared_captures = 0
        #: Those of a region are its driver's: they are called as long as that is.
        self.blocks = (
            Blocks(functools.partial(_block, self.options)) if whole is None else whole.blocks
        )
        #: What a call has computed is differentiated so that the derivatives can be; in the call.
        self.again = self.keeps_graph = False
        #: Whether a captured call had tensor operations, and sizes that follow from data.
        self.computes = self.sized_by_data = False
        self.repeated = RepeatedMisses(self.missed, set() if whole is None else whole.differed)
        #: What was refused that need not be refused again, and how often it was all the same:
        #: one line may fill a cache with several things.
        self.once: collections.Counter[str] = collections.Counter()
        #: How often calls raised, by where they did.
        self.raised: collections.Counter[Any] = collections.Counter()
        #: Whether modules and functions that the arguments reach are other ones in other calls.
        self.instances_vary = self.shares_instances = False
        self.varying = Memory(self.options.dynamic if self._takes_symbols() else False)

    def _takes_symbols(self) -> bool:
        """Whether sizes can be symbols: not where another process compiles, nor in CUDA graphs."""
        if self.elsewhere is not None or self.options.mode == "auto":
            return False
        return not (isinstance(self.backend, Inductor) and self.backend.cuda_graphs)

    def _varies(self, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            with signals.held():
                infos = [e.tag for e in compiled._magpy_entries]
                return self.varying.look(args, kwargs, infos, self.missed.replaced)
        except Exception as e:
            if signals.raised_by_handler(e):
                raise
            self.varying.stop()
            self.note(f"sizes and numbers that vary are captured one by one: {e}")
            return None

    # ------------------------------------------------------------- the dispatcher's questions

    def miss(self, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """No entry holds: captures, unless there is no use in that.

        Returns:
            The call's result; `Raise(exception)`; or MISS, for the call to run eagerly.
        """
        if self.part is not None and self.part.driver.is_stale:
            return _interp.MISS
        if _transformed():
            # Its tensors are those of a transform that no guard looks into: other calls may fit.
            if self.part is None:
                self.note(_TRANSFORMED)
                self.journal.warn(f"{self.name} runs eagerly here: {_TRANSFORMED}")
            return _interp.MISS
        if self._cut_at_yields(compiled):
            try:
                return compiled._magpy_driver(*args, **kwargs)
            except BaseException as e:  # noqa: BLE001 - it is raised at the call
                return _interp.Raise(hide_frames(e))
        if saved_tensors.are_the_programs():
            with saved_tensors.replaced() as hooks:
                if isinstance(self.backend, Inductor) and not is_torchs_hook(hooks.pack):
                    self.note(below_hooks.HEARD)  # they would hear of what a compiler saves
                    return _interp.MISS
                known, result = below_hooks.serve(compiled, args, kwargs, hooks.pack, self.journal)
                return result if known else self._capture(compiled, args, kwargs)
        return self._capture(compiled, args, kwargs)

    def _capture(self, compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        done, result = self.waiting.serve(self, compiled, args, kwargs)
        if done:
            return result
        why = None
        if not self.gave_up and (compiled._magpy_entries or self.waiting.pending):
            waiting = [w.entry for w in self.waiting.pending]
            why = self.repeated.why_missed(compiled, waiting, args, kwargs)
        try:
            return self._watch(compiled, args, kwargs, why)
        finally:
            self.missed.place, self.missed.replaced = None, {}  # they hold the program's objects

    def _watch(
        self,
        compiled: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        why: Difference | None,
    ) -> Any:
        """Captures a call, which differs from the entries by `why`, unless that is of no use."""
        of_use, differing = self._is_of_use(compiled, args, kwargs, why)
        if not of_use:
            return _interp.MISS
        self.steered = differing is not None
        start, captures = time.perf_counter(), self.captures
        before = compiler_turns(), self.refused
        varying = self._varies(compiled, args, kwargs)
        wrapped = compiled._magpy_wrapped
        outcome = session.run(
            wrapped, args, kwargs, self.options.backend == "eager", varying, differing
        )
        if outcome.contents:
            self.varying.contents_count()
        # Building an entry makes many objects and no garbage: passes over the program's heap would
        # only cost.  And none may begin while fake tensors die, to which torch refers weakly from
        # cycles: PyObject_ClearWeakRefs (CPython 3.11) crashes if the pass that its tuple sets off
        # takes the weak references that it is about to clear.
        collecting = gc.isenabled()
        gc.disable()
        try:
            with signals.held():  # but where a compiler runs
                self.keeps_graph = self.keeps_graph or outcome.keeps_graph
                if outcome.again:
                    self.differentiated_again()
                self._take(compiled, outcome, start, before)
                new = self.captures > captures and self.part is None and not self.missed.of_few
                if new and self.missed.repeated(why, self.varying.follows):
                    text = f"{self.name} is captured anew, not for the first time: {why}"
                    self.journal.warn(text)
        finally:
            exception, value = outcome.exception, outcome.value
            outcome.exception = outcome.value = outcome.capture = None
            del outcome
            if collecting:
                gc.enable()
        return value if exception is None else _interp.Raise(hide_frames(exception))

    def _is_of_use(
        self,
        compiled: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        why: Difference | None,
    ) -> tuple[bool, Differing | None]:
        """Whether a call is captured, and what the capture must not go by."""
        self.instances_vary |= self.missed.of_instance
        if self.missed.of_contents:
            self.varying.contents_vary()
        driven = self.driven and not self.is_undivided(compiled)
        if driven and not compiled._magpy_whole:  # nobody asks again
            compiled._magpy_entries = [e for e in compiled._magpy_entries if e.hits > 2 * STORM]
        if self._is_full(compiled):
            if not (driven or self.gave_up):
                self._give_up(compiled, self._limit_text(why))
            return False, None
        if driven and self.repeated.is_the_drivers(self, compiled, why):
            return False, None
        differing = None
        if why is not None:
            self._happened(compiled, "miss", f"no entry holds: {why}")
            wanted, differing = self.repeated.wanted(self, compiled, why, args, kwargs)
            if not wanted:
                return False, None
        part, journal = self.part, self.journal
        if part is not None and part.is_pythons(compiled, args, kwargs, journal, not self.captures):
            return False, None
        other = _at_work()
        if other is not None:
            self.note(other)
            return False, None
        if part is not None:
            differing = with_what_varies(part.driver, compiled, args, kwargs, differing)
        return True, differing

    def _take(self, compiled: Any, outcome: Outcome, start: float, before: tuple[int, int]) -> None:
        """Makes an entry of a run, or notes why not.

        Args:
            compiled: what was called.
            outcome: of the run.
            start: when it began.
            before: the turns of compilers, and the refusals, that there were by then.
        """
        ref = weakref.ref(compiled)
        try:
            if outcome.failure is not None or outcome.refusal is not None:
                raise outcome.taken()
            capture = outcome.capture
            assert capture is not None
            capture.instances_vary = self.instances_vary
            capture.again = self.part is not None and self.part.driver.drivers.again
            capture.renewed = frozenset(self.missed.renewed)
            hooks = saved_tensors.in_place()
            if hooks is not None and hooks.raised is not None:
                raise Refusal("a hook of saved tensors raises an exception", passing=True)
            with unheard():
                roll(capture, needed_variables(capture))
                self.blocks.compile_in(capture.record, self.backend)
                new, info = entries.build(capture, self.backend, recover_of(ref))
            if info.leaves is not None and hooks is not None:
                raise Refusal(
                    "the call goes by what it has computed while hooks of saved tensors are set",
                    info.leaves.where,
                )
            info.failed, info.spent = failed_of(ref), functools.partial(_spent, ref)
            info.capture_seconds = time.perf_counter() - start
            self.capture_seconds += info.capture_seconds
            if self.options.fullgraph and len(info.segments) > 1:
                raise Refusal(
                    f"the call needs {len(info.segments)} graphs",
                    _first_host_step(capture),
                    "Use fullgraph=False to allow this",
                )
            wait = self.waiting.compile(self, capture, new, info)
            if hooks is not None and not is_torchs_hook(hooks.pack):
                below_hooks.admit(capture, info, hooks.pack)
        except Refusal as r:
            r.without_frames()  # a frame that keeps what it raises would keep the call's arguments
            if before != (compiler_turns(), self.refused):
                # In a server that starts cold the calls of all threads are refused for one line.
                self.note(f"{r} (while a call on another thread was compiled, or refused)")
                return
            self.passed += 1
            if r.passing and self.passed <= _MOST_PASSING:
                self.note(str(r))
                return
            # Where no line is to blame, the user is told which function it is.
            r.where = r.where or session.definition(compiled._magpy_wrapped)
            self._refused(compiled, str(r), r, outcome.exception is not None)
        except (BackendError, CannotFollowError) as e:
            if outcome.capture is not None and outcome.capture.record.symbols is not None:
                # What can be captured with sizes that are fixed is not lost.
                self.varying.stop()
                self.note(f"sizes and numbers that vary are captured one by one: {e}")
            elif isinstance(e, BackendError):
                self.backend_failed(compiled, e)
        except Exception as e:
            if signals.raised_by_handler(e) or (config.verify and isinstance(e, InternalError)):
                raise
            self._failed(compiled, e, outcome)
        else:
            self._took(compiled, capture, new, info, wait)

    def _took(
        self, compiled: Any, capture: Capture, new: Any, info: EntryInfo, wait: Pending | None
    ) -> None:
        """An entry was made."""
        self.captures += 1
        info.cause = self.missed.cause
        self.row = self.passed = 0
        self.journal.left.clear()  # what was refused once need not be again
        if capture.instances_vary and not self.shares_instances:
            self.shares_instances = True
            # They would hold what the program has let go.
            compiled._magpy_entries = [
                e for e in compiled._magpy_entries if not goes_by_instance(e.tag)
            ]
        self.repeated.captured([s for s in capture.record.steps if isinstance(s, Check)])
        self.computes = self.computes or bool(info.nodes)
        self.sized_by_data = self.sized_by_data or capture.record.pinned
        if self.part is not None and self.part.is_without_operations(bool(info.nodes)):
            self.part.leave_for_no_work(compiled, self.journal)
        if wait is None:
            self.waiting.install(self, compiled, new, info)
        else:
            self.waiting.pending.append(wait)
        done = f"captured {info.nodes} operations in {info.capture_seconds:.3f} s"
        self._happened(compiled, "capture", done)

    def _kept(self, compiled: Any) -> int:
        return len(compiled._magpy_entries) + len(self.waiting)

    # ------------------------------------------------------------- saying what happened

    def note(self, reason: str) -> None:
        """Keeps a reason why something is not compiled."""
        self.journal.note(reason)

    def _happened(self, compiled: Any, topic: str, text: str) -> None:
        self.journal.happened(compiled._magpy_calls - self.base_calls, topic, text)

    def _refused(self, compiled: Any, text: str, refusal: Refusal, raised: bool) -> None:
        self.note(text)
        self.row += 1
        self.refused += 1
        if not self.steered:
            self.refused_for.add(self.missed.cause)
        self.journal.left.setdefault(refusal.where, refusal.reason)
        self._happened(compiled, "capture", f"refused: {text}")
        # What a package does when it is first used (it looks for what is installed) is done then.
        new = not self.captures and not self.once[text] and not refusal.raised
        begins = new and in_package(refusal.where)
        if (refusal.first_time and self.once[text] < _MOST_FIRST_TIMES) or begins:
            self.once[text] += 1
            return
        if self.part is not None and self.part.driver.is_settled and not self._kept(compiled):
            compiled._magpy_plain = True
            return
        raises = raised or refusal.raised
        if (not raises or self._raises(compiled, refusal)) and self._split(
            compiled, refusal, raises
        ):
            return
        if self.options.fullgraph and not raised:
            raise CaptureError(
                f"magpy cannot capture {self.name} as one graph: {text}"
            ) from refusal
        if self.row >= config.max_refusals and not self._kept(compiled):
            self._give_up(compiled, text)

    def _raises(self, compiled: Any, refusal: Refusal) -> bool:
        """Whether calls raise at one line again and again: it is Python's then.

        What leads to it is compiled, and calls that raise are watched no more.  A bad request now
        and then leaves those that are served as they are.
        """
        at = refusal.frames[0] if refusal.frames else refusal.where
        self.raised[at] += 1
        served: int = sum(e.hits for e in compiled._magpy_entries)
        return self.raised[at] > _MOST_RAISED + served // _SERVED_FOR_ONE

    # ------------------------------------------------------------- running in part

    def _split(self, compiled: Any, refusal: Refusal, raises: bool) -> bool:
        """Lets what is around a refused line run compiled; whether it can."""
        if self.part is not None:
            return self.part.learn(refusal)
        return self.drive(compiled, lambda driver: driver.learn(refusal), self.steered or raises)

    def separate(self, compiled: Any, why: str) -> bool:
        """Makes regions of single statements; whether anything changes by that."""
        if self.part is not None:
            return self.part.separate(why)
        return self.drive(compiled, lambda driver: driver.separate(None, why), True)

    def drive(self, compiled: Any, teach: Callable[[Driver], bool], differs: bool) -> bool:
        """Lets a driver run the callable from now on, if one can be made; whether it does.

        Args:
            compiled: the callable.
            teach: leaves something to Python; whether there was anything to leave.
            differs: it does so since calls differ, and not since something cannot be captured.
        """
        found = unwrapped(compiled._magpy_wrapped)
        if not config.regions or self.options.fullgraph or found is None:
            return False
        if self.drivers is None:
            refresh = functools.partial(_refresh, weakref.ref(compiled))
            self.drivers = Drivers(self._region, refresh, self.blocks)
            self.drivers.differed = self.repeated.differed
            self.drivers.warned = self.journal.warned
            self.drivers.again = self.again or self.keeps_graph
        driver = self.drivers.of(*found)
        if not teach(driver):
            return False
        _refresh(weakref.ref(compiled))
        if driver.run is None:
            self.note(f"it is not compiled in part: {driver.why}")
        elif not self.driven:
            # The driver is asked where no entry answers: those that serve few calls only cost.  But
            # it may be that calls differ in few ways, which come again.
            self.driven = True
            of_few = [e for e in compiled._magpy_entries if differs and e.tag.leaves is None]
            kept = [e for e in compiled._magpy_entries if e in of_few or e.hits > 2 * STORM]
            compiled._magpy_entries, compiled._magpy_whole = kept, _MOST_WHOLE if kept else 0
        return driver.run is not None

    def is_undivided(self, compiled: Any) -> bool:
        """Whether nothing can be compiled in part: what is captured is captured whole.

        A driver under which nothing was compiled runs the callable no more.
        """
        if self.part is not None or self.drivers is None:
            return False
        if compiled._magpy_driver is not None and (
            compiled._magpy_whole <= _MOST_WHOLE - _MOST_IN_VAIN
            and not any(c._magpy_entries for c in self.drivers.compiled())
        ):
            compiled._magpy_driver = None
        return compiled._magpy_driver is None

    def differentiated_again(self) -> None:
        """What a call has computed is differentiated so that the derivatives can be."""
        self.again = True
        if self.part is not None:
            self.part.driver.drivers.differentiated_again()

    def _cut_at_yields(self, compiled: Any) -> bool:
        """A generator function or a coroutine function has a driver from the start."""
        if self.part is not None or self.captures or self.refused:
            return False
        found = unwrapped(compiled._magpy_wrapped)
        if found is None or not found[0].__code__.co_flags & _SUSPENDS:
            return False
        self.journal.left[session.definition(compiled._magpy_wrapped)] = (
            "it suspends (yield, await)"
        )
        return self.drive(compiled, lambda driver: True, False)

    def _is_full(self, compiled: Any) -> bool:
        """Whether there are as many entries, or attempts at one, as may be."""
        made = self.captures + self.refused + self.repeated.declined
        return self._kept(compiled) >= config.max_entries or made >= config.max_captures

    def _region(self, function: Any, driver: Driver, region: Region) -> Any:
        made = make(function, self.options, Part(driver, region))
        varying = made._magpy_options.varying
        if self.sized_by_data or self.varying.sizes_vary:
            varying.expect_other_sizes()
        # What each turn of a loop assigns is another number in each, and so is what varies where
        # the callable is given it.
        turns = loop_names(driver.function.__code__)
        varying.expect_turns([i for i, n in enumerate(region.reads) if n in turns])
        names = turns.copy()
        if driver.function.__code__ is self.code:
            names |= {self.names.get(at, "") for at in self.varying.numbers_at()}
        varying.expect_other_numbers([i for i, n in enumerate(region.reads) if n in names])
        # What was taken out of an expression is Python's since it differs.
        taken = [i for i, n in enumerate(region.reads) if n[:1] == "."]
        varying.expect_other_lists(taken)
        # A module among that is another one in other calls, as is one that a loop goes through.
        made._magpy_options.instances_vary = bool(taken) or not names.isdisjoint(region.reads)
        return made

    def _failed(self, compiled: Any, error: BaseException, outcome: Outcome) -> None:
        text = f"magpy failed ({outcome.stage or 'build'}): {type(error).__name__}: {error}"
        self.note(text)
        self.row += 1
        self.refused += 1
        config.log("capture", "%s", "".join(traceback.format_exception(error)))
        if self.options.fullgraph:
            raise CaptureError(text) from InternalError(str(error)).with_traceback(
                error.__traceback__
            )
        self.journal.warn(f"{text}. {self.name} runs eagerly; please report this")
        if self.row >= config.max_refusals and not self._kept(compiled):
            compiled._magpy_plain = True

    def backend_failed(self, compiled: Any, error: BackendError) -> None:
        """Says that the backend failed for a graph; with `fullgraph`, raises its error."""
        name = _backend_name(self.options.backend)
        self.note(f"the backend {name} failed for {self.name}: {error}")
        self._happened(compiled, "capture", f"the backend {name} failed: {error}")
        self.uncompiled += 1
        if self.options.fullgraph:
            compiled._magpy_plain = True
            cause = error.__cause__ or error
            raise cause
        self.journal.warn(
            f"the backend {name} failed for {self.name}: {error}. Python runs this graph"
        )
        runners = [r for e in compiled._magpy_entries for r in e.tag.runners]
        if self.uncompiled >= config.max_refusals and all(r.segment.native for r in runners):
            compiled._magpy_plain = True
            self.journal.warn(
                f"{self.name} runs eagerly from now on: {name} fails for all of its graphs"
            )

    def _give_up(self, compiled: Any, why: str) -> None:
        if self.gave_up:
            return
        self.gave_up = True
        self._happened(compiled, "capture", f"no further capture: {why}")
        if self.part is not None:
            if not self._kept(compiled):
                self.part.leave(why)
            return
        if compiled._magpy_wrapped is operator.call:
            return  # the members of the family go their own ways
        if self._kept(compiled):
            # Entries go on serving; only misses are left alone.
            self.journal.warn(
                f"{self.name}: no further capture: {why}. Calls that fit no entry run eagerly"
            )
            return
        compiled._magpy_plain = True
        self.journal.warn(f"{self.name} runs eagerly from now on: {why}")

    def _limit_text(self, why: Difference | None) -> str:
        made = "1 entry was" if self.captures == 1 else f"{self.captures} entries were"
        text = f"{made} made and none fits" + (f" ({why})" if why is not None else "")
        if self.refused:
            text += f"; {self.refused} calls could not be captured"
        self.note(text)
        return text

    # ------------------------------------------------------------- statistics

    def stats(self, compiled: Any) -> Stats:
        """The figures of `magpy.stats`."""
        if self.waiting.pending:
            self.waiting.take_up(self, compiled, failures=not self.options.fullgraph)
        return stats_of(compiled)

    def sampled(self, compiled: Any, counted: tuple[int, list[EntryInfo]]) -> bool:
        """A call was counted (csrc/interp/figures.cpp).

        Args:
            compiled: the compiled callable.
            counted: how many operators ran outside of entries, and the entries that served.

        Returns:
            Whether it tells of calls to come: no entry waits or is measured.
        """
        try:
            with signals.held():
                found = sums_of(compiled)
                if found["pending"]:
                    return False
                state = (found["captures"], len(found["reasons"]), found["uncompiled"])
                self.share.add(state, self.backend, *counted)
                if self.family is not None:
                    self.family.settle(compiled)
                if not self.contested and self._may_be_timed(compiled):
                    self.contested = contest.begin(compiled, self._judged)
                served = compiled._magpy_hits > self.base_hits
                any_compiled = found["entries"] or served or self.share.value
                calls = compiled._magpy_calls - self.base_calls
                settled = self.drivers is not None and calls > _MOST_UNTIL_SETTLED
                nothing = settled and not any_compiled and counted[0]
                if nothing and not self.gave_up:
                    why = "".join(f": {reason}" for reason in found["reasons"][:1])
                    self.journal.warn(
                        f"{self.name} runs eagerly: nothing of it can be compiled{why}"
                    )
        except Exception as e:
            if signals.raised_by_handler(e):
                raise
            self.note(f"the share of operations in graphs is not known: {e}")
        return True

    def _may_be_timed(self, compiled: Any) -> bool:
        """Whether one entry serves the calls and may be dropped if it costs more than eager.

        With the backend "eager" nothing is compiled, and what is captured is to be looked at.
        """
        return (
            config.notice_slower
            and self.backend is not backends.eager
            and not (self.options.fullgraph or self.options.mode == "auto" or self.gave_up)
            and compiled._magpy_driver is None
            and compiled._magpy_wrapped is not operator.call  # of a family
            and self._kept(compiled) == 1
        )

    def _judged(self, compiled: Any, served: float | None, eager: float | None) -> None:
        """The entry was timed; the seconds of a call are told of one that costs more than eager."""
        if served is None or eager is None or self._kept(compiled) != 1:
            return
        compiled._magpy_entries = []
        why = (
            f"a call takes {served * 1e6:.0f} us with what was captured, and {eager * 1e6:.0f} us "
            "without"
        )
        self.note(why)
        self._give_up(compiled, why)

    def reset(self, compiled: Any) -> None:
        """Drops all entries and starts anew."""
        compiled._magpy_contest = None
        compiled._magpy_entries = []
        compiled._magpy_plain = False
        compiled._magpy_driver = None
        self.reset_counts()
        self.base_calls, self.base_hits, self.base_misses, self.base_mixed = (
            compiled._magpy_calls,
            compiled._magpy_hits,
            compiled._magpy_misses,
            compiled._magpy_mixed,
        )
        compiled._magpy_sample = compiled._magpy_calls + FIRST


def _spent(ref: weakref.ref[Any], seconds: float) -> None:
    """Counts the time that a backend took, which may be in a later call than the capture."""
    compiled: Any = ref()
    if compiled is not None:
        compiled._magpy_options.compile_seconds += seconds


def _refresh(ref: weakref.ref[Any]) -> None:
    """Lets a callable's calls run what its driver is by now."""
    compiled: Any = ref()
    if compiled is None:
        return
    drivers, found = compiled._magpy_options.drivers, unwrapped(compiled._magpy_wrapped)
    if drivers is not None and found is not None:
        run = drivers.of(*found).run_of(found[0])
        compiled._magpy_driven = found[0].__code__
        compiled._magpy_driver = None if run is None else bound(run, found[1])


def _at_work() -> str | None:
    """What else is at work on this call, so that it is not watched; None if nothing is."""
    if compiler_elsewhere():
        # It changes torch's state under our eyes, and this call need not wait for it.
        return "a compiler is running on another thread"
    if torch._C._is_tracing():
        # Each operation is to be written down, and to look at sizes would be warned of.
        return "torch.jit.trace is tracing the call"
    if checkpoints.is_selective():
        # Each checkpoint has modes of its own, and an entry is made for the modes that there are.
        return "a selective checkpoint decides for each operation whether it is done again"
    return None


def _transformed() -> bool:
    """Whether a transform of torch.func is active."""
    depth: int = torch._C._functorch.get_dynamic_layer_stack_depth()
    return depth > 0


def _first_host_step(capture: Capture) -> str:
    for step in capture.record.steps:
        if isinstance(step, HostStep):
            return step.where
    return ""


def _backend_name(backend: Any) -> str:
    return backend if isinstance(backend, str) else getattr(backend, "__name__", repr(backend))


def make(
    wrapped: Any,
    options: Options,
    part: Part | None = None,
    miss: Callable[..., Any] | None = None,
    shares: bool = True,
) -> Any:
    """An `_interp.Compiled` around a callable, or around a region's function.

    Args:
        wrapped: the callable.
        options: those of `magpy.compile`.
        part: what it is to its driver, if it is a region's function.
        miss: is called when no entry fits, in place of the manager's method.
        shares: callables that are alike share entries.
    """
    manager = Manager(wrapped, options, part)
    compiled = _interp.Compiled(wrapped, miss or manager.miss)
    if part is not None:
        compiled._magpy_part = True
    else:
        compiled._magpy_sample = FIRST
    compiled._magpy_options = manager
    if miss is None and shares:
        _join_family(compiled)
    _all[id(compiled)] = weakref.ref(compiled, functools.partial(_all.pop, id(compiled)))
    return compiled


def _join_family(compiled: Any) -> None:
    """Lets entries of callables that are alike serve this one, too, unless it is the first."""
    manager = compiled._magpy_options
    options, name = manager.options, manager.name
    if manager.part is not None and manager.part.driver.drivers.again:
        return  # its graphs are others than those of callables that are alike
    if options.background or options.mode == "auto":
        return

    def shared(miss: Callable[..., Any]) -> Any:
        made = make(operator.call, options, miss=miss)
        made._magpy_options.name = name
        made._magpy_options.instances_vary = True
        return made

    family = family_of(compiled._magpy_wrapped, options.key(), shared)
    if family is not None and family.join(compiled):
        manager.family = family


def _block(options: Options, block: Any) -> Any:
    """A block of a checkpoint, compiled on its own."""
    # What served the forward pass must serve the backward pass, whoever else is alike.
    return make(block, dataclasses.replace(options, fullgraph=False), shares=False)


def reset_all() -> None:
    """Drops the entries of every compiled callable of the process."""
    families.forget()
    reuse.forget()
    for compiled in [c for ref in list(_all.values()) if (c := ref()) is not None]:
        compiled._magpy_options.reset(compiled)
