"""The code of drivers and regions, written from the statements of a function.

Owns the code of a region and of what calls it, of the driver around them, and the functions that
are made of both.  Does not own which statements a region has, what it reads and gives back
(magpy/instrument/regions.py, which calls this), nor how a region is compiled
(magpy/runtime/driver.py, which has drivers made).

The driver has the statements of each region, too, and runs them where the call of the region gives
`_interp.MISS`.
"""

from __future__ import annotations

import ast
import functools
import itertools
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from magpy import _interp
from magpy.instrument.assignment import (
    Uses,
    as_module,
    own_nodes,
    uses,
)
from magpy.instrument.hoisting import Spot, blocks_of, placed_at, spot_of
from magpy.instrument.source import (
    CannotSplit,
    Chain,
    Definition,
    codes,
    future_flags,
    walk,
)
from magpy.objects.types import isinstance

_ITERABLE_COROUTINE = 0x100  # a flag of code objects

# No names of a program's: what a region gave, what it gives where its statements are to run in the
# driver, what corrects the traceback of an exception that it raised, what finds the driver of a
# function that is called, and what `locals()` gives without such names.
_WAY, _MISS, _CORRECT, _CALL, LOCALS = ".magpy", ".miss", ".correct", ".call", ".locals"


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of statements of a function.

    Attributes:
        lines: its first and its last line.
        code: a function of `reads` that returns `(False, *gives)`, or `(True, value)` where the
            stretch returns `value`; only the values where it does just one of these.
        reads: the locals that it takes.
        gives: the locals that it gives back.
        places: its statements, which may be expressions taken out of others.
        compound: there are statements in its statements.
        calls: the calls in it, where it is one simple statement.
    """

    lines: tuple[int, int]
    code: types.CodeType
    reads: tuple[str, ...]
    gives: tuple[str, ...]
    places: tuple[Spot, ...] = ()
    compound: bool = False
    calls: tuple[Spot, ...] = ()


@dataclass(frozen=True, slots=True)
class Split:
    """A function, split.

    Attributes:
        code: of the driver: the function's, with a free variable for each region.
        regions: the regions by the names of those variables.
    """

    code: types.CodeType
    regions: dict[str, Region]


class Writer:
    """Writes the code of one function's regions and of its driver.

    Args:
        chain: the function's definition and what is around it, the module first.
        code: its code.
        node: its definition, as the driver has it.
        arguments: the names of its arguments.
    """

    def __init__(
        self, chain: Chain, code: types.CodeType, node: Definition, arguments: Sequence[str]
    ) -> None:
        """No region is written yet."""
        self.chain = chain
        self.code = code
        self.node = node
        self.arguments = arguments
        self.declared = [
            s for s in own_nodes(node.body) if isinstance(s, (ast.Global, ast.Nonlocal))
        ]
        #: The regions by the names of the variables that have them in the driver.
        self.regions: dict[str, Region] = {}

    def driver(self, body: list[ast.stmt]) -> types.CodeType:
        """The code of the driver.

        Args:
            body: its statements, with the calls of regions.
        """
        outer = [*self.code.co_freevars, *self.regions, _MISS, _CORRECT, _CALL, LOCALS]
        return self.compiled(body, self.node.args, outer, driver=True)

    def call(
        self,
        group: list[ast.stmt],
        found: Uses,
        takes: list[str],
        gives: list[str],
        unsure: set[str],
        falls: bool,
    ) -> list[ast.stmt]:
        """Makes a region of statements, and gives what stands for them in the driver.

        Args:
            group: the statements.
            found: what they do to names.
            takes: the locals that the region takes.
            gives: those that it gives back.
            unsure: those that may be unbound before it.
            falls: whether what follows may run.
        """
        name = f".region{len(self.regions)}"
        last = group[-1]
        at = group[0]
        body = list(group)
        display = self._display(group, takes)
        if display is not None:
            rebuilt, inner = display
            rest = {n for s in [*group[:-1], *inner] for n in uses(s).reads}
            takes = [n for n in takes if n in rest or (n in self.arguments[:1] and "super" in rest)]
            body[-1] = placed_at(ast.Return(ast.Tuple(inner, ast.Load())), last)
        only_end = isinstance(last, ast.Return) and not uses(group[:-1]).returns
        mixed = found.returns and not only_end and falls
        if mixed:
            body = [cast(ast.stmt, _Returns().visit(copied(s))) for s in body]
        if falls:
            names: list[ast.expr] = [ast.Name(n, ast.Load()) for n in gives]
            value: ast.expr
            if mixed:
                value = ast.Tuple([ast.Constant(False), *names], ast.Load())
            elif len(names) == 1:
                value = names[0]
            else:
                value = ast.Tuple(names, ast.Load()) if names else ast.Constant(None)
            body.append(placed_at(ast.Return(value), last))
        no: list[Any] = []
        arguments = ast.arguments(no, [ast.arg(n) for n in takes], None, no, no, None, no)
        code = self.compiled(body, arguments, list(self.code.co_freevars), driver=False)
        lines = (group[0].lineno, last.end_lineno or last.lineno)
        calls: tuple[Spot, ...] = ()
        compound = [any(True for _ in blocks_of(s)) for s in group]
        if compound == [False]:
            calls = tuple(s for n in walk(at) if isinstance(n, ast.Call) and (s := spot_of(n)))
        places = tuple(spot for s in group if (spot := spot_of(s)) is not None)
        self.regions[name] = Region(
            lines, code, tuple(takes), tuple(gives), places, any(compound), calls
        )
        call = ast.Call(ast.Name(name, ast.Load()), [ast.Name(n, ast.Load()) for n in takes], [])
        targets: list[ast.expr] = [ast.Name(n, ast.Store()) for n in gives]
        way = ast.Name(_WAY, ast.Load())
        taken: list[ast.stmt] = []
        if display is not None:
            taken = [ast.Return(rebuilt)]
        elif not falls:
            taken = [ast.Return(way)]
        elif mixed:
            value = ast.Subscript(way, ast.Constant(1), ast.Load())
            returned = ast.Subscript(way, ast.Constant(0), ast.Load())
            taken = [ast.If(returned, [ast.Return(value)], [])]
            if targets:
                store: list[ast.expr] = [ast.Name(_WAY, ast.Store()), *targets]
                taken.append(ast.Assign([ast.Tuple(store, ast.Store())], way))
        elif targets:
            one = targets[0] if len(targets) == 1 else ast.Tuple(targets, ast.Store())
            taken = [ast.Assign([one], way)]
        if falls:
            taken.append(_cleared(_WAY))
        checked = sorted(unsure.intersection(takes))
        return [placed_at(s, at) for s in _served_or_run(call, checked, taken, group)]

    def _display(
        self, group: list[ast.stmt], takes: list[str]
    ) -> tuple[ast.expr, list[ast.expr]] | None:
        """A returned tuple, list or dict in which locals stand as they are: these need no region.

        Returns:
            The display, made of what a region gives, and what that region computes.
        """
        last = group[-1]
        if not isinstance(last, ast.Return) or uses(group[:-1]).returns:
            return None
        stored = uses(group).stores
        computed: list[ast.expr] = []
        flowing: set[str] = set()

        def rebuilt(e: ast.expr) -> ast.expr:
            if isinstance(e, (ast.Tuple, ast.List)) and not any(
                isinstance(x, ast.Starred) for x in e.elts
            ):
                return type(e)([rebuilt(x) for x in e.elts], ast.Load())
            if isinstance(e, ast.Dict) and all(isinstance(k, ast.Constant) for k in e.keys):
                return ast.Dict(e.keys, [rebuilt(x) for x in e.values])
            if isinstance(e, ast.Constant):
                return e
            if isinstance(e, ast.Name) and e.id in takes and e.id not in stored:
                flowing.add(e.id)
                return e
            computed.append(e)
            way = ast.Name(_WAY, ast.Load())
            return ast.Subscript(way, ast.Constant(len(computed) - 1), ast.Load())

        if last.value is None or not isinstance(last.value, (ast.Tuple, ast.List, ast.Dict)):
            return None
        new = rebuilt(last.value)
        if not flowing or not computed:
            return None
        return new, computed

    def compiled(
        self,
        body: list[ast.stmt],
        arguments: ast.arguments,
        free: list[str],
        *,
        driver: bool,
    ) -> types.CodeType:
        """Code of a function with this body that stands where the function stands."""
        plain = ast.arguments(
            arguments.posonlyargs,
            arguments.args,
            arguments.vararg,
            arguments.kwonlyargs,
            [None if d is None else ast.Constant(None) for d in arguments.kw_defaults],
            arguments.kwarg,
            [ast.Constant(None) for _ in arguments.defaults],
        )
        for a in walk(plain):
            if isinstance(a, ast.arg):
                a.annotation = None
        declared = [d for d in self.declared if not any(d is s for s in walk(as_module(body)))]
        no: list[Any] = []
        # Every free variable is one, whether or not this part uses it.
        kind = type(self.node) if driver else ast.FunctionDef
        # Code begins at its first decorator, and the places in it are counted from there.
        first = self.code.co_firstlineno
        mark = ast.Constant(None, lineno=first, col_offset=0, end_lineno=first, end_col_offset=0)
        decorators: list[ast.expr] = [mark] if first != self.node.lineno else []
        node: ast.stmt = kind(self.node.name, plain, [*declared, *body], decorators, None)
        placed_at(node, self.node)
        inner = list(self.chain[1:-1])
        for c in cast("list[Any]", reversed(inner)):
            if isinstance(c, ast.ClassDef):
                node = placed_at(ast.ClassDef(c.name, no, no, [node], no), c)
            else:
                node = placed_at(self._outer(c.name, free, node), c)
        if not any(not isinstance(c, ast.ClassDef) for c in inner) and free:
            node = placed_at(self._outer("_", free, node, top=True), self.node)
        module = ast.Module([*self._imports(), node], no)
        ast.fix_missing_locations(module)
        flags = self.code.co_flags & future_flags()
        try:
            whole = compile(
                module, self.code.co_filename, "exec", flags=flags, dont_inherit=True, optimize=-1
            )
        except SyntaxError as e:
            raise CannotSplit("it cannot be written in parts") from e
        made = [c for c in codes(whole) if c.co_name == self.node.name]
        found = [c for c in made if c.co_firstlineno == self.code.co_firstlineno]
        # In a lambda there may be others, at the same line.
        found = [c for c in found if c.co_qualname == self.code.co_qualname] or found
        if not found or not set(found[-1].co_freevars) <= {*free}:
            raise CannotSplit("its variables cannot be told apart")
        if found[-1].co_qualname != self.code.co_qualname:
            raise CannotSplit("its names are declared around it")
        kept = self.code.co_flags & _ITERABLE_COROUTINE if driver else 0
        return found[-1].replace(co_flags=found[-1].co_flags | kept)

    def _imports(self) -> Iterator[ast.stmt]:
        """The imports of the function's module: CPython calls what is imported by other opcodes."""
        for n in own_nodes(cast(ast.Module, self.chain[0]).body):
            if isinstance(n, (ast.Import, ast.ImportFrom)):
                names = (a.asname or a.name.partition(".")[0] for a in n.names)
                yield from (ast.Import([ast.alias(name)]) for name in names if name != "*")

    @staticmethod
    def _outer(name: str, free: list[str], inner: Any, *, top: bool = False) -> ast.stmt:
        """A function around another definition, which is named as if it stood alone for `top`."""
        no: list[Any] = []
        names = [n for n in free if n != "__class__"]
        body: list[ast.stmt] = [
            ast.Assign([ast.Name(n, ast.Store())], ast.Constant(None)) for n in names
        ]
        if top:
            body.insert(0, ast.Global([inner.name]))
        arguments = ast.arguments(no, no, None, no, no, None, no)
        return ast.FunctionDef(name, arguments, [*body, inner], [], None)


