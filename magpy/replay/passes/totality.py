"""Which steps of a run are total: they cannot raise, whatever the numbers that they are given.

Owns the rules: a step is total if it raises nothing and gives a number of the same type for all
values that the guard and the checks before it admit.  Does not own what follows of it: graphs hold
total numbers only (magpy/replay/passes/schedule.py), and an entry in which something else can fail
after a change saves what it changes (magpy/replay/passes/undo.py).

Integers are followed by their number of bits: beside floats they must stay convertible, in tensors
they must fit.  What an operation makes of the data of tensors is not judged here.
"""

from __future__ import annotations

import operator
import re
import string
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from magpy.ir.aliasing import UNKNOWN
from magpy.ir.ops import (
    Bind,
    BindArray,
    Call,
    CheckMetadata,
    HostStep,
    OpStep,
    OutsideRef,
    Ref,
    Step,
    Var,
    class_number,
    identity,
    item_held,
    part_held,
    python_number,
    slot_held,
)
from magpy.ir.trees import variables
from magpy.models.callables import NUMBER_METHODS
from magpy.models.torch_ops import scalar_tensor
from magpy.objects.types import isinstance


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# An integer of 1023 bits is the largest that becomes a float.
_FLOAT_BITS = 1000
# Of what a tensor of integers holds and takes; of a number from outside (the guard `small_int`).
_WORD = 63
_SMALL = 48
_NUMBERS = (int, float, complex, bool)
# Operations that take every float and every integer of a word where they took one.
_TAKE_EVERY_NUMBER = _names(
    """
    add sub mul div true_divide multiply divide subtract rsub __add__ __radd__ __sub__ __rsub__
    __mul__ __rmul__ __truediv__ __rtruediv__ __iadd__ __isub__ __imul__ __itruediv__ add_ sub_ mul_
    div_ lt gt le ge eq ne __lt__ __gt__ __le__ __ge__ __eq__ __ne__
    lerp lerp_ addcmul addcmul_ addcdiv addcdiv_
    _foreach_add _foreach_add_ _foreach_sub _foreach_sub_ _foreach_mul _foreach_mul_
    _foreach_div _foreach_div_ _foreach_lerp _foreach_lerp_
    _foreach_addcmul _foreach_addcmul_ _foreach_addcdiv _foreach_addcdiv_
    _fused_sgd_ _fused_adam_ _fused_adamw_ _fused_adagrad_
    """
)

# Text with places for numbers in which any float can be written: `%d` takes no NaN.
_OF_FLOATS = re.compile(r"([^%]|%[-+ #0]*\d{0,3}(\.\d{1,2})?[eEfFgGrsa%])*")
# How a number is written, but as a character (`c`).
_SPEC = re.compile(r"(.?[<>=^])?[-+ ]?#?0?\d{0,3}[,_]?(\.\d{1,2})?[eEfFgG%dnxXobs]?")

# A number is its type and, for an integer, its bits; None stands for what is not total.
Number = tuple[type, int]


def _sum(a: int, b: int) -> int:
    return max(a, b) + 1


def _product(a: int, b: int) -> int:
    return a + b


_ARITHMETIC: dict[Any, Callable[[int, int], int]] = {
    operator.add: _sum,
    operator.iadd: _sum,
    operator.sub: _sum,
    operator.isub: _sum,
    operator.mul: _product,
    operator.imul: _product,
}
_DIVISIONS = frozenset(
    {
        operator.truediv,
        operator.itruediv,
        operator.floordiv,
        operator.ifloordiv,
        operator.mod,
        operator.imod,
    }
)
_TRUE_DIVISIONS = frozenset({operator.truediv, operator.itruediv})
# How numbers are read that are inputs.
_READS = frozenset(
    {
        operator.getitem,
        getattr,
        class_number,
        identity,
        item_held,
        python_number,
        part_held,
        slot_held,
    }
)
_ONE_OPERAND = frozenset({operator.neg, operator.pos, abs})
# What reads a number of a tensor of one element; `int()` raises for a NaN.
_OF_TENSORS = NUMBER_METHODS | {"__float__", "tolist"}
# They make text, as they did of numbers of the type in the run (`str.format` among them).
_WRITE = _names("format format_value __format__")


def _are_specs(specs: Sequence[Any]) -> bool:
    """Whether these say how a number is written."""
    return all(type(s) is str and _SPEC.fullmatch(s) for s in specs)


