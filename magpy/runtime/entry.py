"""Entries: a capture made into guard, mock function and compiled segments.

Owns the assembly and the life of the segments (compiled when first needed).  Does not own the
decision to capture or to give up (magpy/runtime/compiled.py).
"""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import random
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from magpy import _interp, config
from magpy.backends import Backend, eager
from magpy.backends.apart import looked_at
from magpy.backends.draws import told_apart
from magpy.backends.inductor import STATIC_INPUTS, Inductor, stepped
from magpy.backends.sized import giving_sizes, with_sizes
from magpy.capture.conditions import Read
from magpy.capture.looks import current_modes, modes_of_the_program, unheard
from magpy.capture.session import Capture, definition
from magpy.capture.steps import EffectStep, HostStep, OpStep, Part, Record, Ref, Var, Wrapped
from magpy.capture.symbols import Symbols
from magpy.capture.trees import variables
from magpy.errors import Refusal
from magpy.kinds import isinstance
from magpy.mock import segments
from magpy.mock.certain import Certain
from magpy.mock.codegen import Code
from magpy.mock.memories import UNKNOWN
from magpy.mock.segments import Segment
from magpy.mock.settled import without_settled
from magpy.mock.spec import spec_vars
from magpy.mock.support import (
    autocast_nesting,
    is_leaf_tensor,
    modes_set,
    put_modes,
    restore_modes,
    save,
    under,
    undo,
)
from magpy.models.torch_callables import communicates
from magpy.refgraph.analysis import Analysis, analyze
from magpy.runtime import faults
from magpy.runtime.raised import unchanged_until, untouched
from magpy.signals import raised_by_handler

log = logging.getLogger("magpy")


class BackendError(Exception):
    """A backend failed; the cause is chained."""


@dataclass(slots=True, weakref_slot=True)
class EntryInfo:
    """What Python keeps about an entry (`_interp.Entry.tag`)."""

    guard: Any
    mock: Any
    text: str
    segments: list[Segment]
    nodes: int
    analysis: Analysis | None
    capture_seconds: float = 0.0
    compile_seconds: float = 0.0
    runners: list[Any] = field(default_factory=list)
    mutates: bool = False
    late: bool = False  # it saves what it changes, and can be left after that
    #: The segments that run ahead of the first change (magpy/runtime/raised.py).
    ahead: list[Segment] = field(default_factory=list)
    #: Told of a backend that fails for a graph; whether Python is to run that graph.
    failed: Callable[[BackendError], bool] | None = None
    symbols: Any = None  # of the sizes that vary (magpy/capture/symbols.py)
    conditions: Any = None
    #: Expressions for tensors that the call reached through its arguments or objects, with their
    #: sizes; they are evaluated as in the mock function.
    places: list[tuple[str, Any]] = field(default_factory=list)
    #: Numbers that were read from outside: the expression of the dict or cell that holds one, or
    #: that itself if it is the same in every call; the key, or None; the number; whether it was an
    #: input, and the run relied on it.
    numbers: list[tuple[str | None, Any, Any, Any, bool]] = field(default_factory=list)
    #: Whether the call relied on a size or an integer that follows from data.
    pinned: bool = False
    choice: str = ""  # what serves the calls, where it was measured (magpy/runtime/auto.py)


def _needed(capture: Capture) -> set[Var]:
    out: set[Var] = set()
    seen: set[int] = set()
    spec_vars(capture.result, out, seen)
    for e in capture.effects:
        specs: list[Any] = [
            getattr(e, "spec", None),
            getattr(e, "stores", None),
            getattr(e, "content", None),
        ]
        spec_vars(specs, out, seen)
    for step in capture.record.steps:
        if isinstance(step, EffectStep):
            spec_vars([step.args, list(step.kwargs.values())], out, seen)
    return out


