"""Which local variables statements use, and which are assigned for certain after them.

Owns the analysis of syntax trees.  Does not own what follows for a region
(magpy/instrument/regions.py, the only caller).  As PEP 526's and type checkers' definite
assignment: it says "assigned" only where every way through the statements assigns.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from magpy.objects.types import isinstance

#: Context managers of torch's that let every exception pass.
_LET_PASS = frozenset(
    [
        *("no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "autocast", "device"),
        *("record_function", "stream", "detect_anomaly", "sdpa_kernel"),
    ]
)


@dataclass(slots=True)
class Uses:
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


def uses(node: ast.AST | Sequence[ast.AST]) -> Uses:
    """The uses in a node, or in statements one after the other."""
    found = Uses()
    visitor = _UsesOf(found)
    for n in node if isinstance(node, (list, tuple)) else [node]:
        visitor.visit(cast(ast.AST, n))
    return found


class _UsesOf(ast.NodeVisitor):
    def __init__(self, found: Uses) -> None:
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
        inner = Uses()
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


Bound = set[str] | None  # None: the end is not reached


def _meet(*ways: Bound) -> Bound:
    reached = [w for w in ways if w is not None]
    return set.intersection(*reached) if reached else None


class Unbound(Exception):
    """A local may be read before it is assigned."""


class Flow:
    """Definite assignment, as far as statements tell.

    Args:
        names: the local variables.
        strict: raise where one is read that may be unbound.
    """

    def __init__(self, names: frozenset[str], strict: bool) -> None:
        self.names = names
        self.strict = strict

    def block(self, body: Sequence[ast.stmt], bound: Bound) -> Bound:
        for s in body:
            if bound is None:
                return None
            bound = self.statement(s, bound)
        return bound

    def _read(self, bound: set[str], *nodes: ast.AST | None) -> set[str]:
        """Bound after expressions (assignment expressions may not have run)."""
        for n in nodes:
            if n is not None and self.strict and not (uses(n).reads & self.names) <= bound:
                raise Unbound
        return bound

    def statement(self, s: ast.stmt, bound: set[str]) -> Bound:
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
            self.block(s.body, bound | uses(s.target).stores)
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
                    inner |= uses(item.optional_vars).stores
            after = self.block(s.body, inner)
            passes = all(lets_pass(i.context_expr) for i in s.items)
            return after if passes else bound
        if isinstance(s, ast.Try) or type(s).__name__ == "TryStar":
            return self._try(cast(ast.Try, s), bound)
        if isinstance(s, ast.Match):
            self._read(bound, s.subject)
            for case in s.cases:
                self.block(case.body, bound | uses(case.pattern).stores)
            return bound
        found = uses(s)
        if self.strict and not (found.reads & self.names) <= bound:
            raise Unbound
        return bound | (found.stores & self.names)

    def _try(self, s: ast.Try, bound: set[str]) -> Bound:
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


def lets_pass(manager: ast.expr) -> bool:
    """Whether a context manager never swallows an exception, as far as its name tells."""
    f = manager.func if isinstance(manager, ast.Call) else manager
    name = f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""
    return name in _LET_PASS


def as_module(body: list[ast.stmt]) -> ast.Module:
    """Statements as one tree."""
    return ast.Module(body, [])


def stored_by(node: ast.AST) -> Iterator[str]:
    """The names that a node itself assigns."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def count_reads(node: ast.AST) -> dict[str, int]:
    """How often each name is read in a tree."""
    counts: dict[str, int] = {}
    for n in ast.walk(node):
        if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Load, ast.Del)):
            counts[n.id] = counts.get(n.id, 0) + 1
        elif isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name):
            counts[n.target.id] = counts.get(n.target.id, 0) + 1
    return counts


def count_reads_of(body: Sequence[ast.stmt]) -> dict[str, int]:
    """How often each name is read in statements."""
    return count_reads(as_module(list(body)))
