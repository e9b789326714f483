"""Drivers: a function in which stretches of statements are calls of functions of their own.

Owns the choice of the stretches (regions) of a Python function whose other lines must run as they
are, and what each region reads and gives back.  Does not own the code of both
(magpy/instrument/driver_code.py), why a line must run as it is, nor how a region is compiled
(magpy/runtime/driver.py, which calls this).

A region is made from the function's source, which is used only if it compiles to the function's own
code.  Statements are the least unit: between them the evaluation stack holds what the block around
them has put there and nothing else.  A region takes the locals that it reads as arguments and gives
back those that it assigns and that are read elsewhere.  Where that cannot be said for certain (a
local that may be unbound, a variable that an inner function shares and that is assigned again), the
statements stay in the driver.
"""

from __future__ import annotations

import ast
import collections
import dataclasses
import sys
import types
from collections.abc import Sequence
from typing import Any, cast

from magpy.instrument.assignment import (
    SCOPES,
    Bound,
    Consumed,
    Flow,
    Unbound,
    Uses,
    certain_stores,
    count_names,
    count_reads,
    count_reads_of,
    deleted_in,
    lets_pass,
    own_nodes,
    stored_by,
    uses,
)
from magpy.instrument.driver_code import LOCALS, Region, Split, Writer, copied, let_go
from magpy.instrument.hoisting import Hoist, Plan, Spot, blocks_of, placed_at, spot_of
from magpy.instrument.source import (
    CannotSplit,
    Chain,
    Definition,
    find,
    renamed,
    walk,
)
from magpy.objects.types import isinstance

#: Names that ask for the frame they are in, or for its locals.
_ASKS_FRAME = frozenset(["exec", "eval", "_getframe", "currentframe"])


#: What these give differs with the frame that calls them.
_OF_THE_FRAME = frozenset(["exec", "eval", "locals", "super"])

#: These ask for the frame only where they are given nothing.
_MAY_ASK_FRAME = frozenset(["vars", "dir"])


#: Builtin functions that have used up an iterator when they return.
_CONSUMERS = frozenset(
    [*("all", "any", "dict", "frozenset", "list", "max", "min", "set", "sorted", "sum", "tuple")]
)


_ASYNC_GENERATOR = 0x200  # a flag of code objects

#: What was split, by code and plan: the same functions run in many drivers.
_splits: dict[Any, Split] = {}
_MOST_KEPT = 256


def split(function: types.FunctionType, plan: Plan) -> Split:
    """Splits a function so that some of its lines run as they are.

    Args:
        function: of a `def` whose source can be found.
        plan: what no region may hold.

    Raises:
        CannotSplit: it has no source, asks for its frame, or no region is left.
    """
    code = function.__code__
    # The names that nothing of the module hides.
    builtins = _CONSUMERS.union(["locals"]).difference(function.__globals__)
    # Code is equal to that of another file and class, too.
    key = code, code.co_filename, code.co_qualname, plan.key(), builtins
    if key not in _splits:
        if len(_splits) >= _MOST_KEPT:
            _splits.clear()
        _splits[key] = _split(code, plan, builtins)
    return _splits[key]


def _split(code: types.CodeType, plan: Plan, builtins: frozenset[str]) -> Split:
    chain, defined = find(code)
    every = list(walk(chain[-1]))
    body = cast(Definition, chain[-1]).body
    other = {*code.co_varnames, *code.co_cellvars, *code.co_freevars}
    shadowed = {"locals"}.intersection(other) or "locals" not in builtins
    if not shadowed and sum(map(_asks_locals, every)) != sum(map(_asks_locals, own_nodes(body))):
        raise CannotSplit("its locals are asked for within an expression (locals)")
    called = {n.func for n in every if isinstance(n, ast.Call)}
    passed = [n.id for n in every if isinstance(n, ast.Name) and n not in called]
    for name in _OF_THE_FRAME.intersection(passed) - other:
        raise CannotSplit(f"{name} looks at the frame that calls it, and is called elsewhere")
    for n in every:
        f = n.func if isinstance(n, ast.Call) else None
        name = f.id if isinstance(f, ast.Name) else f.attr if isinstance(f, ast.Attribute) else ""
        asks = name in ("_getframe", "currentframe") or (
            isinstance(f, ast.Name) and name in _ASKS_FRAME
        )
        if asks or (isinstance(n, ast.Call) and name in _MAY_ASK_FRAME and not n.args):
            raise CannotSplit(f"it asks for its frame or its locals ({name})")
    if any(_is_private(n) for n in (*code.co_varnames, *code.co_cellvars, *code.co_freevars)):
        raise CannotSplit("a local's name is private to a class")
    made = _Splitter(chain, defined, plan, builtins).split()
    if defined is code:
        return made
    parts = {k: dataclasses.replace(r, code=renamed(r.code, code)) for k, r in made.regions.items()}
    return Split(renamed(made.code, code), parts)