class Totality:
    """What is known of the numbers of a run, step by step.

    Args:
        steps: the run.
        data_dependent: tensors whose shape follows from data.
    """

    def __init__(
        self,
        steps: Iterable[Step],
        data_dependent: frozenset[Var] = frozenset(),
    ) -> None:
        """Goes through the steps."""
        self._data_dependent = data_dependent
        self._numbers: dict[Var, Number] = {}
        self._steps: set[int] = set()
        #: Arrays of 0 dimensions that a float can be made of.
        self._arrays: set[Var] = set()
        for step in steps:
            if isinstance(step, Bind):
                self._bind(step)
            elif (
                (isinstance(step, OpStep) and self._takes_numbers(step))
                or (isinstance(step, CheckMetadata) and self._keeps_form(step))
                or (isinstance(step, BindArray) and self._shows_one(step))
            ):
                self._steps.add(id(step))

    def __contains__(self, step: object) -> bool:
        """Whether a step is total."""
        return id(step) in self._steps

    def decides(self, step: HostStep) -> bool:
        """Whether what a step gives decides about the entry."""
        if isinstance(step, Bind) and step.in_order:
            return False  # an object of which no more is asked than its class
        return not isinstance(step, Call) and step not in self

    def _bind(self, step: Bind) -> None:
        if step.func is scalar_tensor:
            self._steps.add(id(step))  # of a float
            return
        if step.symbolic:
            self._steps.add(id(step))
            self._numbers[step.result] = step.expected, _SMALL
            return
        found = self._judge(step)
        if found is not None and found[0] is step.expected:
            self._steps.add(id(step))
        elif step.expected in _NUMBERS:
            # A check finds it to be of this type.
            found = step.expected, self._limit(step)
        if found is not None:
            self._numbers[step.result] = found

    def _judge(self, step: Bind) -> Number | None:
        """What the step gives, if it is total."""
        f, args = step.func, step.args
        if step.kwargs or step.owner is not None:
            return None
        if args and isinstance(args[0], OutsideRef):
            # The guard has found it there, and of its type.
            return (step.expected, _SMALL) if f in _READS else None
        name = getattr(f, "__name__", "")
        if name in _OF_TENSORS:
            one = step.expected in _NUMBERS and self._is_of_tensor(args[:1])
            return (step.expected, _WORD) if one else None
        if (
            f is float
            and len(args) == 1
            and isinstance(args[0], Ref)
            and args[0].var in self._arrays
        ):
            return float, 0
        if name in _WRITE or (f is operator.mod and args and type(args[0]) is str):
            return (str, 0) if self._writes(step) else None
        numbers = [self._number(a) for a in args]
        if not numbers or any(n is None for n in numbers):
            return None
        return self._computed(f, args, [n for n in numbers if n is not None])

    def _is_of_tensor(self, args: Sequence[Any]) -> bool:
        """Whether the argument is a tensor whose sizes do not follow from data."""
        return all(
            isinstance(v, Ref) and v.var not in self._numbers and v.var not in self._data_dependent
            for v in args
        )

    def _shows_one(self, step: BindArray) -> bool:
        """Whether a step gives an array of 0 dimensions that has a tensor's memory."""
        shows = getattr(step.func, "__name__", "") == "numpy" and step.expected[1] == ()
        shows = shows and self._is_of_tensor(step.args[:1])
        if shows and step.expected[0].kind in "fiub":
            self._arrays.add(step.result)
        return shows

    def _writes(self, step: Bind) -> bool:
        """Whether a step makes text of numbers, as it did of others of the type.

        What says how is the program's own text, of widths that take no memory to speak of: an
        integer may be none of a character, and one that is too large for a float no text is made
        as of one.
        """
        first, *others = step.args or (None,)
        name = getattr(step.func, "__name__", "")
        if step.expected is not str or step.kwargs:
            return False
        if name == "__format__":
            return _are_specs(others) and self._is_of_tensor((first,))
        if name == "format_value" or step.func is format:
            return _are_specs(others[:1]) and self._are_numbers((first,))
        if type(first) is not str or not others:
            return False
        if step.func is operator.mod:
            given = others[0] if type(others[0]) is tuple else others
            return bool(_OF_FLOATS.fullmatch(first)) and self._are_numbers(given)
        try:
            fields = list(string.Formatter().parse(first))
        except ValueError:
            return False
        specs = [spec for _, _, spec, _ in fields if spec is not None]
        return _are_specs(specs) and self._are_numbers(others)

    def _are_numbers(self, values: Sequence[Any]) -> bool:
        """Whether these are numbers of which text can be made."""
        found = [self._number(v) for v in values]
        return all(n is not None and n[0] in _NUMBERS and n[1] <= _FLOAT_BITS for n in found)

    def _computed(self, f: Any, args: Sequence[Any], numbers: list[Number]) -> Number | None:
        try:
            hash(f)
        except TypeError:
            return None
        types = {int if t is bool else t for t, _ in numbers}
        bits = [n for _, n in numbers]
        if max(bits) > _FLOAT_BITS or not types <= {complex, float, int}:
            return None
        if f in _ARITHMETIC and len(numbers) == 2:
            kind = _widest(types)
            return kind, _ARITHMETIC[f](*bits) if kind is int else 0
        if f in _ONE_OPERAND and len(numbers) == 1 and (f is not abs or complex not in types):
            return _widest(types), bits[0]
        if f in _DIVISIONS and len(numbers) == 2 and complex not in types:
            if isinstance(args[1], Ref) or not args[1]:
                return None
            kind = float if f in _TRUE_DIVISIONS else _widest(types)
            return kind, _sum(*bits) if kind is int else 0
        if f in (operator.pow, operator.ipow, pow) and len(numbers) == 2 and types == {int}:
            power = args[1]
            if isinstance(power, int) and 0 <= power <= _WORD:
                return int, max(1, bits[0] * power)
            return None
        if f in (min, max) and len(types) == 1 and complex not in types:
            return (numbers[0][0], max(bits)) if bool not in [t for t, _ in numbers] else None
        if f is float and len(numbers) == 1 and complex not in types:
            return float, 0
        if f is round and len(numbers) == 2 and numbers[0][0] is float:
            return (float, 0) if type(args[1]) is int and args[1] >= 0 else None
        if f is int and len(numbers) == 1 and types == {int}:
            return int, bits[0]
        if f in (str, repr) and len(numbers) == 1:
            return str, 0
        return None

    def _number(self, v: Any) -> Number | None:
        if isinstance(v, Ref):
            return self._numbers.get(v.var)
        if type(v) in _NUMBERS:
            return type(v), int(v).bit_length() if isinstance(v, int) else 0
        return None

    @staticmethod
    def _limit(step: Bind) -> int:
        """The bits of an integer of which nothing else is known."""
        if step.expected not in (int, bool):
            return 0
        name = getattr(step.func, "__name__", "")
        if name in NUMBER_METHODS:
            return _WORD
        if step.owner is None or name == "getrandbits":
            return _UNBOUNDED
        # A generator keeps to the limits that it is given.
        return max([_SMALL, *(a.bit_length() for a in step.args if isinstance(a, int))])

    def _keeps_form(self, step: CheckMetadata) -> bool:
        """Whether the metadata of what an operation on numbers gives is that of the tensors."""
        return (
            getattr(step.func, "__name__", "") in _TAKE_EVERY_NUMBER
            and not (step.random or step.unrepeatable)
            and self._data_dependent.isdisjoint(variables((step.args, step.kwargs)))
            and self._takes_numbers(step)
        )

    def _takes_numbers(self, step: OpStep | HostStep) -> bool:
        """Whether an operation takes whatever its numbers may be."""
        given = variables((step.args, step.kwargs))
        numbers = [self._numbers[v] for v in given if v in self._numbers]
        return not numbers or (
            getattr(step.func, "__name__", "") in _TAKE_EVERY_NUMBER
            and all(n <= _WORD for _, n in numbers)
        )


_UNBOUNDED = 1 << 30


def runs_python(step: Step) -> bool:
    """Whether Python may run in a step that nobody watches: it may give tensors other gradients."""
    if isinstance(step, OpStep):
        return step.whole or step.unrepeatable
    if not isinstance(step, HostStep) or step.engine is None:
        return False
    return step.unrepeatable or step.gradients is None or UNKNOWN in step.gradients


def _widest(types: set[type]) -> type:
    return next(t for t in (complex, float, int) if t in types)


__all__ = ["Totality", "runs_python"]