def let_go(body: list[ast.stmt], names: set[str]) -> None:
    """What a temporary holds dies after the statement that it was made for."""
    inside = [_names_in(s) for s in body]
    found = {n: [i for i, there in enumerate(inside) if n in there] for n in names}
    last: list[tuple[int, str]] = []
    for i, s in enumerate(body):
        within = {n for n, places in found.items() if places == [i]}
        for block in blocks_of(s):
            if within:
                let_go(block, within & {n for x in block for n in _names_in(x)})
    for n, places in found.items():
        if len(places) > 1:
            last.append((places[-1], n))
    for i, name in sorted(last, reverse=True):
        if not isinstance(body[i], (ast.Return, ast.Raise)):
            body.insert(i + 1, placed_at(_cleared(name), body[i]))


class _Returns(ast.NodeTransformer):
    """Marks the values that a stretch returns."""

    def visit_Return(self, node: ast.Return) -> ast.AST:
        value = node.value or ast.Constant(None)
        marked = ast.Tuple([ast.Constant(True), value], ast.Load())
        return cast(ast.AST, placed_at(ast.Return(marked), node))

    def _leave(self, node: ast.AST) -> ast.AST:
        return node

    visit_FunctionDef = visit_Lambda = visit_ClassDef = visit_AsyncFunctionDef = _leave


