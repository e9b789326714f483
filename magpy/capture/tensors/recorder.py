"""The recorder: hears of every tensor operation of the watched run and has it written down.

Owns which operation is performed and how it is heard of: operators, indexing, metadata, what
classes of the program take over, hooks; and the record at the end.  Does not own what becomes of
one (magpy/capture/tensors/writer.py), calls of which no mode hears
(magpy/capture/tensors/unseen_calls.py), which variable a tensor is
(magpy/capture/tensors/identity.py), Python state (csrc/interp/session_state.cpp), nor the segments
and the code made of the steps (magpy/replay). Used by magpy/capture/session.py.

Source: torch.overrides.TorchFunctionMode, https://docs.pytorch.org/docs/stable/torch.overrides.html
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from magpy import _interp, faults
from magpy.capture.tensors.identity import JAGGED_CHANGED
from magpy.capture.tensors.operation import Operation
from magpy.capture.tensors.pass_hooks import cannot_wait
from magpy.capture.tensors.torch_function import by_class, dispatched, hears, not_taken
from magpy.capture.tensors.unseen_calls import UnseenCalls
from magpy.errors import Refusal, an, hide_frames
from magpy.frames.locations import refuse
from magpy.frames.signals import raised_by_handler
from magpy.ir import aliasing
from magpy.ir.ops import (
    CheckMetadata,
    HostStep,
    ModeStep,
    OpStep,
    Record,
    Ref,
    Var,
    Wrapped,
    identity,
)
from magpy.ir.tensor_meta import tensor_meta
from magpy.ir.torch_modes import TorchModes, current_modes
from magpy.ir.trees import collect, tensors
from magpy.models.patched_names import is_hidden
from magpy.models.torch_ops import (
    METADATA,
    MODE_SETTERS,
    SHAPE_READS,
    accessor_call,
    accessor_of,
    operation_name,
    sized,
)
from magpy.objects.jagged import FORMING, is_jagged, is_ragged_size
from magpy.objects.plain_values import is_plain
from magpy.objects.quiet import modes_of_the_program, unheard
from magpy.objects.types import isinstance
from magpy.shapes.arithmetic import is_open
from magpy.shapes.indexing import taken_apart
from magpy.unwatched.reachability import is_torchs_hook

_push: Any = torch.overrides._push_mode
_pop: Any = torch.overrides._pop_mode
_INDEXING = ("__getitem__", "__setitem__")
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Recorder(UnseenCalls, TorchFunctionMode):
    """Records the tensor operations of one run; its arguments are those of `Writer`."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation and records it."""
        if self.depth or self.refusals.first is not None:
            if self.whole is not None:
                self.whole.below(func, args, kwargs or {})
            # Nor is anything refused that is done below an operation of a run that is given up.
            _interp.pause()
            try:
                result = self.performer.unrecorded(func, args, kwargs or {})
            except BaseException as e:
                hide_frames(e)
                del args, kwargs  # as below
                raise
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
        """Is not on the thread's stack of modes meanwhile."""
        if not self._is_on():
            yield
            return
        above = self._taken_off()
        try:
            yield
        finally:
            for _ in above:
                _pop()
            for mode in (self, *above):
                _push(mode)

    def leave(self) -> None:
        """Hears of no operation any more, or of none until the one is over that is being done."""
        if self._is_on():
            self._taken_off()

    def give_up(self) -> bool:
        """Hears of no operation any more; False within one, where it cannot be left."""
        if self.depth or not self._is_on():
            return False
        self.leave()
        self.observer.stop()
        return True

    def _is_on(self) -> bool:
        """Whether this mode is on the thread's stack: torch takes it off within an operation."""
        size = torch._C._len_torch_function_stack()
        return any(torch._C._get_function_stack_at(i) is self for i in range(size))

    def _taken_off(self) -> list[Any]:
        """Takes this mode off the thread's stack; those that the program has put above it stay."""
        above: list[Any] = []
        while (mode := _pop()) is not self:
            above.insert(0, mode)
        for mode in above:
            _push(mode)
        return above

    def __exit__(self, *error: Any) -> None:
        self.leave()

    def hook(self, hook: Callable[[Any], Any], tensor: Any) -> Any:
        """Calls a hook of saved tensors that the caller has set, in the middle of an operation.

        It runs in every call, where autograd saves a tensor: what it does is not the call's.
        Which of the program's may is decided when the run is over (magpy/runtime/hearing.py); below
        torch's none may run.
        """
        _interp.pause()
        told = _interp.below(self._session is not None and is_torchs_hook(hook))
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
        if name in _INDEXING and not kwargs:
            views = self._views(func, args) if self.any_tracked or self.lists else None
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

    def own_operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Performs a Python function of torch's as an operation of which a mode is told.

        Returns:
            Its result; ABSENT where what it does is recorded instead, or nothing is.
        """
        if self.depth or self.refusals.first is not None or modes_of_the_program(self):
            return _interp.ABSENT
        with self.aside():
            if not self.settings.look():
                self._set_while_transformed()
            try:
                return self._operation(func, args, kwargs)
            finally:
                self.operation.forget()

    def _done(self, op: Operation, result: Any, flags: int, start: int) -> Any:
        """Writes an operation down that was performed, when there were `start` steps."""
        end, passes = len(self.record.steps), op.reach is not None
        self._pin_if_given_back(op, result, flags)
        result = self._emit(op, result, self._classify(op, result, flags))
        if is_jagged(result) and op.func in FORMING:
            of = Ref(self.tensors.var_of(result))
            self.note(identity, (of,), {}, CheckMetadata, tensor_meta(result))
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

    def _raised(self, op: Operation, error: Exception) -> None:
        """The operation raised: in the next call it may not."""
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
            self.refusals.keep(Refusal("memory ran out"))
        elif isinstance(error, Warning):
            self.refusals.refuse("the filters make an error of an operation's warning")
        else:
            self.refusals.refuse(f"{op.name or 'an operation'} raises {an(type(error).__name__)}")

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
        lists = [i for i in items if type(i) is list and {*map(type, i)} == {int}]
        if not lists:
            return args
        self.record.of_lists.update((id(i), i) for i in lists)
        made = tuple(
            self._operation(torch.tensor, (i,), {}) if self._varies(i, lists) else i for i in items
        )
        if all(map(operator.is_, items, made)):
            return args
        return (tensor, made if type(index) is tuple else made[0], *rest)

    def _varies(self, v: Any, lists: list[Any]) -> bool:
        """Whether it is one of these lists, and an input as a whole or in part."""
        return any(v is x for x in lists) and (
            self.lists.check(v) is not None or any(self.tracked(x) is not None for x in v)
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
            if name in SHAPE_READS and any(map(is_jagged, args)):
                with unheard():
                    return self._jagged_size(func, args, kwargs, name, result)
            if self._follower is not None and name in SHAPE_READS:
                return self._follower.metadata(func, args, kwargs, name, result)
        except Exception as e:  # noqa: BLE001 - as above
            self.fail(e)
        return result

    def _metadata_read(self, args: tuple[Any, ...], name: str) -> None:
        if self._loose and name in SHAPE_READS:
            self._pin_shapes(args)
        if name == "_version" and self.symbols is not None:
            self.symbols.fix_all()  # it counts the turns of loops
        # An outside tensor whose metadata was read is guarded though no operation may use it.
        for a in args:
            if not isinstance(a, torch.Tensor) or self.tensors.known(a) is not None:
                continue
            if self._is_outside(a):
                self.tensors.var_of(a)

    def _asked_again(
        self,
        func: Any,
        args: tuple[Any, ...],
        name: str,
        result: Any,
        kwargs: Any = MappingProxyType({}),
    ) -> Any:
        """What a tensor says that no guard on it covers: every call asks again, at this place.

        Raises:
            Refusal: it is no value that can be compared.
        """
        if not (is_plain(result) or is_ragged_size(result)):
            raise refuse(f"{name} of a tensor that comes from outside is read")
        given = self.convert_all(args)
        accessor = accessor_of(func)
        if accessor is not None:
            func, given = accessor_call(accessor, given)
        return self.track(func, given, dict(kwargs), result)

    def _jagged_size(self, func: Any, args: Any, kwargs: Any, name: str, result: Any) -> Any:
        """What is read of a jagged tensor's sizes is asked again in every call.

        Its ragged size is an object, equal to that of all tensors that share the offsets.
        """
        if not isinstance(result, tuple):
            return self._asked_again(func, args, name, result, kwargs)
        ask = torch.Tensor.stride if name == "stride" else torch.Tensor.size
        given = self.convert_all(args[:1])
        return type(result)(
            self.track(ask, (*given, i), {}, n) if type(n) in (int, torch.SymInt) else n
            for i, n in enumerate(result)
        )

    def _iterate(self, tensor: Any) -> Any:
        # Tensor.__iter__ hides the unbind that it is.
        if tensor.dim() == 0:
            return torch.Tensor.__iter__(tensor)  # type: ignore[no-untyped-call]
        return iter(self._operation(torch.Tensor.unbind, (tensor, 0), {}))

    def _recorded_as(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operation that a step keeps, and its arguments."""
        if func is torch.Tensor.__deepcopy__:
            # It notes what is copied by addresses, where something else may lie in the next call.
            raise refuse("a tensor is copied by copy.deepcopy", "Use Tensor.clone")
        return sized(func, args, kwargs)

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

    def _first_write(self) -> str:
        """The line that first writes to a memory of jagged tensors."""
        possible = aliasing.possible(self.record.steps, self.record.storages)
        for step in self.record.steps:
            if not isinstance(step, (OpStep, HostStep)) or not step.mutates:
                continue
            if self.tensors.is_of_jagged(aliasing.changed(step, possible)):
                return step.where
        return ""

    def finish(self) -> Record:
        """The record, with what can be said only at the end."""
        record = self.record
        for step in record.steps:
            if isinstance(step, HostStep) and step.engine is not None and step.engine.gradients:
                # Memories have become one since, where `Tensor.data` was assigned.
                merged = map(self.tensors.merged, step.engine.gradients)
                step.engine.gradients = frozenset(merged)
        written = self._written()
        if self.tensors.is_of_jagged(written):
            self.refusals.keep(Refusal(JAGGED_CHANGED, self._first_write(), "Change a copy"))
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
        if self.symbols is not None:
            self.symbols.refuse = bool
        self._follower = None
        self.gradients.forget()
        self.tensors.end()

    @property
    def start_modes(self) -> TorchModes:
        """Torch's modes when the run began."""
        return self._start

    def sets(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a function that writes a setting of torch's, under which operations run then."""
        self._set_while_transformed()
        return self.settings.call(f, args, kwargs)

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


def _can_be_set(args: tuple[Any, ...]) -> bool:
    """Whether torch surely tells classes among the indices of `tensor[index] = value`.

    Where neither the tensor nor the value hears, it makes a tensor of the value first, which may
    raise.
    """
    tensor, *_, value = args
    return hears(type(tensor)) or hasattr(type(value), "__torch_function__")


def _same_objects(a: Any, b: tuple[Any, ...]) -> bool:
    return isinstance(a, tuple) and len(a) == len(b) and all(map(operator.is_, a, b))


def _modes_of(steps: list[Any]) -> list[TorchModes]:
    """The modes that a run's operations were under."""
    return [s.modes for s in steps if isinstance(s, ModeStep)]
