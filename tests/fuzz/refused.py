"""Random programs with lines that are refused, so that they run in part.

Owns: the lines, and where they are put in the functions of a program of another grammar.  Does not
own: those programs (`grammar.py`, `dense.py`).  With `MAGPY_REGIONS=1` such a function has a driver
(magpy/runtime/driver.py).
"""

from __future__ import annotations

import ast
import random

from tests.fuzz import dense, grammar

#: What is refused, whoever calls it: functions of C that are not known, a class of C, what is
#: disabled; and Python functions with a refused line inside.
_WORLD = """
import binascii, threading, magpy
_box = threading.local()
_box.n = 0
def _tick():
    _box.n += 1
    return _box.n
def _inside(x):
    y = x * 2 if isinstance(x, torch.Tensor) else x
    binascii.crc_hqx(b"a", 1)
    return x if y is None else x
def _thrice(x):
    if isinstance(x, torch.Tensor) and x.is_floating_point():
        x.mul_(1.5)
    _box.n = binascii.crc_hqx(b"a", _box.n)
    return x.clone() if isinstance(x, torch.Tensor) else x
@magpy.disable
def _same(x):
    return x
@magpy.disable
def _changed(x):
    _box.n += 1
    if isinstance(x, torch.Tensor) and x.is_floating_point() and x.is_leaf:
        x.data.add_(1)
    return x
@magpy.disable
def _fails(x):
    if _box.n % 5 == 4:
        _box.n += 1
        raise ValueError(_box.n)
    return x
"""
_EXPRESSIONS = ("_same", "_same", "_same", "_inside", "_inside", "_thrice", "_changed", "_fails")
_STATEMENTS = ("_tick()", "_box.n += 1", "binascii.crc_hqx(b'b', 2)", "_same(1)", "_fails(0)")
_UNTOUCHED = ("steps", "target")


def _blocks(function: ast.AST) -> list[list[ast.stmt]]:
    found = []
    for node in ast.walk(function):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                if not isinstance(node, (ast.ClassDef, ast.Module)):
                    found.append(block)
    return found


class _Places(ast.NodeVisitor):
    """The expressions of a function that may be given to another function first."""

    def __init__(self):
        self.found = []

    def generic_visit(self, node):
        for name, value in ast.iter_fields(node):
            if name in ("decorator_list", "annotation", "returns", "format_spec"):
                continue
            if isinstance(node, (ast.match_case, ast.MatchValue, ast.MatchClass)):
                if name != "body":
                    continue
            items = value if isinstance(value, list) else [value]
            for i, x in enumerate(items):
                if not isinstance(x, ast.AST):
                    continue
                if isinstance(x, ast.expr) and isinstance(
                    getattr(x, "ctx", None) or ast.Load(), ast.Load
                ):
                    if not isinstance(
                        x, (ast.Starred, ast.Slice, ast.JoinedStr, ast.FormattedValue)
                    ):
                        self.found.append((node, name, i if isinstance(value, list) else None))
                self.visit(x)


#: Until then most drivers have learnt which lines are refused, and regions have entries.
_ALIKE = 4


def _begin_alike(steps: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Lets a program begin with calls that are alike."""
    first = next((i for i, s in enumerate(steps.body) if _yields(s)), None)
    if first is not None:
        again = [s for s in steps.body[: first + 1] if not isinstance(s, ast.Global)]
        steps.body[first + 1 : first + 1] = again * _ALIKE


def _yields(s: ast.stmt) -> bool:
    return isinstance(s, ast.Expr) and isinstance(s.value, ast.Yield)


def functions_of(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The functions defined in a program."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [n for n in ast.walk(tree) if isinstance(n, kinds)]


def with_refused_lines(source: str, rng: random.Random) -> str:
    """The program with refused lines in its functions, most of them in the one that is compiled."""
    tree = ast.parse(source)
    functions = [n for n in functions_of(tree) if n.name not in _UNTOUCHED and n.name[:2] != "__"]
    targets = [n for n in functions if n.name == "f"] or functions
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        function = rng.choice(targets if rng.random() < 0.85 else functions)
        if rng.random() < 0.4:
            block = rng.choice(_blocks(function))
            at = rng.randint(0, len(block))
            while at < len(block) and isinstance(block[at], (ast.Global, ast.Nonlocal)):
                at += 1
            block[at:at] = ast.parse(rng.choice(_STATEMENTS)).body
            continue
        places = _Places()
        for s in function.body:
            places.visit(ast.Module([s], []))
        if places.found:
            node, name, i = rng.choice(places.found)
            value = getattr(node, name)
            old = value if i is None else value[i]
            new = ast.Call(ast.Name(rng.choice(_EXPRESSIONS), ast.Load()), [old], [])
            if i is None:
                setattr(node, name, new)
            else:
                value[i] = new
    _begin_alike(next(n for n in functions_of(tree) if n.name == "steps"))
    text = ast.unparse(ast.fix_missing_locations(tree))
    return f"import torch\n{_WORLD}\n{text}\n"


def program(seed: int) -> str | None:
    """The program of a seed, or None for a seed that gives none."""
    rng = random.Random(seed)
    source = (grammar.program if seed % 2 else dense.program)(seed)
    if source is None:
        return None
    try:
        text = with_refused_lines(source, rng)
        compile(text, "<fuzz>", "exec")
    except SyntaxError:
        return None
    return text