def _names_in(s: ast.AST) -> set[str]:
    return {n.id for n in walk(s) if isinstance(n, ast.Name)}


def _cleared(name: str) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], ast.Constant(None))


def copied(node: Any) -> Any:
    """As `copy.deepcopy` of syntax trees and lists of them, in a fraction of the time."""
    if isinstance(node, list):
        return [copied(n) for n in node]
    if not isinstance(node, ast.AST):
        return node
    new = type(node).__new__(type(node))
    vars(new).update((name, copied(value)) for name, value in vars(node).items())
    return new


def _served_or_run(
    call: ast.expr, checked: list[str], taken: list[ast.stmt], group: list[ast.stmt]
) -> Iterator[ast.stmt]:
    """Calls a region; what it gave is taken, or its statements run in the driver.

    They also do where a local of `checked` is unbound, so that they raise where they read it. The
    bare `raise` adds nothing to the traceback, which was corrected.
    """
    correct = ast.Expr(ast.Call(ast.Name(_CORRECT, ast.Load()), [], []))
    handler = ast.ExceptHandler(None, None, [correct, ast.Raise(None, None)])
    way = ast.Name(_WAY, ast.Store())
    served = ast.Try([ast.Assign([way], call)], [handler], [], [])
    if checked:
        miss = ast.Assign([way], ast.Name(_MISS, ast.Load()))
        reads: list[ast.stmt] = [ast.Expr(ast.Name(n, ast.Load())) for n in checked]
        yield ast.Try(reads, [ast.ExceptHandler(None, None, [miss])], [served], [])
    else:
        yield served
    missed = ast.Compare(ast.Name(_WAY, ast.Load()), [ast.Is()], [ast.Name(_MISS, ast.Load())])
    # An instruction that stores would be joined with the one that loads (CPython 3.11), which then
    # raises at the place of the first.
    cleared = [] if checked else [_cleared(_WAY)]
    yield ast.If(missed, [*cleared, *copied(group)], taken)


