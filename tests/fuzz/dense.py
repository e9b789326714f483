"""Random programs of few objects and many uses of them, which meet each other in every program.

Owns: groups of templates (a world, lines of the function, changes between calls; groups/*.txt), how
a program is made of one.  Does not own what is done with it (`worlds.py`).  `grammar.py` makes
programs of all that there is, in which two given uses of one object hardly ever meet.

A line that follows and is indented, or begins with `except`, `finally` or `else`, belongs to the
one before it.  `p` and `k` are the arguments, a tensor and a number; `r` is what is returned; `j`
counts the calls.
"""

from __future__ import annotations

import ast
import dataclasses
import pathlib
import random

from tests.fuzz import grammar


@dataclasses.dataclass
class Group:
    """Templates: the world, the lines of the function, changes of the world, tensors to give.

    `first` is a line with which every function begins; `turns` are the lines that may stand for
    `$turn`, in the loops among the uses.
    """

    world: str
    uses: str
    changes: str
    tensors: list[str]
    first: str = ""
    turns: str = ""


_NUMBERS = ("1", "2", "3", "0", "1", "2")
_CALLS = 8


def _group(text: str) -> Group:
    """The group that a file describes: sections, each under a line `=== NAME`."""
    sections = {}
    for section in text.split("=== ")[1:]:
        name, _, content = section.partition("\n")
        sections[name] = content
    return Group(**{**sections, "tensors": _lines(sections["tensors"])})


def _lines(text: str) -> list[str]:
    found: list[str] = []
    for line in text.strip("\n").splitlines():
        if line.startswith((" ", "except", "finally", "else:")):
            found[-1] += "\n" + line
        else:
            found.append(line)
    return found


_FOLDER = pathlib.Path(__file__).parent / "groups"
GROUPS = {path.stem: _group(path.read_text()) for path in sorted(_FOLDER.glob("*.txt"))}


def _with_turns(use, turns, rng):
    """The use with a line of `turns` in place of each `$turn`."""
    return "".join(
        _indented(rng.choice(turns), len(line) - len(line.lstrip()))
        if line.strip() == "$turn"
        else f"{line}\n"
        for line in use.splitlines()
    )


def _indented(text, by):
    return "".join(f"{' ' * by}{line}\n" for line in text.splitlines())


def program_of(name, rng):
    """A program of a group."""
    group = GROUPS[name]
    uses = [rng.choice(_lines(group.uses)) for _ in range(rng.randint(2, 6))]
    turns = _lines(group.turns) if group.turns else []
    uses = [_with_turns(use, turns, rng) for use in uses]
    uses[:0] = _lines(group.first) if group.first else []
    body = "".join(_indented(use, 4) for use in uses)
    steps = ""
    for j in range(_CALLS):
        for _ in range(rng.choice((0, 0, 1, 1, 2)) if j > 1 else 0):
            change = _indented(rng.choice(_lines(group.changes)), 8)
            steps += f"    j = {j}\n    try:\n{change}    except Exception:\n        pass\n"
        k = rng.choice(_NUMBERS) if j > 3 or rng.random() < 0.4 else "1"
        steps += f"    r = attempt(f, {rng.choice(group.tensors)}, {k})\n    yield r\n"
    source = (
        f"import copy\nimport torch\n{group.world}\n"
        f"def f(p, k):\n    r = []\n{body}    return r\n\n"
        f"target = f\n\ndef steps(f):\n{steps}"
    )
    return grammar.declare_globals(source, _names(group.world))


def _names(world):
    """The names of a world that a program may assign."""
    tree = ast.parse(world)
    top = [node for s in tree.body if isinstance(s, ast.Assign) for node in ast.walk(s)]
    found = {n.id for n in top if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return found | {s.name for s in tree.body if isinstance(s, ast.FunctionDef)}


def program(seed):
    """The program of a seed."""
    rng = random.Random(seed)
    return program_of(rng.choice(sorted(GROUPS)), rng)
