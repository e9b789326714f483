"""Calls of C functions with tracked values, and of numpy with tensors: they are made again.

Owns how such a call is made while the run is watched, and which step makes it again.  Does not own
what functions do (magpy/models/callables.py, magpy/models/numpy_calls.py) nor operators
(magpy/capture/python/tracked.py).  Asked by csrc/interp through magpy/capture/python/callbacks.py,
and by magpy/capture/python/c_calls.py.
"""

from __future__ import annotations

import collections
import functools
import inspect
import math
import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from magpy import _interp
from magpy.capture.python import memos, profiler_marks
from magpy.capture.python.arithmetic import is_of_numpy, noted, place_now
from magpy.capture.python.run import Run, frames_hidden
from magpy.capture.python.tables import Tables
from magpy.capture.python.tracked import TrackedValues, recomputable
from magpy.errors import Refusal
from magpy.models import callables, numpy_calls, numpy_warnings
from magpy.models.c_function_tables import Effect, Leaf
from magpy.objects.plain_values import is_plain
from magpy.objects.quiet import modes_of_the_program
from magpy.objects.types import isinstance

ABSENT = _interp.ABSENT
_TAKES_DATA = "is given a tensor, takes its data and makes another tensor"
_TEXTS = (str, "__repr__"), (repr, "__repr__"), (format, "__format__")
"""What gives a tensor as text, and the method that it asks."""
_CONVERT = "Convert the tensor with numpy(), or the array with torch.from_numpy"


