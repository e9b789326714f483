"""Expressions taken out of their statements, in the order of evaluation.

Owns the rewriting `return f(h + next(it))` to `t = next(it); return f(h + t)`, so that as little as
possible has to stay outside of a region.  Does not own which expressions must
(magpy/runtime/driver.py) nor the regions (magpy/instrument/regions.py, which calls this).
"""

from __future__ import annotations

import ast
import builtins
import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from magpy.instrument.source import Definition, walk
from magpy.objects.types import isinstance

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
        left: places of statements that stay.
        varying: names of locals whose values differ in every call and are computed with.
        apart: first and last lines of statements that are regions of their own, and so are the
            calls in them.
        glue: there are no regions, and every call may find a driver.
        closures: the function is made anew, with cells of its own: regions have no free variables,
            and are given what they read of these.
    """

    alone: list[Spot] = field(default_factory=list)
    calls: list[Spot] = field(default_factory=list)
    lines: list[tuple[int, int]] = field(default_factory=list)
    left: list[Spot] = field(default_factory=list)
    varying: set[str] = field(default_factory=set)
    apart: list[tuple[int, int]] = field(default_factory=list)
    glue: bool = False
    closures: bool = False

    def key(self) -> tuple[Any, ...]:
        """What tells plans apart."""
        places = (self.alone, self.calls, self.lines, self.left, self.apart)
        return *map(repr, places), frozenset(self.varying), self.glue, self.closures

    def is_apart(self, s: ast.stmt) -> bool:
        """Whether a statement is a region of its own."""
        return any(a <= s.lineno and (s.end_lineno or s.lineno) <= b for a, b in self.apart)


class Hoist:
    """Takes expressions that run as they are out of their statements, in the order of evaluation.

    `return after(h + next(it))` becomes `t = next(it); return after(h + t)`.

    Args:
        plan: which.
        names: the local variables.
        fixed: by statement, the local variables that are bound there and that only statements of
            the function itself assign: it does not matter when they are read.
    """

    def __init__(
        self, plan: Plan, names: Collection[str], fixed: Mapping[ast.stmt, Collection[str]]
    ) -> None:
        self.plan = plan
        self.names = names
        self.fixed = fixed
        #: Those of the statement at hand.
        self.here: Collection[str] = ()
        #: Names of variables that hold what was taken out of its statement.
        self.temporaries: set[str] = set()
        #: Those that hold what stands under names of the program's, such as a function.
        self.named: set[str] = set()
        #: Nodes whose statements stay in the driver.
        self.alone: set[ast.AST] = set()
        #: Calls of functions that may have drivers of their own.
        self.driven: set[ast.Call] = set()

    def function(self, node: Definition) -> Definition:
        node.body = self.block(node.body)
        return node

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        return [new for s in body for new in self.statement(s)]

    def statement(self, s: ast.stmt) -> list[ast.stmt]:
        if self.plan.glue:
            for n in walk(s):
                self._drive(n)
            return [s]
        if isinstance(s, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            self._whole(s, s)
            return [s]
        before: list[ast.stmt] = []
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(s, name, None)
            if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
                setattr(s, name, self.block(inner))
        for part in [*getattr(s, "handlers", ()), *getattr(s, "cases", ())]:
            part.body = self.block(part.body)
        assigned = {
            n.target.id
            for part in _own_parts(s)
            for n in walk(part)
            if isinstance(n, ast.NamedExpr)
        }
        self.here = set(self.fixed.get(s, ())) - assigned
        self._drive_in_frames(s)
        head = self._head(s)
        if head is None:
            self._whole(s, s, blocks=False)
            return [s]
        owner, name = head
        if isinstance(s, ast.For) and self._is_opened(s):
            self.alone.add(s)  # its body is compiled for itself
            self._drive_in(s.iter, any_call=True)
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
            if self._goes_by(s, path):
                self.alone.add(s)
        else:
            self.alone.add(s)
        if self.plan.is_apart(s):
            before += self._calls_apart(owner, name, s)
        self._value_of_store(s, before)
        self._whole(s, s, blocks=False)
        self._give_away([*before, *_own_parts(s)])
        return [*before, s]

    def _value_of_store(self, s: ast.stmt, before: list[ast.stmt]) -> None:
        """Takes the value out of a store that is refused: it is computed first.

        `buffer[i] = h.mean(0).numpy()` becomes `t = h.mean(0).numpy(); buffer[i] = t`.
        """
        if not isinstance(s, ast.Assign) or not isinstance(s.value, _COMPUTES):
            return
        if any(spot_of(target) in self.plan.alone for target in s.targets):
            s.value = self._assign(s.value, before, s)

    def _give_away(self, parts: list[ast.AST]) -> None:
        """Has what was taken out of `yield x` and `await f(x)` die as soon as it did there."""
        made = {_temporary_of(a): cast(ast.Assign, a) for a in parts if _temporary_of(a)}
        for part in parts if made else ():
            for n in list(walk(part)):
                for holder, name, index in _given_away(n):
                    e = _get(holder, name, index)
                    if isinstance(e, ast.Name) and e.id in made:
                        s = made.pop(e.id)
                        s.value = placed_at(ast.List([s.value], ast.Load()), s.value)
                        taken = ast.Call(ast.Attribute(e, "pop", ast.Load()), [], [])
                        _set(holder, name, index, placed_at(taken, e))

    def _goes_by(self, s: ast.stmt, path: list[ast.expr]) -> bool:
        """Whether the driver goes by what was taken out of the head of a statement.

        An iterator that Python makes is used up by Python: the body is compiled. What is decided
        would be another entry for each way, as a part of a region.
        """
        if isinstance(s, ast.For):
            return len(path) == 1
        return isinstance(s, ast.If) and spot_of(path[-1]) in self.plan.alone

    def _is_opened(self, loop: ast.For) -> bool:
        """Whether a loop runs in the driver.

        How often its body runs differs, or Python that gives its items is refused (a loader of
        data), which the instruction that asks for the next one calls: it has the place of the loop,
        or of what it iterates.
        """
        places = {spot_of(loop), spot_of(loop.iter)}
        return not places.isdisjoint(self.plan.calls) or self._mentions_varying(loop.iter)

    def _calls_apart(self, owner: Any, name: str, s: ast.stmt) -> list[ast.stmt]:
        """Takes the calls within an expression out of it."""
        before: list[ast.stmt] = []
        for path in list(_paths(getattr(owner, name))):
            found = path[-1]
            if len(path) == 1 or not isinstance(found, ast.Call) or found in self.alone:
                continue
            if self._is_super(found) or found in self.driven:
                continue
            new, ahead = self._out(getattr(owner, name), path, s, alone=False)
            if new is None:
                break
            before += ahead
            setattr(owner, name, new)
        return before

    def _head(self, s: ast.stmt) -> tuple[Any, str] | None:
        """Where the expression is that a statement evaluates first, once."""
        if isinstance(s, (ast.Return, ast.Assign, ast.AnnAssign, ast.Expr)):
            return (s, "value") if s.value is not None else None
        if isinstance(s, ast.AugAssign):  # it reads its target first
            return (s, "value") if self._may_move(s.target) else None
        if isinstance(s, ast.Match):
            return s, "subject"
        if isinstance(s, ast.If):
            return s, "test"
        if isinstance(s, ast.For):
            return s, "iter"
        if isinstance(s, ast.With):
            return s.items[0], "context_expr"
        return None

    def _whole(self, node: ast.AST, s: ast.stmt, *, blocks: bool = True) -> None:
        """Keeps a statement in the driver where a place is in it that was not taken out."""
        if spot_of(s) in self.plan.alone and not isinstance(s, ast.Expr):
            self.alone.add(s)
        places = {*self.plan.alone, *self.plan.calls}
        for child in [node] if blocks else _own_parts(node):
            nodes = list(walk(child))
            if not any(spot_of(n) in places for n in nodes if getattr(n, "id", "")[:1] != "."):
                continue
            self.alone.add(s)
            inner = {n for f in nodes if isinstance(f, _DEFINES) for n in walk(f)}
            for n in nodes:
                if n not in inner and spot_of(n) not in self.plan.alone:
                    self._drive(
                        n, any_call=True
                    )  # the statement is no region: what it calls may be

    def _drive_in(self, part: ast.AST, *, any_call: bool = False) -> None:
        for n in list(walk(part)):
            self._drive(n, any_call=any_call)

    def _drive(self, n: ast.AST, *, any_call: bool = False) -> None:
        """Lets a call find the driver of what it calls: `f(x)` becomes `.call(f)(x)`."""
        if not isinstance(n, ast.Call) or n in self.driven:
            return
        if spot_of(n) not in self.plan.calls and not self.plan.glue and not any_call:
            return
        if not self._is_super(n):
            self.driven.add(n)
            found = ast.Call(ast.Name(".call", ast.Load()), [n.func], [])
            self.driven.add(found)
            self.alone.add(found)
            n.func = placed_at(found, n.func)

    def _drive_in_frames(self, s: ast.stmt) -> None:
        """Lets calls in lambdas and generators find drivers: who runs these is not known here."""
        for part in _own_parts(s):
            for f in walk(part):
                if isinstance(f, (ast.Lambda, ast.GeneratorExp)):
                    before = len(self.driven)
                    self._drive_in(f)
                    if len(self.driven) > before:
                        self.alone.add(f)

    def _path(self, value: ast.expr) -> list[ast.expr] | None:
        """From an expression down to the first place in it that must be taken out."""
        for path in _paths(value):
            n = path[-1]
            if n in self.alone or n in self.driven or getattr(n, "id", "")[:1] == ".":
                continue
            spot = spot_of(n)
            if spot in self.plan.alone or (spot in self.plan.calls and isinstance(n, ast.Call)):
                return path
            if isinstance(n, _SUSPENDS) and _computed_parts(n):
                return path
            if self.plan.varying and self._computes_with(path):
                return path
        return None

    def _computes_with(self, path: list[ast.expr]) -> bool:
        """Whether an expression is a computation with a value that differs in every call alone.

        A method that is called with other values is none: `xs.append` differs as `xs` does, and
        a region that is given `xs` need not read it.
        """
        if not self._only_varying(path[-1]) or self._is_called(path):
            return False
        return len(path) == 1 or not self._goes_on(path[-2], path[-1])

    def _is_called(self, path: list[ast.expr]) -> bool:
        """Whether what the last expression gives is called by the one around it."""
        if len(path) < 2 or not isinstance(path[-2], ast.Call) or path[-2].func is not path[-1]:
            return False
        return not self._only_varying(path[-2])

    def _goes_on(self, around: ast.expr, within: ast.expr) -> bool:
        """Whether an expression goes on with that computation.

        A function that is no built-in one may do more with what was computed: of
        `model(torch.tensor(tokens))` the tensor is Python's, and not the model.
        """
        if not self._only_varying(around):
            return False
        if not isinstance(around, ast.Call) or around.func is within:
            return True
        f = around.func
        return isinstance(f, ast.Name) and f.id not in self.names and hasattr(builtins, f.id)

    def _mentions_varying(self, e: ast.expr) -> bool:
        return any(isinstance(n, ast.Name) and n.id in self.plan.varying for n in walk(e))

    def _only_varying(self, n: ast.AST) -> bool:
        if not isinstance(n, _COMPUTES):
            return False
        names = {x.id for x in walk(n) if isinstance(x, ast.Name)}
        names = {x for x in names if x in self.names or x[0] == "."} - self.named
        return bool(names) and names <= self.plan.varying

    def _out(
        self, value: ast.expr, path: list[ast.expr], s: ast.stmt, *, alone: bool = True
    ) -> tuple[ast.expr | None, list[ast.stmt]]:
        ahead: list[ast.stmt] = []
        found = path[-1]
        ways = [_before(parent, child) for parent, child in itertools.pairwise(path)]
        if any(way is None for way in ways) or self._is_super(found):
            return None, []
        if self._only_its_truth(found, path, s):
            return self._assign(found, ahead, s), ahead
        spot = spot_of(found)
        stays = alone and (
            spot in self.plan.alone or spot in self.plan.calls or isinstance(found, _SUSPENDS)
        )
        parts = _computed_parts(found) if stays else []
        if any(map(_unpacks, parts[:-1])):
            return None, []
        for earlier in ways:
            for part in earlier or ():
                self._temporary(*part, ahead, s)
        for part in parts:
            e = _get(*part)
            if part is not parts[-1] or not isinstance(e, ast.Attribute):
                self._temporary(*part, ahead, s)
            elif not _simple(e.value):
                self._temporary(e, "value", None, ahead, s)
        if alone:
            self._drive_in(found)  # of a comprehension, too
            self.alone.add(found)
        if len(path) == 1:
            if not isinstance(s, (ast.If, ast.For, ast.With, ast.Match)) and not self._joins(s):
                return value, ahead
            whole = self._assign(found, ahead, s)
            return whole, ahead
        parent = path[-2]
        temporary = self._assign(found, ahead, s)
        for holder, field_name, index in _parts(parent) or ():
            if _get(holder, field_name, index) is found:
                _set(holder, field_name, index, temporary)
        return value, ahead

    def _only_its_truth(self, found: ast.expr, path: list[ast.expr], s: ast.stmt) -> bool:
        """Whether it is enough that Python decides a branch: what decides it may be computed.

        The place of the jump is that of the condition; it is the condition itself that is refused
        if that place is refused once more.
        """
        test = isinstance(s, ast.If) and len(path) == 1 and not isinstance(found, ast.Call)
        return test and sum(spot == spot_of(found) for spot in self.plan.alone) == 1

    @staticmethod
    def _joins(s: ast.stmt) -> bool:
        """Whether a statement does more with a value than keep it."""
        if isinstance(s, ast.Assign):
            return not all(isinstance(t, ast.Name) for t in s.targets)
        return isinstance(s, ast.AugAssign)

    @staticmethod
    def _is_super(e: ast.expr) -> bool:
        """Whether an expression is `super` or its call, which looks at the frame it is in."""
        name = e.func if isinstance(e, ast.Call) else e
        return isinstance(name, ast.Name) and name.id == "super"

    def _temporary(
        self, holder: Any, name: str, index: int | None, ahead: list[ast.stmt], s: ast.stmt
    ) -> None:
        e = _get(holder, name, index)
        if not self._may_move(e):
            new = self._assign(e, ahead, s)
            if _chain_of_names(e):
                self.alone.add(e)
                self.named.add(new.id)
            _set(holder, name, index, new)

    def _may_move(self, e: ast.AST) -> bool:
        """Whether it does not matter when, within its statement, an expression is evaluated."""
        if isinstance(e, ast.Name):
            return e.id in self.here or e.id[0] == "."
        return isinstance(e, ast.Constant)

    def _assign(self, e: ast.expr, ahead: list[ast.stmt], s: ast.stmt) -> ast.Name:
        # Named by its place, so that it keeps its name when the function is split again.
        name = ".t" + "_".join(map(str, spot_of(e) or ()))
        while name in self.temporaries:
            name += "_"
        self.temporaries.add(name)
        ahead.append(placed_at(ast.Assign([ast.Name(name, ast.Store())], e), e))
        return ast.copy_location(ast.Name(name, ast.Load()), e)


_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


_SUSPENDS = (ast.Yield, ast.Await)


_COMPUTES = (ast.Call, ast.BinOp, ast.Subscript, ast.Compare, ast.JoinedStr, ast.Attribute)


def spot_of(n: Any) -> Spot | None:
    """Where a node's source is; None for what has no place."""
    if not isinstance(n, (ast.expr, ast.stmt)) or n.end_lineno is None:
        return None
    return n.lineno, n.end_lineno, n.col_offset, cast(int, n.end_col_offset)


