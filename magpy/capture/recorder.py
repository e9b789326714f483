"""The recorder: sees every tensor operation of the watched run and writes it down as a step.

Owns the identity of tensors (which variable a tensor object is) and the decision what an operation
is: a node of the operator graph, a read of metadata, or a value that depends on data.  Does not own
Python state (csrc/interp/session_state.cpp), nor the segments and the code made of the steps
(magpy/mock).  Used by magpy/capture/session.py.

Tensors made by the program are held weakly, so a capture needs no more memory than eager.
Source: torch.overrides.TorchFunctionMode, https://docs.pytorch.org/docs/stable/torch.overrides.html
"""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from magpy import _interp, _tensor, config
from magpy.capture import memory
from magpy.capture.effects import CONTAINERS, container_states, content_of
from magpy.capture.follow import Follower
from magpy.capture.leaves import NUMBER_METHODS, module_of_type
from magpy.capture.looks import current_modes, tensor_meta, unheard
from magpy.capture.operations import (
    ARITHMETIC,
    HOST_METHODS,
    HOST_SCALARS,
    INSIDE_METHODS,
    METADATA,
    MODE_SETTERS,
    SHAPE_READS,
    SPLITS,
    STATIC_RESULT,
    STATISTICS_OF,
    WITH_SCALAR_TENSOR,
    accessor_call,
    accessor_of,
    scalar_tensor,
    sized,
    would_write,
)
from magpy.capture.steps import (
    LEAF_TYPES,
    Fresh,
    HostStep,
    ModeStep,
    Nested,
    OpStep,
    OutsideRef,
    Record,
    Ref,
    TorchModes,
    Var,
    identity,
    is_leaf,
)
from magpy.capture.symbols import Dims, Symbols, is_open, plain
from magpy.capture.trees import Sizes, collect, has_ref, rebuilt, tensors
from magpy.capture.where import refuse, where_text
from magpy.errors import Refusal, hide_frames
from magpy.runtime import faults

_DATA, _DYNAMIC, _RANDOM, _MUTATES, _STATISTICS = 1, 2, 4, 8, 16


