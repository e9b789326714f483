"""How operations are written down: what one is given before it is performed, what it did after it.

Owns the decision what a performed operation is (a node of a graph, a step of Python between graphs,
a value that depends on data) and the steps made of it.  Does not own which operations there are and
how they come here (magpy/capture/tensors/recorder.py, magpy/capture/tensors/unseen_calls.py, which
derive from this), nor forms that follow from data (magpy/capture/tensors/data_forms.py).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from magpy import _interp, _tensor, config
from magpy.capture.refusals import RefusalBox
from magpy.capture.tensors import scalar_tensors
from magpy.capture.tensors.arguments import WORK
from magpy.capture.tensors.data_forms import DataForms
from magpy.capture.tensors.engine import EnginePasses
from magpy.capture.tensors.escapes import Given
from magpy.capture.tensors.functorch import Transforms, wrapped
from magpy.capture.tensors.gradients import Gradients
from magpy.capture.tensors.identity import JAGGED_CHANGED
from magpy.capture.tensors.opaque_calls import Whole
from magpy.capture.tensors.operation import Done, Operation
from magpy.capture.tensors.performer import Performer
from magpy.errors import an, frames_of_the_call
from magpy.frames import call_sites
from magpy.frames.locations import is_users_file, refuse, where_text
from magpy.instrument.handlers import Catching
from magpy.ir import aliasing
from magpy.ir.aliasing import UNKNOWN
from magpy.ir.ops import (
    Bind,
    Call,
    Check,
    CheckMetadata,
    CheckSizes,
    CheckValue,
    EngineRun,
    HostStep,
    ModeStep,
    OpStep,
    Ref,
    Var,
    Wrapped,
    has_gradient,
    has_room,
    identity,
)
from magpy.ir.tensor_meta import tensor_meta
from magpy.ir.torch_modes import TorchModes, current_modes
from magpy.ir.trees import has_ref, tensors, variables
from magpy.models.callables import NUMBER_METHODS
from magpy.models.torch_callables import communicates
from magpy.models.torch_ops import (
    ARITHMETIC,
    HOST_METHODS,
    INSIDE_METHODS,
    OPERATORS,
    RANK_FOLLOWS,
    SPARSE_PARTS,
    STATIC_RESULT,
    STATISTICS_OF,
    TAKES_FLOATS,
    accessor_call,
    makes_tensor_of_numbers,
    resizable,
    scalar_tensor,
    would_write,
)
from magpy.models.torch_state import Settings
from magpy.objects import buffers as memory
from magpy.objects import jagged
from magpy.objects.buffers import Range
from magpy.objects.plain_values import is_plain
from magpy.objects.quiet import unheard
from magpy.objects.snapshots import is_changed
from magpy.objects.types import isinstance
from magpy.shapes.loop_indices import joins_turns
from magpy.shapes.propagate import Follower
from magpy.shapes.symbols import Symbols
from magpy.unwatched import autograd
from magpy.unwatched.changes import Below

_DATA, _DYNAMIC, _RANDOM, _MUTATES, _STATISTICS, _SEVERAL = 1, 2, 4, 8, 16, 32


class Writer(DataForms):
    """Writes the operations of one run down.

    Args:
        is_outside: says whether an object existed before the call and was reached by it.
        session: the C++ session, which knows the values that differ from call to call by their
            identity.
        scalars: whether a graph may take Python numbers as inputs.
        symbols: the sizes and numbers that vary from call to call; None if there are none.
        refusals: keeps the refusal of the run, which stops the recording.
    """

    def __init__(
        self,
        is_outside: Callable[[Any], bool],
        session: Any = None,
        scalars: bool = True,
        symbols: Symbols | None = None,
        refusals: RefusalBox | None = None,
    ) -> None:
        """Starts empty."""
        super().__init__(is_outside, session, scalars, symbols)
        self.refusals = refusals or RefusalBox()
        self.fail = self.refusals.fail
        self._follower = Follower(self, symbols) if symbols is not None else None
        #: The call, recorded as one operation, that is made now.
        self.whole: Whole | None = None
        #: What of the run something has got that may look at it later.
        self.given = Given(self.tensors)
        # Tensors of no dimensions by the numbers that they hold.
        self._scalar_tensors: dict[tuple[Var, torch.dtype | None, Any], Var] = {}
        #: By operator and operands, the first number that was computed so.
        self._computed: dict[tuple[Any, ...], Var] = {}
        self._engine_was_run = False
        reach = bool if session is None else session.reach
        self.gradients = Gradients(self.record, self.tensors, is_outside, reach)
        #: The run has seeded torch's generators.
        self.seeded = False
        #: The values that earlier runs relied on, by line, where each differed (see `Differing`).
        self.checked: dict[str, set[Any]] = {}
        #: Of the step that is about to be written down: see `HostStep.arithmetic`.
        self.arithmetic: call_sites.Site | None = None
        self._changes = False  # something was changed or drawn
        #: Where the program may catch what raises.
        self.catching = Catching()
        self.direct = False
        self.operations = 0
        self.below = Below(session)
        self.performer = Performer(self.record, session)
        self._engine = EnginePasses(self.record, self.tensors, self.gradients, session)
        self.unwatched = self._engine.unwatched
        self.hooks = self._engine.hooks
        #: What operations have done by now in the pass of autograd's engine that is made.
        self._of_pass = 0
        #: The addresses of buffers from outside that operations have written to.
        self.buffers: list[Range | None] = []
        #: Those that tensors show which may have been made of a view of a buffer from outside.
        self.views: list[tuple[Range | None, str]] = []
        self.transforms = Transforms()
        self.settings = Settings()
        self._start = current_modes()
        self._modes = self._start
        self.observer = _tensor.Observer()

    @property
    def transformed(self) -> bool:
        """Whether a transform of torch.func has begun: tensors of it may be there from then on."""
        return bool(self.transforms.spans)

    def _prepare(self, op: Operation, args: Any, kwargs: Any, follow: bool | None = True) -> None:
        """Writes down the arguments before the operation is performed, which may change them.

        Args:
            op: the operation.
            args: what it is given.
            kwargs: likewise.
            follow: sizes that vary are followed through it; None if it gives no tensor.

        Raises:
            Refusal: it has no place in an entry.
        """
        func, name, accessor = op.func, op.name, op.accessor
        self.operations += 1
        if self.operations > config.max_operations:
            raise refuse(
                f"the call does more than {config.max_operations} tensor operations",
                "Compile a part of it, or raise magpy.config.max_operations",
            )
        op.changes_arrays = bool(self._looked_into) and would_write(func, accessor, kwargs)
        if op.changes_arrays and (unseen := self.written_unseen()) is not None:
            raise unseen
        if self.buffers_read():
            places = map(memory.of_tensor, tensors((args, kwargs)))
            self._as_they_were([place for place in places if place is not None])
        if name in _CALL_PYTHON:
            # An entry might do it for nothing, where its result turns out to be another.
            raise refuse(f"Tensor.{name} calls a function for every element")
        if name == "from_file":
            raise refuse("torch.from_file reads a file, and may write to it")
        if self._loose and name in RANK_FOLLOWS:
            self._pin_shapes(args)
        if accessor is not None and accessor[1] == "grad":
            if accessor[0] == "get":
                op.guarded = self.gradients.read(args[0])
            else:
                self.gradients.assigned(args[0])
        self._shared.begin()
        op.takes_lists = makes_tensor_of_numbers(func, name, args)
        if self.any_tracked:
            op.rely = name not in ARITHMETIC and not op.takes_lists
            op.floats = name in TAKES_FLOATS
        self._takes_apart = True
        try:
            op.args = tuple(self.convert(a) for a in args)
            op.kwargs = {k: self.convert(v) for k, v in kwargs.items()}
        finally:
            self._takes_apart = False
        if self.any_tracked:
            self._numbers_are_given(op, args, kwargs)
        if accessor == ("set", "data"):
            self._data_is_assigned(*args[:2])
        elif accessor is not None and accessor[0] == "set" and isinstance(args[1], dict):
            raise refuse("a dict becomes that of a tensor's hooks")
        if self._follower is not None and follow is not None:
            self._follow(self._follower, op, (*args, *kwargs.values()), follow)
        self._as_they_were(self._shared.outside(op.plan))
        if "out" in kwargs or type(func) in OPERATORS:
            op.targets = [(t, t.shape) for t in tensors(resizable(func, args, kwargs))]

    def _follow(self, follower: Follower, op: Operation, given: Any, follow: bool) -> None:
        """Follows sizes that vary through an operation that is about to be performed."""
        func, accessor = op.func, op.accessor
        of = autograd.gradients_of(func, accessor, *op.plan)
        made = op.on_host and not op.given_array
        # What makes jagged tensors goes by sizes, and does so again in every call.
        no_sizes = made or accessor == ("set", "requires_grad") or func in jagged.FUNCTIONS
        joins = joins_turns(self.record.loops, func, op.plan)
        what, plan = joins or (op.instead or func, op.plan)
        follower.before(what, plan, given, follow, no_sizes, of, whole=op.whole)

    def _numbers_are_given(self, op: Operation, args: Any, kwargs: Any) -> None:
        """Has an operation take numbers that differ from call to call as tensors, if it can."""
        if self._numbers_of:
            args = tuple(self.number_for(v) for v in args)
        if not self._scalars:
            followed = self.symbols.numbers if self.symbols is not None else ()
            scalar_tensors.take(op, args, kwargs, self._scalar_tensor, followed)
        if op.takes_lists:
            if self.symbols is not None:
                scalar_tensors.make(op, args, kwargs, self.symbols.numbers)
            op.on_host = op.on_host or (op.instead is None and self._takes_number(op.plan))

    def _data_is_assigned(self, tensor: torch.Tensor, data: Any) -> None:
        """Keeps how a tensor from outside lay in memory when the call began."""
        var = self.tensors.known(tensor)
        if is_lazy(tensor):
            raise refuse("a parameter gets its shape", "The next call finds it made")
        if isinstance(data, torch.Tensor):
            with unheard():
                form, new = ((t.shape, t.dtype, t.device) for t in (tensor, data))
                if form != new and tensor.requires_grad and self._engine_was_run:
                    # What an entry holds of autograd's graph remembers the form of before.
                    raise refuse("p.data = ... gives a tensor with gradients another form")
                leaves = self.record.inputs.values()
                if form != new and any(_tensor.gradient(t) is tensor for t in leaves):
                    # Nothing but `.data` gives a leaf a gradient that is not like it.
                    raise refuse("p.grad.data = ... gives a gradient another form")
            self.tensors.moves(tensor, data)
        if var not in self.record.inputs:
            return
        with unheard():
            if self.symbols is not None:  # graphs would read the sizes of what was assigned
                given = self.tensors.known(data) if isinstance(data, torch.Tensor) else None
                self.symbols.fix({var} if given is None else {var, given})
            if var not in self.record.swapped:
                self.record.swapped[var] = tensor.data

    def _scalar_tensor(
        self,
        var: Var,
        value: float,
        dtype: torch.dtype | None = None,
        make: Callable[..., Any] = scalar_tensor,
    ) -> Var:
        var = self._first_of_equals(var)
        made = self._scalar_tensors.get((var, dtype, make))
        if made is None:
            with torch._C._DisableFuncTorch():  # it is made ahead of a transform
                tensor = scalar_tensor(value, dtype)
            made = self._scalar_tensors[var, dtype, make] = self.tensors.new(tensor)
            given = (Ref(var),) if dtype is None else (Ref(var), dtype)
            self.add(Bind(make, given, {}, expected=torch.Tensor, result=made))
            if self.symbols is not None:
                self.symbols.still(made, tensor)
        return made

    def _first_of_equals(self, var: Var) -> Var:
        """The variable of an equal number that was computed before, or this one.

        An optimizer computes `-lr` once for each parameter.
        """
        for step in reversed(self.record.steps[-_RECENT:]):
            if isinstance(step, Bind) and step.result == var:
                if step.func not in _OF_NUMBERS or step.expected not in (int, float):
                    break
                args = (
                    self._first_of_equals(a.var) if isinstance(a, Ref) else (type(a), repr(a))
                    for a in step.args
                )
                return self._computed.setdefault((step.func, *args), var)
        return var

    def in_order(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        known: bool,
        **more: bool,
    ) -> Any:
        """Notes a call that has to do with a device's queue of work, at its place.

        Args:
            func: what was called, with arguments as a step keeps them.
            args: the positional arguments.
            kwargs: the keyword arguments.
            result: what it gave.
            known: that is one of the arguments, or nothing but that it has been done.
            more: as of a `HostStep`.

        Returns:
            What the program gets for the result.
        """
        more["in_order"] = True
        if result is None or known:
            self.note(func, args, kwargs, Call, **more)
        elif type(result) is bool:
            self.note(func, args, kwargs, CheckValue, result, **more)
        else:
            if type(result) in (int, float):
                result = _interp.fresh(result)
            var = self.tensors.new()
            self.note(func, args, kwargs, Bind, type(result), result=var, **more)
            self.is_tracked(result, var)
            if isinstance(result, torch.Generator):
                self.record.generators[var], self.record.types[var] = result, type(result)
        return result

    def _set_while_transformed(self) -> None:
        if self.transforms.active and self.refusals.first is None:
            self.refusals.refuse("torch's settings are changed in a function that is transformed")

    def modes(self) -> TorchModes:
        """Torch's modes and settings as the program has them now."""
        self.settings.look()
        return current_modes(self.settings.changed)

    def note_modes(self) -> None:
        """Adds a step where torch's modes differ from those of the last operation."""
        modes = current_modes(self.settings.changed)
        if modes != self._modes:
            self._modes = modes
            self.record.steps.append(ModeStep(modes))

    def _classify(self, op: Operation, result: Any, flags: int) -> Done:
        """What an operation has done, as its result and the observer's flags tell.

        Raises:
            Refusal: it has no place in an entry.
        """
        if op.changes_arrays:
            self.looked_into_anew()
        plan = self._sharing(op, result)
        # Compilers write what they have computed back into a tensor of the size that it had.
        resized = self._resized(op) and not self._scalars
        number = (
            self.any_tracked
            and not self._scalars
            and not self.transforms.active  # Python runs a region that takes numbers
            and self._has_number(plan)
        )
        outs: list[tuple[Any, Var]] = []
        self._outputs(result, (), outs)
        func, args, kwargs = op.instead or op.func, *plan
        if op.accessor is not None:
            func, args = accessor_call(op.accessor, args)
        self.note_modes()
        if flags & _RANDOM:
            self.record.random = True
        self._writes = self._written_unseen(func, args, kwargs, flags) | op.by_whole
        by_data = bool(flags & (_DATA | _DYNAMIC)) and (
            op.name.removeprefix("linalg_") not in STATIC_RESULT
        )
        by_data = by_data or op.resized
        if self._of_jagged(plan, outs):
            by_data = by_data or not self._scalars  # what a compiler gets has sizes
        elif op.name in SPARSE_PARTS:
            by_data = True
            self.tensors.may_share(outs, (args, kwargs))
        reshapes = self._form_follows(func, (args, kwargs), by_data)
        mutates = bool(flags & _MUTATES or self._writes)
        if op.takes_lists and variables((args, kwargs)).isdisjoint(self.record.storages):
            mutates = False  # `torch.tensor(1.0)` writes to what it makes, and to nothing else
        if self._follower is not None and self._follower.is_lost(outs, mutates):
            by_data = True
        unseen = self._follower is not None and self._follower.is_unseen(op.by_whole)
        if unseen or (op.whole and self.is_loose(variables(plan))):
            op.unseen, by_data = True, by_data or self._scalars
            self.tensors.may_share(outs, (args, kwargs))  # of other sizes it may
        if mutates:
            self._shared.written((args[:1], kwargs.get("out")))
            self._not_a_part(self._writes or variables((args[:1], kwargs.get("out"))))
        once = op.reach is not None and (
            self._engine.goes_beyond(op.reach) or self._engine.decides(op.reach, flags)
        )
        on_host = op.on_host or resized or number
        random = bool(flags & _RANDOM)
        return Done(func, args, kwargs, outs, on_host, random, mutates, by_data, reshapes, once)

    def _emit(self, op: Operation, result: Any, done: Done) -> Any:
        """Writes the step of an operation down.  Returns what the program gets for its result."""
        name, func, args, kwargs, outs = op.name, done.func, done.args, done.kwargs, done.outs
        on_host, loose = done.on_host, done.by_data and (bool(outs) or done.reshapes)
        inside = not done.once and self._stays_inside(args, name, op.accessor)
        setter = op.accessor is not None and op.accessor[0] != "get"
        if (setter or name in HOST_METHODS) and not inside:
            self._host(func, args, kwargs, result, outs, done.random, name, mutates=True)
            if op.reach is not None:
                self._engine_ran(op.reach, func in autograd.ADDS, done.once)
                op.reach = None  # it holds autograd's graph
            return result
        if not outs and result is not None and not self._only_known(result):
            return self._value(done, result, name)
        self._count_sequences(name, (args, kwargs), result)
        if outs and self._sized and not variables((args, kwargs)).isdisjoint(self._sized):
            on_host = loose = True
        elif not op.resized and ((self._loose and not loose) or (loose and self._scalars)):
            loose = self._loosen(name, (args, kwargs), result, outs, loose)
        if on_host or loose:
            self._host(func, args, kwargs, result, outs, done.random, name, done.mutates, loose)
            if done.reshapes and done.by_data and not self._scalars:
                self._compare_sizes(op)
            return result
        if self._follower is not None:
            if done.random and self.transforms.active:
                self._follower.drew(result, outs)
            loosened = self.is_loose({v for _, v in outs})
            self._follower.after(result, outs, graph=not loosened, looks=loosened)
        # Graphs that a compiler makes are silent, as torch.compile's are.
        site = self.performer.warning_site(self.operation, name) if self._scalars else None
        # x.float() of floats is what it was given; what gives nothing is called for more than that.
        mutates = done.mutates or (
            not outs
            and (not isinstance(result, torch.Tensor) or would_write(func, op.accessor, kwargs))
        )
        step = OpStep(func, args, kwargs, outs, random=done.random, mutates=mutates)
        step.leaves, step.site, step.hidden = op.leaf, site, op.hidden
        file, row, function, names = op.place
        if is_users_file(file, names):  # which saves the walk through the frames
            step.where = f"{file}:{row} ({function})"
        self.add(step)
        return result

    def _value(self, done: Done, result: Any, name: str) -> Any:
        """What the program gets where an operation gives something that is no tensor."""
        func, args, kwargs = done.func, done.args, done.kwargs
        if not has_ref(args) and not has_ref(kwargs):
            return result
        gives_number = name in NUMBER_METHODS or name == "tolist" or self.direct
        gives_number = gives_number or func in jagged.FUNCTIONS
        if type(result) is str and name in _TEXT:
            if is_changed(self._session, vars(torch._tensor_str.PRINT_OPTS)):
                raise refuse("a tensor becomes a text after the call has set print options")
            return self.track(func, args, kwargs, result)
        if type(result) in (int, float, complex) and gives_number:
            return self.track(func, args, kwargs, result)
        if type(result).__name__ == "ndarray" and type(result).__module__ == "numpy":
            array = self.track(func, args, kwargs, result)
            if name == "__array__":
                # C code asked for it, and nobody sees what it makes of it.
                self.rely_on(array, self._session.tracked(array))
            return array
        self._host(func, args, kwargs, result, [], done.random, name, done.mutates)
        return result

    def _resized(self, op: Operation) -> bool:
        """Whether the operation has resized what it was given to write to.

        No guard looks at the memory that the size asks for.
        """
        found = [t for t, shape in op.targets if t.shape != shape]
        storages = self.record.storages
        outside = {storages.get(v, 0) for v in self.record.inputs} if found else set()
        for t in found:
            var = self.tensors.known(t)
            if var is not None and storages.get(var, 0) in outside:
                self.note(has_room, (Ref(var), t.untyped_storage().nbytes()), {}, CheckValue, True)
        return bool(found)

    def _stays_inside(self, args: Any, name: str, accessor: Any) -> bool:
        """Whether an operation of those that change more than values does so in a graph alone."""
        own = "grad" if accessor is None else "data"
        if (
            self._scalars
            and name in INSIDE_METHODS
            and (name == own or self._is_inside(args, name))
        ):
            return True
        # What torch.func does to its own tensors.
        return name in _OF_TRANSFORMS and accessor is None and self._of_transform(args)

    def _engine_ran(self, reach: autograd.Reach, adds: bool, once: bool) -> None:
        """Notes what autograd's engine did in the step that was added last."""
        self._engine_was_run = True
        self.refusals.keep(self.given.changed())  # its Python may have looked at that
        step = self.record.steps[-1]
        assert isinstance(step, HostStep)
        step.unrepeatable = step.unrepeatable or once
        # What the call has changed may have had a graph before.
        given = self.record.inputs.values()
        engine = step.engine = EngineRun(
            goes_on=any(autograd.goes_on(reach.nodes, t) for t in given),
        )
        if engine.goes_on or once:
            engine.frames = frames_of_the_call()
        if reach.functions:
            engine.gradients = frozenset([0])
            return
        if adds:
            engine.gradients = frozenset(
                self.tensors.memory_of(t.grad) for t in reach.leaves if t.grad is not None
            )
        engine.leaves = self._engine.leaves(reach, adds)

    def _sharing(self, op: Operation, result: Any) -> tuple[Any, Any]:
        """The arguments of an operation whose result may have the memory of one of them."""
        plan = op.plan
        found = self._shared.in_result(plan, result, self._is_outside)
        if found is not plan:
            op.on_host = True
            self._as_they_were(self._shared.taken)
        return found

    def _as_they_were(self, places: list[Any]) -> None:
        """Buffers from outside that tensors show hold what they held when the run began.

        What Python writes to them is written when the operations are over.

        Raises:
            Refusal: one of them does not.
        """
        for place in places:
            if self.is_rewritten(place):
                raise refuse("a buffer from outside is changed before an operation reads it")

    @staticmethod
    def _written_unseen(func: Any, args: Any, kwargs: Any, flags: int) -> frozenset[Var]:
        """What an operation may write without counting versions.

        It computes statistics, or is one of those (fused optimizers) that write several arguments.
        """
        if not flags & (_STATISTICS | _SEVERAL):
            return frozenset()
        given: Any = (args, kwargs)
        names = next((names for f, names in STATISTICS_OF if f is func), None)
        if names is not None and not flags & _SEVERAL:
            found = dict(zip(names, args, strict=False)) | kwargs
            if found.get("training") is False or found.get("use_input_stats") is False:
                return frozenset()
            given = found.get("running_mean"), found.get("running_var")
        return frozenset(variables(given))

    def _is_inside(self, args: Any, name: str) -> bool:
        """Whether the run made the first argument, and its memory too if `name` changes that."""
        if not args or not isinstance(args[0], Ref) or args[0].var in self.record.inputs:
            return False
        if not name.startswith("resize"):
            return True
        memory = self.record.storages.get(args[0].var, 0)
        return all(self.record.storages[v] != memory for v in self.record.inputs)

    def _has_number(self, v: Any) -> bool:
        followed = self.symbols.numbers if self.symbols is not None else ()
        storages, generators = self.record.storages, self.record.generators
        return any(
            var not in storages and var not in followed and var not in generators
            for var in variables(v)
        )

    def _takes_number(self, plan: tuple[Any, Any]) -> bool:
        """Whether numbers that differ from call to call are among the arguments of an operation."""
        storages = self.record.storages
        return any(var not in storages for var in variables(plan))

    def writes(self, found: frozenset[Var]) -> None:
        """Tells what the next step, which is about to be added, writes to."""
        self._writes = found

    def _stopped(self) -> bool:
        return self.refusals.first is not None

    def note(
        self,
        func: Any,
        args: Any,
        kwargs: Any,
        kind: type[HostStep],
        expected: Any = None,
        **more: Any,
    ) -> None:
        """Writes down what Python does at the program's line; the rest is as of `kind`."""
        if len(self.record.steps) >= config.max_operations and self.depth == 0:
            self.refusals.refuse(
                f"the call computes more than {config.max_operations} values that follow from data",
                "Compile a part of it, or raise magpy.config.max_operations",
            )
            return
        self.settings.look()
        if self.settings.changed != self._modes.settings:
            self.note_modes()
        outs = more.pop("outs", [])
        if not issubclass(kind, Call):
            more["expected"] = expected
        step = kind(func, args, kwargs, outs, where=where_text(2), **more)
        if func is not identity:
            step.arithmetic = self.arithmetic
        if self.checked and isinstance(step, Check) and step.is_new(self.checked):
            self.refusals.refuse("what this goes by follows from data and differs in every call")
        self.add(step)

    def add(self, step: OpStep | HostStep) -> None:
        """Writes a step down."""
        step.writes, self._writes = self._writes, frozenset()
        step.mutates = step.mutates or bool(step.writes)
        step.unrepeatable = step.unrepeatable or communicates(step.func)
        if isinstance(step, OpStep) and not step.where:
            step.where = where_text(2)
        record = self.record
        self._changes = self._changes or step.mutates or step.random
        if self._changes and not record.caught and self.catching(call_sites.program_frame()):
            record.caught = where_text(2)
        record.steps.append(step)

    def called(self, func: Any, args: Any, kwargs: Any, result: Any) -> Any:
        """A C function computed `result` from data: it is called again between segments."""
        outs: list[tuple[Any, Var]] = []
        with unheard():
            self._outputs(result, (), outs)
            self.note_modes()
            if not outs and not self._only_known(result):
                return self.track(func, args, kwargs, result)
            sized = bool(self._sized and variables((args, kwargs)) & self._sized)
            self._host(func, args, kwargs, result, outs, False, "", False, sized)
        return result

    def _only_known(self, result: Any) -> bool:
        if isinstance(result, torch.Tensor):
            return True
        if isinstance(result, (tuple, list)) and result:
            return any(self._only_known(x) for x in result)
        return False

    def _outputs(self, result: Any, path: tuple[Any, ...], outs: list[tuple[Any, Var]]) -> None:
        """Collects the new tensors of a result, with the way to each."""
        if len(path) > 5:
            return
        if isinstance(result, torch.Tensor):
            if self.tensors.known(result) is None:
                if self._is_outside(result):
                    self.tensors.var_of(result)
                else:
                    outs.append((path, self.tensors.new(result)))
                    op = self.operation
                    op.leaf = op.leaf or _is_leaf(result)
        elif isinstance(result, (tuple, list)):
            for i, x in enumerate(result):
                self._outputs(x, (*path, i), outs)
        elif isinstance(result, dict):
            for k, x in result.items():
                self._outputs(x, (*path, k), outs)

    def _host(
        self,
        func: Any,
        args: Any,
        kwargs: Any,
        result: Any,
        outs: list[tuple[Any, Var]],
        is_random: bool,
        name: str,
        mutates: bool,
        loose: bool = False,
    ) -> None:
        kind: type[HostStep]
        expected: Any = None
        if name == "tolist" and self._list_of_data(func, args, kwargs, result):
            return
        if self.operation.given_array:
            # The memory may be that of an array that follows from data.
            self.tensors.may_share(outs, (args, kwargs))
        if func is getattr:
            mutates = False
        if result is None and func is not getattr:
            kind = Call
        elif outs or self._only_known(result):
            kind, expected = CheckMetadata, tensor_meta(result)
            if func is getattr and args[1] == "grad" and not outs:
                var = self.tensors.var_of(result)
                func, args = has_gradient, (args[0], Ref(var))
                kind, expected = CheckValue, True
        elif is_plain(result):
            kind, expected = CheckValue, result
        elif isinstance(result, WORK):
            self.in_order(func, args, kwargs, result, False, random=is_random, mutates=mutates)
            return
        elif name in ("register_hook", "register_post_accumulate_grad_hook", "untyped_storage"):
            refusal = refuse(f"Tensor.{name} is called", "Do this outside of the compiled function")
            refusal.drives = True  # of a hook (magpy/runtime/hooks.py)
            raise refusal
        else:
            raise refuse(
                f"{name} returns {an(type(result).__name__)}, which magpy cannot compare", ""
            )
        if self._follower is not None:
            looks = loose or (kind is CheckValue and not mutates)
            writes = mutates and name not in HOST_METHODS  # these change what the tensor is
            self._follower.after(result, outs, graph=False, looks=looks, writes=writes)
        if kind is CheckMetadata and self._follower is not None:
            metas = self._follower.compared(result, outs)
            if metas is not None:
                kind, expected = CheckSizes, metas
        if loose and kind is CheckMetadata:
            followed = self._of_data.sizes(func, len(args), result, [v for _, v in outs])
            if followed is not None:
                kind, (func, expected) = CheckSizes, followed
        site = self.performer.warning_site(self.operation, name) if name else None
        more = {"outs": outs, "random": is_random, "mutates": mutates, "site": site}
        self.note(func, args, kwargs, kind, expected, **more)

    def _of_jagged(self, plan: Any, outs: list[tuple[Any, Var]]) -> bool:
        """Whether an operation makes plain tensors of jagged ones."""
        if not self.tensors.any_jagged:
            return False
        types = self.record.types
        return any(types.get(v) is not jagged.NestedTensor for _, v in outs) and any(
            types.get(v) is jagged.NestedTensor for v in variables(plan)
        )

    def _of_transform(self, args: Any) -> bool:
        """Whether a tensor among arguments is one of a transform."""
        types = self.record.types
        return any(types.get(v) is Wrapped for v in variables(args))

    def _not_a_part(self, targets: Iterable[Var]) -> None:
        """Refuses a write to a part of a sparse tensor from outside: nobody could take it back.

        Which memory that has, and which other tensors have it, no guard tells. Nor is a jagged
        tensor restored.
        """
        record, storages = self.record, self.record.storages
        targets = list(targets)
        if self.tensors.is_of_jagged({storages.get(v, UNKNOWN) for v in targets}):
            raise refuse(JAGGED_CHANGED, "Change a copy")
        found = [v for v in targets if v not in record.inputs and storages.get(v) == UNKNOWN]
        if found and any(storages.get(v) == UNKNOWN for v in record.inputs):
            possible = aliasing.possible(record.steps, storages)
            if any(aliasing.ANY in possible[v] for v in found):
                raise refuse(
                    "what a sparse tensor from outside consists of is changed",
                    "Change the sparse tensor itself, or a copy",
                )


# Operations that call a Python function, which may draw a number or print.
_CALL_PYTHON = frozenset(["apply_", "map_", "map2_"])

# What gives a tensor as text.
# How many steps back the one is sought that has computed a number.
_RECENT = 8
_OF_NUMBERS = frozenset([operator.neg, operator.add, operator.sub, operator.mul, operator.truediv])
_TEXT = frozenset(["__format__", "__repr__", "__str__"])
# What transforms do to their tensors that no graph can hold where it is done to others.
_OF_TRANSFORMS = frozenset(["requires_grad_", "grad"])


def _is_leaf(tensor: torch.Tensor) -> bool:
    """Whether a tensor that an operation gave is a leaf of autograd's graph."""
    return tensor.requires_grad and tensor.grad_fn is None and not wrapped(tensor)


__all__ = ["Writer"]
