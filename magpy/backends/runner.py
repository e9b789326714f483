"""What runs the graph of one segment: compiled when it is first needed.

Owns one segment's compilation, the state of torch and of the interpreter that it must leave alone,
and what Python keeps of an entry.  Does not own the choice of a backend (magpy/api.py) nor the
entry's assembly (magpy/runtime/entry.py).  Called by mock code.
"""

from __future__ import annotations

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

from magpy import _interp, config, faults
from magpy.backends import Backend, eager, process, reuse
from magpy.backends.inductor import STATIC_INPUTS, Inductor, stepped
from magpy.backends.output_aliasing import looked_at
from magpy.backends.random_ops import told_apart
from magpy.backends.symbolic_inputs import giving_sizes, of_sizes_alone, with_sizes
from magpy.errors import an
from magpy.frames.signals import raised_by_handler
from magpy.guards.names import Names, Program
from magpy.ir.ops import HostStep
from magpy.ir.torch_modes import current_modes
from magpy.objects.imports import imported
from magpy.objects.quiet import unheard, without_hooks
from magpy.objects.types import isinstance
from magpy.replay.segments import Segment
from magpy.replay.support import (
    autocast_nesting,
    modes_set,
    put_modes,
    restore_modes,
    save,
    under,
    undo,
)
from magpy.shapes.conditions import Read

log = logging.getLogger("magpy")


class BackendError(Exception):
    """A backend failed; the cause is chained."""


@dataclass(slots=True)
class Dynamic:
    """The sizes and numbers of an entry's call that may be others in another call.

    Attributes:
        symbols: of the sizes that vary, until the graphs are compiled (magpy/shapes/symbols.py).
        conditions: of these sizes, which the guard checks.
        of_data: of what follows from data, which are checked where that is computed.
        places: expressions for tensors that the call reached through its arguments or objects, with
            their sizes; they are evaluated as in the mock function.
        numbers: those that were read from outside: the expression of the dict or cell that holds
            one, or that itself if it is the same in every call; the key, or None; the number;
            whether it was an input, and the run relied on it.
        wholes: expressions for lists that the call read as a whole.
        lists: those of which it made a tensor: the expression, or None and the list itself if that
            is the same in every call; what it held.
        pinned: the call relied on a size or an integer that follows from data.
        of_lists: the call made a tensor of a list of numbers, which was compared.
    """

    symbols: Any = None
    conditions: Any = None
    of_data: list[Any] = field(default_factory=list)
    places: list[tuple[str, Any]] = field(default_factory=list)
    numbers: list[tuple[str | None, Any, Any, Any, bool]] = field(default_factory=list)
    wholes: frozenset[str] = frozenset()
    lists: list[tuple[str | None, Any, list[Any]]] = field(default_factory=list)
    pinned: bool = False
    of_lists: bool = False