_Make = Callable[[Region, types.FunctionType], Any]


def driver(
    function: types.FunctionType, made: Split, make: _Make, call: Callable[[Any], Any]
) -> types.FunctionType:
    """The driver of a function: a function like it, which calls the regions.

    Args:
        function: what was split.
        made: how.
        make: called with each region and a function with its code; gives what the driver calls,
            which gives `_interp.MISS` where the region's statements are to run in the driver.
        call: called with what is called where a function with a driver of its own may be; gives
            what is called in its place.
    """
    code = function.__code__
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))

    def closure(names: tuple[str, ...]) -> tuple[types.CellType, ...]:
        return tuple(cells[n] for n in names)

    for name, region in made.regions.items():
        plain = types.FunctionType(
            region.code,
            function.__globals__,
            function.__name__,
            None,
            closure(region.code.co_freevars),
        )
        plain.__module__ = function.__module__
        plain.__qualname__ = function.__qualname__
        cells[name] = types.CellType(make(region, plain))
    cells[_MISS] = types.CellType(_interp.MISS)
    cells[_CORRECT] = types.CellType(correct_traceback)
    cells[_CALL] = types.CellType(call)
    cells[LOCALS] = types.CellType(functools.partial(_locals_of, code))
    new = types.FunctionType(
        made.code, function.__globals__, function.__name__, None, closure(made.code.co_freevars)
    )
    new.__defaults__ = function.__defaults__
    new.__kwdefaults__ = function.__kwdefaults__
    new.__qualname__ = function.__qualname__
    new.__module__ = function.__module__
    return new


