"""Drivers at work: a callable that cannot be captured whole runs in part.

Owns which lines of a refused callable stay Python, the compiled regions between them, and the
drivers of the functions that such lines call: a region that refuses is split at its line again, one
without tensor operations is left to Python.  Does not own how code is split
(magpy/instrument/regions.py) nor how a region is compiled (magpy/runtime/compiled.py, which calls
this).
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from magpy.errors import Refusal, Site
from magpy.instrument import regions
from magpy.objects.types import isinstance

#: How often a function is split again before its lines stay as they are.
_MOST_SPLITS = 24
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_GLOBAL_HOOKS = (
    *("_global_forward_hooks", "_global_forward_pre_hooks"),
    *("_global_backward_hooks", "_global_backward_pre_hooks"),
)
_MODULE_CALLS = frozenset(
    (f.__code__.co_filename, f.__code__.co_firstlineno, f.__code__.co_name)
    for f in (torch.nn.Module._wrapped_call_impl, torch.nn.Module._call_impl)
)
_Key = tuple[str, int, str]
_Compile = Callable[[Any, "Driver", tuple[int, int]], Any]


def unwrapped(wrapped: Any) -> tuple[types.FunctionType, Any] | None:
    """The Python function that a callable runs first, and the object that it is given."""
    if isinstance(wrapped, types.FunctionType):
        return wrapped, None
    if isinstance(wrapped, types.MethodType):
        inner = wrapped.__func__
        return (inner, wrapped.__self__) if isinstance(inner, types.FunctionType) else None
    if isinstance(wrapped, torch.nn.Module):
        forward = type(wrapped).forward
        plain = type(wrapped).__call__ is torch.nn.Module.__call__
        if plain and isinstance(forward, types.FunctionType) and not _hooked(wrapped):
            return forward, wrapped
    return None


def _hooked(module: torch.nn.Module) -> bool:
    """Whether a call of a module runs more than its class's `forward`."""
    own = vars(module)
    return (
        "forward" in own
        or own.get("_compiled_call_impl") is not None
        or any(own.get(n) for n in _HOOKS)
        or any(getattr(torch.nn.modules.module, n) for n in _GLOBAL_HOOKS)
    )


def _key(code: types.CodeType) -> _Key:
    return code.co_filename, code.co_firstlineno, code.co_name


class Driver:
    """The driver of one function.

    Args:
        function: the function.
        compile_region: makes a compiled callable of a region's function; it is given this driver
            and the region's lines, too.
    """

    def __init__(self, function: types.FunctionType, compile_region: _Compile) -> None:
        """Nothing is known yet."""
        self.function = function
        self._compile = compile_region
        self._plan = regions.Plan()
        self._known: dict[Any, Any] = {}
        self._splits = 0
        self.why = ""
        #: What was refused in functions that this one calls, by function: frames from there on.
        self._below: dict[_Key, list[list[Site]]] = {}
        self._drivers: dict[_Key, Driver | None] = {}
        #: The compiled regions, in the order of the source.
        self.compiled: list[Any] = []
        self.run: types.FunctionType | None = None

    def learn(self, refusal: Refusal, lines: tuple[int, int] | None = None) -> bool:
        """Leaves to Python what was refused.

        Args:
            refusal: what was refused, within this function or a region of it.
            lines: of the region; its statements stay where the refusal names no line.

        Returns:
            Whether anything of the function is compiled then.
        """
        chain = self._chain(refusal)
        if not chain:
            if lines is None:
                return False
            self._plan.lines.append(lines)
        else:
            self._add(chain)
        return self.split()

    def _chain(self, refusal: Refusal) -> list[Site]:
        """The frames of a refusal from this function's on, without those of module calls."""
        key = _key(self.function.__code__)
        frames = [s for s in reversed(refusal.frames) if s.key not in _MODULE_CALLS]
        while frames and frames[0].key != key:
            frames.pop(0)
        if frames:
            return frames
        file, _, rest = refusal.where.rpartition(":")
        number, _, name = rest.partition(" (")
        if file == key[0] and name == f"{key[2]})" and number.isdigit():
            return [Site(key, (int(number), int(number), -1, -1))]
        return []

    def _add(self, chain: Sequence[Site]) -> None:
        here, *below = chain
        plan = self._plan
        if below and not below[0].key[2].startswith("<") and here.spot[2] >= 0:
            if here.spot not in plan.calls:
                plan.calls.append(here.spot)
            known = self._below.setdefault(below[0].key, [])
            known.append(list(below))
            driver = self._drivers.get(below[0].key)
            if driver is not None:
                driver._add(below)
                driver.split()
        elif here.spot[2] >= 0:
            plan.alone.append(here.spot)
        else:
            plan.lines.append((here.spot[0], here.spot[1]))

    def vary(self, names: set[str]) -> bool:
        """Leaves to Python what is computed with locals that differ in every call alone."""
        if names <= self._plan.varying:
            return False
        self._plan.varying |= names
        return self.split()

    def leave(self, lines: tuple[int, int]) -> bool:
        """Leaves lines to Python."""
        self._plan.lines.append(lines)
        return self.split()

    def split(self) -> bool:
        """Splits the function anew; whether anything of it is compiled then."""
        self._splits += 1
        if self._splits > _MOST_SPLITS:
            return self.run is not None
        self.compiled = []
        try:
            made = regions.split(self.function, self._plan)
        except regions.CannotSplit as e:
            self.run, self.why = None, str(e)
            return False
        self.run = regions.driver(
            self.function, made, lambda name, f: self._region(made.regions[name], f), self._caller
        )
        return True

    def _region(self, region: regions.Region, function: types.FunctionType) -> Any:
        key = (region.lines, region.reads, region.gives, region.code)
        if key not in self._known:
            self._known[key] = self._compile(function, self, region.lines)
        self.compiled.append(self._known[key])
        return self._known[key]

    def _caller(self, spot: regions.Spot) -> Callable[..., Any]:
        def call(magpy_calls: Any, /, *args: Any, **kwargs: Any) -> Any:
            """Calls a function by its driver."""
            found = unwrapped(magpy_calls)
            if found is None:
                return magpy_calls(*args, **kwargs)
            run = self._run_of(found[0])
            if run is None:
                return magpy_calls(*args, **kwargs)
            return run(*args, **kwargs) if found[1] is None else run(found[1], *args, **kwargs)

        return call

    def _run_of(self, function: types.FunctionType) -> types.FunctionType | None:
        key = _key(function.__code__)
        if key not in self._below:
            return None
        if key not in self._drivers:
            driver = Driver(function, self._compile)
            for chain in self._below[key]:
                driver._add(chain)
            self._drivers[key] = driver if driver.split() else None
        made = self._drivers[key]
        if made is None or made.run is None:
            return None
        same = made.function.__code__ is function.__code__ and (
            made.function.__closure__ == function.__closure__
            and made.function.__defaults__ == function.__defaults__
            and made.function.__kwdefaults__ == function.__kwdefaults__
        )
        return made.run if same else None

    def all_compiled(self) -> list[Any]:
        """The compiled regions, those of functions below among them."""
        found = list(self.compiled)
        for d in self._drivers.values():
            found += d.all_compiled() if d is not None else []
        return found

    def all_made(self) -> list[Any]:
        """The compiled regions that there ever were, those of functions below among them."""
        found = list(self._known.values())
        for d in self._drivers.values():
            found += d.all_made() if d is not None else []
        return found
