"""Shortens a failing program.

Owns: the ways to make a program shorter. Does not own: whether it still fails, which the caller
says. Works on the syntax tree, so that every statement and expression can go: those of the world,
of the function and of the steps.
"""

from __future__ import annotations

import ast
import copy
import time

_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def _size(source):
    return len(source)


def _blocks(tree):
    """All statement lists, outermost first."""
    out = []
    for node in ast.walk(tree):
        for name in _BLOCKS:
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                out.append((node, name))
    return out


def _text(tree):
    try:
        return ast.unparse(ast.fix_missing_locations(tree))
    except Exception:
        return None


def _without(source, which, start, count):
    """The program without some statements of its block number `which`."""
    tree = ast.parse(source)
    node, name = _blocks(tree)[which]
    block = getattr(node, name)
    kept = block[:start] + block[start + count :]
    if not kept and name == "body" and not isinstance(node, ast.Module):
        kept = [ast.Pass()]
    if kept == block or (len(block) == 1 and isinstance(block[0], ast.Pass)):
        return None
    setattr(node, name, kept)
    return _text(tree)


def _delete_statements(source, check):
    """Deletes runs of statements, long ones first."""
    which = 0
    while which < len(_blocks(ast.parse(source))):
        node, name = _blocks(ast.parse(source))[which]
        length = len(getattr(node, name))
        size = length
        while size >= 1:
            start = 0
            while start < length:
                shorter = _without(source, which, start, size)
                if shorter is not None and check(shorter):
                    source = shorter
                    blocks = _blocks(ast.parse(source))
                    if which >= len(blocks):
                        return source
                    length = len(getattr(*blocks[which]))
                else:
                    start += size
            size = min(size // 2, length)
        which += 1
    return source


def _delete_unused(source, check):
    """Deletes what of the world nothing names, and imports of it, in one go or one by one."""
    tree = ast.parse(source)
    while True:
        used = {
            n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
        }
        used |= {"steps", "target"}
        kept = []
        for s in tree.body:
            if isinstance(s, (ast.Import, ast.ImportFrom)):
                s.names = [a for a in s.names if (a.asname or a.name).partition(".")[0] in used]
                if s.names:
                    kept.append(s)
            elif isinstance(s, (ast.FunctionDef, ast.ClassDef)):
                if s.name in used:
                    kept.append(s)
            elif isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name):
                if s.targets[0].id in used:
                    kept.append(s)
            else:
                kept.append(s)
        if len(kept) == len(tree.body):
            break
        tree.body = kept
    shorter = _text(tree)
    if shorter is not None and shorter != source and check(shorter):
        return shorter
    return source


def _unwrapped(source):
    """Programs in which a compound statement is replaced by one of its blocks."""
    count = len(_blocks(ast.parse(source)))
    for which in range(count):
        node, name = _blocks(ast.parse(source))[which]
        for i in range(len(getattr(node, name))):
            tree = ast.parse(source)
            blocks = _blocks(tree)
            if which >= len(blocks):
                return
            block = getattr(*blocks[which])
            if i >= len(block) or not isinstance(
                block[i], (ast.If, ast.For, ast.While, ast.With, ast.Try)
            ):
                continue
            for inner in ("body", "orelse", "finalbody"):
                part = getattr(block[i], inner, None)
                if part:
                    yield _replaced(source, which, i, inner)


def _replaced(source, which, i, inner):
    tree = ast.parse(source)
    block = getattr(*_blocks(tree)[which])
    block[i : i + 1] = getattr(block[i], inner)
    return _text(tree)


class _Swap(ast.NodeTransformer):
    """Replaces the expression with a number by another."""

    def __init__(self, number, choice):
        self.number = number
        self.choice = choice
        self.seen = -1
        self.changed = False

    def visit(self, node):
        if isinstance(node, ast.expr):
            self.seen += 1
            if self.seen == self.number:
                options = _smaller(node)
                if self.choice < len(options):
                    self.changed = True
                    return options[self.choice]
                return node
        return self.generic_visit(node)


