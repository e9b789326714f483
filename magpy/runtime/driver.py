"""Drivers at work: a callable that cannot be captured whole runs in part.

Owns which lines of a refused callable stay Python, and the compiled regions between them: a region
that refuses is split at its line again, one without tensor operations is left to Python.  Does not
own how code is split (magpy/instrument/regions.py) nor how a region is compiled
(magpy/runtime/compiled.py, which calls this).
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from magpy.errors import Refusal
from magpy.instrument import regions
from magpy.objects.types import isinstance

#: How often a callable is split again before its lines stay as they are.
_MOST_SPLITS = 24
_HOOKS = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
)
_GLOBAL_HOOKS = (
    *("_global_forward_hooks", "_global_forward_pre_hooks"),
    *("_global_backward_hooks", "_global_backward_pre_hooks"),
)


def _unwrapped(wrapped: Any) -> tuple[types.FunctionType, Any] | None:
    """The Python function that a callable runs first, and the object that it is given."""
    if isinstance(wrapped, types.FunctionType):
        return wrapped, None
    if isinstance(wrapped, types.MethodType):
        inner = wrapped.__func__
        return (inner, wrapped.__self__) if isinstance(inner, types.FunctionType) else None
    if isinstance(wrapped, torch.nn.Module):
        forward = type(wrapped).forward
        plain = type(wrapped).__call__ is torch.nn.Module.__call__
        if plain and isinstance(forward, types.FunctionType) and "forward" not in vars(wrapped):
            return forward, wrapped
    return None


class Driver:
    """The driver of one compiled callable.

    Args:
        wrapped: the callable.
        compile_region: makes a compiled callable of a region's function; it is given this driver
            and the region's lines, too.
    """

    def __init__(self, wrapped: Any, compile_region: Callable[[Any, Driver, Any], Any]) -> None:
        """Nothing is known yet.

        Raises:
            regions.CannotSplit: the callable is none that can be split.
        """
        found = _unwrapped(wrapped)
        if found is None:
            raise regions.CannotSplit("it is no Python function")
        self._function, self._owner = found
        self._module = isinstance(wrapped, torch.nn.Module)
        self._compile = compile_region
        self._alone: list[tuple[int, int]] = []
        self._known: dict[Any, Any] = {}
        self._splits = 0
        #: The regions' compiled callables, in the order of the source.
        self.compiled: list[Any] = []
        self.run: Callable[..., Any] | None = None

    def line_of(self, refusal: Refusal) -> int | None:
        """The line of the callable that a refusal is about."""
        code = self._function.__code__
        key = (code.co_filename, code.co_firstlineno, code.co_name)
        lines = [line for *frame, line in refusal.frames if tuple(frame) == key]
        if lines:
            return int(lines[-1])
        file, _, rest = refusal.where.rpartition(":")
        number, _, name = rest.partition(" (")
        if file == code.co_filename and name == f"{code.co_name})" and number.isdigit():
            return int(number)
        return None

    def leave(self, first: int, last: int) -> bool:
        """Leaves lines to Python; whether anything is compiled then."""
        if (first, last) not in self._alone:
            self._alone.append((first, last))
        self._splits += 1
        if self._splits > _MOST_SPLITS:
            return self.run is not None
        try:
            made = regions.split(self._function, self._alone)
        except regions.CannotSplit:
            self.run, self.compiled = None, []
            raise
        self.compiled = []

        def make(name: str, function: types.FunctionType) -> Any:
            region = made.regions[name]
            key = (region.lines, region.reads, region.gives, region.code.co_code)
            if key not in self._known:
                self._known[key] = self._compile(function, self, region.lines)
            self.compiled.append(self._known[key])
            return self._known[key]

        new = regions.driver(self._function, made, make)
        self.run = new if self._owner is None else types.MethodType(new, self._owner)
        return True

    def serves(self) -> bool:
        """Whether the callable may run in part now."""
        if self.run is None:
            return False
        if not self._module:
            return True
        own = vars(self._owner)
        if any(own.get(n) for n in _HOOKS) or "forward" in own:
            return False
        return not any(getattr(torch.nn.modules.module, n) for n in _GLOBAL_HOOKS)
