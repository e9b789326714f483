"""Drivers: a function in which stretches of statements are calls of functions of their own.

Owns the choice of the stretches (regions) of a Python function whose other lines must run as they
are, what each region reads and gives back, and the code of both.  Does not own why a line must run
as it is, nor how a region is compiled (magpy/runtime/driver.py, the only caller).

A region is made from the function's source, which is used only if it compiles to the function's own
code.  Statements are the least unit: between them the evaluation stack holds what the block around
them has put there and nothing else.  A region takes the locals that it reads as arguments and gives
back those that it assigns and that are read elsewhere.  Where that cannot be said for certain (a
local that may be unbound, a variable that an inner function shares and that is assigned again), the
statements stay in the driver.
"""

from __future__ import annotations

import __future__

import ast
import copy
import functools
import itertools
import linecache
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from magpy.objects.types import isinstance

#: Names that ask for the frame they are in, or for its locals.
_ASKS_FRAME = frozenset(["locals", "exec", "eval", "_getframe", "currentframe"])
#: These ask for the frame only where they are given nothing.
_MAY_ASK_FRAME = frozenset(["vars", "dir"])
#: Context managers of torch's that let every exception pass.
_LET_PASS = frozenset(
    [
        *("no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "autocast", "device"),
        *("record_function", "stream", "detect_anomaly", "sdpa_kernel"),
    ]
)
_WAY = ".magpy"  # no name of a program's


#: Where an instruction's source is: line, last line, column, last column (PEP 657).
Spot = tuple[int, int, int, int]


@dataclass(slots=True)
class Plan:
    """What of a function must not be in a region.

    Attributes:
        alone: expressions that run as they are; the whole statement where there is no such
            expression.
        calls: calls of functions that have drivers of their own.
        lines: first and last lines of statements that stay.
        varying: names of locals whose values differ in every call and are computed with.
    """

    alone: list[Spot] = field(default_factory=list)
    calls: list[Spot] = field(default_factory=list)
    lines: list[tuple[int, int]] = field(default_factory=list)
    varying: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of statements of a function.

    Attributes:
        lines: its first and its last line.
        code: a function of `reads` that returns `(False, *gives)`, or `(True, value)` where the
            stretch returns `value`; only the values where it does just one of these.
        reads: the locals that it takes.
        gives: the locals that it gives back.
    """

    lines: tuple[int, int]
    code: types.CodeType
    reads: tuple[str, ...]
    gives: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """A function, split.

    Attributes:
        code: of the driver: the function's, with a free variable for each region and each call.
        regions: the regions by the names of those variables.
        calls: calls by the names of those variables: the driver calls these with what was called
            and its arguments.
    """

    code: types.CodeType
    regions: dict[str, Region]
    calls: dict[str, Spot]


class CannotSplit(Exception):
    """The function cannot have a driver; the text says why."""


def split(function: types.FunctionType, plan: Plan) -> Split:
    """Splits a function so that some of its lines run as they are.

    Args:
        function: of a `def` whose source can be found.
        plan: what no region may hold.

    Raises:
        CannotSplit: it has no source, asks for its frame, or no region is left.
    """
    code = function.__code__
    chain = _find(code)
    for n in ast.walk(chain[-1]):
        f = n.func if isinstance(n, ast.Call) else None
        name = f.id if isinstance(f, ast.Name) else f.attr if isinstance(f, ast.Attribute) else ""
        asks = name in ("_getframe", "currentframe") or (
            isinstance(f, ast.Name) and name in _ASKS_FRAME
        )
        if asks or (isinstance(n, ast.Call) and name in _MAY_ASK_FRAME and not n.args):
            raise CannotSplit(f"it asks for its frame or its locals ({name})")
    return _Splitter(chain, code, plan).split()


# ------------------------------------------------------------------- source

_Definition = ast.FunctionDef | ast.AsyncFunctionDef
_Chain = list[ast.AST]  # a module, classes and functions, down to the function itself


@functools.lru_cache(maxsize=64)
def _parsed(file: str, text: str) -> tuple[ast.Module, types.CodeType]:
    return ast.parse(text, file), compile(text, file, "exec", dont_inherit=True, optimize=-1)


def _find(code: types.CodeType) -> _Chain:
    """The definition that a code object was compiled from, with what it stands in."""
    lines = linecache.getlines(code.co_filename)
    if not lines:
        raise CannotSplit("its source cannot be found")
    try:
        tree, whole = _parsed(code.co_filename, "".join(lines))
    except (SyntaxError, ValueError) as e:
        raise CannotSplit("its source cannot be parsed") from e
    for chain in _chains(tree, [tree]):
        node = cast(_Definition, chain[-1])
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        if node.name == code.co_name and first == code.co_firstlineno:
            if not any(_same(c, code) for c in _codes(whole)):
                raise CannotSplit("its source has changed")
            return chain
    raise CannotSplit("its definition cannot be found")


def _chains(node: ast.AST, chain: _Chain) -> Iterator[_Chain]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield [*chain, inner]
            yield from _chains(inner, [*chain, inner])
        elif isinstance(inner, ast.ClassDef):
            yield from _chains(inner, [*chain, inner])
        else:
            yield from _chains(inner, chain)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield c
            yield from _codes(c)


def _same(a: types.CodeType, b: types.CodeType) -> bool:
    """Whether code was compiled from the same statements, at the same place."""
    return (
        (a.co_code, a.co_name, a.co_qualname, a.co_firstlineno, a.co_names, a.co_varnames)
        == (b.co_code, b.co_name, b.co_qualname, b.co_firstlineno, b.co_names, b.co_varnames)
        and a.co_freevars == b.co_freevars
        and a.co_cellvars == b.co_cellvars
        and len(a.co_consts) == len(b.co_consts)
        and all(map(_same_constant, a.co_consts, b.co_consts))
    )


def _same_constant(a: Any, b: Any) -> bool:
    if isinstance(a, types.CodeType) and isinstance(b, types.CodeType):
        return _same(a, b)
    return type(a) is type(b) and repr(a) == repr(b)


# ------------------------------------------------------------------- names


@dataclass(slots=True)
class _Uses:
    """Which local variables a piece of source uses.

    Attributes:
        reads: read, also by inner functions.
        stores: assigned, in the function's own scope.
        unsafe: it yields, deletes a name, leaves a loop around it, or declares names.
        works: it calls or computes something.
        returns: it returns.
    """

    reads: set[str] = field(default_factory=set)
    stores: set[str] = field(default_factory=set)
    captured: set[str] = field(default_factory=set)
    unsafe: bool = False
    works: bool = False
    returns: bool = False


def _uses(node: ast.AST | Sequence[ast.AST]) -> _Uses:
    found = _Uses()
    visitor = _UsesOf(found)
    for n in node if isinstance(node, (list, tuple)) else [node]:
        visitor.visit(cast(ast.AST, n))
    return found


class _UsesOf(ast.NodeVisitor):
    def __init__(self, found: _Uses) -> None:
        self.found = found
        self.loops = 0

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.found.reads.add(node.id)
        elif isinstance(node.ctx, ast.Store):
            self.found.stores.add(node.id)
        else:
            self.found.unsafe = True

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.found.reads.add(node.target.id)
        self.found.works = True
        self.generic_visit(node)

    def _inner(self, node: ast.AST, *, kept: bool) -> None:
        """A scope within: what it reads of the function's, which it may keep."""
        inner = _Uses()
        visitor = _UsesOf(inner)
        for child in ast.iter_child_nodes(node):
            visitor.visit(child)
        free = inner.reads | inner.captured  # some are its own; that does no harm
        if any(c.is_async for c in getattr(node, "generators", ())):
            self.found.unsafe = True
        self.found.reads |= free
        if kept:
            self.found.captured |= free | inner.stores
        self.found.works = True
        if any(isinstance(n, ast.NamedExpr) for n in ast.walk(node)):
            self.found.unsafe = True

    def visit_ListComp(self, node: ast.AST) -> None:
        self._inner(node, kept=False)

    visit_SetComp = visit_DictComp = visit_ListComp

    def visit_GeneratorExp(self, node: ast.AST) -> None:
        self._inner(node, kept=True)

    def visit_Call(self, node: ast.Call) -> None:
        self.found.works = True
        self.visit(node.func)
        for a in [*node.args, *(k.value for k in node.keywords)]:
            if isinstance(a, ast.GeneratorExp):
                self._inner(a, kept=False)  # it is over when the call is
            else:
                self.visit(a)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for d in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(d)
        self._inner(node, kept=True)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.found.stores.add(node.name)
        for d in [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(d)
        self._inner(node, kept=True)
        if any(isinstance(n, ast.Nonlocal) for n in ast.walk(node)):
            self.found.unsafe = True

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.found.stores.add(node.name)
        self._inner(node, kept=True)

    def visit_AsyncFunctionDef(self, node: ast.AST) -> None:
        self.found.unsafe = True

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.found.stores.add(node.name)
        self.generic_visit(node)

    def visit_MatchAs(self, node: Any) -> None:
        if node.name:
            self.found.stores.add(node.name)
        self.generic_visit(node)

    visit_MatchStar = visit_MatchAs

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        if node.rest:
            self.found.stores.add(node.rest)
        self.generic_visit(node)

    def visit_alias(self, node: ast.alias) -> None:
        self.found.works = True
        if node.name == "*":
            self.found.unsafe = True
        self.found.stores.add((node.asname or node.name).partition(".")[0])

    def _bad(self, node: ast.AST) -> None:
        self.found.unsafe = True

    visit_Yield = visit_YieldFrom = visit_Await = visit_Global = visit_Nonlocal = _bad
    visit_AsyncFor = visit_AsyncWith = _bad

    def visit_Return(self, node: ast.Return) -> None:
        self.found.returns = True
        self.generic_visit(node)

    def _loop(self, node: Any) -> None:
        head = [node.target, node.iter] if isinstance(node, ast.For) else [node.test]
        for n in head:
            self.visit(n)
        self.loops += 1
        for n in node.body:
            self.visit(n)
        self.loops -= 1
        for n in node.orelse:
            self.visit(n)

    visit_For = visit_While = _loop

    def _leaves_loop(self, node: ast.AST) -> None:
        if not self.loops:
            self.found.unsafe = True

    visit_Break = visit_Continue = _leaves_loop

    def _work(self, node: ast.AST) -> None:
        self.found.works = True
        self.generic_visit(node)

    visit_BinOp = visit_UnaryOp = visit_Subscript = visit_Compare = _work
    visit_Attribute = visit_JoinedStr = _work


_Set = set[str] | None  # None: the end is not reached


def _meet(*ways: _Set) -> _Set:
    reached = [w for w in ways if w is not None]
    return set.intersection(*reached) if reached else None


class _Unbound(Exception):
    """A local may be read before it is assigned."""


class _Flow:
    """Definite assignment, as far as statements tell.

    Args:
        names: the local variables.
        strict: raise where one is read that may be unbound.
    """

    def __init__(self, names: frozenset[str], strict: bool) -> None:
        self.names = names
        self.strict = strict

    def block(self, body: Sequence[ast.stmt], bound: _Set) -> _Set:
        for s in body:
            if bound is None:
                return None
            bound = self.statement(s, bound)
        return bound

    def _read(self, bound: set[str], *nodes: ast.AST | None) -> set[str]:
        """Bound after expressions (assignment expressions may not have run)."""
        for n in nodes:
            if n is not None and self.strict and not (_uses(n).reads & self.names) <= bound:
                raise _Unbound
        return bound

    def statement(self, s: ast.stmt, bound: set[str]) -> _Set:
        if isinstance(s, (ast.Return, ast.Raise)):
            self._read(bound, s)
            return None
        if isinstance(s, (ast.Break, ast.Continue)):
            return None
        if isinstance(s, ast.If):
            self._read(bound, s.test)
            return _meet(self.block(s.body, set(bound)), self.block(s.orelse, set(bound)))
        if isinstance(s, (ast.For, ast.AsyncFor)):
            self._read(bound, s.iter)
            self.block(s.body, bound | _uses(s.target).stores)
            self.block(s.orelse, set(bound))
            return bound
        if isinstance(s, ast.While):
            self._read(bound, s.test)
            self.block(s.body, set(bound))
            self.block(s.orelse, set(bound))
            return bound
        if isinstance(s, (ast.With, ast.AsyncWith)):
            inner = set(bound)
            for item in s.items:
                self._read(inner, item.context_expr)
                if item.optional_vars is not None:
                    inner |= _uses(item.optional_vars).stores
            after = self.block(s.body, inner)
            passes = all(_lets_pass(i.context_expr) for i in s.items)
            return after if passes else bound
        if isinstance(s, ast.Try) or type(s).__name__ == "TryStar":
            return self._try(cast(ast.Try, s), bound)
        if isinstance(s, ast.Match):
            self._read(bound, s.subject)
            for case in s.cases:
                self.block(case.body, bound | _uses(case.pattern).stores)
            return bound
        found = _uses(s)
        if self.strict and not (found.reads & self.names) <= bound:
            raise _Unbound
        return bound | (found.stores & self.names)

    def _try(self, s: ast.Try, bound: set[str]) -> _Set:
        ways = [self.block(s.orelse, self.block(s.body, set(bound)))]
        for h in s.handlers:
            named = {h.name} if h.name else set()
            end = self.block(h.body, bound | named)
            ways.append(None if end is None else end - named)
        after = _meet(*ways)
        final = self.block(s.finalbody, set(bound))
        if final is None:
            return None
        return None if after is None else after | final


def _lets_pass(manager: ast.expr) -> bool:
    f = manager.func if isinstance(manager, ast.Call) else manager
    name = f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""
    return name in _LET_PASS


# ------------------------------------------------------------------- splitting


class _Hoist:
    """Takes expressions that run as they are out of their statements, in the order of evaluation.

    `return after(h + next(it))` becomes `t = next(it); return after(h + t)`.
    """

    def __init__(self, plan: Plan, names: tuple[str, ...]) -> None:
        self.plan = plan
        self.names = names
        self.count = 0
        #: Nodes whose statements stay in the driver.
        self.alone: set[ast.AST] = set()
        self.calls: dict[str, Spot] = {}

    def function(self, node: _Definition) -> _Definition:
        node.body = self.block(node.body)
        return node

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [new for s in body for new in self.statement(s)]

    def statement(self, s: ast.stmt) -> list[ast.stmt]:
        if isinstance(s, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            self._whole(s, s)
            return [s]
        before: list[ast.stmt] = []
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(s, name, None)
            if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
                setattr(s, name, self.block(inner))
        for h in getattr(s, "handlers", ()):
            self._whole(h, s)
        head = self._head(s)
        if head is None:
            self._whole(s, s, blocks=False)
            return [s]
        owner, name = head
        for _ in range(20):
            value = getattr(owner, name)
            path = self._path(value)
            if path is None:
                break
            new, ahead = self._out(value, path, s)
            if new is None:
                self.alone.add(s)
                break
            before += ahead
            setattr(owner, name, new)
        else:
            self.alone.add(s)
        if isinstance(s, ast.Assign) and isinstance(s.value, _DISPLAYS) and self._flows(s.value):
            self._taken_apart(s.value, before, s)
            self.alone.add(s)
        self._whole(s, s, blocks=False)
        return [*before, s]

    def _flows(self, display: ast.expr) -> bool:
        """Whether a value that differs in every call stands in a display as it is."""
        for holder, name, index in _parts(display) or ():
            e = _get(holder, name, index)
            if isinstance(e, ast.Name) and e.id in self.plan.varying:
                return True
            if isinstance(e, _DISPLAYS) and self._flows(e):
                return True
        return False

    def _taken_apart(self, display: ast.expr, ahead: list[ast.stmt], s: ast.stmt) -> None:
        for holder, name, index in _parts(display) or ():
            e = _get(holder, name, index)
            if isinstance(e, _DISPLAYS) and _parts(e) is not None:
                self._taken_apart(e, ahead, s)
            else:
                self._temporary(holder, name, index, ahead, s)

    @staticmethod
    def _head(s: ast.stmt) -> tuple[Any, str] | None:
        """Where the expression is that a statement evaluates first, once."""
        if isinstance(s, (ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr)):
            return (s, "value") if s.value is not None else None
        if isinstance(s, ast.If):
            return s, "test"
        if isinstance(s, ast.For):
            return s, "iter"
        if isinstance(s, ast.With):
            return s.items[0], "context_expr"
        return None

    def _whole(self, node: ast.AST, s: ast.stmt, *, blocks: bool = True) -> None:
        """Keeps a statement in the driver where a place is in it that was not taken out."""
        if _spot(s) in self.plan.alone and not isinstance(s, ast.Expr):
            self.alone.add(s)
        for child in [node] if blocks else _own_parts(node):
            for n in ast.walk(child):
                if isinstance(n, ast.Name) and n.id.startswith("."):
                    continue
                if _spot(n) in self.plan.alone or _spot(n) in self.plan.calls:
                    self.alone.add(s)

    def _path(self, value: ast.expr) -> list[ast.expr] | None:
        """From an expression down to the first place in it that must be taken out."""
        for path in _paths(value):
            n = path[-1]
            if n in self.alone or (isinstance(n, ast.Name) and n.id[0] == "."):
                continue
            spot = _spot(n)
            if spot in self.plan.alone or (spot in self.plan.calls and isinstance(n, ast.Call)):
                return path
            if self.plan.varying and self._computes_with(path):
                return path
        return None

    def _computes_with(self, path: list[ast.expr]) -> bool:
        """Whether an expression is a computation with a value that differs in every call alone."""
        return self._only_varying(path[-1]) and not (
            len(path) > 1 and self._only_varying(path[-2])
        )

    def _only_varying(self, n: ast.AST) -> bool:
        if not isinstance(n, _COMPUTES):
            return False
        names = {x.id for x in ast.walk(n) if isinstance(x, ast.Name)}
        names = {x for x in names if x in self.names or x[0] == "."}
        return bool(names) and names <= self.plan.varying

    def _out(
        self, value: ast.expr, path: list[ast.expr], s: ast.stmt
    ) -> tuple[ast.expr | None, list[ast.stmt]]:
        ahead: list[ast.stmt] = []
        found = path[-1]
        for parent, child in itertools.pairwise(path):
            earlier = _before(parent, child)
            if earlier is None:
                return None, []
            for holder, name, index in earlier:
                self._temporary(holder, name, index, ahead, s)
        spot = _spot(found)
        if isinstance(found, ast.Call) and (spot in self.plan.alone or spot in self.plan.calls):
            parts = _before(found, None)
            if parts is None or self._is_super(found):
                return None, []
            last = max(
                (i for i, (h, n, k) in enumerate(parts) if not _simple(_get(h, n, k))), default=-1
            )
            for i, (holder, name, index) in enumerate(parts):
                e = _get(holder, name, index)
                if i < last or (i == last and not isinstance(e, ast.Attribute)):
                    self._temporary(holder, name, index, ahead, s)
            if spot in self.plan.calls and spot not in self.plan.alone:
                label = f".call{len(self.calls)}"
                self.calls[label] = spot
                found.args = [found.func, *found.args]
                found.func = ast.copy_location(ast.Name(label, ast.Load()), found)
        self.alone.add(found)
        if len(path) == 1:
            if not isinstance(s, (ast.If, ast.For, ast.With)) and not self._joins(s):
                return value, ahead
            whole = self._assign(found, ahead, s)
            return whole, ahead
        parent = path[-2]
        name = self._assign(found, ahead, s)
        for holder, field_name, index in _parts(parent) or ():
            if _get(holder, field_name, index) is found:
                _set(holder, field_name, index, name)
        return value, ahead

    @staticmethod
    def _joins(s: ast.stmt) -> bool:
        """Whether a statement does more with a value than keep it."""
        if isinstance(s, ast.Assign):
            return not all(isinstance(t, ast.Name) for t in s.targets)
        return isinstance(s, ast.AugAssign)

    @staticmethod
    def _is_super(call: ast.Call) -> bool:
        return isinstance(call.func, ast.Name) and call.func.id == "super"

    def _temporary(
        self, holder: Any, name: str, index: int | None, ahead: list[ast.stmt], s: ast.stmt
    ) -> None:
        e = _get(holder, name, index)
        if not _simple(e):
            new = self._assign(e, ahead, s)
            if _chain_of_names(e):
                self.alone.add(e)
            _set(holder, name, index, new)

    def _assign(self, e: ast.expr, ahead: list[ast.stmt], s: ast.stmt) -> ast.Name:
        name = f".t{self.count}"
        self.count += 1
        ahead.append(_at(ast.Assign([ast.Name(name, ast.Store())], e), e))
        return cast(ast.Name, ast.copy_location(ast.Name(name, ast.Load()), e))


_DISPLAYS = (ast.Tuple, ast.List, ast.Set, ast.Dict)
_COMPUTES = (ast.Call, ast.BinOp, ast.Subscript, ast.Compare, ast.JoinedStr, ast.Attribute)


def _spot(n: Any) -> Spot | None:
    if not isinstance(n, (ast.expr, ast.stmt)) or n.end_lineno is None:
        return None
    return n.lineno, n.end_lineno, n.col_offset, cast(int, n.end_col_offset)


def _own_parts(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a statement that are no statements."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.stmt, ast.ExceptHandler)) and type(child).__name__ != "match_case":
            yield child


def _simple(e: ast.AST) -> bool:
    """Whether it does not matter when an expression is evaluated."""
    if isinstance(e, (ast.Starred, ast.keyword)):
        return _simple(e.value)
    return isinstance(e, (ast.Name, ast.Constant))


def _chain_of_names(e: ast.AST) -> bool:
    """Whether an expression is a name, or an attribute of an attribute of one."""
    while isinstance(e, ast.Attribute):
        e = e.value
    return isinstance(e, ast.Name)


_Part = tuple[Any, str, int | None]


def _get(holder: Any, name: str, index: int | None) -> ast.expr:
    value = getattr(holder, name)
    return cast(ast.expr, value if index is None else value[index])


def _set(holder: Any, name: str, index: int | None, new: ast.expr) -> None:
    if index is None:
        setattr(holder, name, new)
    else:
        getattr(holder, name)[index] = new


def _parts(e: ast.expr) -> list[_Part] | None:
    """The operands of an expression in the order of evaluation; None where that is not plain."""
    if isinstance(e, ast.Call):
        found: list[_Part] = [(e, "func", None)]
        for i, a in enumerate(e.args):
            found.append((a, "value", None) if isinstance(a, ast.Starred) else (e, "args", i))
        return found + [(k, "value", None) for k in e.keywords]
    if isinstance(e, ast.BinOp):
        return [(e, "left", None), (e, "right", None)]
    if isinstance(e, ast.UnaryOp):
        return [(e, "operand", None)]
    if isinstance(e, ast.Attribute):
        return [(e, "value", None)]
    if isinstance(e, ast.Subscript) and not isinstance(e.slice, (ast.Slice, ast.Tuple)):
        return [(e, "value", None), (e, "slice", None)]
    if isinstance(e, ast.Subscript):
        return [(e, "value", None)]
    if isinstance(e, (ast.Tuple, ast.List, ast.Set)):
        if any(isinstance(x, ast.Starred) for x in e.elts):
            return None
        return [(e, "elts", i) for i in range(len(e.elts))]
    if isinstance(e, ast.Dict):
        if not all(isinstance(k, ast.Constant) for k in e.keys):
            return None
        return [(e, "values", i) for i in range(len(e.values))]
    if isinstance(e, ast.Compare) and len(e.ops) == 1:
        return [(e, "left", None), (e, "comparators", 0)]
    return None


def _before(parent: ast.expr, child: ast.expr | None) -> list[_Part] | None:
    """What an expression evaluates before one of its operands; all of them for None."""
    parts = _parts(parent)
    if parts is None:
        return None
    if child is None:
        return parts
    for i, (holder, name, index) in enumerate(parts):
        if _get(holder, name, index) is child:
            return parts[:i]
    return None


def _paths(e: ast.expr) -> Iterator[list[ast.expr]]:
    """Every expression within one that can be taken out, the innermost and first ones first."""
    for holder, name, index in _parts(e) or ():
        for path in _paths(_get(holder, name, index)):
            yield [e, *path]
    yield [e]


class _Splitter:
    """Splits one function."""

    def __init__(self, chain: _Chain, code: types.CodeType, plan: Plan) -> None:
        self.chain = chain
        self.code = code
        self.plan = plan
        self.calls: dict[str, Spot] = {}
        hoist = _Hoist(plan, (*code.co_varnames, *code.co_cellvars))
        self.node = cast(_Definition, hoist.function(cast(_Definition, _copied(chain[-1]))))
        self.alone = hoist.alone
        self.calls = hoist.calls
        self.locals = frozenset(
            [*code.co_varnames, *code.co_cellvars, *(f".t{i}" for i in range(hoist.count))]
        )
        whole = _uses(self.node.body)
        stored = [n for s in ast.walk(self.node) for n in _stored_by(s)]
        arguments = code.co_varnames[: _argument_count(code)]
        #: Inner functions share these, and they are assigned more than once.
        self.shared = {
            n
            for n in whole.captured & self.locals
            if stored.count(n) + (n in arguments) > 1 or (n not in arguments and self._in_loop(n))
        }
        self.reads = _count_reads(self.node)
        self.arguments = arguments
        self.regions: dict[str, Region] = {}
        self.declared = [
            s for s in ast.walk(self.node) if isinstance(s, (ast.Global, ast.Nonlocal))
        ]

    def _in_loop(self, name: str) -> bool:
        return any(
            name in _uses(s).stores
            for s in ast.walk(self.node)
            if isinstance(s, (ast.For, ast.AsyncFor, ast.While))
        )

    def split(self) -> Split:
        body = list(self.node.body)
        start: list[ast.stmt] = []
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            start, body = body[:1], body[1:]
        new, _ = self.block(body, set(self.arguments), in_loop=False, outer=None)
        if not self.regions and not self.calls:
            raise CannotSplit("no statement is left to compile")
        outer = [*self.code.co_freevars, *self.regions, *self.calls]
        code = self._compiled(start + new, self.node.args, outer, driver=True)
        return Split(code, self.regions, self.calls)

    def block(
        self,
        body: Sequence[ast.stmt],
        bound: _Set,
        *,
        in_loop: bool,
        outer: ast.AST | None,
    ) -> tuple[list[ast.stmt], _Set]:
        """The statements of a block, with calls of regions in them, and what is bound after it."""
        out: list[ast.stmt] = []
        group: list[ast.stmt] = []
        before: _Set = bound
        flow = _Flow(self.locals, strict=False)

        def close() -> None:
            nonlocal group
            if group:
                out.extend(self._region(group, before or set(), in_loop, outer))
            group = []

        for s in body:
            if bound is None:
                close()
                out.append(s)
                continue
            if self._may_join(s):
                if not group:
                    before = set(bound)
                group.append(s)
            else:
                close()
                out.append(self._inside(s, set(bound), in_loop, outer))
            bound = flow.statement(s, set(bound))
        close()
        return out, bound

    def _is_alone(self, s: ast.AST) -> bool:
        if any(n in self.alone for n in ast.walk(s)):
            return True
        first, last = s.lineno, s.end_lineno or s.lineno  # type: ignore[attr-defined]
        return any(a <= last and b >= first for a, b in self.plan.lines)

    def _may_join(self, s: ast.stmt) -> bool:
        return not self._is_alone(s) and not _uses(s).unsafe

    def _inside(
        self, s: ast.stmt, bound: set[str], in_loop: bool, outer: ast.AST | None
    ) -> ast.stmt:
        """A statement that stays, with regions in its blocks."""

        def go(body: list[ast.stmt], names: set[str], loop: bool, o: ast.AST | None) -> Any:
            return self.block(body, set(names), in_loop=loop, outer=o)[0] if body else []

        new: Any = None
        if isinstance(s, ast.If):
            new = ast.If(
                s.test, go(s.body, bound, in_loop, outer), go(s.orelse, bound, in_loop, outer)
            )
        elif isinstance(s, (ast.For, ast.AsyncFor)):
            inner = bound | _uses(s.target).stores
            new = type(s)(s.target, s.iter, go(s.body, inner, True, outer), s.orelse)
        elif isinstance(s, ast.While):
            new = ast.While(s.test, go(s.body, bound, True, outer), s.orelse)
        elif isinstance(s, (ast.With, ast.AsyncWith)):
            inner = set(bound)
            for item in s.items:
                if item.optional_vars is not None:
                    inner |= _uses(item.optional_vars).stores
            passes = all(_lets_pass(i.context_expr) for i in s.items)
            new = type(s)(s.items, go(s.body, inner, in_loop, outer if passes else s))
        elif isinstance(s, ast.Try):
            new = ast.Try(
                go(s.body, bound, in_loop, s), s.handlers, s.orelse, s.finalbody
            )
        return ast.copy_location(new, s) if new is not None else s

    # --------------------------------------------------------------- one region

    def _region(
        self, group: list[ast.stmt], bound: set[str], in_loop: bool, outer: ast.AST | None
    ) -> list[ast.stmt]:
        """A stretch of statements, as the call of a region, or as it is."""
        found = _uses(group)
        simple = len(group) == 1 and isinstance(group[0], (ast.Return, ast.Pass))
        if not found.works or (simple and not found.works):
            return group
        made = self._made(group, found, bound, in_loop, outer)
        if made is not None:
            return made
        if len(group) == 1:
            return [self._inside(group[0], bound, in_loop, outer)]
        # What some statement is in the way of is tried in two halves.
        flow, half = _Flow(self.locals, strict=False), len(group) // 2
        middle = flow.block(group[:half], set(bound))
        first = self._region(group[:half], bound, in_loop, outer)
        if middle is None:
            return first + group[half:]
        return first + self._region(group[half:], middle, in_loop, outer)

    def _made(
        self,
        group: list[ast.stmt],
        found: _Uses,
        bound: set[str],
        in_loop: bool,
        outer: ast.AST | None,
    ) -> list[ast.stmt] | None:
        own = _count_reads_of(group)
        elsewhere = {n for n, count in self.reads.items() if count > own.get(n, 0)}
        stores = found.stores & self.locals
        if (found.reads | found.stores | found.captured) & self.shared:
            return None
        try:
            end = _Flow(self.locals, strict=True).block(group, set(bound))
        except _Unbound:
            return None
        reads = found.reads & self.locals & bound
        # A loop comes here again, and reads what it has assigned.
        live = stores & (elsewhere | (reads if in_loop else set()))
        if end is not None:
            unsure = live - end
            if unsure - bound:
                return None
            gives = sorted(live)
            reads |= {n for n in gives if n not in end or self._conditional(n, group, bound)}
        else:
            gives = []
        if outer is not None and len(group) > 1 and self._seen_after(stores, outer):
            return None
        if outer is not None and len(group) == 1:
            s = group[0]
            plain = isinstance(s, ast.Assign) and len(s.targets) == 1
            if not plain and self._seen_after(stores, outer):
                return None
        takes = sorted(reads)
        if "super" in found.reads and self.arguments:  # it looks at the first argument
            first = self.arguments[0]
            if first not in bound:
                return None
            takes = [first, *(n for n in takes if n != first)]
        return self._call(group, found, takes, gives, end is not None)

    def _conditional(self, name: str, group: list[ast.stmt], bound: set[str]) -> bool:
        """Whether a local may keep the value that it had before."""
        end = _Flow(self.locals, strict=False).block(group, bound - {name})
        return end is not None and name not in end

    def _seen_after(self, stores: set[str], outer: ast.AST) -> bool:
        """Whether what follows an exception may look at one of these locals."""
        body = outer.body  # type: ignore[attr-defined]
        inside = _count_reads_of(body)
        return any(self.reads.get(n, 0) > inside.get(n, 0) for n in stores)

    def _call(
        self, group: list[ast.stmt], found: _Uses, takes: list[str], gives: list[str], falls: bool
    ) -> list[ast.stmt]:
        name = f".region{len(self.regions)}"
        last = group[-1]
        at = group[0]
        body = list(group)
        display = self._display(group, takes)
        if display is not None:
            rebuilt, inner = display
            rest = {n for s in [*group[:-1], *inner] for n in _uses(s).reads}
            takes = [n for n in takes if n in rest or n in self.arguments[:1] and "super" in rest]
            body[-1] = _at(ast.Return(ast.Tuple(inner, ast.Load())), last)
        only_end = isinstance(last, ast.Return) and not _uses(group[:-1]).returns
        mixed = found.returns and not only_end and falls
        if mixed:
            body = [cast(ast.stmt, _Returns().visit(_copied(s))) for s in body]
        if falls:
            names: list[ast.expr] = [ast.Name(n, ast.Load()) for n in gives]
            value: ast.expr
            if mixed:
                value = ast.Tuple([ast.Constant(False), *names], ast.Load())
            elif len(names) == 1:
                value = names[0]
            else:
                value = ast.Tuple(names, ast.Load()) if names else ast.Constant(None)
            body.append(_at(ast.Return(value), last))
        no: list[Any] = []
        arguments = ast.arguments(no, [ast.arg(n) for n in takes], None, no, no, None, no)
        code = self._compiled(body, arguments, list(self.code.co_freevars), driver=False)
        lines = (group[0].lineno, last.end_lineno or last.lineno)
        self.regions[name] = Region(lines, code, tuple(takes), tuple(gives))
        call = ast.Call(
            ast.Name(name, ast.Load()), [ast.Name(n, ast.Load()) for n in takes], []
        )
        way = ast.Name(_WAY, ast.Load())
        targets: list[ast.expr] = [ast.Name(n, ast.Store()) for n in gives]
        new: list[ast.stmt]
        if display is not None:
            new = [ast.Assign([ast.Name(_WAY, ast.Store())], call), ast.Return(rebuilt)]
        elif not falls:
            new = [ast.Return(call)]
        elif mixed:
            new = [
                ast.Assign([ast.Name(_WAY, ast.Store())], call),
                ast.If(
                    ast.Subscript(way, ast.Constant(0), ast.Load()),
                    [ast.Return(ast.Subscript(way, ast.Constant(1), ast.Load()))],
                    [],
                ),
            ]
            if targets:
                store: list[ast.expr] = [ast.Name(_WAY, ast.Store()), *targets]
                new.append(ast.Assign([ast.Tuple(store, ast.Store())], way))
        elif len(targets) > 1:
            new = [ast.Assign([ast.Tuple(targets, ast.Store())], call)]
        elif targets:
            new = [ast.Assign(targets, call)]
        else:
            new = [ast.Expr(call)]
        return [_at(s, at) for s in new]

    def _display(
        self, group: list[ast.stmt], takes: list[str]
    ) -> tuple[ast.expr, list[ast.expr]] | None:
        """A returned tuple, list or dict in which locals stand as they are: these need no region.

        Returns:
            The display, made of what a region gives, and what that region computes.
        """
        last = group[-1]
        if not isinstance(last, ast.Return) or _uses(group[:-1]).returns:
            return None
        stored = _uses(group).stores
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

    def _compiled(
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
        for a in ast.walk(plain):
            if isinstance(a, ast.arg):
                a.annotation = None
        declared = [d for d in self.declared if not any(d is s for s in ast.walk(_M(body)))]
        # Every free variable is one, whether or not this part uses it.
        kind = type(self.node) if driver else ast.FunctionDef
        node: ast.stmt = kind(self.node.name, plain, [*declared, *body], [], None)
        _at(node, self.node)
        inner = [c for c in self.chain[1:-1]]
        for c in reversed(inner):
            if isinstance(c, ast.ClassDef):
                node = _at(ast.ClassDef(c.name, [], [], [node], []), c)
            else:
                node = _at(self._outer(cast(Any, c).name, free, node), c)
        if not any(not isinstance(c, ast.ClassDef) for c in inner) and free:
            node = _at(self._outer("_", free, node), self.node)
        no: list[Any] = []
        module = ast.Module([node], no)
        ast.fix_missing_locations(module)
        flags = self.code.co_flags & _future_flags()
        whole = compile(
            module, self.code.co_filename, "exec", flags=flags, dont_inherit=True, optimize=-1
        )
        made = [c for c in _codes(whole) if c.co_name == self.node.name]
        found = [c for c in made if c.co_firstlineno == self.node.lineno]
        if not found or not set(found[-1].co_freevars) <= {*free, "__class__"}:
            raise CannotSplit("its variables cannot be told apart")
        return found[-1].replace(
            co_qualname=self.code.co_qualname, co_firstlineno=self.code.co_firstlineno
        )

    @staticmethod
    def _outer(name: str, free: list[str], inner: ast.stmt) -> ast.stmt:
        no: list[Any] = []
        names = [n for n in free if n != "__class__"]
        body: list[ast.stmt] = [
            ast.Assign([ast.Name(n, ast.Store())], ast.Constant(None)) for n in names
        ]
        arguments = ast.arguments(no, no, None, no, no, None, no)
        return ast.FunctionDef(name, arguments, [*body, inner], [], None)


def _M(body: list[ast.stmt]) -> ast.Module:
    return ast.Module(body, [])


def _future_flags() -> int:
    flags = 0
    for name in __future__.all_feature_names:
        flags |= getattr(__future__, name).compiler_flag
    return flags & ~0x10  # nested_scopes shares its bit with another flag


def _argument_count(code: types.CodeType) -> int:
    return (
        code.co_argcount
        + code.co_kwonlyargcount
        + bool(code.co_flags & 0x04)
        + bool(code.co_flags & 0x08)
    )


def _stored_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def _count_reads(node: ast.AST) -> dict[str, int]:
    counts: dict[str, int] = {}
    for n in ast.walk(node):
        if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Load, ast.Del)):
            counts[n.id] = counts.get(n.id, 0) + 1
        elif isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name):
            counts[n.target.id] = counts.get(n.target.id, 0) + 1
    return counts


def _count_reads_of(body: Sequence[ast.stmt]) -> dict[str, int]:
    return _count_reads(_M(list(body)))


def _at(node: Any, where: ast.AST) -> Any:
    """A new node, with all in it that has no place, at the place of another."""
    ast.copy_location(node, where)
    for n in ast.walk(node):
        if "lineno" in n._attributes and not hasattr(n, "lineno"):
            ast.copy_location(n, where)
    return node


def _copied(node: Any) -> Any:
    return copy.deepcopy(node)


class _Returns(ast.NodeTransformer):
    """Marks the values that a stretch returns."""

    def visit_Return(self, node: ast.Return) -> ast.AST:
        value = node.value or ast.Constant(None)
        return _at(ast.Return(ast.Tuple([ast.Constant(True), value], ast.Load())), node)

    def _leave(self, node: ast.AST) -> ast.AST:
        return node

    visit_FunctionDef = visit_Lambda = visit_ClassDef = visit_AsyncFunctionDef = _leave


_Make = Callable[[str, types.FunctionType], Any]


def driver(
    function: types.FunctionType, made: Split, make: _Make, call: Callable[[Spot], Any]
) -> types.FunctionType:
    """The driver of a function: a function like it, which calls the regions.

    Args:
        function: what was split.
        made: how.
        make: called with the name of each region and a function with its code; gives what the
            driver calls.
        call: called with the place of each call of a function that has a driver of its own; gives
            what the driver calls with that function and its arguments.
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
        cells[name] = types.CellType(make(name, plain))
    for name, spot in made.calls.items():
        cells[name] = types.CellType(call(spot))
    new = types.FunctionType(
        made.code, function.__globals__, function.__name__, None, closure(made.code.co_freevars)
    )
    new.__defaults__ = function.__defaults__
    new.__kwdefaults__ = function.__kwdefaults__
    new.__qualname__ = function.__qualname__
    new.__module__ = function.__module__
    return new


__all__ = ["CannotSplit", "Plan", "Region", "Spot", "Split", "driver", "split"]