@dataclass(slots=True, weakref_slot=True)
class EntryInfo:
    """What Python keeps about an entry (`_interp.Entry.tag`).

    Attributes:
        guard, mock, text: what decides whether the entry serves a call, its function and its text.
        segments: its graphs.
        runners: what runs each.
        dynamic: what may be otherwise in another call.
        mutates: it changes something that the outside sees, ahead of its effects.
        ahead: the segments that run ahead of the first change (magpy/runtime/exceptions.py).
        failed: told of a backend that fails for a graph; whether Python is to run that graph.
        spent: told of the seconds that a backend took for a graph.
        choice: what serves the calls, where it was measured (magpy/runtime/auto.py).
        outside: what is done outside of the graphs: the place, the function, how many operations.
        repeated: how many of these operations are in a graph, too.
        changes: the addresses of the objects that it changes.
        acts: it changes Python's objects, or has other effects than on tensors.
        leaves: the first step that may find, after operations, that the entry does not fit.
        cause: what the miss was counted by for which it was made (magpy/runtime/misses.py).
        in_order: it does the operations of the program, in their order, and nothing else.
        portable: what it was made of, for other processes; a text that says why there is none; None
            where nobody has asked for it (magpy/saving/portable.py).
        heard: the addresses of what the call has looked at, of an entry that may run below hooks of
            saved tensors that are the program's (magpy/runtime/hearing.py).
        member: the address of what was called when it was captured, of a family's
            (magpy/runtime/families.py).
    """

    guard: Any
    segments: list[Segment]
    dynamic: Dynamic = field(default_factory=Dynamic)
    mock: Any = None
    text: str = ""
    runners: list[Any] = field(default_factory=list)
    mutates: bool = False
    ahead: list[Segment] = field(default_factory=list)
    failed: Callable[[BackendError], bool] | None = None
    choice: str = ""
    outside: list[tuple[str, str, int]] = field(default_factory=list)
    repeated: int = 0
    acts: bool = False
    changes: frozenset[int] = frozenset()
    leaves: HostStep | None = None
    cause: Any = None
    in_order: bool = False
    heard: frozenset[int] | None = None
    portable: Any = None
    member: int = 0
    capture_seconds: float = 0.0
    compile_seconds: float = 0.0
    spent: Callable[[float], object] = bool
    #: What the guard was made of, and the names of what it looks at, made when they are needed.
    program: Program | None = None
    names: Names | None = None

    @property
    def nodes(self) -> int:
        """How many operations its graphs have."""
        return sum(s.nodes for s in self.segments)

    @property
    def operations(self) -> int:
        """How many operations of the program it does."""
        return self.nodes - self.repeated + sum(n for *_, n in self.outside)


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


def _dynamos_lock() -> contextlib.AbstractContextManager[Any]:
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    return getattr(dynamo, "compile_lock", None) or contextlib.nullcontext()


@contextlib.contextmanager
def _compiling() -> Iterator[None]:
    """Lets one compiler run at a time: they change settings of the whole process.

    As soon as TorchDynamo is there they hold its lock, too, which torch.compile takes on other
    threads.
    """
    with _compile_lock, _dynamos_lock():
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


def _requires_grad(values: Sequence[Any]) -> bool:
    return any(isinstance(t, torch.Tensor) and t.requires_grad for t in values)


_UNCONNECTED = "what it compiled gave results that know nothing of autograd"


