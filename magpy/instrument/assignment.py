"""Which local variables statements use, and which are assigned for certain after them.

Owns the analysis of syntax trees.  Does not own what follows for a region
(magpy/instrument/regions.py and driver_code.py) or a loop (magpy/instrument/turns.py), which call
this.  As PEP 526's and type checkers' definite assignment: it says "assigned" only where every way
through the statements assigns.
"""

from __future__ import annotations

import ast
import collections
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from magpy.instrument.source import walk
from magpy.objects.types import isinstance

#: Context managers of torch's that let every exception pass.
_LET_PASS = frozenset(
    [
        *("no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "autocast", "device"),
        *("record_function", "stream", "detect_anomaly", "sdpa_kernel"),
        *("saved_tensors_hooks", "save_on_cpu", "set_checkpoint_early_stop"),
    ]
)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (*_FUNCTIONS, *_COMPREHENSIONS, ast.ClassDef)


class Consumed(ast.GeneratorExp):
    """A generator expression that is over when the call is that it is an argument of."""


@dataclass(slots=True)
class Uses:
    """Which local variables a piece of source uses.

    Attributes:
        reads: read, also by inner functions.
        stores: assigned, in the function's own scope.
        captured: read by inner functions that may be called later.
        unsafe: it yields, deletes a name, leaves a loop around it, raises what a handler around it
            handles, or declares names.
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
        self.handlers = 0

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.found.reads.add(node.id)
        elif isinstance(node.ctx, ast.Store):
            self.found.stores.add(node.id)
        else:
            self.found.reads.add(node.id)
            self.found.unsafe = True

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.found.reads.add(node.target.id)
        self.found.works = True
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None or not isinstance(node.target, ast.Name):
            self.visit(node.target)
        self.visit(node.annotation)  # evaluated in a class
        if node.value is not None:
            self.visit(node.value)

    def _scope(self, parts: Iterable[ast.AST], own: set[str], *, kept: bool) -> Uses:
        """A scope within: what it reads of the function's, which it may keep.

        Args:
            parts: what is evaluated in the scope.
            own: names that are its own.
            kept: whether it may be evaluated later.
        """
        inner = uses(list(parts))
        self.found.reads |= inner.reads - own
        if kept:
            self.found.captured |= inner.reads - own
        self.found.captured |= inner.captured - own
        self.found.works = True
        return inner

    def _comprehension(self, node: Any, *, kept: bool) -> None:
        first = node.generators[0]
        self.visit(first.iter)
        rest = [
            x for g in node.generators for x in (g.target, g.iter, *g.ifs) if x is not first.iter
        ]
        values = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        own = uses([g.target for g in node.generators]).stores
        inner = self._scope([*rest, *values], own, kept=kept)
        # Assignment expressions in it assign the function's variables.
        assigned = inner.stores - own
        self.found.captured |= assigned
        if inner.unsafe or assigned or any(g.is_async for g in node.generators):
            self.found.unsafe = True

    def visit_ListComp(self, node: ast.AST) -> None:
        self._comprehension(node, kept=False)

    visit_SetComp = visit_DictComp = visit_ListComp

    def visit_GeneratorExp(self, node: ast.AST) -> None:
        self._comprehension(node, kept=True)

    def visit_Consumed(self, node: ast.AST) -> None:
        self._comprehension(node, kept=False)

    def visit_Call(self, node: ast.Call) -> None:
        self.found.works = True
        self.generic_visit(node)

    def _function(self, node: Any, body: list[ast.stmt] | list[ast.expr]) -> None:
        a = node.args
        arguments = [*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))]
        for n in [*a.defaults, *a.kw_defaults, *(x.annotation for x in arguments)]:
            if n is not None:
                self.visit(n)
        shared = {n for s in own_nodes(body) if isinstance(s, ast.Nonlocal) for n in s.names}
        own = {x.arg for x in arguments} | uses(body).stores
        self._scope([*body, *getattr(node, "type_params", ())], own - shared, kept=True)
        self._declares(node)

    def _declares(self, node: ast.AST) -> None:
        """A scope within that assigns variables of the function."""
        shared = {n for s in walk(node) if isinstance(s, ast.Nonlocal) for n in s.names}
        if shared:
            self.found.unsafe = True
            self.found.captured |= shared

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node, [node.body])

    def visit_FunctionDef(self, node: Any) -> None:
        self.found.stores.add(node.name)
        for d in [*node.decorator_list, node.returns]:
            if d is not None:
                self.visit(d)
        self._function(node, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.found.stores.add(node.name)
        for n in [*node.decorator_list, *node.bases, *(k.value for k in node.keywords)]:
            self.visit(n)
        self._scope([*node.body, *getattr(node, "type_params", ())], set(), kept=True)
        self._declares(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.found.stores.add(node.name)
        self.handlers += 1
        self.generic_visit(node)
        self.handlers -= 1

    def visit_Raise(self, node: ast.Raise) -> None:
        if node.exc is None and not self.handlers:
            self.found.unsafe = True
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
        self.generic_visit(node)

    visit_Yield = visit_YieldFrom = visit_Await = visit_Global = visit_Nonlocal = _bad
    visit_AsyncFor = visit_AsyncWith = visit_TypeAlias = _bad

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
    """Locals may be read before they are assigned.

    Args:
        names: the locals.
    """

    def __init__(self, names: set[str]) -> None:
        super().__init__(names)
        self.names = names


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
        """Bound after expressions."""
        for n in nodes:
            if n is not None:
                unbound = (uses(n).reads & self.names) - bound if self.strict else None
                if unbound:
                    raise Unbound(unbound)
                bound = bound | (certain_stores(n) & self.names)
        return bound

    def statement(self, s: ast.stmt, bound: set[str]) -> Bound:
        if isinstance(s, (ast.Return, ast.Raise)):
            self._read(bound, s)
            return None
        if isinstance(s, (ast.Break, ast.Continue)):
            return None
        if isinstance(s, ast.If):
            bound = self._read(bound, s.test)
            return _meet(self.block(s.body, set(bound)), self.block(s.orelse, set(bound)))
        if isinstance(s, (ast.For, ast.AsyncFor)):
            bound = self._read(bound, s.iter) - deleted_in(s)
            self.block(s.body, self._read(bound, s.target))
            self.block(s.orelse, set(bound))
            return bound
        if isinstance(s, ast.While):
            bound = self._read(bound - deleted_in(s), s.test)
            self.block(s.body, set(bound))
            self.block(s.orelse, set(bound))
            return bound
        if isinstance(s, (ast.With, ast.AsyncWith)):
            inner = bound
            for item in s.items:
                inner = self._read(inner, item.context_expr, item.optional_vars)
            after = self.block(s.body, set(inner))
            passes = all(lets_pass(i.context_expr) for i in s.items)
            return after if passes else bound - deleted_in(s)
        if isinstance(s, ast.Try) or type(s).__name__ == "TryStar":
            return self._try(cast(ast.Try, s), bound)
        if isinstance(s, ast.Match):
            bound = self._read(bound, s.subject)
            for case in s.cases:
                self._read(bound, case.pattern)
                inside = bound | (uses(case.pattern).stores & self.names)
                self.block(case.body, self._read(inside, case.guard))
            return bound - deleted_in(s)
        return self._read(bound, s) - deleted_in(s)

    def _try(self, s: ast.Try, bound: set[str]) -> Bound:
        ways = [self.block(s.orelse, self.block(s.body, set(bound)))]
        bound = bound - deleted_in(s)
        for h in s.handlers:
            self._read(bound, h.type)
            named = {h.name} if h.name else set()
            end = self.block(h.body, bound | named)
            ways.append(None if end is None else end - named)
        after = _meet(*ways)
        final = self.block(s.finalbody, set(bound))
        if final is None:
            return None
        if after is None:
            return None
        return (after - deleted_in(as_module(s.finalbody))) | final


def certain_stores(node: ast.AST) -> set[str]:
    """The names that a simple statement or an expression has assigned if it did not raise."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, (*SCOPES, ast.Assert)):  # an assertion may be left out
        return set()
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Store) else set()
    if isinstance(node, ast.alias):
        return {(node.asname or node.name).partition(".")[0]}
    if isinstance(node, ast.BoolOp):
        return certain_stores(node.values[0])
    if isinstance(node, ast.IfExp):
        return certain_stores(node.test)
    if isinstance(node, ast.Compare):
        return certain_stores(node.left) | certain_stores(node.comparators[0])
    if isinstance(node, ast.AnnAssign):
        return certain_stores(node.value) | certain_stores(node.target) if node.value else set()
    return {n for child in ast.iter_child_nodes(node) for n in certain_stores(child)}


