"""Drivers at work: a callable that cannot be captured whole runs in part.

Owns which lines of a refused callable stay Python, the compiled regions between them, and the
drivers of the functions that such lines call: a region that refuses is split at its line again, one
without tensor operations is left to Python.  Does not own how code is split
(magpy/instrument/regions.py) and written (magpy/instrument/driver_code.py) nor how a region is
compiled (magpy/runtime/compiled.py, which calls this).
"""

from __future__ import annotations

import collections
import functools
import inspect
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils.checkpoint

from magpy import _interp
from magpy.errors import NO_TENSORS, Refusal, Site
from magpy.instrument import driver_code, regions
from magpy.models.callables import is_whole
from magpy.objects.types import isinstance
from magpy.runtime.blocks import Blocks
from magpy.runtime.hooks import Hooks, makes_pass, registered, registers, stepped

#: How often a function is split again before its lines stay as they are.
_MOST_SPLITS = 24
#: A condition that is refused once leaves its truth to Python, and twice itself.
_MOST_TIMES = 2
#: A region in which one place is refused for one reason once more is left to Python.
_MOST_REFUSED = 6
#: A function that was driven so often since it was split last, and did no work in a graph, runs as
#: it is.
_MOST_WITHOUT_WORK = 32
#: Functions of these modules compute little with tensors themselves: what calls a module's
#: `forward` and hooks, what asks whether a compiler is at work, and what shards a model and sums
#: its gradients, which tells C++ of each step.
_GLUE = frozenset(
    [
        *("torch.nn.modules.module", "torch.utils.hooks", "torch.autograd.function"),
        *("torch.compiler", "torch._dynamo.eval_frame", "torch.fx.graph_module"),
    ]
)
_GLUE_PACKAGES = ("torch.distributed.", "torch.nn.parallel.", "torch._functorch.")
#: Python functions of these modules are operations, as a capture sees them.
_OPERATIONS = (
    "torch._tensor",
    "torch.overrides",
    "torch.autograd",
    "torch.nested",
    "torch.utils._device",  # takes modes off torch's stack, a region's among them
)
#: Nobody watches what functions of these modules do (magpy/capture/python/native.py): they have no
#: regions, and what they call has none.
_UNWATCHED = (
    *("torch.fx", "torch._dynamo", "torch._inductor", "torch._subclasses", "torch.testing"),
    *("torch.overrides", "torch.utils._device", "torch.autograd.profiler"),
)
#: Functions of these modules, which read and write files and logs, run as they are, with all that
#: they call.
_STORING = (
    "torch.serialization",
    "torch._weights_only_unpickler",
    "torch.utils.tensorboard",
    "torch.distributed.checkpoint",
)
_LBFGS_STEP = inspect.unwrap(torch.optim.LBFGS.step)
_Key = tuple[str, int, str]
_Compile = Callable[[Any, "Driver", regions.Region], Any]


def unwrapped(wrapped: Any) -> tuple[types.FunctionType, Any] | None:
    """The Python function that a callable runs first, and the object that it is given."""
    if type(wrapped) is types.FunctionType:
        return wrapped, None
    if type(wrapped) is types.MethodType:
        inner = wrapped.__func__
        return (inner, wrapped.__self__) if type(inner) is types.FunctionType else None
    # Of modules: Module._wrapped_call_impl.  A static method is given no object.
    called: Any = _interp.type_lookup(type(wrapped), "__call__")
    return (called, wrapped) if type(called) is types.FunctionType else None