def with_cells(run: types.FunctionType, function: types.FunctionType) -> types.FunctionType:
    """The driver of a function like the one that was split (`Plan.closures`), with its cells."""
    code = function.__code__
    cells = dict(zip(run.__code__.co_freevars, run.__closure__ or (), strict=True))
    cells.update(zip(code.co_freevars, function.__closure__ or (), strict=True))
    closure = tuple(cells[n] for n in run.__code__.co_freevars)
    made = types.FunctionType(
        run.__code__, run.__globals__, run.__name__, function.__defaults__, closure
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__, made.__module__ = function.__qualname__, function.__module__
    return made


def correct_traceback() -> None:
    """Gives the exception that a region raised the traceback of the function as it was written.

    Called by the driver while it handles the exception: the driver's own entry, at the call of the
    region, and that of the region's frame become one, at the line that raised.  An entry that
    raises makes frames of the region's name that begin at the line that raised
    (magpy/frames/synthetic.py).
    """
    error = sys.exc_info()[1]
    frame = sys._getframe(1)
    tb = error.__traceback__ if error is not None else None
    inner = tb.tb_next if tb is not None else None
    if error is None or tb is None or inner is None or tb.tb_frame is not frame:
        return
    code, own = inner.tb_frame.f_code, frame.f_code
    if (code.co_filename, code.co_name) != (own.co_filename, own.co_name):
        return
    if code.co_firstlineno not in (own.co_firstlineno, inner.tb_lineno):
        return
    place = next(itertools.islice(code.co_positions(), inner.tb_lasti // 2, None), None)
    at = next((i for i, p in enumerate(own.co_positions()) if p == place), None)
    lasti = -1 if at is None else 2 * at  # -1: the line is known, the columns are not
    error.__traceback__ = types.TracebackType(inner.tb_next, frame, lasti, inner.tb_lineno)


def _locals_of(code: types.CodeType, found: dict[str, Any]) -> dict[str, Any]:
    """What `locals()` gives in a function: the driver's are more, and in another order.

    Up to CPython 3.12 it is one dict for a frame, which keeps what the program puts there: it is
    kept in the dict of the driver's frame.
    """
    own = found.setdefault(".own", {}) if sys.version_info < (3, 13) else {}
    for n in (*code.co_varnames, *code.co_cellvars, *code.co_freevars):
        if n in found:
            own[n] = found[n]
        else:
            own.pop(n, None)
    return cast("dict[str, Any]", own)


__all__ = ["LOCALS", "Region", "Split", "Writer", "copied", "driver", "let_go", "with_cells"]
