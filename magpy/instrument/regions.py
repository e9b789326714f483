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
import collections
import dataclasses
import functools
import itertools
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from magpy import _interp
from magpy.instrument.assignment import (
    SCOPES,
    Bound,
    Consumed,
    Flow,
    Unbound,
    Uses,
    as_module,
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
from magpy.instrument.hoisting import Hoist, Plan, Spot, blocks_of, placed_at, spot_of
from magpy.instrument.source import (
    CannotSplit,
    Chain,
    Definition,
    codes,
    find,
    future_flags,
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

_ITERABLE_COROUTINE, _ASYNC_GENERATOR = 0x100, 0x200  # flags of code objects

# No names of a program's: what a region gave, what it gives where its statements are to run in the
# driver, what corrects the traceback of an exception that it raised, what finds the driver of a
# function that is called, and what `locals()` gives without such names.
_WAY, _MISS, _CORRECT, _CALL, _LOCALS = ".magpy", ".miss", ".correct", ".call", ".locals"


#: What was split, by code and plan: the same functions run in many drivers.
_splits: dict[Any, Split] = {}
_MOST_KEPT = 256


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


class _Splitter:
    """Splits one function."""

    def __init__(
        self, chain: Chain, code: types.CodeType, plan: Plan, builtins: frozenset[str]
    ) -> None:
        self.chain = chain
        self.code = code
        self.plan = plan
        node = cast(Definition, _copied(chain[-1]))
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
            n.func = placed_at(ast.Name(_LOCALS, ast.Load()), n)
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
        self.regions: dict[str, Region] = {}
        self.declared = [
            s for s in own_nodes(self.node.body) if isinstance(s, (ast.Global, ast.Nonlocal))
        ]
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
        if not self.regions and not self.driven:
            raise CannotSplit("no statement is left to compile")
        self._let_go(new, self.temporaries)
        outer = [*self.code.co_freevars, *self.regions, _MISS, _CORRECT, _CALL, _LOCALS]
        code = self._compiled(start + new, self.node.args, outer, driver=True)
        return Split(code, self.regions)

    def _let_go(self, body: list[ast.stmt], names: set[str]) -> None:
        """What a temporary holds dies after the statement that it was made for."""
        inside = [_names_in(s) for s in body]
        found = {n: [i for i, there in enumerate(inside) if n in there] for n in names}
        last: list[tuple[int, str]] = []
        for i, s in enumerate(body):
            within = {n for n, places in found.items() if places == [i]}
            for block in blocks_of(s):
                if within:
                    self._let_go(block, within & {n for x in block for n in _names_in(x)})
        for n, places in found.items():
            if len(places) > 1:
                last.append((places[-1], n))
        for i, name in sorted(last, reverse=True):
            if not isinstance(body[i], (ast.Return, ast.Raise)):
                body.insert(i + 1, placed_at(_cleared(name), body[i]))

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
        return self._call(group, found, takes, gives, unsure, end is not None)

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

    def _call(
        self,
        group: list[ast.stmt],
        found: Uses,
        takes: list[str],
        gives: list[str],
        unsure: set[str],
        falls: bool,
    ) -> list[ast.stmt]:
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
            body.append(placed_at(ast.Return(value), last))
        no: list[Any] = []
        arguments = ast.arguments(no, [ast.arg(n) for n in takes], None, no, no, None, no)
        code = self._compiled(body, arguments, list(self.code.co_freevars), driver=False)
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


def _copied(node: Any) -> Any:
    """As `copy.deepcopy` of syntax trees and lists of them, in a fraction of the time."""
    if isinstance(node, list):
        return [_copied(n) for n in node]
    if not isinstance(node, ast.AST):
        return node
    new = type(node).__new__(type(node))
    vars(new).update((name, _copied(value)) for name, value in vars(node).items())
    return new


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
    yield ast.If(missed, [*cleared, *_copied(group)], taken)


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
    cells[_LOCALS] = types.CellType(functools.partial(_locals_of, code))
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


__all__ = ["CannotSplit", "Plan", "Region", "Split", "Spot", "driver", "split", "with_cells"]
