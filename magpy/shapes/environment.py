"""The environment of symbols: what is asked of sizes, and which questions become conditions.

Owns that a size may be 1 as long as that makes no difference, so that a batch of 1 is served by
what was captured for larger ones: for which operations it makes none, and how their questions are
answered.  Does not own the symbols, nor the fake tensors (magpy/shapes/symbols.py, the only
caller).
Source: `backed_size_oblivious` of torch.fx.experimental, which is so for all operations.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any

import torch

from magpy.models.torch_ops import BOUNDED, CONVOLUTIONS, FOR_ANY_SIZE, MAY_SHARE, operation_name
from magpy.objects.types import isinstance
from magpy.shapes.repeated import in_transform

#: The least size that is larger than 1.
LEAST = 2
_is_alias_of: Any = torch._C._is_alias_of  # type: ignore[attr-defined]


@functools.cache
def environment() -> Any:
    """The class of the environments, for which torch imports a lot."""
    import sympy  # type: ignore[import-untyped]
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    class Environment(ShapeEnv):  # type: ignore[misc, unused-ignore]
        """An environment in which sizes may be 1, until it is asked whether they are."""

        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.any_size = self.bounded = False
            self.of_kernels: frozenset[Any] = frozenset()
            #: The symbols for sizes.
            self.sizes: set[Any] = set()

        def create_size(self, value: int, source: Any, dim: Any) -> Any:
            """A symbol for a size of at least 1."""
            symbol = self.create_symbol(value, source, dim, do_not_specialize_zero_one=True)
            self.var_to_range[symbol] = ValueRanges(1, int_oo)
            self.sizes.add(symbol)
            return symbol

        def evaluate_expr(self, orig_expr: Any, *args: Any, **kwargs: Any) -> Any:
            """What an expression is, which becomes a condition if several values are possible."""
            if self.any_size and _asks_for_ones(orig_expr, self.bounded):
                found = self._of_larger(orig_expr)
                if found is not None:
                    return found
            chooses = self.of_kernels and orig_expr.free_symbols <= self.of_kernels
            if chooses or (self.any_size and _asks_for_work(orig_expr)):
                found = self._maybe_evaluate_static(orig_expr, compute_hint=True)
                if found is not None:
                    return found
            return super().evaluate_expr(orig_expr, *args, **kwargs)

        def _of_larger(self, expr: Any) -> Any:
            """What an expression is for sizes larger than 1; None if that is open."""
            ranges, larger = self.var_to_range, ValueRanges(LEAST, int_oo)
            found = tuple(
                (s, ranges[s] & larger if s in self.sizes else ranges[s])
                for s in expr.free_symbols & ranges.keys()
            )
            return self._maybe_evaluate_static(expr, var_to_range=found)

        def keep_positive(self, size: Any) -> None:
            """Makes it a condition that a size is not 0, as it is not for sizes larger than 1."""
            expr = size.node.expr
            if expr.is_Symbol or not expr.has(sympy.Add, sympy.Function):
                return
            some = sympy.Gt(expr, 0)
            if self._maybe_evaluate_static(some) is None and self._of_larger(some) is not None:
                bool(size > 0)

    return Environment


def _symbols_of(sizes: Iterable[Any]) -> frozenset[Any]:
    found = (n.node.expr.free_symbols for n in sizes if isinstance(n, torch.SymInt))
    return frozenset().union(*found)


def _normalizes_any(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operation normalizes channels, and does not raise where there is one value."""
    if name == "batch_norm":
        return not any(args[5:6]) and not kwargs.get("training")
    if name != "group_norm" or len(args) < 2:
        return False
    channels, groups = args[0].shape[1], args[1]
    return type(channels) is type(groups) is int and channels > groups


def _asks_for_ones(expr: Any, bounded: bool) -> bool:
    """Whether an expression only compares sizes and their products with each other.

    What is less than a size (`x[1:]`) may be nothing where that is 1.
    """
    import sympy

    relations = expr.atoms(sympy.core.relational.Relational)
    return not expr.has(sympy.Add) and all(
        not bounded or (relation.rel_op in ("==", "!=") and not relation.has(sympy.Function))
        for relation in relations
    )


#: An image of more elements is convolved by oneDNN, one of fewer by ATen, with one layout.
#: Source: `use_mkldnn` in aten/src/ATen/native/Convolution.cpp.
_WORTH_ONEDNN = 20480


def _asks_for_work(expr: Any) -> bool:
    """Whether an expression asks which kernel of a convolution is the faster one."""
    return bool(expr.is_Relational and _WORTH_ONEDNN in expr.args)


def is_not_one(condition: Any, sizes: Container[Any]) -> bool:
    """Whether a condition says of a size that it is not 1 (`s > 1`, `s - 1 > 0`, `2*s != 2`)."""
    if not condition.is_Relational or len(condition.free_symbols) != 1:
        return False
    (size,) = condition.free_symbols
    a, b = condition.args
    # As `factor * size + rest`, compared with 0.
    factor, rest = (a - b).coeff(size, 1), (a - b).coeff(size, 0)
    if size not in sizes or not factor.is_Integer or a - b != factor * size + rest:
        return False
    rel = condition.rel_op if factor > 0 else condition.reversed.rel_op
    return (rel, -rest / factor) in (("!=", 1), (">", 1), (">=", LEAST))


@contextlib.contextmanager
def any_size(
    env: Any, *, bounded: bool = False, of_kernels: frozenset[Any] = frozenset()
) -> Iterator[None]:
    """Where it is asked whether a size is 1, it is none, and that becomes no condition.

    Args:
        env: the environment of the symbols.
        bounded: it may be asked whether a size is too small, which becomes one.
        of_kernels: symbols that only the choice of a kernel goes by.
    """
    env.any_size, env.bounded, env.of_kernels = True, bounded, of_kernels
    try:
        yield
    finally:
        env.any_size, env.of_kernels = False, frozenset()


def operated(env: Any, func: Any, args: Any, kwargs: Any, none_is_one: Callable[[], object]) -> Any:
    """Does an operation with fake tensors, which asks for sizes of 1 only if that matters.

    What gives new memory, and views of which the argument may be one, give the same for a size
    of 1 as for others. Where a copy is made, that may be a view for a size of 1. Of all other
    operations nobody has said so.
    """
    name = operation_name(func)
    if "memory_format" not in kwargs:
        if name in FOR_ANY_SIZE or _normalizes_any(name, args, kwargs):
            with any_size(env):
                return func(*args, **kwargs)
        if name in BOUNDED:
            with any_size(env, bounded=True):
                return func(*args, **kwargs)
        if name in CONVOLUTIONS and args:
            with any_size(env, bounded=True, of_kernels=_symbols_of(args[0].shape[:1])):
                return func(*args, **kwargs)
        if name in MAY_SHARE and args and not in_transform():
            with any_size(env):
                result = func(*args, **kwargs)
            if _is_alias_of(result, args[0]):
                return result
            # The tensor keeps how it lies for sizes larger than 1: a new one is asked.
            whole = args[0].as_strided(args[0].size(), args[0].stride())
            return func(whole, *args[1:], **kwargs)
    none_is_one()
    return func(*args, **kwargs)


__all__ = ["LEAST", "any_size", "environment", "is_not_one", "operated"]