def _held_alone(group: Sequence[ast.stmt]) -> set[str]:
    """The names that statements assign the result of a call to, alone (`guard = Guard()`)."""
    return {
        target.id
        for s in own_nodes(group)
        if isinstance(s, ast.Assign) and isinstance(s.value, ast.Call)
        for target in s.targets
        if isinstance(target, ast.Name)
    }


class _Splitter:
    """Splits one function."""

    def __init__(
        self, chain: Chain, code: types.CodeType, plan: Plan, builtins: frozenset[str]
    ) -> None:
        self.code = code
        self.plan = plan
        node = cast(Definition, copied(chain[-1]))
        self.arguments = code.co_varnames[: _argument_count(code)]
        # Since 3.12 the code has the variables of comprehensions, too.
        own = {n for s in own_nodes(node.body) for n in stored_by(s)} | deleted_in(node)
        plain = own.union(self.arguments).intersection(code.co_varnames + code.co_cellvars)
        _consumed(node, builtins - plain)
        self.locals = frozenset(plain)
        self._sort_out(node)
        bound = _BoundAt(self.locals - self.shared)
        bound.block(node.body, set(self.arguments) - self.shared)
        hoist = Hoist(plan, plain, bound.at)
        known = "locals" in builtins - plain - {*code.co_freevars}
        asking = filter(_asks_locals, own_nodes(node.body)) if known else ()
        shown = [cast(ast.Call, n) for n in asking]
        #: Some line asks for all locals.
        self.shows = bool(shown)
        for n in shown:
            n.args = [placed_at(ast.Call(n.func, [], []), n)]
            n.func = placed_at(ast.Name(LOCALS, ast.Load()), n)
            hoist.alone.add(n)
        self.node = hoist.function(node)
        self.alone = hoist.alone
        self.driven = bool(hoist.driven)
        self.temporaries = hoist.temporaries
        self.locals |= self.temporaries
        self.reads = count_reads(self.node)
        self.names = count_names([self.node])
        if "super" in self.reads and self.arguments:  # it looks at the first argument
            for counts in (self.reads, self.names):
                counts[self.arguments[0]] = counts.get(self.arguments[0], 0) + 1
        self.writer = Writer(chain, code, self.node, self.arguments)
        #: Of the free variables, those that regions are given, and those that none of them reads,
        #: since some function assigns them.
        self.outside: set[str] = set()
        self.assigned: set[str] = set()
        if plan.closures:
            self.outside = {*code.co_freevars} - {"__class__"}
            every = [n for c in chain[1:] for n in walk(c) if isinstance(n, ast.Nonlocal)]
            self.assigned = self.outside.intersection(n for s in every for n in s.names)

    def _sort_out(self, node: Definition) -> None:
        """Finds the variables that regions leave alone."""
        every = list(walk(node))
        stored = [(n, s) for s in every for n in stored_by(s)]
        #: Where each local is assigned first.
        self.first: dict[str, tuple[int, int]] = dict.fromkeys(self.arguments, (0, 0))
        for n, s in stored:
            self.first[n] = min(self.first.get(n, _END), _place(s))
        again = {
            n
            for loop in every
            if isinstance(loop, (ast.For, ast.AsyncFor, ast.While))
            for s in walk(loop)
            for n in stored_by(s)
        }
        captured: dict[str, tuple[int, int]] = {}
        for s in every:
            if isinstance(s, (ast.expr, ast.stmt)):
                for n in uses(s).captured & self.locals if isinstance(s, SCOPES) else ():
                    captured[n] = min(captured.get(n, _place(s)), _place(s))
        times = collections.Counter([*self.arguments, *(n for n, _ in stored)])
        deleted = deleted_in(node)
        #: No region uses these: inner functions share them and they are assigned more than once,
        #: or they are unbound again where no statement says so.
        self.shared = {n for n in captured if times[n] > 1 or n in again or n in deleted}
        named = [h for h in every if isinstance(h, ast.ExceptHandler) and h.name]
        whole = count_names([node])
        for name in {cast(str, h.name) for h in named}:
            inside = sum(count_names(h.body).get(name, 0) for h in named if h.name == name)
            if whole.get(name, 0) != inside or name in captured:
                self.shared.add(name)
        #: No region assigns these: an inner function that is made before may look at them.
        self.early = {n for n, s in stored if n in captured and captured[n] <= _place(s)}

    def split(self) -> Split:
        body = list(self.node.body)
        start: list[ast.stmt] = []
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            start, body = body[:1], body[1:]
        new, _ = self.block(body, set(self.arguments), in_loop=False, outer=None)
        if not self.writer.regions and not self.driven:
            raise CannotSplit("no statement is left to compile")
        let_go(new, self.temporaries)
        return Split(self.writer.driver(start + new), self.writer.regions)

    def block(
        self,
        body: Sequence[ast.stmt],
        bound: Bound,
        *,
        in_loop: bool,
        outer: Sequence[ast.stmt] | None,
    ) -> tuple[list[ast.stmt], Bound]:
        """The statements of a block, with calls of regions in them, and what is bound after it."""
        out: list[ast.stmt] = []
        group: list[ast.stmt] = []
        before: Bound = bound
        flow = Flow(self.locals, strict=False)

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
                apart = self.plan.is_apart(s) or self._is_rest(s)
                if group and apart:
                    close()
                if not group:
                    before = set(bound)
                group.append(s)
                if apart:
                    close()
            else:
                close()
                out.append(self._inside(s, set(bound), in_loop, outer))
            bound = flow.statement(s, set(bound))
        close()
        return out, bound

    def _is_alone(self, s: ast.AST) -> bool:
        if any(n in self.alone for n in walk(s)):
            return True
        first, last = s.lineno, s.end_lineno or s.lineno  # type: ignore[attr-defined]
        if spot_of(s) in self.plan.left:
            return True
        return any(a <= last and b >= first for a, b in self.plan.lines)

    def _is_rest(self, s: ast.stmt) -> bool:
        """Whether a statement gives nothing and takes what was taken out: `log.append(.t)`.

        Most do no tensor work, and go by what differs in every call.
        """
        names = (n.id for n in walk(s) if isinstance(n, ast.Name))
        return isinstance(s, ast.Expr) and any(n in self.temporaries for n in names)

    def _may_join(self, s: ast.stmt) -> bool:
        opened = self.plan.is_apart(s) and any(True for _ in blocks_of(s))
        return not self._is_alone(s) and not uses(s).unsafe and not opened

    def _inside(
        self, s: ast.stmt, bound: set[str], in_loop: bool, outer: Sequence[ast.stmt] | None
    ) -> ast.stmt:
        """A statement that stays, with regions in its blocks."""

        def go(
            body: list[ast.stmt], names: set[str], loop: bool, o: Sequence[ast.stmt] | None
        ) -> list[ast.stmt]:
            return self.block(body, set(names), in_loop=loop, outer=o)[0]

        names = set(bound)
        new: Any = None
        if isinstance(s, ast.If):
            names |= certain_stores(s.test)
            new = ast.If(
                s.test, go(s.body, names, in_loop, outer), go(s.orelse, names, in_loop, outer)
            )
        elif isinstance(s, (ast.For, ast.AsyncFor)):
            names -= deleted_in(s)
            inner = names | certain_stores(s.target)
            orelse = go(s.orelse, names, in_loop, outer)
            new = type(s)(s.target, s.iter, go(s.body, inner, True, outer), orelse)
        elif isinstance(s, ast.While):
            names = (names - deleted_in(s)) | certain_stores(s.test)
            orelse = go(s.orelse, names, in_loop, outer)
            new = ast.While(s.test, go(s.body, names, True, outer), orelse)
        elif isinstance(s, (ast.With, ast.AsyncWith)):
            inner = names.union(*(certain_stores(i) for i in s.items))
            passes = all(lets_pass(i.context_expr) for i in s.items)
            new = type(s)(s.items, go(s.body, inner, in_loop, outer if passes else s.body))
        elif isinstance(s, ast.Try):
            new = self._inside_try(s, names, in_loop, outer)
        elif isinstance(s, ast.Match):
            cases = [
                ast.match_case(
                    c.pattern, c.guard, go(c.body, names | uses(c.pattern).stores, in_loop, outer)
                )
                for c in s.cases
            ]
            new = ast.Match(s.subject, cases)
        return ast.copy_location(new, s) if new is not None else s

    def _inside_try(
        self, s: ast.Try, bound: set[str], in_loop: bool, outer: Sequence[ast.stmt] | None
    ) -> ast.Try:
        def go(body: list[ast.stmt], names: Bound, seen: bool) -> list[ast.stmt]:
            if names is None:
                return body
            o = body if seen else outer
            return self.block(body, set(names), in_loop=in_loop, outer=o)[0]

        last = bool(s.finalbody)
        after = Flow(self.locals, strict=False).block(s.body, set(bound))
        body, orelse = go(s.body, bound, True), go(s.orelse, after, last)
        bound = bound - deleted_in(s)
        handlers = [
            ast.copy_location(
                ast.ExceptHandler(h.type, h.name, go(h.body, bound | {h.name or ""}, last)), h
            )
            for h in s.handlers
        ]
        return ast.Try(body, handlers, orelse, go(s.finalbody, bound, False))

    # --------------------------------------------------------------- one region

    def _region(
        self,
        group: list[ast.stmt],
        bound: set[str],
        in_loop: bool,
        outer: Sequence[ast.stmt] | None,
    ) -> list[ast.stmt]:
        """A stretch of statements, as the call of a region, or as it is."""
        if self.plan.glue:
            return group
        found = uses(group)
        simple = len(group) == 1 and isinstance(group[0], (ast.Return, ast.Pass))
        if not found.works or (simple and not found.works):
            return group
        made = self._made(group, found, bound, in_loop, outer)
        if made is not None:
            return made
        if len(group) == 1:
            return [self._inside(group[0], bound, in_loop, outer)]
        # What some statement is in the way of is tried in two halves.
        flow, half = Flow(self.locals, strict=False), len(group) // 2
        middle = flow.block(group[:half], set(bound))
        first = self._region(group[:half], bound, in_loop, outer)
        if middle is None:
            return first + group[half:]
        return first + self._region(group[half:], middle, in_loop, outer)

    def _made(
        self,
        group: list[ast.stmt],
        found: Uses,
        bound: set[str],
        in_loop: bool,
        outer: Sequence[ast.stmt] | None,
    ) -> list[ast.stmt] | None:
        own = count_names(group)
        # What another stretch assigns in some cases only goes through it in the others.
        elsewhere = {n for n, count in self.names.items() if count > own.get(n, 0)}
        stores = found.stores & self.locals
        if (found.reads | found.stores | found.captured) & self.shared or stores & self.early:
            return None
        if found.captured & self.outside or (found.reads | found.stores) & self.assigned:
            return None
        unsure = self._unsure(group, bound, in_loop)
        if unsure is None:
            return None
        bound = bound | unsure
        end = Flow(self.locals, strict=True).block(group, set(bound))
        reads = found.reads & self.locals & bound
        # A loop comes here again, and reads what it has assigned.
        live = stores & (elsewhere | (reads if in_loop else set()))
        live = stores if self.shows else live
        # What nobody reads is there to live until the function ends.
        live |= {n for n in _held_alone(group) & stores if not self.reads.get(n)}
        if end is not None:
            if live - end - bound:
                return None
            gives = sorted(live)
            reads |= {n for n in gives if n not in end or self._conditional(n, group, bound)}
        else:
            gives = []
        if self.code.co_flags & _ASYNC_GENERATOR and (found.returns or end is None):
            return None  # it cannot return a value
        at_once = len(group) == 1 and _stores_last(group[0])
        if outer is not None and not at_once and self._seen_after(stores, outer, in_loop):
            return None
        unsure |= found.reads & self.outside  # a cell may be emptied
        takes = sorted(reads | (found.reads & self.outside))
        if "super" in found.reads and self.arguments:  # it looks at the first argument
            first = self.arguments[0]
            if first not in bound or first in self.shared:
                return None
            takes = [first, *(n for n in takes if n != first)]
        return self.writer.call(group, found, takes, gives, unsure, end is not None)

    def _unsure(self, group: list[ast.stmt], bound: set[str], in_loop: bool) -> set[str] | None:
        """Locals that a stretch reads, and that are bound where all went as usual.

        They are assigned before it in a block that may be left early (a `with`, a loop, a branch).

        Returns:
            None where it reads what nothing before it assigns.
        """
        unsure: set[str] = set()
        while True:
            try:
                Flow(self.locals, strict=True).block(group, bound | unsure)
            except Unbound as e:
                if not in_loop and any(
                    self.first.get(n, _END) >= _place(group[0]) for n in e.names
                ):
                    return None
                unsure |= e.names
            else:
                return unsure

    def _conditional(self, name: str, group: list[ast.stmt], bound: set[str]) -> bool:
        """Whether a local may keep the value that it had before."""
        end = Flow(self.locals, strict=False).block(group, bound - {name})
        return end is not None and name not in end

    def _seen_after(self, stores: set[str], outer: Sequence[ast.stmt], in_loop: bool) -> bool:
        """Whether what follows an exception in a block may look at one of these locals."""
        inside = count_reads_of(outer)
        if any(self.reads.get(n, 0) > inside.get(n, 0) for n in stores):
            return True
        if in_loop:  # the block itself follows
            try:
                Flow(frozenset(stores), strict=True).block(outer, set())
            except Unbound:
                return True
        return False


