"""What a step keeps of the values that operations are given, and the numbers that are followed.

Owns turning arguments into what steps keep, and the values that differ from call to call: which
variable each is, what it was computed from, and where the run relies on what it is.  Does not own
operations (magpy/capture/tensors/recorder.py, whose base class this is) nor tensors
(magpy/capture/tensors/identity.py).
"""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable, Container
from typing import Any

import numpy as np
import torch

from magpy import _interp
from magpy.capture.tensors.buffers import Shared
from magpy.capture.tensors.identity import Identity
from magpy.capture.tensors.lists import InputLists, number_of
from magpy.capture.tensors.opaque_calls import Whole
from magpy.capture.tensors.operation import Operation
from magpy.errors import Refusal, an
from magpy.frames.locations import refuse, where_text
from magpy.ir.ops import (
    Bind,
    BindArray,
    Binding,
    CheckArray,
    CheckValue,
    HostStep,
    OpStep,
    OutsideRef,
    Record,
    Ref,
    Var,
    calls_on_tensors,
    identity,
    part,
    python_number,
)
from magpy.ir.trees import Sizes, variables
from magpy.models.callables import module_of_type
from magpy.objects.jagged import is_ragged_size
from magpy.objects.plain_values import NUMPY_NUMBERS, PLAIN_TYPES, is_plain
from magpy.objects.types import is_named_tuple, isinstance
from magpy.shapes.arithmetic import is_open, plain
from magpy.shapes.data_dependent import OfData
from magpy.shapes.propagate import Follower
from magpy.shapes.symbols import Symbols

# Values for which an operation may return its argument, or nothing but zeros.
_SPECIAL = (0.0, 1.0)


def _writes(step: Any) -> bool:
    return isinstance(step, (OpStep, HostStep)) and (step.mutates or calls_on_tensors(step))


# What tells how the memory of an array lies.
_FLAGS = type(np.empty(0).flags)
# So many elements of containers the steps of a run keep: a loop that sums up what it has so far
# would keep the square of its length.
_ELEMENTS = 1 << 18


#: What stands for a collective that goes on (`async_op=True`).
WORK: Any = getattr(torch.distributed, "Work", ())
#: Objects that stand for a device's queue of work, for places in it, and for work that goes on,
#: and random generators: what is done with them is done again, in its order.
QUEUED: Any = (
    *(torch.Stream, torch.Event, getattr(torch._C, "_CudaEventBase", torch.Event), WORK),
    torch.Generator,
)


