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

import ast
import functools
import linecache
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from magpy.objects.types import isinstance

#: Names that ask for the frame they are in, or for its locals.
_ASKS_FRAME = frozenset(
    ["locals", "vars", "dir", "exec", "eval", "_getframe", "currentframe", "stack", "__class__"]
)
#: Context managers of torch's that let every exception pass.
_LET_PASS = frozenset(
    [
        *("no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "autocast", "device"),
        *("record_function", "stream", "detect_anomaly", "sdpa_kernel"),
    ]
)
_WAY = ".magpy"  # no name of a program's


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
        code: of the driver: the function's, with a free variable for each region.
        regions: the regions by the names of those variables.
    """

    code: types.CodeType
    regions: dict[str, Region]


class CannotSplit(Exception):
    """The function cannot have a driver; the text says why."""


def split(function: types.FunctionType, alone: Iterable[tuple[int, int]]) -> Split:
    """Splits a function so that some of its lines run as they are.

    Args:
        function: of a `def` whose source can be found.
        alone: first and last lines of statements that no region may hold.

    Raises:
        CannotSplit: it has no source, is a generator or a coroutine, asks for its frame, or no
            region is left.
    """
    code = function.__code__
    names = _names_in(code)
    asked = (names & _ASKS_FRAME) - {"__class__"}
    if asked:
        raise CannotSplit(f"it asks for its frame or its locals ({sorted(asked)[0]})")
    if code.co_flags & (0x20 | 0x80 | 0x100 | 0x200):
        raise CannotSplit("it is a generator or a coroutine")
    chain = _find(code)
    splitter = _Splitter(chain, code, list(alone))
    return splitter.split()


def _names_in(code: types.CodeType) -> frozenset[str]:
    found = set(code.co_names) | set(code.co_varnames)
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            found |= _names_in(c)
    return frozenset(found)


# ------------------------------------------------------------------- source

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
        node = cast(ast.FunctionDef, chain[-1])
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
        if isinstance(s, ast.For):
            self._read(bound, s.iter)
            self.block(s.body, bound | _uses(s.target).stores)
            self.block(s.orelse, set(bound))
            return bound
        if isinstance(s, ast.While):
            self._read(bound, s.test)
            self.block(s.body, set(bound))
            self.block(s.orelse, set(bound))
            return bound
        if isinstance(s, ast.With):
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


class _Splitter:
    """Splits one function."""

    def __init__(
        self, chain: _Chain, code: types.CodeType, alone: list[tuple[int, int]]
    ) -> None:
        self.chain = chain
        self.code = code
        self.node = cast(ast.FunctionDef, chain[-1])
        self.alone = alone
        self.locals = frozenset(code.co_varnames) | frozenset(code.co_cellvars)
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
            if isinstance(s, (ast.For, ast.While))
        )

    def split(self) -> Split:
        body = list(self.node.body)
        start: list[ast.stmt] = []
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            start, body = body[:1], body[1:]
        new, _ = self.block(body, set(self.arguments), in_loop=False, outer=None)
        if not self.regions:
            raise CannotSplit("no statement is left to compile")
        outer = [*self.code.co_freevars, *self.regions]
        code = self._compiled(start + new, self.node.args, outer, {})
        return Split(code, self.regions)

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
        first, last = s.lineno, s.end_lineno or s.lineno  # type: ignore[attr-defined]
        return any(a <= last and b >= first for a, b in self.alone)

    def _may_join(self, s: ast.stmt) -> bool:
        return not self._is_alone(s) and not _uses(s).unsafe

    def _inside(
        self, s: ast.stmt, bound: set[str], in_loop: bool, outer: ast.AST | None
    ) -> ast.stmt:
        """A statement that stays, with regions in its blocks."""
        flow = _Flow(self.locals, strict=False)

        def go(body: list[ast.stmt], names: set[str], loop: bool, o: ast.AST | None) -> Any:
            return self.block(body, set(names), in_loop=loop, outer=o)[0] if body else []

        new: Any = None
        if isinstance(s, ast.If):
            new = ast.If(
                s.test, go(s.body, bound, in_loop, outer), go(s.orelse, bound, in_loop, outer)
            )
        elif isinstance(s, ast.For):
            inner = bound | _uses(s.target).stores
            new = ast.For(s.target, s.iter, go(s.body, inner, True, outer), s.orelse)
        elif isinstance(s, ast.While):
            new = ast.While(s.test, go(s.body, bound, True, outer), s.orelse)
        elif isinstance(s, ast.With):
            inner = set(bound)
            for item in s.items:
                if item.optional_vars is not None:
                    inner |= _uses(item.optional_vars).stores
            passes = all(_lets_pass(i.context_expr) for i in s.items)
            new = ast.With(s.items, go(s.body, inner, in_loop, outer if passes else s))
        elif isinstance(s, ast.Try):
            new = ast.Try(
                go(s.body, bound, in_loop, s), s.handlers, s.orelse, s.finalbody
            )
        del flow
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
        code = self._compiled(body, arguments, list(self.code.co_freevars), {})
        lines = (group[0].lineno, last.end_lineno or last.lineno)
        self.regions[name] = Region(lines, code, tuple(takes), tuple(gives))
        call = ast.Call(
            ast.Name(name, ast.Load()), [ast.Name(n, ast.Load()) for n in takes], []
        )
        way = ast.Name(_WAY, ast.Load())
        targets: list[ast.expr] = [ast.Name(n, ast.Store()) for n in gives]
        new: list[ast.stmt]
        if not falls:
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

    def _compiled(
        self,
        body: list[ast.stmt],
        arguments: ast.arguments,
        free: list[str],
        _: dict[str, Any],
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
        node: ast.stmt = ast.FunctionDef(self.node.name, plain, [*declared, *body], [], None)
        _at(node, self.node)
        inner = [c for c in self.chain[1:-1]]
        for i, c in enumerate(reversed(inner)):
            if isinstance(c, ast.ClassDef):
                node = _at(ast.ClassDef(c.name, [], [], [node], []), c)
            else:
                node = _at(self._outer(cast(Any, c).name, free, node), c)
            del i
        if not any(not isinstance(c, ast.ClassDef) for c in inner) and free:
            node = _at(self._outer("_", free, node), self.node)
        elif free:
            pass
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
    import __future__

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


def _copied(node: ast.stmt) -> ast.stmt:
    import copy

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


def driver(function: types.FunctionType, made: Split, make: _Make) -> types.FunctionType:
    """The driver of a function: a function like it, which calls the regions.

    Args:
        function: what was split.
        made: how.
        make: called with the name of each region and a function with its code; gives what the
            driver calls.
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
    new = types.FunctionType(
        made.code, function.__globals__, function.__name__, None, closure(made.code.co_freevars)
    )
    new.__defaults__ = function.__defaults__
    new.__kwdefaults__ = function.__kwdefaults__
    new.__qualname__ = function.__qualname__
    new.__module__ = function.__module__
    return new


__all__ = ["CannotSplit", "Region", "Split", "driver", "split"]