def _given_at(capture: Capture, variables: set[Var]) -> str:
    """The line of an effect that is given one of these, or that of the function."""
    for step in capture.record.steps:
        if isinstance(step, EffectStep) and step.sites:
            found: set[Var] = set()
            spec_vars([step.args, list(step.kwargs.values())], found, set())
            if found & variables:
                return "{}:{} ({})".format(*step.sites[-1])
    return definition(capture.f)


_SHOW = warnings.showwarning, warnings._showwarnmsg_impl  # type: ignore[attr-defined]


@contextlib.contextmanager
def _own_warnings() -> Iterator[None]:
    """Keeps a backend's warnings, and its changes of the filters, out of the program's.

    A program that records warnings, or turns them into exceptions, must not meet those of a
    compiler that eager does not have; they go to the logger then.  A change of the filters makes
    every warning that came once come again
    (https://docs.python.org/3/library/warnings.html#the-warnings-filter): one that is taken back,
    as by `warnings.catch_warnings`, is not told to the interpreter.
    """
    m: Any = warnings
    saved = m.filters, m.showwarning, m._showwarnmsg_impl, m._filters_mutated
    filters, mine, mutated = list(m.filters), threading.get_ident(), m._filters_mutated
    as_ever = (m.showwarning, m._showwarnmsg_impl) == _SHOW

    def told() -> None:
        if threading.get_ident() != mine:
            mutated()

    m._filters_mutated = told
    if not as_ever or any(action == "error" for action, *_ in filters):
        m.filters = [("default", None, Warning, None, 0)]
        m.showwarning = _SHOW[0]
        m._showwarnmsg_impl = lambda message: log.info("%s", message)
    try:
        yield
    finally:
        m.filters, m.showwarning, m._showwarnmsg_impl, m._filters_mutated = saved
        if m.filters != filters:
            mutated()


# What else of a thread's state an inference mode brings back when it ends.
_SWITCHES = tuple(
    (getattr(torch._C, f"_is_{name}_enabled"), getattr(torch._C, f"_set_{name}_enabled"))
    for name in ("multithreading", "fwd_grad", "view_replay")
)


@contextlib.contextmanager
def _thread_kept() -> Iterator[None]:
    """Puts back what the thread's dispatcher and autograd go by.

    An inference mode that ends late, because a compiler fails in it, leaves what it began with,
    which was the compiler's own.
    """
    keys: Any = torch._C
    with unheard():
        switches = [(is_on(), put) for is_on, put in _SWITCHES]
    include, exclude = (
        keys._dispatch_tls_local_include_set(),
        keys._dispatch_tls_local_exclude_set(),
    )
    try:
        with keys._ForceDispatchKeyGuard(include, exclude):
            yield
    finally:
        with unheard():
            for was_on, put in switches:
                put(was_on)


@contextlib.contextmanager
def _state_kept() -> Iterator[None]:
    """Puts back torch's modes and the random numbers, which a compiler may use for itself.

    As torch.compile does (torch/_dynamo/convert_frame.py, `preserve_global_state`).
    """
    modes, nesting, dtype = current_modes(), autocast_nesting(), torch.get_default_dtype()
    python, of_numpy, (*_, states, _) = random.getstate(), np.random.get_state(), save((), True)
    try:
        yield
    finally:
        put_modes(modes, nesting)
        torch.set_default_dtype(dtype)
        random.setstate(python)
        np.random.set_state(of_numpy)
        with unheard():
            for put, state in states:
                put(state)


_compile_lock = threading.RLock()
_compiler = {"thread": 0, "turns": 0}


@contextlib.contextmanager
def _compiling() -> Iterator[None]:
    """Lets one compiler run at a time: they change settings of the whole process.

    The lock is TorchDynamo's own as soon as that is there, which torch.compile takes on other
    threads.
    """
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    with getattr(dynamo, "compile_lock", _compile_lock):
        outer = _compiler["thread"]
        _compiler["thread"] = threading.get_ident()
        _compiler["turns"] += 1
        try:
            yield
        finally:
            _compiler["thread"] = outer