class _BoundAt(Flow):
    """What is bound for certain at each statement."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(names, strict=False)
        self.at: dict[ast.stmt, set[str]] = {}

    def statement(self, s: ast.stmt, bound: set[str]) -> Bound:
        self.at[s] = bound & self.names
        return super().statement(s, bound)


def _asks_locals(n: ast.AST) -> bool:
    """Whether a node is `locals()`."""
    return isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "locals"


def _consumed(node: ast.AST, consumers: frozenset[str]) -> None:
    """Marks the generator expressions that are over when the call is that they are given to."""
    for n in walk(node):
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in consumers:
            n.args = [
                ast.copy_location(Consumed(a.elt, a.generators), a)
                if isinstance(a, ast.GeneratorExp)
                else a
                for a in n.args
            ]


def _is_private(name: str) -> bool:
    """Whether the compiler may have made a name of one that begins with two underscores."""
    return name[:1] == "_" and "__" in name.strip("_")


_END = (sys.maxsize, 0)


def _place(node: Any) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _stores_last(s: ast.stmt) -> bool:
    """Whether a statement assigns locals only where nothing of it can fail any more."""
    if isinstance(s, ast.Assign) and len(s.targets) == 1:
        target = s.targets[0]
    elif isinstance(s, ast.AugAssign):
        target = s.target
    else:
        return False
    parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    plain = all(isinstance(p, ast.Name) for p in parts)
    return plain and not uses(s.value).stores


def _argument_count(code: types.CodeType) -> int:
    return (
        code.co_argcount
        + code.co_kwonlyargcount
        + bool(code.co_flags & 0x04)
        + bool(code.co_flags & 0x08)
    )


__all__ = ["CannotSplit", "Plan", "Region", "Split", "Spot", "split"]