class Recorder(TorchFunctionMode):
    """Records the tensor operations of one run.

    Args:
        is_outside: says whether an object existed before the call and was reached by it.
        session: the C++ session, which knows the values that differ from call to call by their
            identity.
        scalars: whether a graph may take Python numbers as inputs.
        symbols: the sizes and numbers that vary from call to call; None if there are none.
    """

    def __init__(
        self,
        is_outside: Callable[[Any], bool],
        session: Any = None,
        scalars: bool = True,
        symbols: Symbols | None = None,
    ) -> None:
        """Starts empty."""
        super().__init__()
        self._session = session
        self._scalars = scalars
        self.symbols = symbols
        self._follower = Follower(self, symbols) if symbols is not None else None
        self._relied: set[Var] = set()
        self._rely = False
        self._takes_apart = False  # the operation asks sequences for their items
        self._exact = False
        self._on_host = False
        self._given_array = False
        self._leaf = False
        self._heard = False
        # The program's own numbers by the identity of the copies that stand for them.
        self.originals: dict[int, Any] = {}
        # Tensors of no dimensions by the numbers that they hold.
        self._scalar_tensors: dict[Var, Var] = {}
        self._loose: set[Var] = set()
        self._ever_loose: set[Var] = set()
        # (address of a container, class or globals; name; where) changed below an operation.
        self._changed_below: list[tuple[int, Any, str]] = []
        self._memory: dict[int, tuple[int, list[weakref.ref[Any]]]] = {}
        self._memories = 0
        # Of the operation that is about to be written down: see `OpStep.writes`.
        self._writes: frozenset[Var] = frozenset()
        # Arrays and other buffers given to an operation, with the copies kept of them.
        self._buffers: list[tuple[Any, Any]] = []
        # Those of the run whose memory a tensor has, with what they held then, by that memory.
        self._shared: dict[int, tuple[Any, bytes, str]] = {}
        self.any_tracked = False
        self.direct = False
        self.operations = 0
        self.record = Record()
        self._is_outside = is_outside
        self._known: dict[int, tuple[weakref.ref[Any], Var]] = {}
        self._versions: dict[Var, int] = {}
        self._start = current_modes()
        self._modes = self._start
        self._depth = 0
        self.refusal: Refusal | None = None
        self.failure: BaseException | None = None
        self.observer = _tensor.Observer()
        self.metas: dict[int, Any] = {}
        self._errors: dict[int, tuple[type, str, Var]] = {}

    # ------------------------------------------------------------- identity

    def new_var(self, tensor: Any = None) -> Var:
        """A fresh variable, for `tensor` if one is given."""
        var = Var(self.record.nvars)
        self.record.nvars += 1
        if tensor is not None:
            self._remember(tensor, var)
            self.record.storages[var] = self._memory_of(tensor)
            if type(tensor) is not torch.Tensor:
                self.record.types[var] = type(tensor)
            elif tensor.is_nested:
                self.record.types[var] = Nested
        return var

    def _memory_of(self, tensor: Any) -> int:
        """A number for the tensor's memory, the same for tensors alive together that share it.

        An address alone would not do, because memory that was freed is used again.
        """
        address = _storage(tensor)
        if address == 0:
            return 0
        number, users = self._memory.get(address, (0, []))
        users = [ref for ref in users if ref() is not None]
        if not users:
            self._memories += 1
            number = self._memories
        self._memory[address] = (number, [*users, weakref.ref(tensor)])
        return number

    def _remember(self, tensor: Any, var: Var) -> None:
        key = id(tensor)
        known = self._known

        def forget(ref: weakref.ref[Any]) -> None:
            entry = known.get(key)
            if entry is not None and entry[0] is ref:
                del known[key]

        known[key] = (weakref.ref(tensor, forget), var)

    def known(self, tensor: Any) -> Var | None:
        """The variable of a tensor that the run made or used, or None."""
        entry = self._known.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def tracked(self, value: Any) -> Var | None:
        """The variable of a number that differs from call to call, or None."""
        return self._session.tracked(value) if self.any_tracked else None

    def var_of(self, tensor: Any) -> Var:
        """The variable of a tensor; an outside tensor becomes an input.

        Raises:
            Refusal: nothing recorded made the tensor, and nothing watched reached it.
        """
        var = self.known(tensor)
        if var is not None:
            return var
        if not self._is_outside(tensor):
            raise refuse(
                "a tensor is used that came from a call which magpy did not see",
                "Register the function that returns it with magpy.allow_in_graph, or keep the "
                "tensor where the program can be seen to read it",
            )
        var = self.new_var(tensor)
        self.record.inputs[var] = tensor
        # The guard is on what the tensor was before the run changed it.
        dims = Dims()
        if self.symbols is not None and not self.symbols.fixed:
            with unheard():
                dims = self.symbols.tensor(var, tensor)
        self.metas[id(tensor)] = _tensor.TensorMeta(tensor, dims=dims.sizes, strides=dims.strides)
        self._versions[var] = _tensor.tensor_version(tensor)
        return var

    def fresh(self, result: Any) -> list[Any]:
        """The tensors in a result that come from nothing that was seen."""
        return [t for t in tensors(result) if self.known(t) is None and not self._is_outside(t)]

    def is_loose(self, found: set[Var]) -> bool:
        """Whether the shape of one of these variables follows from data."""
        return bool(found & self._loose)

    def dirty(self) -> frozenset[Var]:
        """The outside tensors that were changed in place so far."""
        return frozenset(
            v
            for v, n in self._versions.items()
            if n >= 0 and _tensor.tensor_version(self.record.inputs[v]) != n
        )

    def convert(self, v: Any) -> Any:
        """An argument as a step keeps it."""
        if isinstance(v, torch.Tensor):
            return Ref(self.var_of(v))
        t = type(v)
        if self.any_tracked:
            var = self._session.tracked(v)
            if var is not None:
                return self._tracked_argument(v, t, Var(var))
        if t in (int, float, str, bool, type(None)):
            return v
        if t is tuple or t is torch.Size:
            made = tuple(self.convert(x) for x in v)
            return Sizes(made) if t is torch.Size and self._exact else made
        if t in (list, dict) and self._is_outside(v):
            self._session.touch(v)
        if t is list:
            return [self.convert(x) for x in v]
        if t is dict:
            return {k: self.convert(x) for k, x in v.items()}
        if t is slice:
            return slice(self.convert(v.start), self.convert(v.stop), self.convert(v.step))
        if isinstance(v, tuple) and hasattr(v, "_fields"):
            return t(*(self.convert(x) for x in v))
        if isinstance(v, tuple):
            return tuple(self.convert(x) for x in v)
        if t in LEAF_TYPES or isinstance(
            v, (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
        ):
            return v
        if isinstance(v, np.generic) or t is np.ndarray or t is bytearray:
            self._buffers.append((v, v.copy()))
            return self._buffers[-1][1]
        return self._convert_object(v, t)

    def _convert_object(self, v: Any, t: type) -> Any:
        if isinstance(v, list):
            return [self.convert(x) for x in v]
        if isinstance(v, dict):
            return {k: self.convert(x) for k, x in v.items()}
        if isinstance(v, torch.Generator) and not self._is_outside(v):
            raise refuse("a random generator that the call made is used")
        if memory.of_buffer(v) is not None:
            self._buffers.append((v, v))
        if self._depth == 0 and not self._direct_python(v, t):
            raise refuse(
                f"a {t.__name__} is given to a tensor operation, which asks it for numbers",
                "Convert it first, with int(), float() or list()",
            )
        return v

    def _direct_python(self, v: Any, t: type) -> bool:
        """Whether an operation can take `v` as it is, without running code of the program."""
        if not t.__flags__ & (1 << 9) or isinstance(v, (int, float, complex, str)):
            return True
        if module_of_type(t).partition(".")[0] == "torch":
            return True
        if self._takes_apart and hasattr(t, "__len__") and hasattr(t, "__getitem__"):
            return False
        return not any(hasattr(t, name) for name in ("__index__", "__float__", "__complex__"))

    # ------------------------------------------------------------- values that differ between calls

    def _tracked_argument(self, v: Any, t: type, var: Var) -> Any:
        if t in (int, float, complex):
            symbol = self.symbols.numbers.get(var) if self.symbols is not None else None
            if symbol is not None:
                return Ref(var) if is_open(symbol) else v
            if self._rely:
                self.rely_on(v, var)
                return v
            return Ref(var)
        self._on_host = self._given_array = True
        return Ref(var)

    def rely_on(self, v: Any, var: Var) -> None:
        """From here on the run relies on a tracked value being what it is: adds the check."""
        if var in self._relied:
            return
        self._relied.add(var)
        if self.symbols is not None and var in self.symbols.numbers:
            plain(self.symbols.numbers[var])
            return
        kind, expected = ("array", v.copy()) if hasattr(v, "dtype") else ("leaf", v)
        self._add(
            HostStep(identity, (Ref(var),), {}, kind, expected, [], where_text(2), self.dirty())
        )

    def track(
        self,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        owner: Any = None,
    ) -> Any:
        """Notes that `func` of converted arguments gave `result`; returns it, or its equal."""
        t = type(result)
        where = where_text(3)
        if self._follower is not None and not kwargs and owner is None:
            followed = self._follower.number(func, args, result)
            if followed is not _interp.ABSENT:
                return followed
        expected: Any
        if t in (int, float, complex) or (t is str and len(result) > 1):
            result = _interp.fresh(result)
            kind, expected = "bind", t
        elif t.__module__ == "numpy" and t.__name__ not in ("bool_", "bool"):
            kind, expected = (
                ("bind_array", (result.dtype, result.shape))
                if t.__name__ == "ndarray"
                else ("bind", t)
            )
        elif is_leaf(result):
            self._add(
                HostStep(func, args, kwargs, "leaf", result, [], where, self.dirty(), owner=owner)
            )
            return result
        elif t.__module__ == "numpy":
            self._add(
                HostStep(func, args, kwargs, "array", result, [], where, self.dirty(), owner=owner)
            )
            return result
        else:
            raise refuse(
                f"{getattr(func, '__name__', func)} returns a {t.__name__} that differs from "
                "call to call"
            )
        var = self.new_var()
        self._add(
            HostStep(
                func, args, kwargs, kind, expected, [], where, self.dirty(), result=var, owner=owner
            )
        )
        self._session.track(result, var)
        self.any_tracked = True
        return result

    # ------------------------------------------------------------- numbers that vary

    def argument(self, value: Any) -> Any:
        """A number among the arguments becomes an input.  Returns an equal one to use instead."""
        fresh = _interp.fresh(value)
        var = self.new_var()
        self.record.numbers[id(fresh)] = fresh
        self.originals[id(fresh)] = value
        self._add(
            HostStep(identity, (OutsideRef(fresh),), {}, "bind", type(value), [], "", result=var)
        )
        self._session.track(fresh, var)
        self.any_tracked = True
        if self.symbols is not None:
            self.symbols.number(var, fresh)
        return fresh

    def new_number(self, func: Any, args: tuple[Any, ...], value: Any) -> tuple[Any, Var]:
        """A number that the run computes from sizes.  Returns an equal one, and its variable."""
        value, var = _interp.fresh(value), self.new_var()
        self._add(
            HostStep(
                func,
                args,
                {},
                "bind",
                type(value),
                [],
                where_text(4),
                self.dirty(),
                result=var,
                symbolic=True,
            )
        )
        self._session.track(value, var)
        self.any_tracked = True
        return value, var

    def convert_all(self, values: Any) -> Any:
        """Arguments of a host step: tracked values stay what they are."""
        rely, self._rely, self._exact = self._rely, False, True
        try:
            return self.convert(values)
        finally:
            self._rely, self._exact = rely, False

    # ------------------------------------------------------------- the mode

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs one operation and records it."""
        if self._depth or self.refusal is not None:
            return func(*args, **(kwargs or {}))
        _interp.pause()
        try:
            hearing = [t for t in types if _hears(t)] if self._session is not None else []
            if not hearing:
                return self._operation(func, args, kwargs or {})
            if not any(issubclass(t, torch.Tensor) for t in hearing):
                return self._dispatched(func, types, args, kwargs)
            return self._overloaded(func, hearing, args, kwargs or {})
        except BaseException as e:
            hide_frames(e)
            raise
        finally:
            _interp.resume()

    def _dispatched(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """An operation on objects that are no tensors: what their methods do is the program's.

        Source: https://docs.pytorch.org/docs/stable/notes/extending.html#extending-torch-python-api
        """
        given = (func, types, args) if kwargs is None else (func, types, args, kwargs)
        for t in types:
            owner = _first_of(t, (*args, *(kwargs or {}).values()))
            if owner is None:
                break
            method = _interp.call(getattr, (owner, "__torch_function__"), {})
            with self:  # torch has put the mode aside
                result = _interp.watched(method, given, {})
            if result is not NotImplemented:
                return result
        self.refusal = refuse("no __torch_function__ takes the operation")
        return func(*args, **(kwargs or {}))

    def _overloaded(
        self, func: Any, hearing: list[type], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """An operation on a subclass, below which Python runs unwatched: the graph runs it again.

        What it does to containers that the rest of the call looks at cannot be told apart from
        what the call does.
        """
        before = container_states(self._session)
        names, contents = _within_reach(hearing)
        self._heard = True
        try:
            result = self._operation(func, args, kwargs)
        finally:
            self._heard = False
        after = container_states(self._session)
        if any(after.get(k) != v for k, v in before.items()) and self.refusal is None:
            self.refusal = refuse(_CHANGED_BELOW)
        names_after, contents_after = _within_reach(hearing)
        self._changed_below += [
            (*place, where_text())
            for place, v in names_after.items()
            if names.get(place, place) is not v
        ]
        self._changed_below += [
            (i, None, where_text())
            for i, content in contents_after.items()
            if contents.get(i, content) != content
        ]
        return result

    def _looked_below(self) -> None:
        """Refuses where the call looks, at any time, at what a `__torch_function__` has changed."""
        if not self._changed_below or self.refusal is not None:
            return
        looked: set[tuple[int, Any]] = {(id(v), None) for v, _, _ in self._session.containers()}
        for kind, v, name, _ in self._session.log():
            if kind == "type_attr":
                looked.update((id(c), name) for c in v.__mro__)
            elif kind == "dict_key":
                looked.add((id(v), name))
        for place, name, where in self._changed_below:
            if (place, name) in looked:
                self.refusal = Refusal(_CHANGED_BELOW, where)
                return

    def _operation(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = getattr(func, "__name__", "")
        accessor = None
        if name in ("__get__", "__set__", "__delete__"):
            accessor = accessor_of(func)
            if accessor is not None:
                name = accessor[1]
                if accessor[0] == "get" and name in METADATA and not self._heard:
                    return self._metadata(func, args, kwargs, name)
        elif (name in METADATA and not self._heard) or name in MODE_SETTERS:
            return self._metadata(func, args, kwargs, name)
        elif name == "type" and len(args) == 1 and not kwargs:
            return func(*args)  # the name of dtype and device
        elif name == "__iter__" and args and not self._heard:
            return self._iterate(args[0])
        recorded = func
        try:
            faults.check("recorder")
            with unheard():
                recorded, *given = sized(func, args, kwargs)
                plan = self._before(recorded, name, accessor, *given)
        except Refusal as r:
            self.refusal = r.without_frames()
        except Exception as e:  # noqa: BLE001 - a failure of the recorder must not reach the program
            self.failure = self.failure or e
            self.refusal = Refusal("the recorder failed")
        if self.refusal is not None:
            # Not where one is handled: it would be the context of what the operation raises.
            return func(*args, **kwargs)
        observer = self.observer
        observer.take()
        self._depth += 1
        try:
            result = func(*args, **kwargs)
        except Exception as e:
            self._raised(func, accessor, plan, e)
            raise
        finally:
            self._depth -= 1
        flags = observer.take()
        if result is NotImplemented:
            return result
        try:
            with unheard():
                return self._after(recorded, name, accessor, plan, result, flags)
        except Refusal as r:
            self.refusal = r.without_frames()
        except Exception as e:  # noqa: BLE001 - as above
            self.failure = self.failure or e
            self.refusal = Refusal("the recorder failed")
        return result

    def _metadata(self, func: Any, args: tuple[Any, ...], kwargs: Any, name: str) -> Any:
        self._metadata_read(args, name)
        result = func(*args, **kwargs)
        if self._follower is None or name not in SHAPE_READS or self.refusal is not None:
            return result
        return self._follower.metadata(func, args, kwargs, name, result)

    def _metadata_read(self, args: tuple[Any, ...], name: str) -> None:
        if self._loose and name in SHAPE_READS:
            self._pin_shapes(args)
        # An outside tensor whose metadata was read is guarded though no operation may use it.
        for a in args:
            if isinstance(a, torch.Tensor) and id(a) not in self._known and self._is_outside(a):
                self.var_of(a)

    def _pin_shapes(self, args: Any) -> None:
        """Shapes that follow from data are looked at: from here on they must be what they are."""
        for a in args:
            if isinstance(a, torch.Tensor):
                var = self.known(a)
                if var is not None and var in self._loose:
                    self._loose.discard(var)
                    self._add(
                        HostStep(
                            identity,
                            (Ref(var),),
                            {},
                            "meta",
                            tensor_meta(a),
                            [],
                            where_text(3),
                            self.dirty(),
                        )
                    )
            elif isinstance(a, (tuple, list)):
                self._pin_shapes(a)

    def _iterate(self, tensor: Any) -> Any:
        # Tensor.__iter__ hides the unbind that it is.
        if tensor.dim() == 0:
            return torch.Tensor.__iter__(tensor)  # type: ignore[no-untyped-call]
        return iter(self._operation(torch.Tensor.unbind, (tensor, 0), {}))

    def _before(
        self, func: Any, name: str, accessor: Any, args: Any, kwargs: Any, follow: bool = True
    ) -> tuple[Any, Any]:
        # Arguments are written down before the operation: it may change them.
        self.operations += 1
        if self.operations > config.max_operations:
            raise refuse(
                f"the call does more than {config.max_operations} tensor operations",
                "Compile a part of it, or raise magpy.config.max_operations",
            )
        self._on_host = self._given_array = False
        self._buffers.clear()
        if self.any_tracked:
            self._rely = name not in ARITHMETIC and name not in HOST_SCALARS
        self._takes_apart = True
        try:
            plan = (
                tuple(self.convert(a) for a in args),
                {k: self.convert(v) for k, v in kwargs.items()},
            )
        finally:
            self._takes_apart = False
        if self.any_tracked and not self._scalars and name in WITH_SCALAR_TENSOR and not kwargs:
            plan = self._with_scalar_tensor(args, plan[0]), plan[1]
        if self._follower is not None:
            self._follower.before(func, plan, (*args, *kwargs.values()), follow)
        return plan

    def _with_scalar_tensor(self, args: tuple[Any, ...], plan: tuple[Any, ...]) -> Any:
        """The arguments of an operation with a tensor in place of a number that differs.

        A compiler's graph takes no `float` as an input.
        """
        if len(args) != 2:
            return plan
        for i, (v, ref) in enumerate(zip(args, plan, strict=True)):
            other = args[1 - i]
            if (
                type(v) is float
                and isinstance(ref, Ref)
                and type(other) in (torch.Tensor, torch.nn.Parameter)
                and other.is_floating_point()
                and other.layout is torch.strided
                and other.dim() > 0
            ):
                new = Ref(self._scalar_tensor(ref.var, v))
                return (new, plan[1]) if i == 0 else (plan[0], new)
        return plan

    def _scalar_tensor(self, var: Var, value: float) -> Var:
        made = self._scalar_tensors.get(var)
        if made is None:
            tensor = scalar_tensor(value)
            made = self._scalar_tensors[var] = self.new_var(tensor)
            self._add(
                HostStep(scalar_tensor, (Ref(var),), {}, "bind", torch.Tensor, [], "", result=made)
            )
            if self.symbols is not None:
                self.symbols.still(made, tensor)
        return made

    def note_modes(self) -> None:
        """Adds a step where torch's modes differ from those of the last operation."""
        modes = current_modes()
        if modes != self._modes:
            self._modes = modes
            self.record.steps.append(ModeStep(modes))

    def _after(
        self, func: Any, name: str, accessor: Any, plan: tuple[Any, Any], result: Any, flags: int
    ) -> Any:
        args, kwargs = plan = self._sharing(plan, result)
        on_host = self._on_host or (
            self.any_tracked and not self._scalars and self._has_number((args, kwargs))
        )
        outs: list[tuple[Any, Var]] = []
        self._leaf = False
        self._outputs(result, (), outs)
        # No compiler's graph gives out leaves of autograd.
        on_host = on_host or (self._leaf and not self._scalars)
        if accessor is not None:
            func, args = accessor_call(accessor, args)
        self.note_modes()
        if flags & _RANDOM:
            self.record.random = True
        is_random = bool(flags & _RANDOM)
        self._writes = self._statistics_written(func, args, kwargs, flags)
        mutates = bool(flags & _MUTATES or self._writes)
        if mutates and self._shared:
            self._writes_shared((args[:1], kwargs.get("out")))
        inside = (
            self._scalars
            and name in INSIDE_METHODS
            and (
                (name == "grad" and accessor is None)
                or (name == "data" and accessor is not None)
                or self._is_inside(args, name)
            )
        )
        setter = accessor is not None and accessor[0] != "get"
        if (setter or name in HOST_METHODS) and not inside:
            self._host(func, args, kwargs, result, outs, is_random, name, mutates=True)
            return result
        if name in HOST_SCALARS and self.any_tracked and self._has_number((args, kwargs)):
            on_host = True
        if not outs and result is not None and not self._only_known(result):
            if not has_ref(args) and not has_ref(kwargs):
                return result
            if type(result) in (int, float, complex) and (name in NUMBER_METHODS or self.direct):
                return self.track(func, args, kwargs, result)
            if type(result).__name__ == "ndarray" and type(result).__module__ == "numpy":
                array = self.track(func, args, kwargs, result)
                if name == "__array__":
                    # C code asked for it, and nobody sees what it makes of it.
                    self.rely_on(array, self._session.tracked(array))
                return array
            self._host(func, args, kwargs, result, outs, is_random, name, mutates)
            return result
        loose = bool(outs) and bool(flags & (_DATA | _DYNAMIC)) and name not in STATIC_RESULT
        if self._loose or (loose and self._scalars):
            loose = self._loosen(name, (args, kwargs), result, outs, loose)
        if on_host or loose:
            self._host(func, args, kwargs, result, outs, is_random, name, mutates)
            return result
        if self._follower is not None:
            self._follower.after(result, outs, graph=not self.is_loose({v for _, v in outs}))
        self._add(OpStep(func, args, kwargs, outs, is_random, mutates or not outs))
        return result

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
        found: set[Var] = set()
        collect(plan, found)
        if not by_data and not self.is_loose(found):
            return False
        # Only what takes a tensor apart gives as many tensors as its shape says.
        if outs and name in SPLITS and not isinstance(result, torch.Tensor):
            return True
        self._loose.update(v for _, v in outs)
        self._ever_loose.update(v for _, v in outs)
        return False

    def _sharing(self, plan: tuple[Any, Any], result: Any) -> tuple[Any, Any]:
        """The arguments of an operation whose result may have the memory of one of them.

        A graph would give out the memory of its constant, call after call: such an operation is
        done between segments, on the array itself or on a new copy.
        """
        if not self._buffers:
            return plan
        made = tensors(result)
        places: dict[int, Any] = {}
        for v, copy in self._buffers:
            place = memory.of_buffer(v)
            for t in made:
                if not memory.meet(place, memory.of_tensor(t)):
                    continue
                if self._is_outside(v):
                    places[id(copy)] = OutsideRef(v)
                elif copy is v:
                    raise refuse(f"a tensor shares memory with a {type(v).__name__} of the call")
                else:
                    places[id(copy)] = Fresh(copy)
                    self._shared[self._memory_of(t)] = v, bytes(copy), where_text(4)
        if places:
            self._on_host = True
            plan = rebuilt(plan, lambda v: places.get(id(v), v))
        self._buffers.clear()
        return plan

    def _writes_shared(self, targets: Any) -> None:
        """Memory of an array of the run is written: nothing else may look at the array.

        Its values are those of the watched run wherever the program uses them.
        """
        found: set[Var] = set()
        collect(targets, found)
        for var in found:
            shared = self._shared.pop(self.record.storages.get(var, 0), None)
            if shared is not None and sys.getrefcount(shared[0]) > _HELD_BY_A_TENSOR:
                raise Refusal(
                    "a tensor is changed that shares memory with an array of the call", shared[2]
                )

    def _shared_unchanged(self) -> None:
        for array, before, where in self._shared.values():
            if bytes(array) != before and self.refusal is None:
                self.refusal = Refusal(
                    "an array of the call is changed that shares memory with a tensor", where
                )

    @staticmethod
    def _statistics_written(func: Any, args: Any, kwargs: Any, flags: int) -> frozenset[Var]:
        """What an operation may write because it computes statistics."""
        if not flags & _STATISTICS:
            return frozenset()
        given: Any = (args, kwargs)
        names = next((names for f, names in STATISTICS_OF if f is func), None)
        if names is not None:
            found = dict(zip(names, args, strict=False)) | kwargs
            if found.get("training") is False or found.get("use_input_stats") is False:
                return frozenset()
            given = found.get("running_mean"), found.get("running_var")
        variables: set[Var] = set()
        collect(given, variables)
        return frozenset(variables)

    def _is_inside(self, args: Any, name: str) -> bool:
        """Whether the run made the first argument, and its memory too if `name` changes that."""
        if not args or not isinstance(args[0], Ref) or args[0].var in self.record.inputs:
            return False
        if not name.startswith("resize"):
            return True
        memory = self.record.storages.get(args[0].var, 0)
        return all(self.record.storages[v] != memory for v in self.record.inputs)

    def _has_number(self, v: Any) -> bool:
        found: set[Var] = set()
        collect(v, found)
        followed = self.symbols.numbers if self.symbols is not None else ()
        return any(var not in self.record.storages and var not in followed for var in found)

    def _raised(self, func: Any, accessor: Any, plan: tuple[Any, Any], error: Exception) -> None:
        """The operation raised: it is done again at its place, and must raise the same again."""
        if self.refusal is not None:
            return
        if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
            self.refusal = Refusal("memory ran out")
            return
        args, kwargs = plan
        mutates = would_write(func, accessor, kwargs)
        if accessor is not None:
            func = {"get": getattr, "set": setattr, "del": delattr}[accessor[0]]
            args = (
                (args[0], accessor[1], *args[1:2])
                if accessor[0] == "set"
                else (args[0], accessor[1])
            )
        var = self.new_var()
        self.note_modes()
        self._add(
            HostStep(
                func,
                args,
                kwargs,
                "raises",
                (type(error), str(error)),
                [],
                where_text(3),
                self.dirty(),
                mutates=mutates,
                result=var,
            )
        )
        self._errors[id(error)] = type(error), str(error), var

    def raised_by(self, error: BaseException) -> Var | None:
        """The variable of an exception that an operation has raised, or None.

        It is not kept, since it would keep the frames that it has passed: of two exceptions at one
        address that say the same, either may be the operation's.
        """
        kind, text, var = self._errors.get(id(error), (None, "", Var(-1)))
        return var if type(error) is kind and str(error) == text else None

    def writes(self, variables: frozenset[Var]) -> None:
        """Tells what the next step, which is about to be added, writes to."""
        self._writes = variables

    def fail(self, error: Exception) -> None:
        """Notes a failure of magpy's own: the run goes on, and is not recorded."""
        self.failure = self.failure or error
        self.refusal = self.refusal or Refusal("the recorder failed")

    def _add(self, step: OpStep | HostStep) -> None:
        step.heard = self._heard
        step.writes, self._writes = self._writes, frozenset()
        step.mutates = step.mutates or bool(step.writes)
        self.record.steps.append(step)

    def _only_known(self, result: Any) -> bool:
        if isinstance(result, torch.Tensor):
            return True
        if isinstance(result, (tuple, list)) and result:
            return any(self._only_known(x) for x in result)
        return False

    def _outputs(self, result: Any, path: tuple[Any, ...], outs: list[tuple[Any, Var]]) -> bool:
        if len(path) > 5:
            return True
        return self._collect(result, path, outs)

    def _collect(self, result: Any, path: tuple[Any, ...], outs: list[tuple[Any, Var]]) -> bool:
        """Collects the new tensors of a result; True if something else in it follows from data."""
        if isinstance(result, torch.Tensor):
            if self.known(result) is None:
                if self._is_outside(result):
                    self.var_of(result)
                else:
                    outs.append((path, self.new_var(result)))
                    self._leaf = self._leaf or (result.requires_grad and result.grad_fn is None)
            return False
        if isinstance(result, (tuple, list)):
            # A list, not a generator: every part is collected.
            parts = [self._outputs(x, (*path, i), outs) for i, x in enumerate(result)]
            return any(parts)
        if isinstance(result, dict):
            parts = [self._outputs(x, (*path, k), outs) for k, x in result.items()]
            return any(parts)
        if result is None:
            return False
        data = getattr(result, "data", None)
        if isinstance(data, torch.Tensor) and hasattr(
            result, "batch_sizes"
        ):  # pragma: no cover - PackedSequence is a tuple
            self._outputs(data, (*path, "data"), outs)
        return True

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
    ) -> None:
        where = where_text(3)
        dirty = self.dirty()
        kind: str
        expected: Any = None
        if self._given_array:
            # The memory may be that of an array that follows from data.
            self.record.storages.update((v, 0) for _, v in outs)
        if func is getattr:
            mutates = False
        if result is None and func is not getattr:
            kind = "none"
        elif outs or self._only_known(result):
            kind, expected = "meta", tensor_meta(result)
        elif is_leaf(result):
            kind, expected = "leaf", result
        elif name in ("register_hook", "register_post_accumulate_grad_hook", "untyped_storage"):
            raise refuse(f"Tensor.{name} is called", "Do this outside of the compiled function")
        else:
            raise refuse(
                f"{name} returns a {type(result).__name__}, which magpy cannot compare", ""
            )
        if self._follower is not None:
            self._follower.after(result, outs, graph=False)
        self._add(
            HostStep(func, args, kwargs, kind, expected, outs, where, dirty, is_random, mutates)
        )

    # ------------------------------------------------------------- calls that no mode sees

    def whole_call(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], run: Callable[[], Any]
    ) -> Any:
        """Performs `run`, recorded as one operation `func` without what happens inside."""
        plan: tuple[Any, Any] = (), {}
        if not self._depth and self.refusal is None:
            try:
                with unheard():
                    plan = self._before(func, "", None, args, kwargs, follow=False)
            except Refusal as r:
                self.refusal = r.without_frames()
        if self._depth or self.refusal is not None:
            return (
                run()
            )  # not where a refusal is handled: it would be the context of what it raises
        self.observer.take()
        self._depth += 1
        try:
            result = run()
        finally:
            self._depth -= 1
        flags = self.observer.take()
        try:
            with unheard():
                name = getattr(func, "__name__", "")
                self._after(func, name, None, plan, result, flags & ~_DATA)
        except Refusal as r:
            self.refusal = r.without_frames()
        return result

    def called(self, func: Any, args: Any, kwargs: Any, result: Any) -> Any:
        """A C function computed `result` from data: it is called again between segments."""
        outs: list[tuple[Any, Var]] = []
        with unheard():
            self._outputs(result, (), outs)
            self.note_modes()
            if not outs and not self._only_known(result):
                return self.track(func, args, kwargs, result)
            self._host(func, args, kwargs, result, outs, False, "", False)
        return result

    def unseen_result(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        """A C function returned tensors and no mode saw it: record the call, after the fact."""
        if self._depth or self.refusal is not None:
            return
        if not self.fresh(result):
            return
        func, args, kwargs = sized(func, args, kwargs)
        with unheard():
            self._unseen(func, args, kwargs, result)

    def _unseen(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        plan = self._before(func, "", None, args, kwargs, follow=False)
        outs: list[tuple[Any, Var]] = []
        self._leaf = False
        self._outputs(result, (), outs)
        self.note_modes()
        plan = self._sharing(plan, result)
        flags = self.observer.take()  # those since the last operation
        is_random, mutates = bool(flags & _RANDOM), bool(flags & _MUTATES)
        self.record.random = self.record.random or is_random
        if self._on_host or _has_array(args) or (self._leaf and not self._scalars):
            self._host(func, plan[0], plan[1], result, outs, is_random, "", mutates)
            return
        if self._follower is not None:
            self._follower.after(result, outs, graph=True)
        self._add(OpStep(func, plan[0], plan[1], outs, is_random, mutates))

    def _written(self) -> frozenset[Var]:
        """The outside tensors written through another tensor, which leaves their versions alone."""
        storages = self.record.storages
        targets: set[Var] = set()
        for step in self.record.steps:
            if isinstance(step, (OpStep, HostStep)) and step.mutates:
                targets |= step.writes
                if not step.writes:
                    collect((step.args[:1], step.kwargs.get("out")), targets)
        memory = {storages[v] for v in targets if v in storages}
        return frozenset(v for v in self.record.inputs if storages.get(v) in memory)

    def finish(self) -> Record:
        """The record, with what can be said only at the end."""
        self.record.mutated = self.dirty() | self._written()
        self.record.loose = frozenset(self._ever_loose)
        self.record.symbols = self.symbols
        self._looked_below()
        self._shared_unchanged()
        self._shared.clear()
        modes = current_modes()
        if modes != self._start and self.refusal is None:
            self.refusal = Refusal(
                "the call leaves torch in another mode (grad, autocast or inference) than it "
                "found it in"
            )
        return self.record

    @property
    def start_modes(self) -> TorchModes:
        """Torch's modes when the run began."""
        return self._start


_QUIET: tuple[Any, ...] = (
    vars(torch.Tensor)["__torch_function__"].__func__,
    torch._C._disabled_torch_function_impl,
)


_CHANGED_BELOW = "a __torch_function__ changes an object that the call looks at"


def _within_reach(classes: list[type]) -> tuple[dict[tuple[int, str], Any], dict[int, Any]]:
    """What the `__torch_function__` of classes may change without being watched.

    Returns:
        The attributes of the classes and the globals that it names, by (place, name), and what the
        containers among them hold, by address.
    """
    names: dict[tuple[int, str], Any] = {}
    contents: dict[int, Any] = {}
    for cls in classes:
        for c in cls.__mro__:
            if module_of_type(c).partition(".")[0] not in ("torch", "builtins"):
                names.update(((id(c), name), v) for name, v in vars(c).items())
        method: Any = getattr(cls, "__torch_function__", None)
        function = getattr(method, "__func__", method)
        if isinstance(function, types.FunctionType):
            space = function.__globals__
            names.update(
                ((id(space), name), space[name])
                for name in function.__code__.co_names
                if name in space
            )
    for v in names.values():
        if isinstance(v, CONTAINERS):
            contents[id(v)] = content_of(v)
    return names, contents


def _hears(cls: Any) -> bool:
    """Whether Python of the program runs when an operation is given an instance of a class."""
    method = cls.__torch_function__
    return getattr(method, "__func__", method) not in _QUIET


def _storage(tensor: Any) -> int:
    try:
        return int(_tensor.storage_id(tensor))
    except (RuntimeError, NotImplementedError, TypeError):
        # Sparse and other tensors without one storage: as if all shared one.
        return 0


# The tuple that tells of it, the tensor, and the argument of sys.getrefcount.
_HELD_BY_A_TENSOR = 3


def _first_of(t: type, values: Any) -> Any:
    """The first object of this very type among arguments, or None."""
    for v in values:
        if type(v) is t:
            return v
        if isinstance(v, (tuple, list)):
            found = _first_of(t, v)
            if found is not None:
                return found
    return None


def _has_array(args: Any) -> bool:
    return any(type(a).__module__ == "numpy" for a in args)
