"""The source of a function, used only if it compiles to the function's own code.

Owns finding the definition among those of its file.  Does not own what is made of it (the other
modules of magpy/instrument that look at syntax trees, which call this).
"""

from __future__ import annotations
import __future__

import ast
import functools
import linecache
import types
from collections.abc import Iterator
from typing import Any, cast

from magpy.objects.types import isinstance


class CannotSplit(Exception):
    """The function cannot have a driver; the text says why."""


Definition = ast.FunctionDef | ast.AsyncFunctionDef


Chain = list[ast.AST]  # a module, classes and functions, down to the function itself


@functools.lru_cache(maxsize=64)
def _parsed(file: str, text: str) -> tuple[ast.Module, types.CodeType]:
    return ast.parse(text, file), compile(text, file, "exec", dont_inherit=True, optimize=-1)


def find(code: types.CodeType) -> tuple[Chain, types.CodeType]:
    """The definition that a code object was compiled from, with what it stands in.

    Returns:
        The definition, and the code with the names that it has there: a library may give a copy of
        an inherited method another name (`code.replace(co_name=..)`).

    Raises:
        CannotSplit: there is none.
    """
    lines = linecache.getlines(code.co_filename)
    if not lines:
        raise CannotSplit("its source cannot be found")
    try:
        tree, whole = _parsed(code.co_filename, "".join(lines))
    except (SyntaxError, ValueError) as e:
        raise CannotSplit("its source cannot be parsed") from e
    named = False
    for chain in _chains(tree, [tree], code.co_firstlineno):
        if isinstance(chain[-1], ast.Lambda):
            if _is_lambda(chain[-1], code) and any(_same(c, code) for c in codes(whole)):
                return [*chain[:-1], _defined(chain[-1])], code
            continue
        node = cast(Definition, chain[-1])
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        if first == code.co_firstlineno:
            named |= node.name == code.co_name
            for c in codes(whole):
                if c.co_name == node.name and _same(c, renamed(code, c)):
                    return chain, code if c.co_qualname == code.co_qualname else c
    raise CannotSplit("its source has changed" if named else "its definition cannot be found")


def renamed(code: types.CodeType, like: types.CodeType) -> types.CodeType:
    """Code with the names of other code."""
    return code.replace(co_name=like.co_name, co_qualname=like.co_qualname)


def _chains(node: ast.AST, chain: Chain, line: int) -> Iterator[Chain]:
    """The chains of the functions that a line may be in: a file may hold thousands of others."""
    for inner in ast.iter_child_nodes(node):
        decorated = getattr(inner, "decorator_list", None)
        if getattr(inner, "end_lineno", line) < line or (
            getattr(inner, "lineno", line) > line and not decorated
        ):
            continue
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield [*chain, inner]
            yield from _chains(inner, [*chain, inner], line)
        elif isinstance(inner, ast.ClassDef):
            yield from _chains(inner, [*chain, inner], line)
        elif isinstance(inner, ast.Lambda):
            yield [*chain, inner]
        else:
            yield from _chains(inner, chain, line)


def _is_lambda(node: ast.Lambda, code: types.CodeType) -> bool:
    """Whether code is that of a lambda: others may stand in its line."""
    if code.co_name != "<lambda>" or node.lineno != code.co_firstlineno:
        return False
    body = node.body
    first, last = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    placed = [p for p in code.co_positions() if None not in p and p[2] != p[3]]
    return bool(placed) and all(first <= (a, c) and (b, d) <= last for a, b, c, d in placed)


def _defined(node: ast.Lambda) -> ast.FunctionDef:
    """A lambda as a definition."""
    value = ast.copy_location(ast.Return(node.body), node.body)
    made = ast.FunctionDef("<lambda>", node.args, [value], [], None)
    return ast.copy_location(made, node)


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """As `ast.walk`, in another order: most of the time that a split takes goes into it."""
    todo: list[Any] = [node]
    while todo:
        n = todo.pop()
        for name in n._fields:
            value = getattr(n, name, None)
            if type(value) is list:
                todo += [x for x in value if isinstance(x, ast.AST)]
            elif isinstance(value, ast.AST):
                todo.append(value)
        yield n


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code objects in a code object, at any depth."""
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield c
            yield from codes(c)


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
    if type(a) is type(b) is frozenset:  # in an order of its own: one may be from a file
        return sorted(map(repr, a)) == sorted(map(repr, b))
    return type(a) is type(b) and repr(a) == repr(b)


def future_flags() -> int:
    """The compiler flags of `from __future__ import ...`."""
    flags = 0
    for name in __future__.all_feature_names:
        flags |= getattr(__future__, name).compiler_flag
    return flags & ~0x10  # nested_scopes shares its bit with another flag
