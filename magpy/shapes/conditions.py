"""Conditions on sizes and numbers that vary, as an entry checks them.

Owns what evaluates them: a part of the guard, or of a step in the mock function.  Does not own what
they are, nor the symbols that they are about (magpy/shapes/symbols.py, which fills them).  Made by
that and by magpy/guards/analysis.py; called by the guard and by mock code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from magpy import _interp
from magpy.ir.ops import Var
from magpy.objects.types import isinstance

#: How a dimension's size or stride is read from a tensor.
Read = Callable[[Any, int], int]


class Source(NamedTuple):
    """Where a symbol comes from: a tensor or a number, and what of a tensor.

    Attributes:
        var: the tensor's or number's variable.
        outside: what it is if it comes from outside; None if it follows from data.
    """

    symbol: Any
    var: Var
    outside: Any
    read: Read | None = None
    dim: int = 0


class Conditions:
    """Whether sizes and numbers are such that an entry fits them."""

    def __init__(self) -> None:
        """Admits everything, until `fill` is called."""
        #: The symbols whose values are known where it is asked.
        self.symbols: list[Any] = []
        # For each: its place among the arguments, how it is read (None: it is the argument), and
        # the dimension.  Not the sources, whose tensors an entry must not keep.
        self._places: list[tuple[int, Read | None, int]] = []
        self._holds: Callable[..., bool] | None = None
        self.text = "True"

    def over(self, sources: list[Source], key: Callable[[Source], Any]) -> list[Any]:
        """Sets the symbols.

        Args:
            sources: where they come from.
            key: what is the same for the sources that one argument has.

        Returns:
            The keys of the arguments that calls of this object have to give.
        """
        places: dict[Any, int] = {}
        for s in sources:
            places.setdefault(key(s), len(places))
        self.symbols = [s.symbol for s in sources]
        self._places = [(places[key(s)], s.read, s.dim) for s in sources]
        return list(places)

    def fill(self, names: list[str], text: str, space: dict[str, Any]) -> None:
        """Sets the condition, a Python expression of the symbols."""
        self.text = text
        self._holds = eval(f"lambda {', '.join(names)}: {text}", space)

    def __call__(self, *args: Any) -> bool:
        """Whether the condition holds for these arguments."""
        if self._holds is None:
            return True
        with torch._C.DisableTorchFunction():
            return bool(
                self._holds(
                    *(args[i] if read is None else read(args[i], k) for i, read, k in self._places)
                )
            )

    def __repr__(self) -> str:
        """The condition as the log of guards shows it."""
        return f"sizes: {self.text}"


class Checked:
    """A host step's function of which sizes or an integer follow from data, and their conditions.

    What uses a result comes after it, and so after the check, wherever the steps are moved.

    Args:
        func: the function.
        given: how many arguments it is given by position.
        made: the variables of its results.
    """

    def __init__(self, func: Callable[..., Any], given: int, made: list[Var]) -> None:
        """Admits everything, until its conditions are filled."""
        self.func = func
        self.made = made
        self.conditions = Conditions()
        self._given = given
        self._order: list[int] = []

    def take(self, others: list[Var], keys: list[Var]) -> list[Var]:
        """Sets the variables that calls give beside the function's arguments; returns them."""
        order = [*self.made, *others]
        self._order = [order.index(k) for k in keys]
        return others

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result; MISS, which is like no result, if the conditions do not hold."""
        result = self.func(*args[: self._given], **kwargs)
        found = result if isinstance(result, (tuple, list)) else (result,)
        known = (*found, *args[self._given :])
        if len(found) != len(self.made) or not self.conditions(*[known[i] for i in self._order]):
            return _interp.MISS
        return result

    def __repr__(self) -> str:
        """The function, as explanations show it."""
        return f"{self.func!r} if {self.conditions!r}"


__all__ = ["Checked", "Conditions", "Read", "Source"]
