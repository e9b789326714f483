"""The recorder: sees every tensor operation of the watched run and writes it down as a step.

Owns the decision what an operation is: a node of the operator graph, a read of metadata, or a value
that depends on data.  Does not own which variable a tensor is (magpy/capture/tensors/identity.py),
Python state (csrc/interp/session_state.cpp), nor the segments and the code made of the steps
(magpy/replay). Used by magpy/capture/session.py.

Source: torch.overrides.TorchFunctionMode, https://docs.pytorch.org/docs/stable/torch.overrides.html
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from magpy import _interp, _tensor, config, faults
from magpy.capture.refusals import RefusalBox
from magpy.capture.tensors import scalar_tensors
from magpy.capture.tensors.arguments import WORK, Values
from magpy.capture.tensors.engine import EnginePasses
from magpy.capture.tensors.escapes import Given
from magpy.capture.tensors.functorch import Transforms, switches, wrapped
from magpy.capture.tensors.gradients import Gradients
from magpy.capture.tensors.opaque_calls import Whole, opened
from magpy.capture.tensors.operation import Done, Operation
from magpy.capture.tensors.pass_hooks import cannot_wait, is_hook_function
from magpy.capture.tensors.performer import Performer
from magpy.capture.tensors.torch_function import by_class, dispatched, hears, not_taken
from magpy.errors import FILLED, Refusal, hide_frames
from magpy.frames import call_sites
from magpy.frames.locations import is_users_file, refuse, where_text
from magpy.frames.signals import raised_by_handler
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
    Record,
    Ref,
    Var,
    Wrapped,
    has_gradient,
    has_room,
    identity,
)
from magpy.ir.tensor_meta import tensor_meta
from magpy.ir.torch_modes import TorchModes, current_modes
from magpy.ir.trees import collect, has_ref, tensors, variables
from magpy.models.callables import NUMBER_METHODS
from magpy.models.patched_names import is_hidden
from magpy.models.torch_callables import communicates
from magpy.models.torch_ops import (
    ARITHMETIC,
    HOST_METHODS,
    INSIDE_METHODS,
    MAY_SHARE,
    METADATA,
    MODE_SETTERS,
    OPERATORS,
    RANK_FOLLOWS,
    SHAPE_READS,
    SPARSE_PARTS,
    SPLITS,
    STATIC_RESULT,
    STATISTICS_OF,
    TAKES_FLOATS,
    accessor_call,
    accessor_of,
    makes_tensor_of_numbers,
    operation_name,
    resizable,
    scalar_tensor,
    sized,
    would_write,
)
from magpy.models.torch_state import Settings
from magpy.objects import buffers as memory
from magpy.objects.buffers import Range
from magpy.objects.number_lists import form_of
from magpy.objects.plain_values import is_plain
from magpy.objects.quiet import unheard
from magpy.objects.types import isinstance
from magpy.shapes.indexing import taken_apart
from magpy.shapes.propagate import Follower
from magpy.shapes.symbols import Symbols, is_open
from magpy.unwatched import autograd
from magpy.unwatched.changes import Below

_push: Any = torch.overrides._push_mode
_pop: Any = torch.overrides._pop_mode
_INDEXING = ("__getitem__", "__setitem__")
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_DATA_INSIDE = "a function that magpy records as one operation reads the values of tensors"
_DATA, _DYNAMIC, _RANDOM, _MUTATES, _STATISTICS, _SEVERAL, _LOOKS = 1, 2, 4, 8, 16, 32, 64


class Recorder(Values, TorchFunctionMode):
    """Records the tensor operations of one run.

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
        super().__init__(is_outside, session, symbols)
        self.refusals = refusals or RefusalBox()
        self.fail = self.refusals.fail
        self._scalars = scalars
        self._follower = Follower(self, symbols) if symbols is not None else None
        #: The call, recorded as one operation, that is made now.
        self.whole: Whole | None = None
        #: What of the run something has got that may look at it later.
        self.given = Given(self.tensors)
        # Tensors of no dimensions by the numbers that they hold.
        self._scalar_tensors: dict[Var, Var] = {}
        self._loose: set[Var] = set()
        self._ever_loose: set[Var] = set()
        # Of the step that is about to be added: see `OpStep.writes`.
        self._writes: frozenset[Var] = frozenset()
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

    def is_loose(self, found: set[Var]) -> bool:
        """Whether the shape of one of these variables follows from data."""
        return bool(found & self._loose)

    # ------------------------------------------------------------- the mode

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation and records it."""
        if self.depth or self.refusals.first is not None:
            if self.whole is not None:
                self.whole.below(func, args, kwargs or {})
            # Nor is anything refused that is done below an operation of a run that is given up.
            _interp.pause()
            try:
                result = self.performer.unrecorded(func, args, kwargs or {})
            finally:
                _interp.resume()
            if result is NotImplemented:
                raise not_taken(func, types)  # else torch would ask the classes once more
            return result
        _interp.pause()
        try:
            # torch tells a mode of a property's tensor even where no class hears of it.
            if not self.settings.look():
                self._set_while_transformed()
            elif self._session is not None and any(map(hears, types)):
                return self._dispatched(func, types, args, kwargs)
            return self._operation(func, args, kwargs or {})
        except BaseException as e:
            hide_frames(e)
            del args, kwargs  # what was called here may keep this frame as its caller
            raise
        finally:
            self.operation.forget()
            _interp.resume()

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """Takes this mode off the thread's stack, with those that the program has put above it."""
        above: list[Any] = []
        while (mode := _pop()) is not self:
            above.insert(0, mode)
        try:
            for mode in above:
                _push(mode)
            yield
        finally:
            for _ in above:
                _pop()
            for mode in (self, *above):
                _push(mode)

    def hook(self, hook: Callable[[Any], Any], tensor: Any) -> Any:
        """Calls a hook of saved tensors that the caller has set, in the middle of an operation.

        It runs in every call, where autograd saves a tensor: what it does is not the call's.  It is
        torch's, below which none of the program's may run.
        """
        _interp.pause()
        told = _interp.below(self._session is not None)
        torch._C._autograd._enable_record_function(False)  # `observer` watches the operation
        try:
            return hook(tensor)
        finally:
            torch._C._autograd._enable_record_function(True)
            _interp.below(told)
            _interp.resume()

    def hook_in_pass(self, node: Any, hook: Any, given: tuple[Any, ...]) -> Any:
        """Calls a hook in a backward pass as a part of the run (`PassHooks`)."""
        if self.refusals.first is not None:
            return hook(*given)
        if self.depth != 1 or self.operation.reach is None or not _interp.session_active():
            self.refusals.refuse("a hook of a module runs where nobody watches it")
            return hook(*given)
        if self.symbols is not None:
            self.symbols.fix_all()  # nobody follows the sizes of gradients
        self._of_pass |= self.observer.take()
        outer, told = self.operation, _interp.below(False)
        self.depth, self.operation = 0, Operation(hook)
        try:
            with unheard():
                self.hooks.given(node, given, self._gradient_of_pass)
            with self:  # torch has put the mode aside
                result = _interp.watched(hook, given, {})
        finally:
            self.depth = 1
            self.operation = outer
            _interp.below(told)
            self.observer.take()
        ends = tuple(v for v in given if isinstance(v, tuple))
        if result is not None and not any(_same_objects(result, v) for v in ends):
            self.refusals.refuse("a hook of a module gives other gradients")
        return result

    def _gradient_of_pass(self, tensor: torch.Tensor) -> Var | None:
        return self.tensors.new(tensor) if self.tensors.known(tensor) is None else None

    def _hooks_ran(self, start: int, end: int) -> None:
        """A pass was made in which hooks ran: what they did comes after it.

        Args:
            start: the number of the steps before the pass.
            end: of those with what the hooks did.

        Raises:
            Refusal: it cannot come after it.
        """
        steps, heard = self.record.steps, tuple(self.hooks.heard)
        did, made = steps[start:end], steps[end:]
        if not did and not heard:
            return
        self.hooks.heard.clear()
        step = next((s for s in made if isinstance(s, HostStep) and s.engine is not None), None)
        engine = None if step is None else step.engine
        if (
            engine is None
            or engine.gradients is None
            or cannot_wait(did, heard, self._memories(engine.gradients))
        ):
            raise refuse("what a hook of a module does cannot wait until the backward pass is over")
        engine.heard = heard
        modes = [s for s in made if isinstance(s, ModeStep)]
        steps[start:] = [*(s for s in made if not isinstance(s, ModeStep)), *did, *modes]

    def _memories(self, of: frozenset[int]) -> set[Var]:
        """The variables whose memory is one of these."""
        return {v for v, memory in self.record.storages.items() if memory in of}

    def _dispatched(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """An operation that classes of the program take over."""
        if not all(map(by_class, types)):
            # torch itself calls it, and says that this is deprecated.
            self.refusals.refuse("__torch_function__ is no class method")
            return func(*args, **(kwargs or {}))
        if operation_name(func) == "__setitem__" and not _can_be_set(args):
            self.refusals.refuse(
                "tensor[index] = ... is done with an index whose class has a __torch_function__",
                "Convert the index first, to a plain tensor or an int",
            )
            return func(*args, **(kwargs or {}))
        result = dispatched(self, func, types, args, kwargs)
        if result is NotImplemented:
            self.refusals.refuse("no __torch_function__ takes the operation")
            # To torch it would say that the mode leaves the operation to the classes, which have
            # heard of it; operators make this of a TypeError.
            raise not_taken(func, types)
        return result

    def _operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = operation_name(func)
        accessor = None
        if name in ("__get__", "__set__", "__delete__"):
            accessor = accessor_of(func)
            if accessor is not None:
                name = accessor[1]
                if accessor[0] == "get" and name in METADATA:
                    return self._metadata(func, args, kwargs, name)
        elif name in METADATA or name in MODE_SETTERS:
            return self._metadata(func, args, kwargs, name)
        elif name == "type" and len(args) == 1 and not kwargs:
            return func(*args)  # the name of dtype and device
        elif name == "__iter__" and args:
            return self._iterate(args[0])
        if name in _INDEXING and self.any_tracked and not kwargs:
            views = self._views(func, args)
            if views is not None:
                return views[0]
            args = self._with_index_tensors(args)
        if self._asks_unheard(args, kwargs):
            self.refusals.refuse(
                f"{name} asks a tensor for numbers whose class has a __torch_function__",
                "Convert it first, with int() or float()",
            )
        op = self.operation = Operation(func, name, accessor)
        op.hidden = is_hidden(func, args)
        try:
            faults.check("recorder")
            with unheard():
                op.func, *given = self._recorded_as(func, args, kwargs)
                self._prepare(op, *given)
                op.reach = self._engine.reached(func, args, kwargs)
        except Exception as e:  # noqa: BLE001 - a failure of the recorder must not reach the program
            self.fail(e)
        if self.refusals.first is not None:
            # Not where one is handled: it would be the context of what the operation raises.
            return self.performer.unrecorded(func, args, kwargs)
        observer = self.observer
        observer.take()
        self.depth += 1
        start, self._of_pass = len(self.record.steps), 0
        try:
            result = self.performer.perform(op, func, args, kwargs)
        except Exception as e:
            self._interrupted_or_raised(op, e)
            raise
        finally:
            self.depth -= 1
        flags = observer.take() | self._of_pass
        if result is NotImplemented or op.guarded:
            return result
        try:
            with unheard():
                return self._done(op, result, flags, start)
        except Exception as e:  # noqa: BLE001 - as above
            self.fail(e)
        return result

    def _done(self, op: Operation, result: Any, flags: int, start: int) -> Any:
        """Writes an operation down that was performed, when there were `start` steps."""
        end, passes = len(self.record.steps), op.reach is not None
        self._pin_if_given_back(op, result, flags)
        result = self._emit(op, result, self._classify(op, result, flags))
        if passes:
            self._hooks_ran(start, end)
        return result

    def _asks_unheard(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the program hears of a part of an operation, and not of it (`torch.tensor`)."""
        given = [v for v in (*args, *kwargs.values()) if isinstance(v, (list, tuple))]
        return (
            bool(given)
            and torch._C._is_torch_function_enabled()
            and any(type(t) not in _PLAIN and hears(type(t)) for t in tensors(given))
        )

    def _interrupted_or_raised(self, op: Operation, error: Exception) -> None:
        if raised_by_handler(error):
            self.refusals.keep(Refusal("a signal is handled", passing=True))
            return
        with unheard():
            self._raised(op, error)

    def _views(self, func: Any, args: tuple[Any, ...]) -> tuple[Any] | None:
        """What indexing with a number that varies gives, done as the views that it stands for."""
        numbers: dict[Any, Any] = self.symbols.numbers if self.symbols is not None else {}
        if not numbers or self.refusals.first is not None or type(args[0]) not in _PLAIN:
            return None
        if torch._C._len_torch_function_stack():
            return None  # a mode of the program hears of each operation

        def operate(func: Any, args: tuple[Any, ...]) -> Any:
            return self._operation(func, args, {})

        def varies(n: int) -> bool:
            var = self.tracked(n)
            return var in numbers and is_open(numbers[var])

        found = taken_apart(args[0], args[1], varies, operate)
        if found is None:
            return None
        view, left = found
        if len(args) > 2:
            return (operate(func, (view, left, args[2])),)
        return (view if left is Ellipsis else operate(func, (view, left)),)

    def _with_index_tensors(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments of indexing, with tensors for lists of integers that differ."""
        plain = type(args[0]) in _PLAIN and not torch._C._len_torch_function_stack()
        if not plain or self.depth or self.refusals.first is not None:
            return args
        tensor, index, *rest = args
        items = index if type(index) is tuple else (index,)
        made = tuple(
            self._operation(torch.tensor, (i,), {}) if self._lists_numbers(i) else i for i in items
        )
        if all(map(operator.is_, items, made)):
            return args
        return (tensor, made if type(index) is tuple else made[0], *rest)

    def _lists_numbers(self, v: Any) -> bool:
        return (
            type(v) is list
            and {*map(type, v)} == {int}
            and any(self.tracked(x) is not None for x in v)
        )

    def _metadata(self, func: Any, args: tuple[Any, ...], kwargs: Any, name: str) -> Any:
        try:
            self._metadata_read(args, name)
        except Exception as e:  # noqa: BLE001 - a failure of the recorder must not reach the program
            self.fail(e)
        result = func(*args, **kwargs)
        if self.refusals.first is not None:
            return result
        try:
            if self.tensors.unguarded(args, name):
                with unheard():
                    return self._asked_again(func, args, name, result)
            if self._follower is not None and name in SHAPE_READS:
                return self._follower.metadata(func, args, kwargs, name, result)
        except Exception as e:  # noqa: BLE001 - as above
            self.fail(e)
        return result

    def _metadata_read(self, args: tuple[Any, ...], name: str) -> None:
        if self._loose and name in SHAPE_READS:
            self._pin_shapes(args)
        # An outside tensor whose metadata was read is guarded though no operation may use it.
        for a in args:
            if not isinstance(a, torch.Tensor) or self.tensors.known(a) is not None:
                continue
            if self._is_outside(a):
                self.tensors.var_of(a)

    def _asked_again(self, func: Any, args: tuple[Any, ...], name: str, result: Any) -> Any:
        """What a tensor says that no guard on it covers: every call asks again, at this place.

        Raises:
            Refusal: it is no value that can be compared.
        """
        if not is_plain(result):
            raise refuse(f"{name} of a tensor that comes from outside is read")
        given = self.convert_all(args)
        accessor = accessor_of(func)
        if accessor is not None:
            func, given = accessor_call(accessor, given)
        return self.track(func, given, {}, result)

    def _pin_shapes(self, args: Any) -> None:
        """Shapes that follow from data are looked at: from here on they must be what they are."""
        for a in args:
            if isinstance(a, torch.Tensor):
                var = self.tensors.known(a)
                if var is not None and var in self._loose:
                    self._loose.discard(var)
                    followed = self._of_data.sizes(identity, 1, a, [var])
                    if followed is None:
                        self.note(identity, (Ref(var),), {}, CheckMetadata, tensor_meta(a))
                    else:
                        self.note(followed[0], (Ref(var),), {}, CheckSizes, followed[1])
            elif isinstance(a, (tuple, list)):
                self._pin_shapes(a)

    def _iterate(self, tensor: Any) -> Any:
        # Tensor.__iter__ hides the unbind that it is.
        if tensor.dim() == 0:
            return torch.Tensor.__iter__(tensor)  # type: ignore[no-untyped-call]
        return iter(self._operation(torch.Tensor.unbind, (tensor, 0), {}))

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
            given = (*args, *kwargs.values())
            self._follower.before(op.instead or func, op.plan, given, follow, op.on_host)
        self._as_they_were(self._shared.outside(op.plan))
        if "out" in kwargs or type(func) in OPERATORS:
            op.targets = [(t, t.shape) for t in tensors(resizable(func, args, kwargs))]

    def _numbers_are_given(self, op: Operation, args: Any, kwargs: Any) -> None:
        """Has an operation take numbers that differ from call to call as tensors, if it can."""
        if not self._scalars:
            scalar_tensors.take(op, args, kwargs, self._scalar_tensor)
        if op.takes_lists:
            if self.symbols is not None:
                scalar_tensors.make(op, args, kwargs, self.symbols.numbers)
            op.on_host = op.on_host or (op.instead is None and self._takes_number(op.plan))

    def _recorded_as(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operation that a step keeps, and its arguments."""
        if func is torch.Tensor.__deepcopy__:
            # It notes what is copied by addresses, where something else may lie in the next call.
            raise refuse("a tensor is copied by copy.deepcopy", "Use Tensor.clone")
        return sized(func, args, kwargs)

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
            self.tensors.moves(tensor, data)
        if var not in self.record.inputs:
            return
        with unheard():
            if self.symbols is not None:
                self.symbols.fix_all()  # graphs would read the sizes of what was assigned
            if var not in self.record.swapped:
                self.record.swapped[var] = tensor.data

    def _scalar_tensor(self, var: Var, value: float) -> Var:
        made = self._scalar_tensors.get(var)
        if made is None:
            with torch._C._DisableFuncTorch():  # it is made ahead of a transform
                tensor = scalar_tensor(value)
            made = self._scalar_tensors[var] = self.tensors.new(tensor)
            self.add(Bind(scalar_tensor, (Ref(var),), {}, expected=torch.Tensor, result=made))
            if self.symbols is not None:
                self.symbols.still(made, tensor)
        return made

    def sets(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a function that writes a setting of torch's, under which operations run then."""
        self._set_while_transformed()
        return self.settings.call(f, args, kwargs)

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
            self._is_tracked(result, var)
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

    def clears_autocast_cache(self) -> None:
        """Autocast forgets the copies that it has made of parameters, as at the end of a context.

        What has changed since then is copied anew. Operations between two clearings share copies,
        under whatever modes they run.
        """
        last = next((s for s in reversed(self.record.steps) if not isinstance(s, ModeStep)), None)
        if (
            self.refusals.first is None
            and not self.depth
            and (last is not None and getattr(last, "func", None) is not torch.clear_autocast_cache)
            and any(
                enabled
                for modes in (self._start, *_modes_of(self.record.steps))
                for _, enabled, _ in modes.autocast
            )
        ):
            self.add(OpStep(torch.clear_autocast_cache, (), {}, []))

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
        static = op.name.removeprefix("linalg_") in STATIC_RESULT
        by_data = bool(flags & (_DATA | _DYNAMIC)) and not static
        by_data = by_data or op.resized
        if op.name in SPARSE_PARTS:
            by_data = True
            self.tensors.may_share(outs, (args, kwargs))
        reshapes = self._form_follows(func, (args, kwargs), by_data)
        mutates = bool(flags & _MUTATES or self._writes)
        if self._follower is not None and self._follower.is_lost(outs, mutates):
            by_data = True
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
        if outs and self._sized and not variables((args, kwargs)).isdisjoint(self._sized):
            on_host = loose = True
        elif not op.resized and (self._loose or (loose and self._scalars)):
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
        step = OpStep(
            func, args, kwargs, outs, random=done.random, mutates=done.mutates or not outs
        )
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

    def _compare_sizes(self, op: Operation) -> None:
        """Data has decided the sizes of what the operation wrote to: they must be what they are."""
        for t, _ in op.targets:
            var = self.tensors.known(t)
            if var is not None:
                self.note(identity, (Ref(var),), {}, CheckMetadata, tensor_meta(t))

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

    def _pin_if_given_back(self, op: Operation, result: Any, flags: int) -> None:
        """An operation gave back what it was given: of other sizes it may make something new.

        `contiguous()` of a single row does, and dropout of none.
        """
        if not self._loose or flags & _MUTATES:
            return
        given = variables(op.plan)
        if self.is_loose(given) and any(self.tensors.known(t) in given for t in tensors(result)):
            self._pin_shapes([t for t in tensors(result) if self.tensors.known(t) in given])

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
        if reach.functions:
            engine.gradients = frozenset([0])
        elif adds:
            engine.gradients = frozenset(
                self.tensors.memory_of(t.grad) for t in reach.leaves if t.grad is not None
            )
            engine.leaves = self._engine.leaves(reach)

    def _list_of_data(self, func: Any, args: Any, kwargs: Any, result: Any) -> bool:
        """Follows the numbers of a list that follows from data, in place of comparing the list.

        Args:
            func: what gave it.
            args: its arguments as a step keeps them.
            kwargs: likewise.
            result: the list, nested or not, which gets equal numbers.

        Returns:
            Whether it did.
        """
        if not self._of_data.takes_list(result):
            return False
        if self.symbols is not None:
            # Known before anything is computed: an entry for another length runs in vain.
            self.symbols.fix(variables(args))
        var = self.tensors.new()
        self.note(func, args, kwargs, Bind, list, result=var)
        self.note(form_of, (Ref(var),), {}, CheckValue, form_of(result))
        self._follow_items(var, result)
        return True

    def _follow_items(self, var: Var, found: list[Any]) -> None:
        for i, x in enumerate(found):
            if type(x) is list:
                inner = self.tensors.new()
                self.note(operator.getitem, (Ref(var), i), {}, Bind, list, result=inner)
                self._follow_items(inner, x)
            else:
                found[i] = self.track(operator.getitem, (Ref(var), i), {}, x)

    def _form_follows(self, func: Any, plan: tuple[Any, Any], by_data: bool) -> bool:
        """Whether an operation may give tensors that were there before sizes that follow from data.

        From here on they count as such.

        Args:
            func: the operation, which has been done.
            plan: its arguments.
            by_data: the operation itself looks at data.
        """
        if not (by_data or self._loose):
            return False
        found = variables(resizable(func, *plan)) | (self._writes if by_data else frozenset())
        if not found or not (by_data or self.is_loose(variables(plan))):
            return False
        if self._scalars:
            self._loose.update(found)
            self._ever_loose.update(found)
        return True

    def _loosen(
        self, name: str, plan: Any, result: Any, outs: list[tuple[Any, Var]], by_data: bool
    ) -> bool:
        """Notes that the shapes of results follow from data; True if even how many there are does.

        Args:
            name: the operation.
            plan: its arguments.
            result: its results.
            outs: the new tensors among them.
            by_data: the operation itself looks at data.
        """
        if not by_data and not self.is_loose(variables(plan)):
            return False
        # Only what takes a tensor apart gives as many tensors as its shape says.
        if outs and name in SPLITS and not isinstance(result, torch.Tensor):
            return True
        self._loose.update(v for _, v in outs)
        self._ever_loose.update(v for _, v in outs)
        if name in MAY_SHARE:
            # Of other sizes the results may share memory with the arguments, or not.
            self.tensors.may_share(outs, plan)
        return False

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
        storages = self.record.storages
        return any(var not in storages and var not in followed for var in variables(v))

    def _takes_number(self, plan: tuple[Any, Any]) -> bool:
        """Whether numbers that differ from call to call are among the arguments of an operation."""
        storages = self.record.storages
        return any(var not in storages for var in variables(plan))

    def _raised(self, op: Operation, error: Exception) -> None:
        """The operation raised: in the next call it may not."""
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
            self.refusals.keep(Refusal("memory ran out"))
        elif isinstance(error, Warning):
            self.refusals.refuse("the filters make an error of an operation's warning")
        else:
            self.refusals.refuse(f"{op.name or 'an operation'} raises a {type(error).__name__}")

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
            raise refuse(f"Tensor.{name} is called", "Do this outside of the compiled function")
        else:
            raise refuse(
                f"{name} returns a {type(result).__name__}, which magpy cannot compare", ""
            )
        if self._follower is not None:
            looks = loose or (kind is CheckValue and not mutates)
            self._follower.after(result, outs, graph=False, looks=looks)
        if loose and kind is CheckMetadata:
            followed = self._of_data.sizes(func, len(args), result, [v for _, v in outs])
            if followed is not None:
                kind, (func, expected) = CheckSizes, followed
        site = self.performer.warning_site(self.operation, name) if name else None
        more = {"outs": outs, "random": is_random, "mutates": mutates, "site": site}
        self.note(func, args, kwargs, kind, expected, **more)

    # ------------------------------------------------------------- calls that no mode sees

    def whole_call(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]
    ) -> Any:
        """Performs `run`, recorded as one operation `func` without what happens inside."""
        if self.depth or self.refusals.first is not None:
            return run()
        op, whole = Operation(func, place=call_sites.place_of(func)), Whole(self, self._is_outside)
        self.operation = op
        try:
            self._prepare_whole(op, whole, args, kwargs)
            if self._stopped():
                return run()  # not where one is handled: it would be the context of an error
            result = self._perform_whole(whole, run)
            flags = whole.flags | self.observer.take()
            try:
                with unheard():
                    self._after_whole(op, result, flags, whole)
            except Exception as e:  # noqa: BLE001 - as above
                self.fail(e)
            return result
        finally:
            op.forget()

    def _prepare_whole(
        self, op: Operation, whole: Whole, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        func = op.func
        self._whole = whole
        try:
            with unheard():
                target = getattr(func, "__magpy_target__", func)
                if self.below.written():
                    raise refuse(
                        "the call has changed an object from outside before it calls a function "
                        "that magpy records as one operation, and that may look at the object",
                        FILLED if self.below.only_fills() else "",
                    )
                whole.given(target, args, kwargs)
                op.func, args, kwargs = opened(func, args, kwargs, self._is_outside)
                self._prepare(op, args, kwargs, follow=False)
                whole.begin(target, args, kwargs)
        except Exception as e:  # noqa: BLE001 - as above
            self.fail(e)
        finally:
            self._whole = None

    def _perform_whole(self, whole: Whole, run: Callable[[], Any]) -> Any:
        self.observer.take()
        self.gradients.unseen()
        self.depth += 1
        self.whole = whole
        try:
            return run()
        except Exception:
            if (whole.flags | self.observer.take()) & _LOOKS or whole.looks:
                # In another call it may not raise.
                self.refusals.refuse(f"{_DATA_INSIDE}, and raises an exception")
            raise
        finally:
            self.depth -= 1
            self.whole = None

    def _after_whole(self, op: Operation, result: Any, flags: int, whole: Whole) -> None:
        if flags & _LOOKS or whole.looks:
            # What it does to Python's objects, and whether it raises, was seen for this data only.
            raise refuse(_DATA_INSIDE, "Do that outside of it, in the compiled function")
        written = whole.written(unseen=bool(flags & (_STATISTICS | _SEVERAL)))
        op.by_whole = frozenset(map(self.tensors.var_of, written))
        op.name = getattr(op.func, "__name__", "")
        self._emit(op, result, self._classify(op, result, flags & ~_DATA))
        step = self.record.steps[-1] if self.record.steps else None
        if isinstance(step, OpStep) and is_hook_function(op.func):
            self.hooks.made(self.record, result, self.tensors.known)
        elif isinstance(step, (OpStep, HostStep)) and step.func is op.func:
            step.unrepeatable = step.unrepeatable or whole.unrepeatable
            if isinstance(step, OpStep):
                step.whole, step.where = True, where_text(2)

    def transform(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Performs a part of a transform, which is recorded as an operation."""
        if self.depth or self.refusals.first is not None:
            return func(*args, **kwargs)
        op = self.operation = Operation(func, func.__name__)
        try:
            faults.check("recorder")
            with unheard():
                self._prepare_transform(op, args, kwargs)
        except Exception as e:  # noqa: BLE001 - as above
            self.fail(e)
        if self._stopped():
            return func(*args, **kwargs)
        self.depth += 1
        try:
            result = func(*args, **kwargs)
        finally:
            self.depth -= 1
            self.observer.take()
        try:
            outs: list[tuple[Any, Var]] = []
            with unheard():
                self._outputs(result, (), outs)
                if not self.transforms.after(func, len(self.record.steps)):
                    if outs:
                        raise refuse(
                            "a torch.func transform (grad, vmap, jvp, ...) began before the "
                            "compiled call, and the call computes with its tensors",
                            "Compile the function that makes the transform",
                        )
                elif outs or switches(func):
                    if self._follower is not None and outs:
                        self._follower.after(result, outs, graph=True)
                    self.add(OpStep(func, *op.plan, outs))
        except Exception as e:  # noqa: BLE001 - as above
            self.fail(e)
        op.forget()
        return result

    def _prepare_transform(self, op: Operation, args: tuple[Any, ...], kwargs: Any) -> None:
        # What changes the thread's state is not done twice.
        self._prepare(op, args, kwargs, follow=None if switches(op.func) else True)
        self.note_modes()
        self.transforms.before()
        for t in tensors(args):
            self.transforms.given(self.tensors.var_of(t), t)

    def _of_transform(self, args: Any) -> bool:
        """Whether a tensor among arguments is one of a transform."""
        types = self.record.types
        return any(types.get(v) is Wrapped for v in variables(args))

    def unseen_result(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        writes: bool = False,
    ) -> None:
        """A C function returned tensors and no mode saw it: record the call, after the fact.

        Args:
            func: the function.
            args: the positional arguments.
            kwargs: the keyword arguments.
            result: what it gave.
            writes: it may write to the tensors among its arguments.
        """
        if self.depth or self.refusals.first is not None:
            return
        if not writes and not self.tensors.fresh(result):
            return
        func, args, kwargs = sized(func, args, kwargs)
        op = self.operation = Operation(func)
        with unheard():
            self._unseen(op, args, kwargs, result, writes)
        op.forget()

    def _unseen(
        self,
        op: Operation,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        writes: bool,
    ) -> None:
        func = op.func
        self._prepare(op, args, kwargs, follow=False)
        outs: list[tuple[Any, Var]] = []
        self._outputs(result, (), outs)
        self.note_modes()
        plan = self._sharing(op, result)
        flags = self.observer.take()  # those since the last operation
        # What a generator says of its state is another thing after each draw.
        asks = isinstance(args[0] if args else None, torch.Generator) or isinstance(
            getattr(func, "__self__", None), torch.Generator
        )
        is_random, mutates = asks or bool(flags & _RANDOM), bool(flags & _MUTATES) or writes
        self.record.random = self.record.random or is_random
        self._writes = self._written_unseen(func, *plan, flags)
        if writes:
            self._writes |= variables(plan)
            self._shared.written(plan)
        by_data = bool(flags & (_DATA | _DYNAMIC)) or op.resized
        loose = by_data and (self._form_follows(func, plan, by_data) or bool(outs))
        if outs and self._sized and not variables(plan).isdisjoint(self._sized):
            loose = True
        elif not op.resized and (self._loose or (loose and self._scalars)):
            loose = self._loosen(getattr(func, "__name__", ""), plan, result, outs, loose)
        if op.on_host or loose or _has_array(args):
            self._host(func, plan[0], plan[1], result, outs, is_random, "", mutates, loose)
            return
        if self._follower is not None:
            self._follower.after(result, outs, graph=True)
        step = OpStep(func, *plan, outs, random=is_random, mutates=mutates, leaves=op.leaf)
        self.add(step)

    def _not_a_part(self, targets: Iterable[Var]) -> None:
        """Refuses a write to a part of a sparse tensor from outside: nobody could take it back.

        Which memory that has, and which other tensors have it, no guard tells.
        """
        record, storages = self.record, self.record.storages
        found = [v for v in targets if v not in record.inputs and storages.get(v) == UNKNOWN]
        if found and any(storages.get(v) == UNKNOWN for v in record.inputs):
            possible = aliasing.possible(record.steps, storages)
            if any(aliasing.ANY in possible[v] for v in found):
                raise refuse(
                    "what a sparse tensor from outside consists of is changed",
                    "Change the sparse tensor itself, or a copy",
                )

    def _written(self) -> set[int]:
        """The memories that operations may write to, some of which leave versions alone."""
        possible = aliasing.possible(self.record.steps, self.record.storages)
        targets: set[Var] = set()
        found: set[int] = set()
        for step in self.record.steps:
            if isinstance(step, HostStep) and step.gradients is not None:
                found |= step.gradients
            elif isinstance(step, (OpStep, HostStep)) and step.mutates:
                targets |= step.writes
                if not step.writes:
                    collect((step.args[:1], step.kwargs.get("out")), targets)
        for v in targets:
            if self.record.types.get(v) is Wrapped:  # what a transform's tensor is made of it wraps
                found.add(self.record.storages[v])
            else:
                found |= possible.get(v, set())
        return found

    def finish(self) -> Record:
        """The record, with what can be said only at the end."""
        record = self.record
        for step in record.steps:
            if isinstance(step, HostStep) and step.engine is not None and step.engine.gradients:
                # Memories have become one since, where `Tensor.data` was assigned.
                merged = map(self.tensors.merged, step.engine.gradients)
                step.engine.gradients = frozenset(merged)
        written = self._written()
        through = {v for v in record.inputs if record.storages.get(v) in written}
        record.mutated = self.tensors.dirty() | through
        self.buffers = self._shared.among(written)
        self.views = self._shared.seen(written)
        self.record.data_dependent = frozenset(self._ever_loose)
        self.record.symbols = self.symbols
        self._of_data.finish()
        return record

    def check_end(self) -> None:
        """Keeps a refusal for what the run has left behind."""
        refusals = self.refusals
        refusals.keep(self.below.looked_at())
        refusals.keep(self._shared.end())
        refusals.keep(self.hooks.left())
        refusals.keep(self.given.changed())
        refusals.keep(self.written_unseen())
        self.settings.look()
        modes = current_modes(self.settings.changed)
        setting = self.settings.left()
        if modes != replace(self._start, settings=modes.settings) or setting:
            refusals.keep(
                Refusal(
                    "the call leaves torch in another state than it found it in "
                    f"({setting or 'grad, autocast or inference mode'})"
                )
            )

    def forget_tensors(self) -> None:
        """Gives up every weak reference to a tensor, of a run that was refused."""
        self.tensors.forget()
        self.gradients.forget()
        self._follower = None

    def end(self) -> None:
        """Lets go of what refers to the recorder."""
        self.operation.forget()
        self.given.end()
        self.below.end()
        self.hooks.end()
        self._is_outside = self.is_rewritten = bool
        self.buffers_read = bool
        self._follower = None
        self.gradients.forget()
        self.tensors.end()

    @property
    def start_modes(self) -> TorchModes:
        """Torch's modes when the run began."""
        return self._start


# Operations that call a Python function, which may draw a number or print.
_CALL_PYTHON = frozenset(["apply_", "map_", "map2_"])

# What transforms do to their tensors that no graph can hold where it is done to others.
_OF_TRANSFORMS = frozenset(["requires_grad_", "grad"])


def _can_be_set(args: tuple[Any, ...]) -> bool:
    """Whether torch surely tells classes among the indices of `tensor[index] = value`.

    Where neither the tensor nor the value hears, it makes a tensor of the value first, which may
    raise.
    """
    tensor, *_, value = args
    return hears(type(tensor)) or hasattr(type(value), "__torch_function__")


def _same_objects(a: Any, b: tuple[Any, ...]) -> bool:
    return isinstance(a, tuple) and len(a) == len(b) and all(map(operator.is_, a, b))


def _is_leaf(tensor: torch.Tensor) -> bool:
    """Whether a tensor that an operation gave is a leaf of autograd's graph."""
    return tensor.requires_grad and tensor.grad_fn is None and not wrapped(tensor)


def _modes_of(steps: list[Any]) -> list[TorchModes]:
    """The modes that a run's operations were under."""
    return [s.modes for s in steps if isinstance(s, ModeStep)]


def _has_array(args: Any) -> bool:
    return any(type(a).__module__ == "numpy" for a in args)
