"""Indices of loops of any number of turns: symbols that stand for a number in each turn.

Owns what becomes of the conditions that are put on them: what holds in the first and in the last
turn, and in between, becomes one on the number of turns.  Does not own the loops
(magpy/capture/loops.py) nor the other symbols (magpy/shapes/symbols.py, which makes this).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from magpy.ir.loops import Loop
from magpy.ir.ops import Ref, Var
from magpy.objects.types import isinstance
from magpy.shapes.arithmetic import plain


class Indices:
    """The indices of one run.

    Args:
        symbols: the symbols of the run.
    """

    def __init__(self, symbols: Any) -> None:
        """There are none."""
        self._symbols = symbols
        #: The symbol of each index, with the number that it is in the run.
        self._values: dict[Var, tuple[Any, int]] = {}
        # By the symbol of each index, that of the first one in its loop.
        self._first: dict[Any, Any] = {}

    def add(self, loop: Loop, var: Var, value: int) -> None:
        """A turn begins, whose index is the last one of the loop."""
        from torch._dynamo.source import ConstantSource
        from torch.fx.experimental.symbolic_shapes import DimDynamic

        env = self._symbols.env
        source = ConstantSource(f"index{var}")
        symbol = env.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
        self._values[var] = symbol, value
        self._first[symbol] = self._values[loop.indices[0]][0]
        self._symbols.numbers[var] = env.create_symintnode(symbol, hint=value, source=source)

    def settle(self, loop: Loop) -> bool:
        """Makes what is known of the indices of a loop conditions on the number of its turns.

        Returns:
            Whether that is possible.
        """
        assert loop.first is not None
        ahead = loop.indices[: loop.first]
        first = {self._values[v][0]: k for k, v in enumerate(loop.indices)}
        last = self._last(loop)
        found: list[tuple[Any, Any, Any]] = []
        for guard, place in self._guards():
            of = guard.expr.free_symbols & first.keys()
            if not of:
                continue
            (symbol, *others) = of
            # What the first turn asks is not asked again (`canonical`).
            exprs = _at_ends(guard.expr, symbol, self._number(loop, first[symbol]), last)
            if others or exprs is None:
                return False
            found += [(guard, place, e) for e in exprs]
        if not all(self._holds(e) for *_, e in found):
            return False
        self._replace(first.keys(), [one for one in found if one[2].free_symbols])
        numbers = self._symbols.numbers
        for var in numbers.keys() & ahead:
            if isinstance(loop.args[0], Ref):
                numbers[var] = numbers[loop.args[0].var]
            else:
                plain(numbers.pop(var))
        self._replace({self._values[v][0] for v in ahead}, [])
        turns = self._turns(loop) - loop.first
        env = self._symbols.env
        bool(env.create_symintnode(turns, hint=len(loop.values) - loop.first) >= 1)
        self._without_offsets(loop)
        return True

    def fix(self, loop: Loop) -> None:
        """The number of turns is what it is in the run."""
        import sympy  # type: ignore[import-untyped]

        symbols = self._symbols
        # What stands for a number may be told by an index by now, which is told by nothing.
        exprs = [
            sympy.Eq(symbols.numbers[a.var].node._expr, value)
            for a, value in zip(loop.args, (loop.values.start, loop.values.stop), strict=False)
            if isinstance(a, Ref) and a.var in symbols.numbers
        ]
        symbols.place, before = loop.place, symbols.place
        try:
            with torch._C.DisableTorchFunction():
                for var in loop.numbers & symbols.numbers.keys():
                    plain(symbols.numbers.pop(var))
        finally:
            symbols.place = before
        values = [
            (symbol, sympy.Integer(n)) for symbol, n in map(self._values.__getitem__, loop.indices)
        ]
        found = [
            (guard, place, e)
            for guard, place in self._guards()
            for e in _in_each_turn(guard.expr, values)
            if e.free_symbols or not e
        ]
        found += [(*self._guards()[-1], e) for e in exprs if e.free_symbols]
        held = [one for one in found if self._holds(one[2])]
        self._replace({symbol for symbol, _ in values}, held)
        if len(held) < len(found):
            symbols.fix_all()  # what was asked in one turn does not hold in another

    def canonical(self, expr: Any) -> Any:
        """A number or offset, in which the first index of a loop stands for all others.

        What an operation gives, but where it lies, has one form for all: a condition on the first
        is one on all others.
        """
        return expr.xreplace(self._first) if self._first else expr

    def counts(self, fakes: Sequence[Any]) -> bool:
        """Whether sizes or strides follow from an index."""
        indices = {*self._first, *self._first.values()}
        return any(
            isinstance(n, torch.SymInt) and n.node.expr.free_symbols & indices
            for fake in fakes
            if indices
            for n in (*fake.shape, *fake.stride())
        )

    def ended(self, loop: Loop) -> bool:
        """After the run: whether nothing else is known of the indices of a loop than it may be."""
        symbols = {self._values[v][0] for v in loop.indices}
        return not any(guard.expr.free_symbols & symbols for guard, _ in self._guards())

    # ------------------------------------------------------------- numbers

    def _expr(self, a: Any) -> Any:
        import sympy

        return self._symbols.numbers[a.var].node.expr if isinstance(a, Ref) else sympy.Integer(a)

    def _number(self, loop: Loop, k: int) -> Any:
        """The index of a turn."""
        return self._expr(loop.args[0]) + loop.args[2] * k

    def _last(self, loop: Loop) -> Any:
        return self._expr(loop.args[1]) - loop.args[2]

    def _turns(self, loop: Loop) -> Any:
        return (self._expr(loop.args[1]) - self._expr(loop.args[0])) * loop.args[2]

    # ------------------------------------------------------------- conditions

    def _guards(self) -> list[tuple[Any, Any]]:
        guards = self._symbols.env.guards
        return list(zip(guards, guards.places, strict=True))

    def _holds(self, expr: Any) -> bool:
        """Whether a condition holds in the run."""
        if not expr.free_symbols:
            return bool(expr)
        return bool(self._symbols.env._maybe_evaluate_static(expr, compute_hint=True))

    def _replace(self, of: Any, found: Sequence[tuple[Any, Any, Any]]) -> None:
        """Puts conditions in place of those on some symbols."""
        kept = [(g, p) for g, p in self._guards() if not g.expr.free_symbols & of]
        made: dict[Any, tuple[Any, Any]] = {}
        for guard, place, expr in found:
            made.setdefault(expr, (guard._replace(expr=expr), place))
        guards = self._symbols.env.guards
        guards[:] = [g for g, _ in (*kept, *made.values())]
        guards.places[:] = [p for _, p in (*kept, *made.values())]

    def _without_offsets(self, loop: Loop) -> None:
        """What is made in a loop lies anywhere in its memory."""
        symbols = self._symbols
        indices = {self._values[v][0] for v in loop.indices}
        for var in loop.members:
            fake = symbols.fakes.get(var)
            offset = None if fake is None else fake.storage_offset()
            if isinstance(offset, torch.SymInt) and offset.node.expr.free_symbols & indices:
                symbols.note(var, symbols.made_like(fake))


def joined_turns(
    func: Callable[..., Any],
    parts: Sequence[Any],
    at: Sequence[int],
    turns: tuple[Any, Any, int, int],
    dim: int = 0,
) -> Any:
    """What `torch.stack` or `torch.cat` give for tensors of which some are made by each turn.

    Args:
        func: the operation.
        parts: the tensors; one for all that the turns make.
        at: the places of those.
        turns: start, stop and step of the range, and how many turns are not among them.
        dim: as of the operation.
    """
    start, stop, step, first = turns
    made = func(parts, dim)
    more = (stop - start) * step - first - 1
    sizes = list(made.shape)
    dim = dim % made.dim()
    for i in at:
        sizes[dim] = sizes[dim] + more * (1 if func is torch.stack else parts[i].shape[dim])
    joined = made.new_empty(sizes)
    return joined * made.sum() if made.requires_grad else joined


def joins_turns(loops: Sequence[Loop], func: Any, plan: tuple[Any, Any]) -> Any:
    """What says how large the result is of an operation that joins what all turns have made.

    Args:
        loops: the loops of the run.
        func: an operation.
        plan: its arguments as a step keeps them.

    Returns:
        A function and its arguments; None where it is no such operation.
    """
    if func not in _JOINS or not plan[0] or type(plan[0][0]) not in (list, tuple):
        return None
    for loop in reversed(loops):
        parts = loop.parts(plan[0][0])
        if parts is not None:
            first = {at: v for v, (k, at) in loop.members.items() if k == loop.first}
            given = [Ref(first[p]) if type(p) is tuple else p for p in parts]
            at = [i for i, p in enumerate(parts) if type(p) is tuple]
            turns = *loop.args, loop.first
            return joined_turns, ((func, given, at, turns, *plan[0][1:]), plan[1])
    return None


_JOINS = frozenset([torch.stack, torch.cat, torch.concat, torch.concatenate])


def _at_ends(expr: Any, symbol: Any, first: Any, last: Any) -> list[Any] | None:
    """What a condition on an index says of the first and the last; None if more is to be said.

    An inequality that is linear holds in between if it holds there.
    """
    if expr.is_Boolean and expr.func.__name__ == "And":
        parts = [_at_ends(e, symbol, first, last) for e in expr.args]
        return None if None in parts else [e for part in parts for e in part or ()]
    if symbol not in expr.free_symbols:
        return [expr]
    if not expr.is_Relational or expr.rel_op not in ("<", "<=", ">", ">="):
        return None
    rest = expr.args[0] - expr.args[1]
    factor = rest.coeff(symbol, 1)
    if not factor.is_Integer or symbol in (rest - factor * symbol).expand().free_symbols:
        return None
    return [expr.xreplace({symbol: end}).doit() for end in (first, last)]


def _in_each_turn(expr: Any, values: list[tuple[Any, Any]]) -> list[Any]:
    """What a condition says in each turn: that on the first index is one on all of them."""
    known = dict(values)
    of = expr.free_symbols & known.keys()
    if of == {values[0][0]}:
        return list(dict.fromkeys(expr.xreplace({values[0][0]: n}) for _, n in values))
    return [expr.xreplace(known)] if of else []


__all__ = ["Indices", "joined_turns", "joins_turns"]
