"""Which loops over a range may be one operation for any number of turns, as their source tells.

Owns the look at the syntax tree: which names a turn takes over from the one before, and which lists
only collect what each turn gives.  Does not own whether the turns do the same
(magpy/capture/loops.py, which calls this).
"""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

from magpy.instrument.assignment import SCOPES, certain_stores, uses
from magpy.instrument.source import CannotSplit, find, walk
from magpy.objects.types import isinstance

#: What a list of tensors is given to at the end.
JOINS = frozenset(["stack", "cat", "concat", "concatenate"])


class Body(NamedTuple):
    """The body of a loop.

    Attributes:
        dead: names that are assigned anew in each turn before they are read.
        collects: names of lists that the function makes, and that only get what each turn gives,
            and are only given to `torch.stack` and the like.
    """

    dead: frozenset[str]
    collects: frozenset[str]


@functools.lru_cache(maxsize=256)
def body_of(code: types.CodeType, line: int, start: int, end: int) -> Body | None:
    """The body of the loop over the range that is given at a place; None if it does more than that.

    Args:
        code: of the function.
        line: where the expression is that gives the range.
        start: where in that line it begins, in UTF-8.
        end: where it ends.
    """
    try:
        function = cast(Any, find(code)[0][-1])
    except CannotSplit:
        return None
    loops = [n for n in walk(function) if isinstance(n, ast.For)]
    found = [n for n in loops if _place(n.iter) == (line, start, end)]
    if len(found) != 1 or not isinstance(found[0].target, ast.Name) or found[0].orelse:
        return None
    loop, target = found[0], found[0].target
    used = uses(loop.body)
    if used.unsafe or used.captured or used.returns or _leaves(loop.body) or _asks(function):
        return None
    # A name that an inner function has may be read there.
    inner = {*code.co_cellvars, *code.co_freevars}
    if "torch" in inner.union(code.co_varnames):
        return None
    dead = {target.id} | (used.stores - _read_first(loop.body))
    collected = {n for n in _appended(loop.body) if _collects(n, function, loop)}
    return Body(frozenset(dead - inner), frozenset(collected - inner))


def _place(node: ast.expr) -> tuple[int, int, int | None]:
    return node.lineno, node.col_offset, node.end_col_offset


_ASKS = frozenset(["locals", "vars", "dir", "eval", "exec", "globals"])


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether the loop may be left in the middle of a turn."""
    ends = (ast.Break, ast.Return, ast.Yield, ast.YieldFrom, ast.Await)
    return any(isinstance(n, ends) for s in body for n in walk(s))


def _asks(function: ast.AST) -> bool:
    """Whether a function may look at its variables unseen."""
    return any(isinstance(n, ast.Name) and n.id in _ASKS for n in walk(function))


_SIMPLE = ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr


def _read_first(body: Sequence[ast.stmt]) -> set[str]:
    """The names that a turn may read before it has assigned them."""
    read: set[str] = set()
    stored: set[str] = set()
    for s in body:
        found = uses(s)
        read |= found.reads - stored
        if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name):
            read |= {s.target.id} - stored
        # What else it may assign is what it was before where it does not.
        certain = certain_stores(s) if isinstance(s, _SIMPLE) else set()
        stored |= certain
        read |= found.stores - stored
    return read


def _appended(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Names of which `append` is called."""
    for s in body:
        for n in walk(s):
            if (name := _append_to(n)) is not None:
                yield name


def _append_to(node: ast.AST) -> str | None:
    """The name of a list that a statement appends to."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return None
    f = node.value.func
    if isinstance(f, ast.Attribute) and f.attr == "append" and isinstance(f.value, ast.Name):
        return f.value.id
    return None


def _collects(name: str, function: Any, loop: ast.For) -> bool:
    """Whether the function makes a list, and does nothing with it but what `Body` says."""
    known: set[int] = set()
    inside = {id(n) for n in walk(loop)}
    for n in walk(function):
        if isinstance(n, SCOPES) and n is not function and name in uses(n).reads:
            return False
        if _append_to(n) == name and id(n) in inside:
            known.add(id(cast(Any, n).value.func.value))
        elif isinstance(n, ast.Call) and _joins(n.func) and n.args:
            known.add(id(n.args[0]))
        elif isinstance(n, (ast.Assign, ast.AnnAssign)) and id(n) not in inside:
            known |= {id(t) for t, value in _assigned(n) if _is_empty_list(value)}
    names = [n for n in walk(function) if isinstance(n, ast.Name) and n.id == name]
    parameters = [n for n in walk(function) if isinstance(n, ast.arg) and n.arg == name]
    return not parameters and all(id(n) in known for n in names)


def _assigned(node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """What is assigned to what, one by one."""
    target, value = node.target if isinstance(node, ast.AnnAssign) else node.targets[0], node.value
    if isinstance(node, ast.Assign) and len(node.targets) > 1:
        return
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        if len(target.elts) == len(value.elts):
            yield from zip(target.elts, value.elts, strict=True)
    else:
        yield target, value


def _joins(func: ast.expr) -> bool:
    return (
        isinstance(func, ast.Attribute)
        and func.attr in JOINS
        and isinstance(func.value, ast.Name)
        and func.value.id == "torch"
    )


def _is_empty_list(node: ast.expr | None) -> bool:
    return isinstance(node, ast.List) and not node.elts


__all__ = ["JOINS", "Body", "body_of"]
