"""Sizes and integers that follow from data, as a run meets them.

Owns what becomes of them in the record: that the run relies on them, or which steps check the
symbols that stand for them.  Does not own the symbols and their conditions
(magpy/shapes/symbols.py), nor which steps there are (magpy/capture/tensors/writer.py).  Asked by
magpy/capture/tensors/arguments.py.

A first capture relies on what it sees.  Once an entry did that (`Record.pinned`), later captures
follow, as they follow sizes that vary among the arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch

from magpy import _tensor
from magpy.ir.ops import Binding, HostStep, OpStep, Record, Ref, Var
from magpy.ir.trees import variables
from magpy.models.torch_ops import resizable
from magpy.objects.number_lists import form_of, numbers_of
from magpy.objects.quiet import unheard
from magpy.objects.types import isinstance
from magpy.shapes.conditions import Checked
from magpy.shapes.symbols import Symbols

Function = Callable[..., Any]
# Lists of more numbers are compared.
_LONGEST_LIST = 64
# Each check looks at all symbols that are known by then: later integers are compared.
_MOST_CHECKS = 64


class KnownTensors(Protocol):
    """The tensors of a run by identity (magpy/capture/tensors/identity.py)."""

    def known(self, tensor: Any) -> Var | None:
        """The variable of a tensor that the run has met."""


class OfData:
    """What follows from data in one run.

    Args:
        record: the steps of the run.
        tensors: its variables.
        symbols: what stands for what is followed; None if nothing is.
    """

    def __init__(self, record: Record, tensors: KnownTensors, symbols: Symbols | None) -> None:
        """Nothing was met yet."""
        self._record = record
        self._tensors = tensors
        self._symbols = symbols
        self._integers: set[Var] = set()

    def integer(self, func: Function, given: int, var: Var, value: int) -> Function:
        """An integer follows from data.

        Args:
            func: what gives it.
            given: the number of its arguments by position.
            var: the variable of the integer.
            value: what it is in this run.

        Returns:
            What a step calls in the place of `func`.
        """
        self._integers.add(var)
        symbols = self._symbols
        if symbols is None or len(symbols.checks) >= _MOST_CHECKS:
            return func
        if not symbols.number_of_data(var, value):
            return func
        return symbols.checked(func, given, [var])

    def relied_on(self, var: Var) -> None:
        """The run relies on what a number is."""
        if var in self._integers:
            self._record.pinned = True

    def takes_list(self, result: Any) -> bool:
        """Whether the numbers of a list are followed; the list is compared as it is if not."""
        form = form_of(result)
        if form is None or not 0 < math.prod(form) <= _LONGEST_LIST:
            return False
        kinds = {*map(type, numbers_of(result))}
        if kinds == {float}:
            return True
        if kinds != {int}:
            return False
        self._record.pinned = True
        return self._symbols is not None and self._symbols.data

    def sizes(
        self, func: Function, given: int, result: Any, outs: list[Var], compared: Any = None
    ) -> tuple[Function, list[Any]] | None:
        """The sizes of tensors follow from data, and somebody will rely on them.

        Args:
            func: what gives the tensors.
            given: the number of its arguments by position.
            result: a tensor or a sequence of tensors.
            outs: the variables of those that are new.
            compared: what `func` gives, if that is another tensor of the same sizes.

        Returns:
            What a step calls in the place of `func`, and the `TensorMeta`s to compare its results
            with; None if the sizes have to be what they are.
        """
        self._record.pinned = True
        symbols = self._symbols
        found = [result] if isinstance(result, torch.Tensor) else result
        if symbols is None or not symbols.data or type(found) not in (list, tuple) or not found:
            return None
        if [self._tensors.known(t) for t in found] != outs:
            return None
        if any(t.layout is not torch.strided for t in found):
            return None  # its own sizes are followed where its parts are asked for theirs
        try:
            with unheard():
                followed = symbols.sized_by_data(list(zip(outs, found, strict=True)))
                found = found if compared is None else [compared]
                metas = [
                    _tensor.TensorMeta(t, dims=dims.sizes, strides=dims.strides)
                    for t, dims in zip(found, followed, strict=True)
                ]
        except Exception:  # noqa: BLE001 - a kind of tensor that torch has no fake ones of
            symbols.fix_all()
            return None
        return symbols.checked(func, given, outs), metas

    def finish(self) -> None:
        """Gives each check of symbols what is known where it is made."""
        if self._symbols is None or not self._symbols.checks:
            return
        there = set(self._record.inputs)
        changed: set[Var] = set()
        for step in self._record.steps:
            if not isinstance(step, (OpStep, HostStep)):
                continue
            if isinstance(step, Binding):
                there.add(step.result)
            if isinstance(step.func, Checked):
                others = self._symbols.complete(step.func, there, changed)
                step.args += tuple(Ref(v) for v in others)
            changed |= variables(resizable(step.func, step.args, step.kwargs))


__all__ = ["OfData"]