class Values:
    """The values of one run.

    Args:
        is_outside: says whether an object existed before the call and was reached by it.
        session: the C++ session, which knows the values that differ from call to call by their
            identity.
        symbols: the sizes and numbers that vary from call to call; None if there are none.
        scalars: whether graphs may take Python numbers as inputs: no compiler makes them.
    """

    _follower: Follower | None = None
    #: What happens within operations, and other calls that are redone whole, is not recorded.
    depth = 0

    def __init__(
        self,
        is_outside: Callable[[Any], bool],
        session: Any,
        symbols: Symbols | None,
        scalars: bool = True,
    ) -> None:
        """No value yet."""
        super().__init__()
        self._is_outside = is_outside
        self._session = session
        self.symbols = symbols
        self.record = Record()
        reads = None if session is None else session.attr_read
        self.tensors = Identity(self.record, is_outside, symbols, reads, not scalars)
        self._of_data = OfData(self.record, self.tensors, symbols)
        self._shared = Shared(self.tensors, self.record)
        self.lists = InputLists(session)
        #: Whether the bytes at some addresses, read as a buffer from outside, are others by now.
        self.is_rewritten: Callable[[Any], bool] = bool
        self.buffers_read: Callable[[], bool] = bool
        #: A value differs from call to call.
        self.any_tracked = False
        # The program's own numbers by the identity of the copies that stand for them.
        self.originals: dict[int, Any] = {}
        self._numbers_of: dict[Var, tuple[Any, type, Var]] = {}
        self._relied: dict[Var, int] = {}  # and how many steps there were by then
        #: Arrays that are relied on with what they held then: something may write to them unseen.
        self._looked_into: list[tuple[Any, Any, str]] = []  # and where
        #: The operation that is recorded now, or was last.
        self.operation = Operation(None)
        self._sized: set[Var] = set()  # arrays whose sizes differ from call to call
        self._takes_apart = False  # the operation asks sequences for their items
        self._exact = False
        self._whole: Whole | None = None  # whose arguments are converted
        self._elements = 0  # of all containers that steps keep

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
        raise NotImplementedError

    def add(self, step: OpStep | HostStep) -> None:
        """Writes a step down."""
        raise NotImplementedError

    # ------------------------------------------------------------- arguments

    def tracked(self, value: Any) -> Var | None:
        """The variable of a number that differs from call to call, or None."""
        return self._session.tracked(value) if self.any_tracked else None

    def is_of_data(self, value: Any) -> bool:
        """Whether a number was read from a tensor, or is computed from one that was."""
        var = self.tracked(value)
        if var is None:
            return False
        found, storages = {Var(var)}, self.record.storages
        for step in reversed(self.record.steps):
            if isinstance(step, HostStep) and not found.isdisjoint(step.defined):
                found |= variables((step.args, step.kwargs))
        return not found.isdisjoint(storages)

    def convert(self, v: Any) -> Any:
        """An argument as a step keeps it."""
        if isinstance(v, torch.Tensor):
            return Ref(self.tensors.var_of(v))
        t = type(v)
        if self.any_tracked:
            var = self._session.tracked(v)
            if var is not None:
                return self._tracked_argument(v, t, Var(var))
        if t in (int, float, str, bool, type(None)):
            return v
        if t is tuple or t is torch.Size:
            made = tuple(self._all(v))
            return Sizes(made) if t is torch.Size and self._exact else made
        if isinstance(v, (list, dict)) and self._goes_as_it_is(v):
            return OutsideRef(v)
        if t is list:
            return self._all(v)
        if t is dict:
            return dict(zip(v, self._all(v.values()), strict=True))
        if t is slice:
            return slice(self.convert(v.start), self.convert(v.stop), self.convert(v.step))
        if is_named_tuple(t):
            return t(*self._all(v))
        if isinstance(v, tuple):
            return tuple(self._all(v))
        if t in PLAIN_TYPES or isinstance(
            v, (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
        ):
            return self._kept(v)
        if isinstance(v, np.generic) or t is np.ndarray or t is bytearray:
            if self._session is not None:
                self._session.touch(v)  # the step holds what there is in it
            return self._shared.copy(v)
        return self._convert_object(v, t)

    def _all(self, values: Any) -> list[Any]:
        """The elements of an argument, as a step keeps them.

        Raises:
            Refusal: all steps together would keep too many, in memory and in generated code.
        """
        found = [self.convert(x) for x in values]
        self._elements += len(found)
        if self._elements > _ELEMENTS:
            raise refuse(
                f"more than {_ELEMENTS:,} elements of lists and other containers, in all, are "
                "given to functions and operations",
                "Make a tensor or an array of them outside of the compiled function",
            )
        return found

    def _convert_object(self, v: Any, t: type) -> Any:
        if self._session is not None:
            self._session.touch(v)  # how many there are, and what is in it
        if isinstance(v, list):
            return [self.convert(x) for x in v]
        if isinstance(v, dict):
            return {k: self.convert(x) for k, x in v.items()}
        if isinstance(v, torch.Generator):
            return self._generator(v)
        if is_ragged_size(v):
            raise refuse("the size of a ragged dimension is used that no call of size() gave")
        self._shared.give(v)
        if self._whole is not None:
            self._whole.keep(v)
            return v
        if self.depth == 0 and hasattr(t, "__next__"):
            raise refuse(
                f"{an(t.__name__)} is given to a tensor operation, which takes from it",
                "Make a list of it first",
            )
        if self.depth == 0 and not self._direct_python(v, t):
            raise refuse(
                f"{an(t.__name__)} is given to a tensor operation, which asks it for numbers",
                "Convert it first, with int(), float() or list()",
            )
        return v

    def _kept(self, v: Any) -> Any:
        if self._whole is not None:
            self._whole.keep(v)
        return v

    def _is_input(self, v: Any) -> bool:
        """Whether the operation, which makes a tensor of numbers, reads a list in every call."""
        check = self.lists.check(v)
        if check is None:
            return False
        ask, form, resized = check
        self.note(ask, (OutsideRef(v),), {}, CheckValue, form)
        self.operation.on_host = True
        self.operation.resized = self.operation.resized or resized
        return True

    def of_list(self, func: Any, v: list[Any]) -> int | float | None:
        """The number that a builtin gives of a list that is an input; None if it is not followed.

        It differs from call to call: the length where that does, the sum and the like anyway.
        """
        number = number_of(func)
        check = self.lists.check(v) if number is not None else None
        if check is None or not (check[2] or func is not len):
            return None
        ask, form, _ = check
        try:
            result = number(v)
        except Exception:  # noqa: BLE001 - the program gets it
            return None
        if type(result) not in (int, float):
            return None
        var = self.tensors.new()
        fresh: int | float = _interp.fresh(result)
        if type(result) is int:
            number = self._of_data.integer(number, 1, var, result)
        self.note(ask, (OutsideRef(v),), {}, CheckValue, form)
        self.note(number, (OutsideRef(v),), {}, Bind, type(result), result=var)
        self.is_tracked(fresh, var)
        return fresh

    def _goes_as_it_is(self, container: Any) -> bool:
        """Whether a call done as a whole is to be given this very list or dict from outside."""
        if self.operation.takes_lists:
            if self._is_input(container):
                return True
            self.record.of_lists[id(container)] = container
        if not self._is_outside(container):
            return False
        if self._whole is None and type(container) is list:
            self._session.compare(container)  # what is in it is converted, and may be inputs
            return False
        self._session.touch(container)
        if self._whole is None:
            return False
        self._whole.keep(container)
        return True

    @property
    def generators(self) -> dict[Var, torch.Generator]:
        """The random generators that are variables."""
        return self.record.generators

    def _generator(self, v: torch.Generator) -> Any:
        """A random generator that an operation draws from.

        It is a variable: the caller may give another one in each call, torch's own among them.
        """
        if not self._is_outside(v):
            raise refuse("a random generator that the call made is used")
        generators = self.record.generators
        var = next((var for var, known in generators.items() if known is v), None)
        if var is None:
            self._session.reach(v)
            var = self.tensors.new()
            self.note(identity, (OutsideRef(v),), {}, Bind, type(v), result=var)
            generators[var], self.record.types[var] = v, type(v)
        return Ref(var)

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
        op = self.operation
        if t is torch.Generator or t is torch.SymInt:
            return Ref(var)
        if t in (int, float, complex):
            symbol = self.symbols.numbers.get(var) if self.symbols is not None else None
            if symbol is not None:
                return Ref(var) if is_open(symbol) else v
            if op.rely and t is float and op.floats and v not in _SPECIAL:
                self.note(operator.contains, (_SPECIAL, Ref(var)), {}, CheckValue, False)
            elif op.rely:
                self.rely_on(v, var)
                return v
            return Ref(var)
        if self._takes_apart and t in NUMPY_NUMBERS and not (op.rely or op.takes_lists):
            number = self._number_of(v, var)
            if number is not None:
                return self._tracked_argument(*number)
        op.on_host = op.given_array = True
        return Ref(var)

    def number_for(self, v: Any) -> Any:
        """What an operation takes in the place of a number of numpy's, if it is one that varies."""
        var = self.tracked(v) if type(v) in NUMPY_NUMBERS else None
        known = None if var is None else self._numbers_of.get(Var(var))
        return v if known is None else known[0]

    def _number_of(self, v: np.number[Any], var: Var) -> tuple[Any, type, Var] | None:
        """The number of Python's that arithmetic of tensors takes for one of numpy's."""
        known = self._numbers_of.get(var)
        if known is not None:
            return known
        number = v.item()
        if type(number) not in (int, float):
            return None
        number, made = _interp.fresh(number), self.tensors.new()
        given = OutsideRef(v) if id(v) in self.record.numbers else Ref(var)
        self.note(python_number, (given,), {}, Bind, type(number), result=made)
        self.is_tracked(number, made)
        found = self._numbers_of[var] = number, type(number), made
        return found

    def rely_on(self, v: Any, var: Var) -> None:
        """From here on the run relies on a tracked value being what it is: adds the check."""
        if isinstance(v, QUEUED):
            return  # another object in every call, of which nothing else differs
        array = hasattr(v, "dtype")
        since = self._relied.get(var)
        if since is not None and not (array and any(map(_writes, self.record.steps[since:]))):
            return
        self._relied[var] = len(self.record.steps)
        if self.symbols is not None and var in self.symbols.numbers:
            plain(self.symbols.numbers[var])
            return
        self.record.relied = self.record.relied or type(v) is int
        self._of_data.relied_on(var)
        kind = CheckArray if array else CheckValue
        expected = v.copy() if array else v
        if isinstance(v, np.ndarray):
            self._looked_into.append((v, expected, where_text()))
        self.note(identity, (Ref(var),), {}, kind, expected)

    def written_unseen(self) -> Refusal | None:
        """A refusal if an array that was relied on is not what it was then.

        What a view of its memory writes that is no array itself (`flat`, a memoryview) nobody
        follows. Asked ahead of each operation that writes to tensors, and at the run's end.
        """
        for array, held, where in self._looked_into:
            if array.tobytes() != held.tobytes():
                return Refusal(
                    "an array that follows from data is looked at as a whole here, and changed "
                    "afterwards, or by way of its .flat or a memoryview",
                    where,
                )
        return None

    def looked_into_anew(self) -> None:
        """An operation has written to tensors, some of which may share memory with such arrays."""
        self._looked_into = [(a, a.copy(), where) for a, _, where in self._looked_into]

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
        if self._follower is not None and not kwargs and owner is None:
            followed = self._follower.number(func, args, result)
            if followed is not _interp.ABSENT:
                return followed
        kind: type[Binding]
        expected: Any
        if t in (int, float, complex) or (t is str and result):
            given, result = result, _interp.fresh(result)
            # Which object it is may be asked: `min` gives one of its arguments.
            self.originals[id(result)] = self.originals.get(id(given), given)
            kind, expected = Bind, t
        elif t.__module__ == "numpy" and t.__name__ == "ndarray":
            sized = self.takes_sized((args, kwargs, owner))
            kind, expected = BindArray, (result.dtype, result.ndim if sized else result.shape)
        elif (
            t is _FLAGS
            or t is torch.SymInt
            or (t.__module__ == "numpy" and t.__name__ not in ("bool_", "bool"))
        ):
            kind, expected = Bind, t
        elif is_plain(result):
            self.note(func, args, kwargs, CheckValue, result, owner=owner)
            return result
        elif t.__module__ == "numpy":
            self.note(func, args, kwargs, CheckArray, result, owner=owner)
            return result
        else:
            raise refuse(
                f"{getattr(func, '__name__', func)} returns {an(t.__name__)} that differs from "
                "call to call"
            )
        var = self.tensors.new()
        if t is int and (owner is not None or variables((args, kwargs))):
            func = self._of_data.integer(func, len(args), var, result)
        self.note(func, args, kwargs, kind, expected, result=var, owner=owner)
        self.is_tracked(result, var)
        if kind is BindArray and type(expected[1]) is int:
            self._sized.add(var)
        return result

    def is_tracked(self, value: Any, var: Var) -> None:
        """From here on this very object is a variable."""
        self._session.track(value, var)
        self.any_tracked = True

    # ------------------------------------------------------------- numbers that vary

    def argument(self, value: Any) -> Any:
        """A number or text among the arguments becomes an input.

        Returns:
            An equal one to use instead; the same where there is no other one.
        """
        fresh = value.copy() if type(value) in NUMPY_NUMBERS else _interp.fresh(value)
        if fresh is value:
            return value
        var = self.tensors.new()
        self.record.numbers[id(fresh)] = fresh
        self.originals[id(fresh)] = value
        self.add(Bind(identity, (OutsideRef(fresh),), {}, expected=type(value), result=var))
        self.is_tracked(fresh, var)
        if self.symbols is not None and type(value) in (int, float):
            self.symbols.number(var, fresh)
        return fresh

    def tuple_argument(self, made: Any, first: Any, at: Container[int]) -> Var:
        """Some of the numbers in a tuple among the arguments become inputs.

        Args:
            made: the tuple that the run is given.
            first: the equal one of the program.
            at: the places of those that `made` has numbers of its own for.

        Returns:
            The variable of the tuple.
        """
        place, form = OutsideRef(made), (len(first), type(first))
        whole = self.tensors.new()
        self.record.numbers[id(made)] = made
        self.originals[id(made)] = first
        self.add(Bind(identity, (place,), {}, expected=type(first), result=whole))
        for i, value in enumerate(made):
            if i not in at:
                self.note(part, (place, i, *form), {}, CheckValue, value)
                continue
            var = self.tensors.new()
            self.originals[id(value)] = first[i]
            self.add(Bind(part, (place, i, *form), {}, expected=type(value), result=var))
            self.is_tracked(value, var)
            if self.symbols is not None:
                self.symbols.number(var, value)
        return whole

    def array_argument(self, array: Any, sized: bool = False) -> None:
        """A numpy array among the arguments becomes an input; `sized`: its sizes are, too."""
        var, form = self.tensors.new(), (array.dtype, array.ndim if sized else array.shape)
        self.add(BindArray(identity, (OutsideRef(array),), {}, expected=form, result=var))
        self.is_tracked(array, var)
        if sized:
            self._sized.add(var)

    def is_sized(self, array: Any) -> bool:
        """Whether the sizes of an array differ from call to call."""
        return bool(self._sized) and self.tracked(array) in self._sized

    def takes_sized(self, plan: Any) -> bool:
        """Whether sizes of inputs decide those of an array that is made of these.

        Args:
            plan: arguments as a step keeps them.
        """
        symbolic = self.symbols.symbolic if self.symbols is not None else set()
        if not self._sized and not symbolic:
            return False
        return not variables(plan).isdisjoint(self._sized | symbolic)

    def counted(self, holder: Any, key: Any, own: Any, value: Any, follow: bool) -> None:
        """A number was read from outside that became an input.

        Args:
            holder: the container or cell that it is in.
            key: where in it; None for a cell.
            own: the equal number that stands for it.
            value: the number.
            follow: what sizes and places in tensors depend on it is followed.
        """
        self.record.counters.append((holder, key, value))
        number = type(value) in (int, float)
        if follow and number and self.symbols is not None and type(holder) is not collections.deque:
            var = self._session.tracked(own)
            self.symbols.number(var, own)

    def new_number(self, func: Any, args: tuple[Any, ...], value: Any) -> tuple[Any, Var]:
        """A number that the run computes from sizes.  Returns an equal one, and its variable."""
        value, var = _interp.fresh(value), self.tensors.new()
        self.note(func, args, {}, Bind, type(value), result=var, symbolic=True)
        self.is_tracked(value, var)
        return value, var

    def convert_all(self, values: Any) -> Any:
        """Arguments of a host step: tracked values stay what they are."""
        op = self.operation
        rely, op.rely, self._exact = op.rely, False, True
        try:
            return self.convert(values)
        finally:
            op.rely, self._exact = rely, False


__all__ = ["QUEUED", "Values"]