def _smaller(node):
    """Simpler expressions to try in the place of one."""
    if isinstance(node, (ast.Name, ast.Constant)) or isinstance(
        getattr(node, "ctx", None), ast.Store
    ):
        return []
    out = []
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)) and node.elts:
        for i in range(len(node.elts)):
            other = copy.copy(node)
            other.elts = node.elts[:i] + node.elts[i + 1 :]
            if other.elts or not isinstance(node, ast.Set):
                out.append(other)
    if isinstance(node, ast.Dict):
        for i in range(len(node.keys)):
            other = copy.copy(node)
            other.keys, other.values = (
                node.keys[:i] + node.keys[i + 1 :],
                node.values[:i] + node.values[i + 1 :],
            )
            out.append(other)
    if isinstance(node, ast.Call):
        for i in range(len(node.args)):
            other = copy.copy(node)
            other.args = node.args[:i] + node.args[i + 1 :]
            out.append(other)
        for i in range(len(node.keywords)):
            other = copy.copy(node)
            other.keywords = node.keywords[:i] + node.keywords[i + 1 :]
            out.append(other)
    children = [
        c
        for c in ast.iter_child_nodes(node)
        if isinstance(c, ast.expr) and not isinstance(getattr(c, "ctx", None), ast.Store)
    ]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        children.append(node.func.value)
    if not isinstance(node, ast.JoinedStr):
        out.extend(c for c in children if not isinstance(c, (ast.Starred, ast.FormattedValue)))
    out.append(ast.Constant(1))
    return out


def _swap_expressions(source, check):
    number = 0
    while True:
        counter = _Swap(-1, 0)
        counter.visit(ast.parse(source))
        if number > counter.seen:
            return source
        choice = 0
        while True:
            swap = _Swap(number, choice)
            tree = swap.visit(ast.parse(source))
            if not swap.changed:
                break
            shorter = _text(tree)
            if shorter is not None and _size(shorter) < _size(source) and check(shorter):
                source, choice = shorter, 0
            else:
                choice += 1
        number += 1


def _drop_parameters(source, check):
    """Takes parameters of the function out, one by one, with their arguments."""
    i = 0
    while True:
        tree = ast.parse(source)
        functions = [s for s in tree.body if isinstance(s, ast.FunctionDef) and s.name == "f"]
        if not functions or i >= len(functions[0].args.args):
            return source
        arguments = functions[0].args
        if len(arguments.defaults) == len(arguments.args):
            del arguments.defaults[i]
        elif i >= len(arguments.args) - len(arguments.defaults):
            del arguments.defaults[i - len(arguments.args) + len(arguments.defaults)]
        del arguments.args[i]
        for call in ast.walk(tree):
            if (
                isinstance(call, ast.Call)
                and getattr(call.func, "id", "") == "attempt"
                and len(call.args) > i + 1
            ):
                del call.args[i + 1]
        shorter = _text(tree)
        if shorter is not None and check(shorter):
            source = shorter
        else:
            i += 1


def shrink(source, fails, seconds=60.0):
    """A short program that still fails.

    Args:
        fails: says of a program whether it fails in the same way.
        seconds: how long to try.
    """
    end = time.monotonic() + seconds
    known = {}

    def check(text):
        if text in known:
            return known[text]
        if time.monotonic() > end:
            return False
        try:
            compile(text, "<shrink>", "exec", dont_inherit=True)
            known[text] = fails(text)
        except (SyntaxError, ValueError):
            known[text] = False
        return known[text]

    before = None
    while before != source and time.monotonic() < end:
        before = source
        source = _delete_unused(source, check)
        source = _delete_statements(source, check)
        source = _delete_unused(source, check)
        source = _drop_parameters(source, check)
        for shorter in list(_unwrapped(source)):
            if shorter is not None and check(shorter):
                source = shorter
                break
        source = _swap_expressions(source, check)
    return source