def compiler_elsewhere() -> bool:
    """Whether a compiler runs on another thread."""
    return _compiler["thread"] not in (0, threading.get_ident())


def compiler_turns() -> int:
    """How often a compiler has run so far."""
    return _compiler["turns"]


class Runner:
    """A segment in the mock function: compiles itself with the first inputs it sees."""

    def __init__(self, segment: Segment, backend: Backend, info: EntryInfo) -> None:
        """Keeps what compiling needs."""
        self.segment = segment
        self.backend = eager if segment.native else backend
        self.info = info
        self.name = f"segment{segment.index}"
        self.fixed: tuple[Any, ...] = ()
        #: Gives what runs instead as long as the graph is compiled elsewhere.
        self.stand_in: Callable[[Runner, tuple[Any, ...]], Callable[..., Any]] | None = None

    def bind(self, fixed: tuple[Any, ...]) -> Callable[..., Any]:
        """What the mock function calls until the graph is compiled: its first inputs are these."""
        self.fixed = fixed
        return self._bound(self)

    def modes(self) -> contextlib.AbstractContextManager[None]:
        """Torch's modes that the graph is compiled and called under."""
        modes = self.segment.modes
        return contextlib.nullcontext() if modes is None else modes_set(modes)

    def _bound(self, run: Callable[..., Any]) -> Callable[..., Any]:
        if self.segment.modes is not None:
            run = under(self.segment.modes, run)
        # A partial passes its arguments on without a list, a tuple and references of its own: with
        # hundreds of parameters that is most of the call.
        return functools.partial(run, *self.fixed) if self.fixed else run

    def compile(self, inputs: list[Any], sizes: bool = False) -> Callable[..., Any]:
        """Compiles the graph; the mock function calls the result directly from then on.

        Args:
            inputs: what it is compiled for.
            sizes: sizes of the inputs are symbols.

        Raises:
            BackendError: the backend failed.
        """
        start = time.perf_counter()
        kept = contextlib.nullcontext() if self.backend is eager else _state_kept()
        modes, nesting = current_modes(), autocast_nesting()
        places: list[tuple[int, Read, int]] = []
        with _thread_kept(), kept:
            try:
                faults.check("backend")
                graph = self.segment.graph
                graph.meta[STATIC_INPUTS] = len(self.fixed)
                if self.backend is not eager:
                    inputs = self.detached(self.examples(inputs))
                if sizes:
                    graph, inputs, places = with_sizes(graph, inputs)
                busy = contextlib.nullcontext() if self.backend is eager else _compiling()
                draws = told_apart() if self.segment.draws > 1 else contextlib.nullcontext()
                with busy, _own_warnings(), draws, self.modes():
                    compiled = _interp.let_signals_in(
                        functools.partial(self.backend, graph, inputs)
                    )
                if not callable(compiled):
                    raise TypeError(
                        f"the backend returned {type(compiled).__name__}, which is not callable"
                    )
            except Exception as e:
                # A compiler that runs the graph to see what it does may stop in the middle.
                restore_modes(e, modes, nesting)
                if raised_by_handler(e):
                    raise
                raise BackendError(f"{type(e).__name__}: {e}") from e
            finally:
                self.info.compile_seconds += time.perf_counter() - start
        compiled = self.finished(compiled, places)
        if sizes and self.backend is not eager:
            compiled = self._as_compiled_for(compiled, inputs[len(places) :])
        self.use(compiled)
        return compiled

    def _as_compiled_for(
        self, compiled: Callable[..., Any], examples: list[Any]
    ) -> Callable[..., Any]:
        """What is called first: inputs that no fake tensor followed may require grad meanwhile.

        They do so in every call or in none.
        """
        required = [isinstance(t, torch.Tensor) and t.requires_grad for t in examples]

        def run(*inputs: Any) -> Any:
            found = [isinstance(t, torch.Tensor) and t.requires_grad for t in inputs]
            if found != required:
                return self.by_python()(*inputs)
            self.use(compiled)
            return compiled(*inputs)

        return run

    def examples(self, inputs: list[Any]) -> list[Any]:
        """The inputs as results of operations, which they may be in another call.

        Only of those AOTAutograd makes sure that it is not connected with what they were made of
        where the graph needs no gradient for them: a backward pass may have been there before.
        """
        from torch._subclasses import FakeTensor

        segment = self.segment
        found = list(inputs)
        with torch.enable_grad(), unheard():
            for i in range(len(self.fixed), len(inputs)):
                t = inputs[i]
                if (
                    isinstance(t, torch.Tensor)
                    and type(t) in (torch.Tensor, FakeTensor)
                    and t.requires_grad
                    and t.is_leaf
                    and t.layout is torch.strided
                    and segment.memory[segment.inputs[i]] not in segment.changes
                    and not (t.is_inference() or torch.is_inference_mode_enabled())
                ):
                    found[i] = t.view_as(t)
        return found

    def detached(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs as a compiled graph takes them (`Segment.detached`)."""
        apart = self.segment.detached
        with unheard():
            return [
                t.detach() if v in apart and isinstance(t, torch.Tensor) else t
                for t, v in zip(inputs, self.segment.inputs, strict=True)
            ]

    def finished(
        self, compiled: Callable[..., Any], places: list[tuple[int, Read, int]] | None = None
    ) -> Callable[..., Any]:
        """What a compiler returned, as it is to be called.

        Args:
            compiled: what it returned.
            places: the sizes and strides that it takes before the inputs (magpy/backends/sized.py).
        """
        segment = self.segment
        compiled = giving_sizes(compiled, places or [])
        if segment.index == 0 and isinstance(self.backend, Inductor) and self.backend.cuda_graphs:
            compiled = stepped(compiled)
        if self.backend is eager:
            return compiled
        if segment.detached:
            inner = compiled

            def compiled(*given: Any) -> Any:
                return inner(*self.detached(given))

        memory = [[segment.memory[v] for v in side] for side in (segment.inputs, segment.outputs)]
        return looked_at(compiled, memory[0], memory[1], self.use, self._begin, self._check)

    def _begin(self, given: Sequence[Any]) -> Any:
        """Keeps what the graph changes, as long as nobody knows whether it gives what it should."""
        segment = self.segment
        if isinstance(self.backend, Inductor):
            return None
        changed = [
            t
            for t, v in zip(given, segment.inputs, strict=True)
            if isinstance(t, torch.Tensor) and segment.memory[v] in segment.changes
        ]
        return save(tuple(changed), bool(segment.draws))

    def _check(self, given: Sequence[Any], begun: Any, results: Any) -> Any:
        """The results of Python, if those of a compiled graph are not what a backend's should be.

        Raises:
            BackendError: that is so, and whoever asked for the entry wants to hear of it.
        """
        wanted = len(self.segment.outputs)
        if not isinstance(results, (tuple, list)):
            error = BackendError(
                f"what it compiled gave a {type(results).__name__}, not a tuple or a list of "
                f"{wanted} results"
            )
        elif len(results) != wanted:
            error = BackendError(f"what it compiled gave {len(results)} results, not {wanted}")
        else:
            return None
        if begun is not None:
            undo(begun)
        if self.info.failed is None or not self.info.failed(error):
            raise error
        return self.by_python()(*given)

    def use(self, compiled: Callable[..., Any] | None) -> None:
        """Has the mock function call this; None: what it calls compiles the graph first."""
        self.segment.compiled = compiled
        mock = self.info.mock
        if mock is not None:
            mock.__globals__[self.name] = self._bound(self if compiled is None else compiled)

    def __call__(self, *inputs: Any) -> Any:
        """Compiles and runs."""
        run = self.segment.compiled
        if run is None and self.stand_in is not None:
            run = self.stand_in(self, inputs)
        if run is None:
            run = self.compiled_or_python(list(inputs))
        return run(*inputs)

    def compiled_or_python(self, inputs: list[Any]) -> Callable[..., Any]:
        """Compiles the graph; if the backend fails for it, Python runs it from then on.

        Raises:
            BackendError: the backend failed, and whoever asked for the entry wants to hear of it.
        """
        try:
            return self.compile(inputs)
        except BackendError as e:
            if self.info.failed is None or not self.info.failed(e):
                raise
            return self.by_python()

    def by_python(self) -> Callable[..., Any]:
        """Has Python run the graph."""
        self.segment.native = True
        self.backend = eager
        run: Callable[..., Any] = self.segment.graph.forward
        self.use(run)
        return run


# The events that tell of one value in a container, a class, a cell or a slot.
_HOLDING = ("dict_key", "cell", "type_attr", "list_item", "attr_c")
# Longer lists of numbers are compared.
_MOST_NUMBERS = 128
_MOST_PARTS = 8


def _changes(record: Record) -> bool:
    """Whether something that the outside sees is changed before the effects."""
    return (
        bool(record.mutated)
        or record.random
        or any(
            isinstance(s, HostStep) and ((s.mutates and not s.writes) or s.gradients is not None)
            for s in record.steps
        )
        or any(segments.swaps_data(s) for s in record.steps)
    )


def _needs_undo(plan: segments.Plan, record: Record, certain: Certain) -> bool:
    """Whether the entry may have to be left after something that the outside sees was changed."""
    changes = _changes(record)
    ahead = {id(s) for s in plan.prelude}
    drawn = False
    for step in record.steps:
        if isinstance(step, OpStep) and changes and id(step) not in ahead:
            # Python of the program may raise in one call and not in another.
            if step.once or step not in certain:
                return True
        elif isinstance(step, HostStep):
            if (_checks(step, certain) or step.once) and (
                drawn or step.owner is not None or (changes and id(step) not in ahead)
            ):
                return True
            drawn = drawn or step.owner is not None
    return False


def _checks(step: HostStep, certain: Certain) -> bool:
    """Whether what a step gives decides about the entry."""
    if step.kind == "bind" and step.in_order:
        return False  # an object of which no more is asked than its class
    return step.kind not in ("none", "call") and step not in certain


def _may_not_fit(record: Record) -> bool:
    """Whether an operation, after a change, takes a tensor whose shape follows from data.

    What other operations raise for data (an index out of range) is an assumption of
    docs/semantics.md: to save for each of them would cost in calls that raise nothing.
    Where numbers are drawn and nothing else changes, to save costs little: then any shape that
    varies counts, for torch's symbols do not know all that an operation asks of its arguments.
    """
    changed = False
    moving = record.loose
    if record.symbols is not None:
        moving |= record.symbols.varying(data=bool(record.mutated))
    for step in record.steps:
        changed = changed or (
            isinstance(step, (OpStep, HostStep)) and (bool(step.mutates) or step.random)
        )
        if (
            changed
            and isinstance(step, OpStep)
            and not moving.isdisjoint(variables((step.args, step.kwargs)))
        ):
            return True
    return False


def _cannot_undo(record: Record) -> Refusal | None:
    """Why a call cannot be left after what it changes, or None."""
    reads = (s.where for s in record.steps if isinstance(s, HostStep))
    where = next((site for site in reads if site), record.caught)
    then = "a value is read that depends on data"
    if where == record.caught:
        then = "an operation whose exception the program may catch"
    if any(_changes_form(s, record) for s in record.steps):
        return Refusal(
            f"what an outside tensor is (its size, its hooks) is changed before {then}", where
        )
    for v in record.mutated:
        t = record.inputs[v]
        if t.requires_grad and not is_leaf_tensor(t):
            return Refusal(f"a tensor that requires grad is changed in place before {then}", where)
    return None


def _once_ahead(plan: segments.Plan, certain: Certain) -> Refusal | None:
    """Why a check can fail after what must happen once, or None.

    Nobody can take back what autograd's engine did to a graph that was there before the call, or
    what Python did below it, and the eager call would do it again.
    """
    what = remedy = ""
    if modes_of_the_program():
        # They hear of each operation once, and of none that is done to check a value.
        what = "operations of which modes hear that were entered before the call"
    for item in (*plan.prelude, *plan.items):
        step = item[0] if isinstance(item, tuple) else item
        if (isinstance(step, Segment) and step.unrepeatable) or (
            isinstance(step, (OpStep, HostStep)) and communicates(step.func)
        ):
            what = (
                "a collective, or a function that is called as a whole and communicated or drew "
                "random numbers"
            )
        elif isinstance(step, (Segment, OpStep, HostStep)) and step.once:
            what = (
                "a backward pass that ran Python of the program (hooks, a torch.autograd.Function) "
                "or went on to what was computed before the call"
            )
            remedy = "Make the pass outside of the compiled function"
        if isinstance(step, HostStep) and what and _checks(step, certain):
            name = step.args[1] if step.func is getattr else getattr(step.func, "__name__", "")
            read = "a gradient" if name == "grad" else "a value that depends on data"
            return Refusal(f"{read} is read after {what}", step.where, remedy)
    return None


def _raises_late(capture: Capture) -> Refusal | None:
    """Why an exception could come too late for what the call does to Python's objects, or None.

    A graph from before the call may be freed by the time of another one: the pass then raises after
    tensors or gradients were changed, which nobody takes back, and before anything of Python's is.
    """
    steps = capture.record.steps
    effects = bool(capture.effects) or any(isinstance(s, EffectStep) for s in steps)
    if not (effects or capture.record.mutated):
        return None
    for step in steps:
        if isinstance(step, HostStep) and step.goes_on:
            return Refusal(
                "a backward pass goes on to what was computed before the call, which changes "
                "something else, too",
                step.where,
                "Make the pass outside of the compiled function",
            )
    return None


# What an outside tensor is, which no copy of its data brings back.
_FORM_CHANGES = frozenset(
    ["detach_", "set_", "resize_", "resize_as_", "register_hook", "retain_grad"]
)


def _changes_form(step: Any, record: Record) -> bool:
    if not isinstance(step, (OpStep, HostStep)) or not step.args:
        return False
    target = step.args[0]
    if not isinstance(target, Ref) or target.var not in record.inputs:
        return False
    return step.func is not setattr and getattr(step.func, "__name__", "") in _FORM_CHANGES


def _keep_native(plan: segments.Plan, analysis: Analysis, record: Record) -> None:
    """Lets Python run the graphs that change an input in a way that compilers cannot follow.

    Compilers work on copies and write them back.  Where inputs share memory they rely on where in
    it each lies, which differs from call to call.  A copy of an input with gaps has none, nor have
    the copy's views, and where elements of an input share memory the copy's do not.  What lies how
    is known of tensors from outside; of those that another graph made, a view may have gaps.
    """
    inputs = record.inputs
    symbols = record.symbols or Symbols({})
    for v in record.mutated:
        # What they keep for a backward pass is the input that they then write to.
        kept = inputs[v].requires_grad and not is_leaf_tensor(inputs[v])
        if kept or not symbols.dense(v, inputs[v]):
            for segment in plan.segments:
                segment.native |= v in segment.inputs
    holders = collections.Counter(record.storages.values())
    for segment in plan.segments:
        made = (record.storages.get(v, 0) for v in segment.inputs if v not in inputs)
        segment.native |= any(m in segment.changes and holders[m] > 1 for m in made)
    of_arrays = _of_arrays(record)
    for segment in plan.segments:
        segment.native |= bool(segment.changes) and not of_arrays.isdisjoint(segment.inputs)
    for written, other in analysis.sharing:
        pair = {v for v, t in inputs.items() if t is written or t is other}
        for segment in plan.segments:
            if pair.issubset(segment.inputs):
                segment.native = True


def _of_arrays(record: Record) -> set[Var]:
    """The tensors of which a compiler does not see that others have their memory.

    Python made them of arrays of the run, or they are views of such; and what has no storage.
    """
    arrays: set[Var] = set()
    found = {v for v in record.inputs if record.storages.get(v) == UNKNOWN}
    for step in record.steps:
        if not isinstance(step, (OpStep, HostStep)):
            continue
        if isinstance(step, HostStep) and step.kind == "bind_array" and step.result is not None:
            arrays.add(step.result)
        elif arrays or found:
            given = variables((step.args, step.kwargs))
            of_array = not arrays.isdisjoint(given)
            if of_array or not found.isdisjoint(given):
                shared = (v for _, v in step.outs if record.storages.get(v) == UNKNOWN)
                found.update((v for _, v in step.outs) if of_array else shared)
    return found


def _numbers(capture: Capture, analysis: Analysis) -> list[tuple[str | None, Any, Any, Any, bool]]:
    """Where the numbers are that a capture read; see `EntryInfo.numbers`."""
    numbers: list[tuple[str | None, Any, Any, Any, bool]] = []
    for kind, holder, key, value in capture.log:
        found = analysis.relative.get(id(holder))
        expr, anchor = (None, holder) if found is None else (found.expr, None)
        if kind in _HOLDING and type(value) in (int, float):
            if kind != "list_item" or found is None:
                numbers.append((expr, anchor, key, value, False))
        elif (
            kind == "dict_key"
            and type(key) in (int, str)
            and type(value) is tuple
            and len(value) <= _MOST_PARTS
        ):
            # Such as the two rates of an optimizer, one of which a schedule sets.
            if all(type(v) is float for v in value):
                numbers += [(expr, anchor, Part(key, i), v, False) for i, v in enumerate(value)]
        elif (
            kind == "snap"
            and isinstance(holder, (list, collections.deque))
            and found is None
            and len(value) <= _MOST_NUMBERS
        ):
            numbers += [
                (None, holder, i, v, False) for i, v in enumerate(value) if type(v) in (int, float)
            ]
    if capture.record.relied:
        for holder, key, value in capture.record.counters:
            found = analysis.relative.get(id(holder))
            expr, anchor = (None, holder) if found is None else (found.expr, None)
            numbers.append((expr, anchor, key, value, True))
    return numbers


def build(
    capture: Capture, backend: Backend, recover: Callable[[Any, BaseException, Any, bool], Any]
) -> tuple[Any, EntryInfo]:
    """An `_interp.Entry` for a capture.

    Args:
        capture: what was captured.
        backend: compiles its graphs, at their first run.
        recover: called as recover(info, exception, saved, early) when something inside the mock
            function raises before its effects.

    Raises:
        Refusal: the capture cannot be an entry.
    """
    if modes_of_the_program():
        backend = eager  # they would hear what a compiler does, and not what the program does
    if capture.record.swapped:
        backend = eager  # no compiler follows what memory a tensor has from outside
    faults.check("refgraph")
    analysis = analyze(capture)
    faults.check("guard")
    guard = analysis.guard()
    for obj, where in capture.record.kept.values():
        if id(obj) in analysis.relative:
            raise Refusal(
                f"a {type(obj).__name__} that is another one in every call is given to a function "
                "that is called as a whole",
                where,
                "Give it what it needs of the object",
            )
    inputs = capture.record.inputs
    fixed = {v for v, t in inputs.items() if id(t) not in analysis.relative}
    needed = _needed(capture)
    lost = {v for v in needed if capture.record.types.get(v) is Wrapped}
    if lost:
        raise Refusal(
            "a tensor of a transform (grad, vmap, jvp, ...) is kept, returned or printed, which "
            "stands for something within the transformed function only",
            _given_at(capture, lost),
            "Return what is needed of it from the function (has_aux=True)",
        )
    capture.record.steps = without_settled(capture.record.steps, needed, capture.record)
    certain = Certain(capture.record.steps, capture.record.loose)
    plan = segments.cut(
        capture.record.steps,
        needed,
        capture.start_modes,
        fixed,
        capture.record.storages,
        types=None if backend is eager else capture.record.types,
        numbers=certain if backend is eager else None,
    )
    if backend is not eager:
        _keep_native(plan, analysis, capture.record)
    why = _once_ahead(plan, certain) or _raises_late(capture)
    if why is not None:
        raise why
    late = _needs_undo(plan, capture.record, certain) or bool(
        capture.record.caught and _changes(capture.record)
    )
    kept = _cannot_undo(capture.record)
    if late and kept is not None:
        raise kept
    late = late or (kept is None and _may_not_fit(capture.record))
    info = EntryInfo(guard, None, "", plan.segments, sum(s.nodes for s in plan.segments), None)
    info.mutates = _changes(capture.record)
    info.late = late
    info.ahead = unchanged_until(plan) if info.mutates and not late else []
    runners = [Runner(s, backend, info) for s in plan.segments]
    info.runners = runners
    symbols = capture.record.symbols
    info.symbols = symbols if symbols is not None and symbols.sources else None
    info.pinned = capture.record.pinned
    info.conditions = analysis.conditions
    info.places = [
        (analysis.relative[id(t)].expr, capture.metas[id(t)])
        for t in inputs.values()
        if id(t) in analysis.relative and id(t) in capture.metas
    ]
    info.numbers = _numbers(capture, analysis)
    code = Code(capture, analysis, plan)
    info.mock, info.text = code.function(
        runners,
        lambda error, saved, early: recover(info, error, saved, early),
        lambda error: untouched(info.ahead, error),
        late,
    )
    if config.logs:
        _log(info, analysis, guard, plan)
    return _interp.Entry(guard, info.mock, False, info), info


def _log(info: EntryInfo, analysis: Analysis, guard: Any, plan: Any) -> None:
    if not log.handlers and not logging.getLogger().handlers:
        logging.basicConfig()
    log.setLevel(logging.INFO)
    if "guards" in config.logs:
        log.info("guard:\n%s", "\n".join(guard.describe()))
    if "mock" in config.logs:
        log.info("mock:\n%s", info.text)
    if "graph" in config.logs:
        for s in plan.segments:
            log.info("segment %d:\n%s", s.index, s.graph.code)


def example_inputs(capture: Capture, segment: Segment) -> list[Any] | None:
    """The inputs of a segment, or None if they are not there any more as the call found them."""
    inputs = capture.record.inputs
    if not all(v in inputs for v in segment.inputs):
        return None  # made within the call
    found = [inputs[v] for v in segment.inputs]
    # The call may have changed what they are, and not only their values.
    same = (id(t) not in capture.metas or capture.metas[id(t)].matches(t) for t in found)
    return found if all(same) else None


def compile_symbolic(info: EntryInfo, record: Record) -> bool:
    """Compiles every graph of an entry for all sizes that its symbols may have.

    Returns:
        Whether it did: there is nothing to do when Python runs the graphs, or no symbol is left.

    Raises:
        BackendError: the backend failed.
        CannotFollowError: a graph takes something that was not followed.
    """
    import torch._functorch.config as functorch

    symbols = info.symbols
    runners = [r for r in info.runners if r.backend is not eager] if symbols.free() else []
    for runner in runners:
        inputs = [symbols.example(v, record.inputs) for v in runner.segment.inputs]
        # A compiler finds out more about the sizes: what it compiles later would come too late.
        with functorch.patch(force_non_lazy_backward_lowering=True):
            runner.compile(inputs, sizes=True)
    symbols.fill(info.conditions)
    info.symbols = None
    return bool(runners)


__all__ = ["BackendError", "EntryInfo", "Runner", "build", "compile_symbolic", "example_inputs"]