class Runner:
    """A segment in the mock function: compiles itself with the first inputs it sees."""

    def __init__(self, segment: Segment, backend: Backend, info: EntryInfo) -> None:
        """Keeps what compiling needs."""
        self.segment = segment
        self.backend = eager if segment.native else backend
        self.info = info
        self.name = f"segment{segment.index}"
        self.fixed: tuple[Any, ...] = ()
        #: What it shares with graphs that are alike.
        self._kept: reuse.Compiled | None = None
        #: Python has run the graph to see whether its results require gradients.
        self.compared = False
        #: How another process compiles the graph, where entries are to travel, or why it cannot.
        self.job: process.Job | str | None = None
        #: Gives what runs instead as long as the graph is compiled elsewhere.
        self.stand_in: Callable[[Runner, tuple[Any, ...]], Callable[..., Any]] | None = None

    def bind(self, fixed: tuple[Any, ...]) -> Callable[..., Any]:
        """What the mock function calls until the graph is compiled: its first inputs are these."""
        self.fixed = fixed
        return self._bound(self)

    @property
    def compiles(self) -> bool:
        """Whether a compiler takes the graph, and not Python."""
        return self.backend is not eager

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
                if isinstance(self.backend, Inductor):
                    imported("torch._inductor.compile_fx")
                busy = contextlib.nullcontext() if self.backend is eager else _compiling()
                draws = told_apart() if self.segment.draws > 1 else contextlib.nullcontext()
                of_sizes = of_sizes_alone(inputs) if sizes else contextlib.nullcontext()
                with busy, _own_warnings(), draws, self.modes(), without_hooks(), of_sizes:
                    if config.saving and not sizes and isinstance(self.backend, Inductor):
                        self.job = self._job(self.backend, graph, inputs)
                    compiled = self._shared(graph, inputs) if not sizes else None
                    if compiled is None:
                        compiled = _interp.let_signals_in(
                            functools.partial(self.backend, graph, inputs)
                        )
                        if self._kept is not None:
                            self._kept.call = compiled
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
                seconds = time.perf_counter() - start
                self.info.compile_seconds += seconds
                self.info.spent(seconds)
        compiled = self.finished(compiled, places)
        if sizes and self.backend is not eager:
            compiled = self._as_compiled_for(compiled, inputs[len(places) :])
        self.use(compiled)
        return compiled

    @staticmethod
    def _job(backend: Inductor, graph: Any, inputs: list[Any]) -> process.Job | str:
        try:
            return process.job(backend, graph, inputs)
        except process.Unable as e:
            return str(e)

    def _shared(self, graph: Any, inputs: list[Any]) -> Callable[..., Any] | None:
        """What was compiled for a graph like this; what is compiled now may serve others."""
        backend, segment = self.backend, self.segment
        if not isinstance(backend, Inductor) or not backend.is_shared:
            return None
        apart = (*backend.key(), segment.draws > 1, len(segment.detached))
        found = reuse.forms(graph, apart)
        if found is None:
            return None
        form, order = found
        memory = [segment.memory[segment.inputs[i]] for i in order]
        key = form, tuple(memory.index(m) if m else -1 for m in memory)
        known = reuse.find(key, order, inputs)
        if known is not None:
            self._kept = known
            return known.called_with(order)
        self._kept = reuse.Compiled(order, inputs)
        reuse.keep(key, self._kept)
        return None

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
        if segment.differentiates:
            return found  # gradients come to these, and to nothing that was before
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
        self,
        compiled: Callable[..., Any],
        places: list[tuple[int, Read, int]] | None = None,
        *,
        alone: bool = False,
    ) -> Callable[..., Any]:
        """What a compiler returned, as it is to be called.

        Args:
            compiled: what it returned.
            places: the sizes and strides that it takes before the inputs
                (magpy/backends/symbolic_inputs.py).
            alone: it needs nothing of the compiler's (magpy/backends/code_alone.py).
        """
        segment, backend = self.segment, self.backend
        compiled = giving_sizes(compiled, places or [])
        if segment.index == 0 and not alone and isinstance(backend, Inductor):
            compiled = stepped(compiled) if backend.cuda_graphs else compiled
        if self.backend is eager:
            return compiled
        if segment.detached:
            inner = compiled

            def compiled(*given: Any) -> Any:
                return inner(*self.detached(given))

        memory = [[segment.memory[v] for v in side] for side in (segment.inputs, segment.outputs)]
        return looked_at(
            compiled, memory[0], memory[1], self.use, self._begin, self._check, self._raised
        )

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
                f"what it compiled gave {an(type(results).__name__)}, not a tuple or a list of "
                f"{wanted} results"
            )
        elif len(results) != wanted:
            error = BackendError(f"what it compiled gave {len(results)} results, not {wanted}")
        elif (
            begun is None
            or self.compared
            or self.segment.differentiates  # it gives out nothing that autograd knows
            or _requires_grad(results)
            or not _requires_grad(given)
        ):
            return None
        else:
            # A pass of the call's over them would raise, or leave parameters without gradients.
            self.compared = True
            undo(begun)
            of_python = self.segment.graph.forward(*given)
            if not _requires_grad(of_python):
                return of_python
            error = BackendError(_UNCONNECTED)
        return self._left(given, begun, error)

    def _left(self, given: Sequence[Any], begun: Any, error: BackendError) -> Any:
        """The results of Python, which runs the graph from now on."""
        if begun is not None:
            undo(begun)
        if self.info.failed is None or not self.info.failed(error):
            raise error
        return self.by_python()(*given)

    def _raised(self, given: Sequence[Any], begun: Any, error: Exception) -> Any:
        """The results of Python, if a backward pass in the graph finds nothing to go through.

        Raises:
            BackendError: that is so, and whoever asked for the entry wants to hear of it.
            Exception: it is not.
        """
        if begun is None or not (self.segment.differentiates and isinstance(error, RuntimeError)):
            raise error
        return self._left(given, begun, BackendError(_UNCONNECTED))

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
