"""Values that differ from call to call, and what the program computes from them.

Owns the steps for operators, stores and formatting on tracked values, and where the run relies on
what one is.  Does not own which values are tracked (magpy/capture/tensors/arguments.py) nor calls
of C functions with them (magpy/capture/python/arrays.py).  Asked by csrc/interp through
magpy/capture/python/callbacks.py.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
import torch

from magpy import _interp
from magpy.capture.python.arithmetic import element, noted
from magpy.capture.python.buffers import OutsideBuffers
from magpy.capture.python.run import Run, frames_hidden
from magpy.capture.tensors.arguments import QUEUED
from magpy.errors import Refusal, an
from magpy.ir.ops import CheckValue, Ref, Var
from magpy.ir.trees import has_ref
from magpy.models import numpy_calls
from magpy.objects import buffers as memory
from magpy.objects.plain_values import PLAIN_TYPES, is_plain
from magpy.objects.types import isinstance

ABSENT = _interp.ABSENT


class TrackedValues:
    """What one run computes from tracked values.

    Args:
        run: the state of the run.
        buffers: the buffers from outside, of which some may be written to.
    """

    def __init__(self, run: Run, buffers: OutsideBuffers) -> None:
        """Nothing was computed yet."""
        self._run = run
        self._session = run.session
        self._buffers = buffers

    def derive(
        self,
        f: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> Any:
        """Notes that `result` was computed from tracked values by `f`.

        Args:
            f: what was called.
            args: with these.
            kwargs: and these.
            result: what it gave.
        """
        recorder = self._run.recorder
        if self._run.refusals.first is not None or recorder.depth:
            return result
        if numpy_calls.holds_objects((args, kwargs, result)) or self._shows(result, (args, kwargs)):
            # Other calls must get the very objects, and the memory of their own arrays.
            self._session.rely_on((args, kwargs))
            for a in (*args, *kwargs.values()):
                self._session.touch(a)
            return result
        if _is_short_tuple(result):
            one = functools.partial(functools.partial, element, f, len(result))
            return tuple(self.derive(one(i), args, kwargs, v) for i, v in enumerate(result))
        if _is_short_list_of_arrays(result, args):
            one = functools.partial(functools.partial, element, f, len(result))
            for i, array in enumerate(result):
                self.derive(one(i), args, kwargs, array)
            return result
        try:
            plan = recorder.convert_all(args), recorder.convert_all(kwargs)
            if recorder.symbols is not None and not has_ref(plan):
                return result  # of symbols that are what they are in this run
            return noted(recorder, recorder.track, (f, *plan, result), f, args, kwargs)
        except Refusal as r:
            self._run.refusals.keep(r)
        except Exception as e:  # noqa: BLE001 - as above
            recorder.fail(e)
        return result

    def rely_on(self, v: Any) -> None:
        """A tracked value is about to be looked at in a way that cannot be redone: checks it."""
        var = self._session.tracked(v)
        if var is not None:
            self._run.recorder.rely_on(v, Var(var))

    def _shows(self, result: Any, given: Any) -> bool:
        """Whether a result has the memory of an array that does not follow from data."""
        made = [memory.of_buffer(a) for a in numpy_calls.arrays_in(result)]
        if not made:
            return False
        apart = [a for a in numpy_calls.arrays_in(given) if self._session.tracked(a) is None]
        return any(memory.meet(memory.of_buffer(a), place) for a in apart for place in made)

    # ------------------------------------------------------------- operators

    def truth(self, v: Any) -> None:
        """The truth of a tracked value decides a jump."""
        try:
            result = bool(v)
        except Exception:  # noqa: BLE001 - the program's own: the jump is about to raise it
            self.rely_on(v)
        else:
            self.derive(bool, (v,), {}, result)

    @frames_hidden
    def contains(self, container: Any, item: Any) -> bool:
        """Whether a tracked value is in a container is about to be asked.

        Returns:
            Whether the answer is all that counts: both hold plain values only.
        """
        if type(item) not in (int, float, str) or item != item:
            return False
        t = type(container)
        if t is range:
            self.derive(operator.contains, (container, item), {}, item in container)
            return True
        # A class derived from these, such as Counter, that leaves the answer to them.
        base: Any = next((c for c in _ASKED if issubclass(t, c)), None)
        if base is None or t.__contains__ is not base.__contains__:
            return False
        if base.__len__(container) > _MOST_COMPARED:
            return False
        found = tuple(base.__iter__(container))
        tracked = self._session.tracked
        if any(type(v) not in PLAIN_TYPES or tracked(v) is not None for v in found):
            return False
        values = found if base in (tuple, list) else frozenset(found)
        self.derive(operator.contains, (values, item), {}, item in values)
        return True

    def binary(self, op: int, a: Any, b: Any, result: Any) -> Any:
        """A binary operation with a tracked operand."""
        if (result is a or result is b) and type(result) not in PLAIN_TYPES:
            if self._session.tracked(result) is not None:
                self.array_written(result)
            else:
                self._session.rely_on((a, b))
            return result
        if type(result) in (list, tuple):
            # [x] * n: how many there are is the same again; the elements are what they were.
            self._session.rely_on([v for v in (a, b) if self._session.tracked(v) is not None])
            return result
        return self.derive(BINARY[op], (a, b), {}, result)

    def compare(self, op: int, a: Any, b: Any, result: Any) -> Any:
        """A comparison with a tracked operand."""
        return self.derive(COMPARE[op], (a, b), {}, result)

    @frames_hidden
    def compare_items(self, a: Any, b: Any) -> bool:
        """Two tuples or lists are about to be tested for equality, item by item.

        Returns:
            Whether that is all: they hold numbers and the like only.
        """
        pairs = list(zip(a, b, strict=False)) if len(a) == len(b) else []
        if not all(type(v) in PLAIN_TYPES for pair in pairs for v in pair):
            return False
        for x, y in pairs:
            same = bool(x == y)
            if self._session.tracked(x) is not None or self._session.tracked(y) is not None:
                self.derive(operator.eq, (x, y), {}, same)
            if not same:
                break
        return True

    def unary(self, op: int, a: Any, b: Any, result: Any) -> Any:
        """A unary operation on a tracked value."""
        return self.derive(UNARY[op], (a,), {}, result)

    def item(self, op: int, obj: Any, key: Any, result: Any) -> Any:
        """obj[key] of a tracked array or string, or with a tracked key.

        Args:
            op: 1 where the key chooses among plain values, which are the same in other calls.
            obj: what has the item.
            key: the key.
            result: the item.
        """
        if op:
            values = dict(obj) if type(obj) is dict else tuple(obj)
            return self.derive(operator.getitem, (values, key), {}, result)
        if self._session.tracked(obj) is None:
            self._session.rely_on(key)
            return result
        return self.derive(operator.getitem, (obj, key), {}, result)

    def attribute(self, op: int, obj: Any, name: Any, value: Any) -> Any:
        """obj.name of a tracked value.

        Returns:
            What the program gets in the place of the value; None if it gets that.
        """
        if name in _OF_SIZES and isinstance(obj, np.ndarray) and self._run.recorder.is_sized(obj):
            return self._size(obj, name, value)
        if _FLAGS in (type(obj), type(value)) or (
            type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"
        ):
            self.derive(getattr, (obj, name), {}, value)
        elif isinstance(obj, QUEUED):
            if name in _HANDLES:
                self._run.refuse(
                    f"the {name} of {an(type(obj).__name__)} is read that the call makes"
                )
        elif name in _ADDRESSES and any(obj is array for array, _ in self._buffers.inputs):
            self._session.touch(obj)  # what is there is compared
        elif name in _ADDRESSES:
            self._run.refuse("the address of an array that follows from data is asked for")
        elif not callable(value) and (
            type(obj).__name__ != "ndarray" or type(value).__name__ in ("flatiter", "memoryview")
        ):
            self.rely_on(obj)
        return None

    def _size(self, array: Any, name: str, value: Any) -> Any:
        """What follows from the sizes of an array, which differ from call to call."""
        if name in ("shape", "size"):
            return self.derive(getattr, (array, name), {}, value)
        recorder, var = self._run.recorder, self._session.tracked(array)
        assert var is not None
        recorder.note(getattr, (Ref(Var(var)), name), {}, CheckValue, value)
        return None

    def format(self, conversion: int, value: Any, spec: Any, result: Any) -> Any:
        """A tracked value in an f-string."""
        return self.derive(format_value, (value, spec or "", conversion), {}, result)

    def join(self, op: int, parts: Any, unused: Any, result: Any) -> Any:
        """The parts of an f-string, some of them tracked."""
        return self.derive("".join, (parts,), {}, result)

    def array_written(self, obj: Any) -> None:
        """A tracked array is about to be written to."""
        if memory.is_writeable(obj) if isinstance(obj, np.ndarray) else isinstance(obj, _FLAGS):
            self._run.refuse("an array that follows from data is written to")


def recomputable(values: Any, depth: int = numpy_calls.DEPTH) -> bool:
    """Whether a function of values, given these, does nothing but compute from them.

    Iterators are used up, and functions run code of their own: such a call is watched, and relies
    on the tracked values that it is given.
    """
    t = type(values)
    if t is tuple or t is list:
        return depth > 0 and all(recomputable(v, depth - 1) for v in values)
    if t is dict:
        items = values.items()
        return depth > 0 and all(type(k) is str and recomputable(v, depth - 1) for k, v in items)
    if t is np.ndarray or isinstance(values, np.generic):
        return not numpy_calls.holds_objects(values)
    return is_plain(values) or isinstance(values, (torch.Tensor, type))


def _is_short_tuple(v: Any) -> bool:
    return type(v) is tuple and 0 < len(v) <= _MOST and all(type(x) in (int, float, str) for x in v)


def _is_short_list_of_arrays(v: Any, given: tuple[Any, ...]) -> bool:
    """Whether these are new arrays (`np.split`)."""
    return (
        type(v) is list
        and 0 < len(v) <= _MOST
        and all(type(x) is np.ndarray for x in v)
        and not any(x is a for x in v for a in given)
    )


def format_value(value: Any, spec: str, conversion: int) -> str:
    """What an f-string makes of a value (https://docs.python.org/3/reference/lexical_analysis.html#f-strings)."""
    if conversion in _CONVERSIONS:
        value = _CONVERSIONS[conversion](value)
    return format(value, spec)


# Attributes of an array that let others write to its memory unseen.
_ADDRESSES = frozenset(["__array_interface__", "__array_struct__", "ctypes"])
# What follows from the sizes of an array.
_OF_SIZES = frozenset(["shape", "size", "nbytes", "strides"])
# What tells one event from another.
_HANDLES = frozenset(["event_id", "cuda_event"])
# What tells how the memory of an array lies, and says whether it may be written to.
_FLAGS = type(np.empty(0).flags)
# Longer tuples of values are compared, and so is what is in longer containers.
_MOST, _MOST_COMPARED = 8, 256
# What answers whether a value is in it by the values that it holds.
_ASKED = (tuple, list, set, frozenset, dict)
# FORMAT_VALUE's and CONVERT_VALUE's numbers, and the character codes of the syntax tree.
_CONVERSIONS: dict[int, Any] = {
    1: str,
    2: repr,
    3: ascii,
    ord("s"): str,
    ord("r"): repr,
    ord("a"): ascii,
}
UNARY = {100: operator.neg, 101: operator.pos, 102: operator.invert, 103: operator.not_}
COMPARE = [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge]
# In the order of CPython's NB_* numbers (Include/opcode.h).
BINARY = [
    getattr(operator, name)
    for name in [
        "add",
        "and_",
        "floordiv",
        "lshift",
        "matmul",
        "mul",
        "mod",
        "or_",
        "pow",
        "rshift",
        "sub",
        "truediv",
        "xor",
        "iadd",
        "iand",
        "ifloordiv",
        "ilshift",
        "imatmul",
        "imul",
        "imod",
        "ior",
        "ipow",
        "irshift",
        "isub",
        "itruediv",
        "ixor",
    ]
]


__all__ = ["BINARY", "COMPARE", "TrackedValues", "format_value", "recomputable"]