def deleted_in(node: ast.AST) -> set[str]:
    """The names that something in a node deletes."""
    names = [n for n in walk(node) if isinstance(n, ast.Name)]
    return {n.id for n in names if isinstance(n.ctx, ast.Del)}


def lets_pass(manager: ast.expr) -> bool:
    """Whether a context manager never swallows an exception, as far as its name tells."""
    f = manager.func if isinstance(manager, ast.Call) else manager
    name = f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""
    return name in _LET_PASS


def as_module(body: list[ast.stmt]) -> ast.Module:
    """Statements as one tree."""
    return ast.Module(body, [])


def own_nodes(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """The nodes that are evaluated in a scope, without those of the scopes within."""
    todo: list[Any] = list(body)
    while todo:
        n = todo.pop()
        if n is None:
            continue
        yield n
        if isinstance(n, _FUNCTIONS):
            todo += [*n.args.defaults, *n.args.kw_defaults, *getattr(n, "decorator_list", ())]
        elif isinstance(n, ast.ClassDef):
            todo += [*n.decorator_list, *n.bases, *(k.value for k in n.keywords)]
        elif isinstance(n, _COMPREHENSIONS):
            todo.append(n.generators[0].iter)
        else:
            todo += ast.iter_child_nodes(n)


def stored_by(node: Any) -> Iterator[str]:
    """The names that a node itself assigns."""
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).partition(".")[0]
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
    elif isinstance(node, _COMPREHENSIONS):
        yield from {n.target.id for n in walk(node) if isinstance(n, ast.NamedExpr)}


def count_reads(node: ast.AST) -> dict[str, int]:
    """How often each name is read in a tree."""
    counts: dict[str, int] = {}
    for n in walk(node):
        if isinstance(n, ast.Name) and isinstance(n.ctx, (ast.Load, ast.Del)):
            counts[n.id] = counts.get(n.id, 0) + 1
        elif isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name):
            counts[n.target.id] = counts.get(n.target.id, 0) + 1
    return counts


def count_reads_of(body: Sequence[ast.stmt]) -> dict[str, int]:
    """How often each name is read in statements."""
    return count_reads(as_module(list(body)))


def count_names(body: Sequence[ast.AST]) -> dict[str, int]:
    """How often each name is read, assigned or deleted in statements."""
    every = [n for s in body for n in walk(s)]
    read = [n.id for n in every if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Store)]
    return collections.Counter([*read, *(name for n in every for name in stored_by(n))])