def blocks_of(s: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of statements in a statement."""
    for name in ("body", "orelse", "finalbody"):
        inner = getattr(s, name, None)
        if isinstance(inner, list) and inner and isinstance(inner[0], ast.stmt):
            yield inner
    for part in (*getattr(s, "handlers", ()), *getattr(s, "cases", ())):
        yield part.body


def _own_parts(node: ast.AST) -> Iterator[ast.AST]:
    """The parts of a statement that are in none of its blocks."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.ExceptHandler, ast.match_case)):
            yield from _own_parts(child)
        elif not isinstance(child, ast.stmt):
            yield child


def _simple(e: ast.AST) -> bool:
    """Whether nothing is computed in an expression."""
    if isinstance(e, (ast.Starred, ast.keyword)):
        return _simple(e.value)
    return isinstance(e, (ast.Name, ast.Constant))


def _chain_of_names(e: ast.AST) -> bool:
    """Whether an expression is a name, or an attribute of an attribute of one."""
    while isinstance(e, ast.Attribute):
        e = e.value
    return isinstance(e, ast.Name)


_Part = tuple[Any, str, int | None]


def _unpacks(part: _Part) -> bool:
    """Whether an argument is iterated when it has been evaluated."""
    holder = part[0]
    return isinstance(holder, ast.Starred) or (
        isinstance(holder, ast.keyword) and holder.arg is None
    )


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
    if isinstance(e, ast.Yield):
        return [(e, "value", None)] if e.value is not None else []
    if isinstance(e, ast.Await):
        return _parts(e.value) if isinstance(e.value, ast.Call) else [(e, "value", None)]
    if isinstance(e, ast.Attribute):
        return [(e, "value", None)]
    if isinstance(e, ast.Subscript):
        index = _index_parts((e, "slice", None))
        return None if index is None else [(e, "value", None), *index]
    if isinstance(e, (ast.Tuple, ast.List, ast.Set)):
        # A set of more than 30 is made of its elements one by one.
        if any(isinstance(x, ast.Starred) for x in e.elts) or len(e.elts) > 30:
            return None
        return [(e, "elts", i) for i in range(len(e.elts))]
    if isinstance(e, ast.Dict):
        if not all(isinstance(k, ast.Constant) for k in e.keys):
            return None
        return [(e, "values", i) for i in range(len(e.values))]
    if isinstance(e, ast.Compare) and len(e.ops) == 1:
        return [(e, "left", None), (e, "comparators", 0)]
    return None


def _index_parts(part: _Part) -> list[_Part] | None:
    """The operands of an index: the bounds of slices, the items of a tuple, or what it is."""
    e = _get(*part)
    if isinstance(e, ast.Slice):
        return [(e, name, None) for name in ("lower", "upper", "step") if getattr(e, name)]
    if not isinstance(e, ast.Tuple):
        return [part]
    found: list[_Part] = []
    for i in range(len(e.elts)):
        parts = None if isinstance(e.elts[i], ast.Starred) else _index_parts((e, "elts", i))
        if parts is None:
            return None
        found += parts
    return found


def _temporary_of(s: ast.AST) -> str:
    """The variable to which a statement assigns what was taken out of another, or ""."""
    target = s.targets[0] if isinstance(s, ast.Assign) else None
    return target.id if isinstance(target, ast.Name) and target.id.startswith(".t") else ""


def _given_away(e: ast.AST) -> list[_Part]:
    """What a frame hands out while it waits: it keeps nothing of that, which may die meanwhile."""
    if isinstance(e, ast.Yield):
        return _parts(e) or []
    if isinstance(e, ast.Await) and isinstance(e.value, ast.Call):
        return (_parts(e.value) or [])[1:]
    return []


def _computed_parts(e: ast.expr) -> list[_Part]:
    """The operands of an expression up to the last one in which something is computed."""
    parts = _parts(e) or []
    while parts and _simple(_get(*parts[-1])):
        parts.pop()
    return parts


def _before(parent: ast.expr, child: ast.expr) -> list[_Part] | None:
    """What an expression evaluates before one of its operands."""
    parts = _parts(parent)
    if parts is None:
        return None
    for i, (holder, name, index) in enumerate(parts):
        if _get(holder, name, index) is child:
            return None if any(map(_unpacks, parts[:i])) else parts[:i]
    return None


def _paths(e: ast.expr) -> Iterator[list[ast.expr]]:
    """Every expression within one that can be taken out, the innermost and first ones first."""
    for holder, name, index in _parts(e) or ():
        for path in _paths(_get(holder, name, index)):
            yield [e, *path]
    yield [e]


def placed_at(node: Any, where: ast.AST) -> Any:
    """A new node, with all in it that has no place, at the place of another."""
    ast.copy_location(node, where)
    for n in walk(node):
        if "lineno" in n._attributes and not hasattr(n, "lineno"):
            ast.copy_location(n, where)
    return node