class ArrayCalls:
    """The calls of one run that are given tracked values, or arrays and tensors.

    Args:
        run: the state of the run.
        tracked: writes down what is computed.
        tables: the tables that are asked at keys that are inputs.
    """

    def __init__(self, run: Run, tracked: TrackedValues, tables: Tables) -> None:
        """No call yet."""
        self._tables = tables
        self._run = run
        self._session = run.session
        self._tracked = tracked
        #: For magpy/capture/python/c_calls.py: see `TracksValues`.
        self.derive = tracked.derive

    @frames_hidden
    def tracked_call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A C function is called with tracked values."""
        if callables.effect_of(f) is Effect.MEMO:
            return memos.asked(self._run, f, args, kwargs)
        if f is profiler_marks.ENTERS:
            with self._run.recorder.aside():
                return f(*args, **kwargs)
        if f is range:
            return self._ranges(f, args, kwargs)
        found = self._tables.call(f, args, kwargs)
        if found is not ABSENT:
            return found
        return self._of_values(f, args, kwargs)

    def _ranges(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        turns = ABSENT if kwargs else self._run.loops.begin(args)
        return self._of_values(f, args, kwargs) if turns is ABSENT else turns

    def _of_values(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        owner = getattr(f, "__self__", None)
        step, terms = _terms(f, args, kwargs)
        if terms:
            self._session.compare(args[f is functools.reduce] if args else owner)
            return functools.reduce(lambda a, b: _interp.call(step, (a, b), {}), terms)
        if self._only_keeps(f, args, kwargs):
            return ABSENT
        if f is dict and len(args) == 1 and type(args[0]) is zip and self._zips(args[0]):
            return dict(*args, **kwargs)
        if f is len and len(args) == 1 and type(args[0]) is np.ndarray:
            if self._run.recorder.is_sized(args[0]) and args[0].ndim:
                return self._tracked.derive(len, args, {}, len(args[0]))
            return ABSENT  # its shape is checked where it came from
        if f is torch.Size and len(args) == 1 and type(args[0]) in _SEQUENCES and not kwargs:
            return f(_interp.call(tuple, args, {}))  # it holds the very numbers
        array = isinstance(owner, (np.ndarray, np.generic))
        plain = recomputable((args, kwargs, owner) if array else (args, kwargs))
        # operator.iadd(x, ...) of a list changes it.
        changes = bool(args) and type(args[0]) in (list, dict) and callables.is_in_place(f)
        measured = f is len and len(args) == 1 and type(args[0]) in (str, bytes)
        if (callables.scalar_function(f) or measured) and plain and not changes:
            try:
                return self._recomputed(f, args, kwargs, owner)
            except numpy_calls.Writes:
                pass  # the call has not been made; not made here, where that would be its context
            return self._writing(f, args, kwargs)
        if callables.classify(f) is Leaf.TORCH and not self._is_heard(args, kwargs):
            before = self._run.recorder.operations
            result = f(*args, **kwargs)
            if self._run.recorder.operations == before and not self._run.recorder.tensors.fresh(
                result
            ):
                self._session.rely_on((args, kwargs))
                for a in (*args, *kwargs.values()):
                    self._session.touch(a)  # it is `torch.Size` of a list
            return result
        if callables.is_numpys(f) and numpy_calls.arrays_in((args, kwargs)):
            return self._writing(f, args, kwargs)
        self._session.rely_on((args, kwargs, owner))
        for a in (owner, *args, *kwargs.values()):
            self._session.touch(a)
        return ABSENT

    def _is_heard(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether Python of the program's hears of an operation: a mode, or a class of tensors."""
        return modes_of_the_program(self._run.recorder) or any(
            isinstance(v, torch.Tensor)
            and getattr(type(v).__torch_function__, "__func__", _OF_TENSORS) is not _OF_TENSORS
            for v in (*args, *kwargs.values())
        )

    def _only_keeps(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a call puts values into a container, and does not look at them (`dict(lr=lr)`).

        They stay known by their identity.  A container that it is given is one that the run has
        made.
        """
        owner = getattr(f, "__self__", None)
        if type(f) is type and issubclass(f, tuple) and f is not tuple:
            # Its own code, which is watched, makes it.
            made_by: Any = _interp.type_lookup(f, "__new__")
            made_by = getattr(made_by, "__func__", made_by)
            begun: Any = _interp.type_lookup(f, "__init__")
            return type(made_by) is types.FunctionType and begun is object.__init__
        if f is _NEW_TUPLE:
            return len(args) == 2 and self._is_made(args[1], (tuple, list))
        if type(owner) is dict and f.__name__ == "setdefault":
            return len(args) == 2 and self._is_made(owner, _DICTS) and self._is_key(args[0])
        if any(f is copy for copy in _COPIES):
            return len(args) == 1 and self._is_made(args[0], (dict, list))
        if f is collections.deque:
            return not kwargs and len(args) == 1 and self._is_made(args[0], (tuple, list))
        if f is collections.defaultdict:
            args = args[1:]
        if len(args) > 1 or not any(f is keeper for keeper in _KEEPERS):
            return False
        if not args or self._is_made(args[0], _DICTS):
            return not args or all(map(self._is_key, args[0]))
        pairs = self._is_made(args[0], (tuple, list)) and all(
            type(p) is tuple and len(p) == 2 and self._is_key(p[0]) for p in args[0]
        )
        return pairs and f is not types.SimpleNamespace

    def _zips(self, pairs: zip[Any]) -> bool:
        """Whether a `zip` pairs keys, which are the same in other calls, with values."""
        iterators = pairs.__reduce__()[1]
        if len(iterators) != 2 or not all(type(i) in _ITERATORS for i in iterators):
            return False
        keys, values = (i.__reduce__()[1][0] for i in iterators)
        known = self._is_made(keys, (tuple, list)) or type(keys) is tuple
        made = isinstance(values, (tuple, list)) and not self._session.is_outside(values)
        return known and made and all(map(self._is_key, keys))

    def _is_made(self, v: Any, kinds: tuple[type, ...]) -> bool:
        """Whether the run has made a container of one of these classes."""
        return type(v) in kinds and not self._session.is_outside(v)

    def _is_key(self, v: Any) -> bool:
        """Whether a key is the same in other calls."""
        return is_plain(v) and type(v) is not tuple and self._session.tracked(v) is None

    def _recomputed(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any], owner: Any) -> Any:
        """A function that computes a value is called; the step computes it again.

        Raises:
            Writes: it writes to an array, and has not been called.
        """
        self._memory_asked(f, args, kwargs)
        if isinstance(owner, np.void) and self._session.tracked(owner) is None:
            raise numpy_calls.Writes  # it may write to the array that it is a part of
        if isinstance(owner, np.ndarray) and self._session.tracked(owner) is None:
            # A flag may say that the method writes (byteswap), or gives the array itself (astype).
            self._session.rely_on([a for a in numpy_calls.arrays_in((args, kwargs)) if _is_flag(a)])
        if owner is not None and not isinstance(owner, (types.ModuleType, type)):
            result = self.sure(self._without_writing, f, args, kwargs, owner)
            unbound = getattr(type(owner), f.__name__)
            if result is None:
                self._run.refuse(f"{callables.name_of(f)} is called for what it does")
                return result
            return self._tracked.derive(unbound, (owner, *args), kwargs, result)
        if f is int or f is float:
            self._run.recorder.direct = True
        try:
            result = self.sure(self._without_writing, f, args, kwargs)
        finally:
            self._run.recorder.direct = False
        if type(result) is list and any(result is a for a in args):
            self._session.rely_on((args, kwargs))  # which of them it is, is not asked again
            return result
        if any(isinstance(a, torch.Tensor) for a in args):
            if is_plain(result) and self._session.tracked(result) is None:
                self._session.rely_on((args, kwargs))  # of the tensors it has taken the numbers
            return result
        return self._tracked.derive(f, args, kwargs, result)

    def _writing(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function of numpy is called that writes to some of its arrays."""
        self._run.refuse(f"{callables.name_of(f)} writes to an array that follows from data")
        return _interp.watched(f, args, kwargs)

    @frames_hidden
    def array_call(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A C function is called with tensors: one of numpy, which takes their data, is redone."""
        recorder = self._run.recorder
        if recorder.depth or self._run.refusals.first is not None:
            return ABSENT
        if f is len and recorder.symbols is not None and type(args[0]) in _TENSORS:
            # len() itself would make a number of its own of the one that is followed.
            return args[0].size(0) if args[0].dim() else ABSENT
        method = next((name for g, name in _TEXTS if g is f), None)
        if method is not None and type(args[0]) in _TENSORS and not kwargs:
            # C code would compute with what the method of the tensor answers.
            return getattr(torch.Tensor, method)(
                *(args if args[1:] or f is not format else (*args, ""))
            )
        if callables.numpy_function(f):
            return self._computed(f, args, kwargs) if recomputable((args, kwargs)) else ABSENT
        # An operator leaves a tensor and an array to numpy.
        if inspect.isbuiltin(f) and f in _OPERATORS and numpy_calls.arrays_in(args):
            self._run.refuse(f"{callables.name_of(f)} {_TAKES_DATA}", _CONVERT)
        return ABSENT

    def _computed(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What numpy computes from tensors, which is redone; ABSENT if it does more than that."""
        recorder = self._run.recorder
        values = (*args, *kwargs.values())
        if any(isinstance(a, torch.Tensor) and type(a) not in _TENSORS for a in values):
            return ABSENT
        self._memory_asked(f, args, kwargs)
        for a in values:
            if self._session.tracked(a) is None:
                self._session.touch(a)
        recorder.depth += 1
        try:
            plan = recorder.convert_all(args), recorder.convert_all(kwargs)
            result = self._without_writing(f, args, kwargs)
        except Refusal as r:
            self._run.refusals.keep(r)
            return ABSENT
        except numpy_calls.Writes:
            return ABSENT
        except Exception:
            self._run.refuse(f"{callables.name_of(f)} raises for a tensor")
            raise
        finally:
            recorder.depth -= 1
        try:
            return noted(recorder, recorder.called, (f, *plan, result), f, args, kwargs)
        except Refusal as r:
            self._run.refusals.keep(r)
            return result

    @frames_hidden
    def percent(self, text: str, given: Any) -> Any:
        """`text % given` with tensors or tracked values; ABSENT where it does more than compute."""
        recorder = self._run.recorder
        if recorder.depth or self._run.refusals.first is not None or not recomputable(given):
            return ABSENT
        values = given if type(given) is tuple else (given,)
        if any(isinstance(v, torch.Tensor) and type(v) not in _TENSORS for v in values):
            return ABSENT
        if self._session.tracked(text) is not None:
            self._session.rely_on(text)
        recorder.depth += 1
        try:
            result = text % given
        except Exception:
            self._run.refuse("the formatting of a tensor or of what follows from data raises")
            raise
        finally:
            recorder.depth -= 1
        return self._tracked.derive(operator.mod, (text, given), {}, result)

    def array_operation(self, other: Any) -> None:
        """An operator is about to be applied to a tensor and what may be an array.

        Torch leaves it to numpy, which asks the tensor for its data and makes a tensor of what it
        has computed.
        """
        if not self._run.recorder.depth and isinstance(other, np.ndarray):
            self._run.refuse(f"an operator of numpy's {_TAKES_DATA}", _CONVERT)

    def sure(
        self,
        call: Callable[..., Any],
        f: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        owner: Any = None,
    ) -> Any:
        """What `call(f, args, kwargs)` gives; that it raises is sure for these very values only."""
        try:
            return call(f, args, kwargs)
        except numpy_calls.Writes:
            raise
        except Exception:
            self._session.rely_on((args, kwargs, owner))
            for a in (owner, *args, *kwargs.values()):
                self._session.touch(a)
            raise

    def _memory_asked(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuses where the memory of arrays from outside and of others is compared.

        A step holds copies of the former, and which memory it is follows from no data.
        """
        given = numpy_calls.arrays_in((args, kwargs))
        if callables.name_of(f).rpartition(".")[2] in ("shares_memory", "may_share_memory") and any(
            self._session.tracked(a) is None for a in given
        ):
            self._run.refuse(
                "it is asked whether an array has the memory of one that follows from data"
            )

    def _without_writing(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return numpy_calls.call_without_writing(f, args, kwargs, self._at_line(f, args, kwargs))

    def _at_line(self, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        """A function `call(f, args, kwargs)`; numpy, which may warn, it calls from the program."""
        if numpy_warnings.computes(f) and is_of_numpy(f, (*args, *kwargs.values())):
            recorder = self._run.recorder
            return functools.partial(recorder.performer.compute, place_now())
        return lambda f, args, kwargs: f(*args, **kwargs)


def _is_flag(array: Any) -> bool:
    return bool(array.size == 1 and array.dtype == bool)


def _terms(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, list[Any]]:
    """What `sum`, `math.prod` or `functools.reduce` joins one after another, and with what.

    Where tensors are among it, or `reduce` is given one of `operator`; and of `numel` of sizes.
    Else there is nothing.  Code in C computes with numbers as such, which are then other objects
    than the tracked ones.
    """
    if getattr(f, "__name__", None) == "numel" and not kwargs:
        sizes = args if f is torch.Size.numel else (getattr(f, "__self__", None), *args)
        if len(sizes) == 1 and type(sizes[0]) is torch.Size:
            return operator.mul, [1, *sizes[0]]
    if f is functools.reduce and not kwargs and len(args) in (2, 3):
        step, values, *rest = args
        joins = isinstance(step, types.BuiltinFunctionType) and step.__module__ == "_operator"
        if joins and type(values) in _SEQUENCES and callables.scalar_function(step):
            return step, [*rest, *values]
        return None, []
    if f is sum:
        return operator.add, _summed(f, args, kwargs)
    return operator.mul, _summed(f, args, kwargs) if f is math.prod else []


def _summed(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """What `sum` or `math.prod` joins, where tensors are among it; else nothing."""
    if not 1 <= len(args) + len(kwargs) <= 2 or not args:
        return []
    values, *rest = args
    start = rest[0] if rest else kwargs.get("start", 0 if f is sum else 1)
    whole = type(values) in _TENSORS and values.dim() > 0
    if not (whole or type(values) in (list, tuple)) or not set(kwargs) <= {"start"}:
        return []
    terms = [start, *values]
    first = next((i for i, v in enumerate(terms) if type(v) in _TENSORS), None)
    numbers = terms[:first]
    # Several floats Python adds up more exactly than one by one, from 3.12 on.
    exact = sum(type(v) in (float, complex) for v in numbers) <= 1
    plain = all(type(v) in (int, float, complex) for v in numbers)
    return terms if first is not None and exact and plain else []


_TENSORS = (torch.Tensor, torch.nn.Parameter)
_OF_TENSORS: Any = torch.Tensor.__torch_function__.__func__  # type: ignore[attr-defined]
_DICTS = (dict, collections.OrderedDict, collections.defaultdict)
# What makes a container of values and does not look at them.
_KEEPERS = (dict, collections.OrderedDict, collections.defaultdict, types.SimpleNamespace)
_NEW_TUPLE = tuple.__new__
_ITERATORS: tuple[type, ...] = (type(iter(())), type(iter([])))
_COPIES = (dict.copy, list.copy)
_SEQUENCES = (tuple, list, torch.Size)
# Functions in C that do what an operator does.
_OPERATORS = {pow, divmod, *(f for f in vars(operator).values() if inspect.isbuiltin(f))}


__all__ = ["ArrayCalls"]
