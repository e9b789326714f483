"""Conditions on sizes and numbers that vary, as an entry checks them.

Owns what evaluates them, a part of the guard or of a step in the mock function, and their words.
Does not own what they are, nor the symbols that they are about (magpy/shapes/symbols.py, which
fills them).  Made by that and by magpy/guards/analysis.py; called by the guard, by mock code and by
magpy/guards/words.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from magpy import _interp
from magpy.frames.locations import Place
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
        self._names: list[str] = []
        self._space: dict[str, Any] = {}
        #: Each condition by itself, with the place in the program that it comes from.
        self.parts: list[tuple[str, Place | None]] = []
        #: The numbers that were refused last.
        self._refused: list[int] | None = None

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

    def fill(
        self, names: list[str], parts: list[tuple[str, Place | None]], space: dict[str, Any]
    ) -> None:
        """Sets the conditions.

        Args:
            names: what the symbols are called in the conditions.
            parts: Python expressions, with the places in the program that they come from.
            space: what else they use.
        """
        self._names, self.parts, self._space = names, parts, space
        self._holds = eval(f"lambda {', '.join(names)}: {self.text}", space)

    @property
    def text(self) -> str:
        """All conditions as one Python expression of the symbols."""
        return " and ".join(text for text, _ in self.parts) or "True"

    def __call__(self, *args: Any) -> bool:
        """Whether the conditions hold for these arguments."""
        if self._holds is None:
            return True
        with torch._C.DisableTorchFunction():
            given = [args[i] if read is None else read(args[i], k) for i, read, k in self._places]
            if self._holds(*given):
                return True
        self._refused = given
        return False

    # ------------------------------------------------------------- words

    def said(self, arguments: list[str]) -> list[str]:
        """The conditions in terms of what the arguments are called."""
        return [self._renamed(text, arguments) for text, _ in self.parts]

    def broken(self, arguments: list[str]) -> tuple[str, str, str, str] | None:
        """What was refused last, in terms of what the arguments are called.

        Returns:
            What was looked at; the value that is needed, or ""; the value that was given, in words;
            and the expression of the program that relies on it, or "".
        """
        given = dict(zip(self._names, self._refused or (), strict=False))
        for text, place in self.parts if given else ():
            if eval(text, self._space, given):
                continue
            where = "" if place is None else str(place)
            used = [name for name in self._names if re.search(rf"\b{name}\b", text)]
            fixed = re.fullmatch(r"\(\w+ == (-?\d+)\)", text)
            if fixed and len(used) == 1 and not (place and place.decides()):
                return self._renamed(used[0], arguments), fixed[1], str(given[used[0]]), where
            now = " and ".join(f"{self._renamed(n, arguments)} is {given[n]}" for n in used)
            return self._renamed(text, arguments), "", f"no longer holds: {now}", where
        return None

    def broken_at(self) -> str:
        """The expression of the program that relies on what was refused last; asked once."""
        given = dict(zip(self._names, self._refused or (), strict=False))
        self._refused = None
        for text, place in self.parts if given else ():
            if not eval(text, self._space, given):
                return "" if place is None else str(place)
        return ""

    def _renamed(self, text: str, arguments: list[str]) -> str:
        shown: dict[Any, str] = {
            torch.Tensor.size: "{}.shape[{}]",
            torch.Tensor.stride: "{}.stride({})",
        }
        words = {
            name: arguments[i] if read is None else shown.get(read, "{}").format(arguments[i], dim)
            for name, (i, read, dim) in zip(self._names, self._places, strict=True)
        }
        bare = text[1:-1] if text.startswith("(") else text  # see Symbols.fill
        return re.sub(r"\bs\d+\b", lambda m: words.get(m[0], m[0]), bare)

    def __repr__(self) -> str:
        """The conditions as the log of guards shows them."""
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


class Computed:
    """An integer as it follows from sizes and other integers.

    Args:
        expr: how, as an expression of symbols.
        sources: where these come from.
    """

    def __init__(self, expr: Any, sources: list[Source]) -> None:
        """Makes a function of the expression."""
        import sympy  # type: ignore[import-untyped]
        from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP
        from torch.utils._sympy.printers import PythonPrinter

        #: The variables whose values it is given.
        self.variables: list[Var] = list(dict.fromkeys(s.var for s in sources))
        self._places = [(self.variables.index(s.var), s.read, s.dim) for s in sources]
        names = {s.symbol: sympy.Symbol(f"s{i}", integer=True) for i, s in enumerate(sources)}
        self._text = PythonPrinter().doprint(expr.xreplace(names))
        given = ", ".join(f"s{i}" for i in range(len(sources)))
        self._value = eval(f"lambda {given}: {self._text}", dict(SYMPY_INTERP))
        self.__name__ = "computed_size"

    def __call__(self, *args: Any) -> Any:
        """What it is for these tensors and numbers."""
        return self._value(
            *[args[i] if read is None else read(args[i], k) for i, read, k in self._places]
        )

    def __repr__(self) -> str:
        """The expression, as explanations show it."""
        return f"size({self._text})"


__all__ = ["Checked", "Computed", "Conditions", "Read", "Source"]
