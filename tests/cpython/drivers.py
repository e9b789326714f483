"""Runs every function of a module as a driver, cut at random statements and expressions.

Owns: the random plans, and how a module's functions become drivers: each definition, inner ones
too, gets one more decorator, which leaves the lines as they are. Does not own: which modules
(`worker.py` and tests/instrument/test_random_drivers.py, the callers). Needs no torch: a region is
called as the plain function that it is.
"""

from __future__ import annotations

import ast
import builtins
import importlib.machinery
import importlib.util
import itertools
import random
import sys
import types
import zlib
from collections import Counter
from typing import Any

from magpy import _interp
from magpy.instrument import driver_code, regions, source
from magpy.instrument.assignment import own_nodes
from magpy.instrument.hoisting import placed_at, spot_of

DECORATOR = "__drive__"  # of the definitions; a builtin while drivers are made
RAN = "__ran__"  # called by each region, likewise; C code, so that no frame is added


def with_decorators(text: str, file: str) -> ast.Module:
    """The tree of a module whose functions become drivers as they are defined."""
    tree = ast.parse(text, file)
    for n in ast.walk(tree):
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)):
            name = ast.Name(DECORATOR, ast.Load())
            n.decorator_list.append(ast.copy_location(name, n))
    return tree


def random_plan(definition: Any, chance: random.Random) -> regions.Plan:
    """A plan for a function: no cuts, few or many."""
    plan = regions.Plan()
    share = chance.choice([0.0, 0.02, 0.1, 0.3])
    for n in own_nodes(definition.body):
        spot = spot_of(n)
        if spot is None or chance.random() >= share:
            continue
        if isinstance(n, ast.stmt):
            plan.lines.append(spot[:2])
        elif isinstance(n, ast.Call) and chance.random() < 0.3:
            plan.calls.append(spot)
        else:
            plan.alone.append(spot)
    names = sorted({n.id for n in own_nodes(definition.body) if isinstance(n, ast.Name)})
    if names and chance.random() < 0.1:
        plan.varying.add(chance.choice(names))
    return plan


class Drivers:
    """Makes drivers of functions.

    Args:
        seed: of the random plans.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.counts: Counter[str] = Counter()
        #: What went wrong, by function.
        self.crashes: dict[str, str] = {}
        self._made: dict[types.CodeType, regions.Split | None] = {}
        self._files: dict[str, tuple[ast.Module, types.CodeType]] = {}
        self._ran = itertools.count()
        self._parsed = source._parsed
        self._compiled = driver_code.Writer.compiled

    def install(self) -> None:
        """From now on, what `compiled` gives defines drivers."""
        setattr(builtins, DECORATOR, self.drive)
        setattr(builtins, RAN, self._ran.__next__)
        source._parsed = self._of_file  # type: ignore[assignment]
        driver_code.Writer.compiled = _counted(self._compiled)  # type: ignore[method-assign]

    def remove(self) -> None:
        """Undoes `install`."""
        delattr(builtins, DECORATOR)
        delattr(builtins, RAN)
        source._parsed = self._parsed
        driver_code.Writer.compiled = self._compiled  # type: ignore[method-assign]
        self.counts["regions run"] = next(self._ran)

    def _of_file(self, file: str, text: str) -> tuple[ast.Module, types.CodeType]:
        return self._files.get(file) or self._parsed(file, text)

    def compiled(self, text: str, file: str) -> types.CodeType:
        """The code of a module whose functions become drivers as they are defined."""
        tree = with_decorators(text, file)
        code = compile(tree, file, "exec", dont_inherit=True, optimize=-1)
        self._files[file] = tree, code
        return code

    def load(self, name: str) -> None:
        """Imports a module, with drivers."""
        spec = importlib.util.find_spec(name)
        assert spec is not None
        loader = spec.loader
        assert isinstance(loader, importlib.machinery.SourceFileLoader)
        loader.get_code = lambda name: self.compiled(loader.get_source(name) or "", loader.path)  # type: ignore[method-assign]
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        loader.exec_module(module)
        parent, _, last = name.rpartition(".")
        setattr(sys.modules[parent], last, module)

    def drive(self, function: Any) -> Any:
        """The driver of a function, or the function where it has none."""
        made = self._split(function)
        if made is None:
            return function
        driver = driver_code.driver(function, made, self._region, _as_it_is)
        driver.__dict__.update(function.__dict__)
        driver.__doc__ = function.__doc__
        driver.__annotations__ = function.__annotations__
        if hasattr(function, "__type_params__"):
            driver.__type_params__ = function.__type_params__  # type: ignore[attr-defined]
        return driver

    def _region(self, region: regions.Region, function: types.FunctionType) -> Any:
        """What a driver calls: three of four are served, and the driver runs the others itself."""
        chance = zlib.crc32(f"{self.seed}:{region.lines}:{function.__qualname__}".encode())
        return function if chance % 4 else _missed

    def _split(self, function: types.FunctionType) -> regions.Split | None:
        code = function.__code__
        if code not in self._made:
            self._made[code] = None
            name = f"{code.co_qualname}:{code.co_firstlineno}"
            self.counts["functions"] += 1
            try:
                chance = random.Random(zlib.crc32(f"{self.seed}:{name}".encode()))
                made = regions.split(function, random_plan(source.find(code)[0][-1], chance))
                self._made[code] = made
                self.counts["split"] += 1
                self.counts["regions"] += len(made.regions)
            except regions.CannotSplit as e:
                self.counts[f"not split: {e}"] += 1
            except Exception as e:  # noqa: BLE001 - whatever it is, the splitter must not raise it
                self.crashes[name] = f"{type(e).__name__}: {e}"
        return self._made[code]


def _counted(compiled: Any) -> Any:
    """The method that compiles a part of a function, with a call of `__ran__` in each region."""

    def with_call(self: Any, body: list[ast.stmt], *args: Any, driver: bool) -> types.CodeType:
        if not driver:
            call = ast.Expr(ast.Call(ast.Name(RAN, ast.Load()), [], []))
            body = [placed_at(call, body[0]), *body]
        code: types.CodeType = compiled(self, body, *args, driver=driver)
        return code

    return with_call


def _missed(*args: Any) -> Any:
    """A region that no entry serves."""
    return _interp.MISS


def _as_it_is(f: Any) -> Any:
    """What a driver calls for a function that has no driver of its own."""
    return f