def argument_names(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """The parameters that the arguments of a call are bound to; "" for those of `*args`."""
    found = unwrapped(compiled._magpy_wrapped)
    if found is None:
        return [""] * (len(args) + len(kwargs))
    code, bound = found[0].__code__, found[1] is not None
    names = code.co_varnames[bound : code.co_argcount]
    return [*(names[i] if i < len(names) else "" for i in range(len(args))), *kwargs]


def bound(function: types.FunctionType, owner: Any) -> Any:
    """A function, or the method of an object, unless that is None."""
    return function if owner is None else types.MethodType(function, owner)


def _key(code: types.CodeType) -> _Key:
    return code.co_filename, code.co_firstlineno, code.co_name


@dataclass(slots=True)
class Lines:
    """What of a function stays Python, whoever calls it.

    Attributes:
        plan: its places.
        version: how often something was added that may make other regions.
        left: how often a region was left to Python, which leaves the others as they are.
        reasons: why, by the first line of the place.
        idle: of a region, by its places, how many captures had no tensor operation; -1 where one
            had some.
        refused: how often a place was refused for a reason.
    """

    plan: regions.Plan = field(default_factory=regions.Plan)
    version: int = 0
    left: int = 0
    reasons: dict[int, str] = field(default_factory=dict)
    idle: collections.Counter[Any] = field(default_factory=collections.Counter)
    refused: collections.Counter[Any] = field(default_factory=collections.Counter)


class Drivers:
    """The drivers of all functions that run in the calls of one compiled callable.

    Args:
        compile_region: makes a compiled callable of a region's function; it is given the driver
            and the region, too.
        changed: is called when the lines have changed.
        blocks: the blocks that these functions give to checkpoints.
    """

    def __init__(
        self, compile_region: _Compile, changed: Callable[[], None], blocks: Blocks
    ) -> None:
        """Nothing is known yet."""
        self.compile, self.refresh, self.blocks = compile_region, changed, blocks
        self.hooks = Hooks(blocks, self.differentiated_again)
        #: All regions that were ever compiled.
        self.made: list[Any] = []
        #: What regions give may be differentiated so that the derivatives can be.
        self.again = False
        #: Where calls found other values: the addresses of holders, with keys.
        self.differed: set[tuple[int, Any]] = set()
        #: What users were warned of.
        self.warned: set[str] = set()
        self.lines: dict[_Key, Lines] = {}
        self._drivers: dict[tuple[_Key, int], Driver] = {}

    def differentiated_again(self) -> None:
        """What a region has given is differentiated so that the derivatives can be."""
        if not self.again:
            self.again = True
            for made in self.made:  # compilers' graphs have no second derivatives
                made._magpy_entries = []
                if made._magpy_options.family is not None:
                    made._magpy_options.family.leave(made._magpy_wrapped)

    def learn(self, frames: list[Site], reason: str, drives: bool = False) -> None:
        """Leaves a place to Python.

        Args:
            frames: where it is: the frames from the outermost function that may have a driver on.
            reason: why, in the user's words.
            drives: as of a `Refusal`.
        """
        while frames:
            here, *frames = frames
            lines = self.lines.setdefault(here.key, Lines())
            plan, before = lines.plan, _size(lines.plan)
            if frames and here.encloses:
                # Source of this function that runs in a frame of its own, and stays Python.
                inner, *rest = frames
                if plan.alone.count(here.spot) < _MOST_TIMES:
                    plan.alone.append(here.spot)
                if rest and inner.spot[2] >= 0:
                    plan.calls.append(inner.spot)
                frames = rest
            elif frames and here.spot[2] >= 0:
                if here.spot not in plan.calls:
                    plan.calls.append(here.spot)
            elif here.spot[2] >= 0:
                if plan.alone.count(here.spot) < _MOST_TIMES:
                    plan.alone.append(here.spot)
                if drives and here.spot not in plan.calls:
                    plan.calls.append(here.spot)
            else:
                plan.lines.append((here.spot[0], here.spot[1]))
            if not frames:
                lines.reasons.setdefault(here.spot[0], reason)
            lines.version += _size(plan) != before
        self.refresh()

    def changed(self, lines: Lines) -> None:
        """Something was added to the lines of a function."""
        lines.version += 1
        self.refresh()

    def of(self, function: types.FunctionType, owner: Any) -> Driver:
        """The driver of a function; modules have drivers of their own for their methods."""
        key = _key(function.__code__)
        alone = isinstance(owner, torch.nn.Module)
        place = key, id(owner) if alone else 0
        made = self._drivers.get(place)
        if made is None:
            lines = self.lines.setdefault(key, Lines())
            made = self._drivers[place] = Driver(function, lines, self)
            if alone:
                weakref.finalize(owner, _drop, weakref.ref(self), place).atexit = False
        return made

    def call(self, caller: weakref.ref[Driver], f: Any) -> Any:
        """What is called in place of `f`, which the driver `caller` is about to call."""
        instead = self._instead(caller, f)
        if instead is not None:
            _works(caller)
            return instead
        if type(f) is functools.partial:
            inner = self.call(caller, f.func)
            return f if inner is f.func else functools.partial(inner, *f.args, **f.keywords)
        found = unwrapped(f)
        if found is None:
            return f
        function, owner = found
        module = str(function.__globals__.get("__name__"))
        if module.startswith(_STORING) or (module.startswith(_UNWATCHED) and module not in _GLUE):
            return f
        known = _key(function.__code__) in self.lines and not _is_nested(function)
        if not known and not _may_drive(function):
            return f
        if owner is None and _is_made_in_calls(function):
            self.lines.setdefault(_key(function.__code__), Lines()).plan.closures = True
        driver = self.of(function, owner)
        run = None if driver.is_idle() else driver.run_of(function)
        if run is None:
            return f
        _works(caller, driver)
        return bound(run, owner)

    def _instead(self, caller: weakref.ref[Driver], f: Any) -> Any:
        """What is called in place of a function of torch's that calls what it is given; or None."""
        if f is torch.utils.checkpoint.checkpoint:
            return self.blocks.checkpoint
        if makes_pass(f):
            return functools.partial(self.hooks.run_pass, f)
        if registers(f):
            return functools.partial(registered, functools.partial(self.call, caller), f)
        if f is _LBFGS_STEP:
            return functools.partial(stepped, functools.partial(self.call, caller), f)
        return None

    def compiled(self) -> Iterator[Any]:
        """The compiled regions."""
        for d in list(self._drivers.values()):
            yield from d.compiled


def _drop(drivers: weakref.ref[Drivers], place: tuple[_Key, int]) -> None:
    """A module is gone, whose driver was at a place."""
    found = drivers()  # which would hold the module for as long as this were registered
    if found is not None:
        found._drivers.pop(place, None)


def _works(caller: weakref.ref[Driver], callee: Driver | None = None) -> None:
    """A driver calls what may run graphs: the driver of a function, or what is not known here."""
    driver = caller()
    if driver is None:
        return
    if callee is None:
        driver.works = True
    elif not driver.works:
        driver.callees.add(callee)


def _is_nested(function: types.FunctionType) -> bool:
    """Whether a function is one of nested tensors, in which nothing can be compiled."""
    return str(function.__globals__.get("__name__")).startswith("torch.nested")


def _may_drive(function: types.FunctionType) -> bool:
    """Whether a function that a refused line calls may compute with tensors."""
    module = str(function.__globals__.get("__name__"))
    package = module.partition(".")[0]
    if package in NO_TENSORS or package == "magpy" or module.startswith(_OPERATIONS):
        return False
    return not is_whole(function.__code__)


def _is_made_in_calls(function: types.FunctionType) -> bool:
    """Whether a function has cells, and no name by which the next call would find the same."""
    return bool(function.__closure__) and (
        function.__globals__.get(function.__name__) is not function
    )


def _same_objects(a: Any, b: Any) -> bool:
    """Whether two tuples, dicts or None hold the same objects: equal ones may be other tensors."""
    if a is None or b is None or len(a) != len(b):
        return a is b
    if type(a) is dict:
        return list(a) == list(b) and _same_objects(tuple(a.values()), tuple(b.values()))
    return all(x is y for x, y in zip(a, b, strict=True))


def _size(plan: regions.Plan) -> int:
    return len(plan.alone) + len(plan.calls) + len(plan.lines)


def _itself(f: Any) -> Any:
    return f


class _Calls(functools.partial[Any]):
    """`Drivers.call` of one driver.

    A lambda that the driver makes has it in its closure. Where such a lambda is pickled and loaded,
    its calls run as they are.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial, (_itself,)


class Driver:
    """The driver of one function.

    Args:
        function: the function.
        lines: what of it stays Python.
        drivers: those of the functions that it calls.
    """

    def __init__(self, function: types.FunctionType, lines: Lines, drivers: Drivers) -> None:
        """Nothing is split yet."""
        self.function = function
        self.lines = lines
        self.drivers = drivers
        self._version, self._left, self._code = -1, 0, function.__code__
        self._known: dict[Any, Any] = {}
        self._before: dict[Any, Any] = {}
        self._splits = 0
        self._without_cells = False
        self.why = ""
        #: The compiled regions, in the order of the source.
        self.compiled: list[Any] = []
        self._run: Any = None
        self._splitting = threading.RLock()
        #: The drivers of what it has called since it was split last.
        self.callees: weakref.WeakSet[Driver] = weakref.WeakSet()
        #: It runs graphs, or calls what may.
        self.works = False
        self._idle = False
        self._calls, self._look_at = 0, _MOST_WITHOUT_WORK

    def learn(self, refusal: Refusal, region: regions.Region | None = None) -> bool:
        """Leaves to Python what was refused.

        Args:
            refusal: what was refused, within this function or a region of it.
            region: that region; None for the whole function.

        Returns:
            Whether anything was learnt.
        """
        frames = self._frames(refusal)
        told = refusal.where, refusal.reason
        self.lines.refused[told] += 1
        if region is not None and self.lines.refused[told] > _MOST_REFUSED:
            # What else was learnt has not helped.
            self.leave(region, refusal.reason)
            return True
        if frames:
            before = [lines.version for lines in self.drivers.lines.values()]
            self.drivers.learn(frames, refusal.reason, refusal.drives)
            for other in refusal.more:
                if not other.first_time:
                    self.drivers.learn(self._frames(other), other.reason, other.drives)
            if before != [lines.version for lines in self.drivers.lines.values()]:
                return True
        return self.separate(region, refusal.reason)

    def separate(self, region: regions.Region | None, reason: str) -> bool:
        """Makes regions of single statements where nobody knows which one is to blame.

        Args:
            region: what is to blame; the whole function if None.
            reason: why.  Of a region of one statement, the functions that it calls get drivers;
                if they have, it is left to Python.

        Returns:
            Whether anything changes by that.
        """
        plan = self.lines.plan
        if region is None:
            code = self.function.__code__
            within = code.co_firstlineno, max(n or 0 for *_, n in code.co_lines())
            if within in plan.apart:
                return False
        else:
            within = region.lines
        if not any(a <= within[0] and within[1] <= b for a, b in plan.apart):
            plan.apart.append(within)
        elif region is not None and not set(region.calls) <= set(plan.calls):
            plan.calls += set(region.calls) - set(plan.calls)
        elif region is not None:
            self.leave(region, reason)
        self.drivers.changed(self.lines)
        return True

    def _frames(self, refusal: Refusal) -> list[Site]:
        """The frames of a refusal from this function's on, the outermost first."""
        key = _key(self.function.__code__)
        frames = list(reversed(refusal.frames))
        while frames and frames[0].key != key:
            frames.pop(0)
        if frames:
            return frames
        file, _, rest = refusal.where.rpartition(":")
        number, _, name = rest.partition(" (")
        # The first line is that of a function which is refused for what its end has shown.
        if file == key[0] and name == f"{key[2]})" and number.isdigit() and int(number) != key[1]:
            return [Site(key, (int(number), int(number), -1, -1))]
        return []

    def vary(self, names: set[str]) -> bool:
        """Leaves to Python what is computed with locals that differ in every call alone.

        Args:
            names: the locals.

        Returns:
            Whether that changes what runs compiled.
        """
        plan = self.lines.plan
        if names <= plan.varying:
            return False
        before = plan.varying
        unlike = self._regions_of(plan)
        plan.varying = plan.varying | names
        if self._regions_of(plan) == unlike:
            plan.varying = before
            return False
        self.drivers.changed(self.lines)
        return True

    def _regions_of(self, plan: regions.Plan) -> list[Any]:
        """What tells the regions that a plan makes from those of another."""
        try:
            made = regions.split(self.function, plan)
        except regions.CannotSplit as e:
            return [str(e)]
        return [(r.places, r.reads, r.gives) for r in made.regions.values()]

    def leave(self, region: regions.Region, reason: str) -> None:
        """Leaves a region to Python."""
        plan = self.lines.plan
        if region.compound or set(region.places) <= set(plan.left):
            plan.lines.append(region.lines)
        else:
            plan.left += region.places
        if reason:
            self.lines.reasons.setdefault(region.lines[0], reason)
        self.lines.left += 1
        self.drivers.refresh()

    @property
    def is_stale(self) -> bool:
        """Whether the regions of the code that runs now are no longer those of the plan."""
        return self._version != self.lines.version

    @property
    def is_settled(self) -> bool:
        """Whether it is split no more, whatever is refused."""
        return self._splits > _MOST_SPLITS

    @property
    def run(self) -> Any:
        """A function like this one that runs it in part; None where that cannot be made."""
        with self._splitting:  # another thread waits for what this one makes
            left, code = self.lines.left, self.function.__code__
            if self.is_stale or self._left != left or self._code is not code:
                self._version, self._left, self._code = self.lines.version, left, code
                self._splits += 1
                if self._splits <= _MOST_SPLITS:
                    self._split()
            return self._run

    def is_idle(self) -> bool:
        """Whether the function is about to run as it is: in 32 calls it has run no graph.

        Nor has what it calls.  Logging, metrics and callbacks are Python with many calls, each of
        which would be asked for a driver of its own.
        """
        self._calls += 1
        if self._calls == self._look_at and not self.works:
            self.works = self._runs_graphs()
            self._idle = not self.works and self._calls_nothing_else({self})
            self._look_at *= 2
        return self._idle and not self.is_stale

    def _runs_graphs(self) -> bool:
        found = ((places, made) for (places, *_), made in self._known.items())
        return any(self.lines.idle[places] < 0 and not made._magpy_plain for places, made in found)

    def _calls_nothing_else(self, seen: set[Driver]) -> bool:
        for callee in set(self.callees) - seen:
            seen.add(callee)
            settled = callee._calls >= _MOST_WITHOUT_WORK and not callee.is_stale
            if callee._idle and settled:
                continue
            if not settled or callee.works or callee._runs_graphs():
                return False
            if not callee._calls_nothing_else(seen):
                return False
        return True

    def _split(self) -> None:
        self.callees = weakref.WeakSet()
        self.works = self._idle = False
        self._calls, self._look_at = 0, _MOST_WITHOUT_WORK
        self.compiled, self._before, self._known = [], self._known, {}
        home = str(self.function.__globals__.get("__name__"))
        self.lines.plan.glue = home in _GLUE or home.startswith(_GLUE_PACKAGES)
        try:
            made = regions.split(self.function, self.lines.plan)
        except regions.CannotSplit as e:
            self._run, self.why = None, str(e)
            return
        self._run = driver_code.driver(
            self.function,
            made,
            self._region,
            _Calls(self.drivers.call, weakref.ref(self)),
        )
        for old in self._before.values():
            # A driver that runs now may still call it; only its figures are kept.
            old._magpy_plain, old._magpy_entries = True, []
        self._before.clear()

    def run_of(self, function: types.FunctionType) -> Any:
        """`run`, for a function of the same code; None where that cannot run in part."""
        own, code = self.function, function.__code__
        # Equal code is a function's of a driver that was made again; to compare it takes long.
        if own.__code__ is not code and own.__code__ != code:
            return None
        if own.__globals__ is not function.__globals__:
            return None
        alike = _same_objects(own.__closure__, function.__closure__)
        if (self.lines.plan.closures or not alike) and not self._takes_cells(function):
            return None
        run = self.run
        if run is None or self._without_cells:
            return run and driver_code.with_cells(run, function)
        if function is own:
            run.__defaults__, run.__kwdefaults__ = own.__defaults__, own.__kwdefaults__
            return run
        if alike and (
            _same_objects(run.__defaults__, function.__defaults__)
            and _same_objects(run.__kwdefaults__, function.__kwdefaults__)
        ):
            return run
        return driver_code.with_cells(run, function)

    def _takes_cells(self, function: types.FunctionType) -> bool:
        """Whether the regions serve a function with other cells, which they do from now on."""
        code, own = function.__code__, self.function
        given = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
        kept = dict(zip(code.co_freevars, own.__closure__ or (), strict=True))
        if given.get("__class__") is not kept.get("__class__"):
            return False
        if not self.lines.plan.closures:
            self.lines.plan.closures = True
            self.drivers.changed(self.lines)
        if not self._without_cells:
            # The first of these functions may hold what dies with its call.
            cells = tuple(c if n == "__class__" else types.CellType() for n, c in kept.items())
            self.function = types.FunctionType(code, own.__globals__, closure=cells)
            self._without_cells, self._version = True, -1
        return True

    def _region(self, region: regions.Region, function: types.FunctionType) -> Any:
        key = (region.places, region.reads, region.gives, region.code)
        made = self._before.pop(key, None)
        if made is None:
            made = self.drivers.compile(function, self, region)
            self.drivers.made.append(made)
        self._known[key] = made
        self.compiled.append(made)
        return made
