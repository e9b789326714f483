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
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from magpy.ir.ops import (
    Bind,
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
    """
)

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
    {operator.getitem, getattr, class_number, identity, item_held, part_held, slot_held}
)
_ONE_OPERAND = frozenset({operator.neg, operator.pos, abs})


class Totality:
    """What is known of the numbers of a run, step by step.

    Args:
        steps: the run.
        data_dependent: tensors whose shape follows from data.
    """

    def __init__(self, steps: Iterable[Step], data_dependent: frozenset[Var] = frozenset()) -> None:
        """Goes through the steps."""
        self._data_dependent = data_dependent
        self._numbers: dict[Var, Number] = {}
        self._steps: set[int] = set()
        for step in steps:
            if isinstance(step, Bind):
                self._bind(step)
            elif isinstance(step, OpStep) and self._takes_numbers(step):
                self._steps.add(id(step))

    def __contains__(self, step: Step) -> bool:
        """Whether a step is total."""
        return id(step) in self._steps

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
        if getattr(f, "__name__", "") in NUMBER_METHODS:
            first = args[0] if args else None
            if isinstance(first, Ref) and first.var not in self._numbers:
                return None if first.var in self._data_dependent else (step.expected, _WORD)
            return None
        numbers = [self._number(a) for a in args]
        if not numbers or any(n is None for n in numbers):
            return None
        return self._computed(f, args, [n for n in numbers if n is not None])

    def _computed(self, f: Any, args: Sequence[Any], numbers: list[Number]) -> Number | None:
        try:
            hash(f)
        except TypeError:
            return None
        types = {int if t is bool else t for t, _ in numbers}
        bits = [n for _, n in numbers]
        if max(bits) > _FLOAT_BITS or str in types:
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
    def _limit(step: HostStep) -> int:
        """The bits of an integer of which nothing else is known."""
        name = getattr(step.func, "__name__", "")
        if name in NUMBER_METHODS:
            return _WORD
        if step.owner is None or name == "getrandbits":
            return _UNBOUNDED
        # A generator keeps to the limits that it is given.
        return max([_SMALL, *(a.bit_length() for a in step.args if isinstance(a, int))])

    def _takes_numbers(self, step: OpStep) -> bool:
        """Whether an operation takes whatever its numbers may be."""
        given = variables((step.args, step.kwargs))
        numbers = [self._numbers[v] for v in given if v in self._numbers]
        return not numbers or (
            getattr(step.func, "__name__", "") in _TAKE_EVERY_NUMBER
            and all(n <= _WORD for _, n in numbers)
        )


_UNBOUNDED = 1 << 30


def _widest(types: set[type]) -> type:
    return next(t for t in (complex, float, int) if t in types)


__all__ = ["Totality"]
