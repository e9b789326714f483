"""Every twin is read by another program: the `bytecode` package, which knows nothing of magpy.

It decodes instructions, jumps, locations and exception tables by itself, and computes how deep the
stack gets along every path.  What it finds in a twin is compared with what it finds in the
original.  tests/instrument/test_rewrite.py runs twins; here is also what no test runs.
"""

from __future__ import annotations

import importlib.util
import itertools
import opcode
import sys
import types
from pathlib import Path

import pytest
from bytecode import ConcreteBytecode, ConcreteInstr, ControlFlowGraph, TryBegin

from magpy.instrument import opcodes
from magpy.instrument.rewrite import instrument

MINOR = sys.version_info[1]

#: What the package does not understand although CPython does, and what it is shown instead.
DIFFERENCES = {
    "LOAD_FAST of a cell": "a twin loads the cell itself, which up to 3.12 the compiler does with "
    "LOAD_CLOSURE only, so the package looks for the name among the plain variables",
}

#: Errors of the package in reading what the compiler made, and why.
UNREADABLE = {
    "is not a valid Intrinsic2Op": "its list of intrinsics ends before that of 3.13, which sets "
    "defaults of type parameters",
}


def shown(concrete, code):
    """The same instructions, without what the package does not understand (`DIFFERENCES`)."""
    if MINOR < 13:
        for i, item in enumerate(concrete):
            if item.name == "LOAD_FAST" and item.arg >= code.co_nlocals:
                concrete[i] = ConcreteInstr("LOAD_CLOSURE", item.arg, location=item.location)
    return concrete


class Reading:
    """What the package finds in a code object."""

    def __init__(self, code):
        self.concrete = shown(ConcreteBytecode.from_code(code), code)
        self.table = self.concrete.exception_table
        at = list(itertools.accumulate((i.size // 2 for i in self.concrete), initial=0))
        self.end = at.pop()
        placed = list(zip(at, self.concrete, strict=True))
        #: Code units at which an instruction begins, or what extends its argument.
        self.starts = {unit for unit, i in placed if i.opcode != opcode.opmap["CACHE"]}
        self.jumps = {i.get_jump_target(unit) for unit, i in placed} - {None}

    def places(self):
        """Where the instructions stand in the source, without repetitions."""
        places = [
            (p.lineno, p.end_lineno, p.col_offset, p.end_col_offset) if p is not None else None
            for p, op in ((i.location, i.opcode) for i in self.concrete)
            if op not in opcodes.DROPPED  # the CALL does their work
        ]
        return [place for place, _ in itertools.groupby(places)]

    def depths(self):
        """How deep the stack gets, and how deep it is where each protected range is entered."""
        graph = ControlFlowGraph.from_bytecode(self.concrete.to_bytecode())
        size = graph.compute_stacksize(compute_exception_stack_depths=True)
        return size, [i.stack_depth for b in graph for i in b if isinstance(i, TryBegin)]


def faults(code, twin):
    """What is wrong with a twin, in words."""
    original, read = Reading(code), Reading(twin)
    found = []
    if not read.jumps <= read.starts:
        found.append(f"jumps to what is no instruction: {read.jumps - read.starts}")
    for entry in read.table:
        inside = entry.start_offset <= entry.stop_offset < read.end
        if not inside or not {entry.start_offset, entry.target} <= read.starts:
            found.append(f"a protected range is not one of instructions: {entry!r}")
    if [(e.stack_depth, e.push_lasti) for e in read.table] != [
        (e.stack_depth, e.push_lasti) for e in original.table
    ]:
        found.append("the exception table promises other depths than the original's")
    if read.places() != original.places():
        found.append("instructions have other positions than the original's")
    if found:
        return found
    try:
        (size, depths), (_, expected) = read.depths(), original.depths()
    except RuntimeError as error:
        return [f"its stack: {error}"]
    if size > twin.co_stacksize:
        found.append(f"its stack gets {size} deep, not {twin.co_stacksize}")
    if depths != expected:
        found.append(f"protected ranges begin at depths {depths}, not {expected}")
    return found


def with_inner(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from with_inner(const)


def unreadable(code, error):
    """Whether it is a known error of the package, which the original meets, too."""
    if not any(text in error for text in UNREADABLE):
        return False
    with pytest.raises(ValueError, match=error):
        Reading(code).depths()
    return True


def judge(codes):
    bad = {}
    for code in codes:
        try:
            found = faults(code, instrument(code))
        except Exception as error:
            found = [] if unreadable(code, str(error)) else [repr(error)]
        if found:
            bad[f"{Path(code.co_filename).name}: {code.co_qualname}"] = found
    return bad


# ---- each kind of statement and of expression ----

#: First minor version that compiles it -> programs.
PROGRAMS = {
    11: """
def assignments(a, b, c):
    x = y = a
    x, *z = b
    (x, y), w = c
    x += 1; a.n -= 2; b[x] *= 3; b[1:2] = c; b[::2] = c
    a.n: int = 3
    del x, a.n, b[0], b[1:2]
    return w, y, z, b[1:3]

def operators(a, b):
    return (+a, -a, ~a, not a, a + b, a @ b, a < b < 3, a in b, a not in b, a is b, a is not b,
            a and b or not a, a if b else 0, (n := a), a <= n)

def texts(a, b):
    return f"{a}", f"{a!r:>{b}}", f"{a:3}{b!s}", "%s" % a, f"x{a=}"

def displays(a, b):
    return ([a, *b], (a, *b), {a, b}, {a, *b}, {a: b}, {**a, b: a}, {"x": a, "y": b}, {}, set(),
            [*a], {1, 2, 3}, [1, 2, 3])

def comprehensions(a, b):
    return ([i + b for i in a if i], {i for i in a}, {i: j for i, j in a}, list(i for i in a),
            [[j for j in i if j > b] for i in a])

def calls(f, *args, key=None, **more):
    return f(), f(1, x=2), f(*args), f(1, *args, **more), f.m(1), f.m(key=key), f(**more), f.m(**{
        "z": 1, **more})

def loops(a):
    for i in a:
        if i is None:
            continue
        if i is not None and a:
            break
    else:
        a = 1
    while a:
        a -= 1
        if not a:
            break
        if a is not None:
            continue
    while a is None: a = len(())
    while a is not None: a = None
    while not a: a = 2
    return a

def late(a):
    if a: x = 1
    print(x)
    del x
    return x

def exceptions(a):
    try:
        a()
    except (KeyError, ValueError) as error:
        raise RuntimeError from error
    except TypeError:
        raise
    except:
        return [i for i in a]
    else:
        a = 1
    finally:
        a.close()
    try:
        return a
    finally:
        assert a, "text"

def groups(a):
    try:
        a()
    except* ValueError as e:
        a(e)
    except* TypeError:
        a()

def blocks(a):
    with a as b, open(b) as (c, d):
        for i in c:
            with i:
                return d

def matching(a):
    match a:
        case 1 | 2: return 1
        case [x, y, *rest] if rest: return x, y
        case {"a": p, "b": 3, **others}: return p, others
        case Point(x=0, y=q): return q
        case str() as s: return s
        case None: return 0
        case _: return 4

def scopes():
    n = 0
    def inner(d=1, *, k=2) -> int:
        nonlocal n
        global G
        n += 1
        G = n
        del G
        return n, lambda: n, inner
    class C(object, metaclass=type):
        y: int = 1
        z = n, y
        del y
        def m(self): return super().m() + super(C, self).v + __class__.n
    del n
    return inner, C

def generators(a):
    x = yield
    y = yield from a
    yield x, y
    return 3

async def coroutines(a):
    async with a as b:
        await b
    async for i in b:
        yield i
    x = [await j async for j in b if await j]
    try:
        await x
    except BaseException:
        await b
    finally:
        await a

def imports():
    import os, os.path as p
    from json import loads, dumps as d
    return os, p, loads, d

import os.path as path
from os import *
annotated: int = 3
del annotated
lambda: (yield)
try:
    undefined
except NameError:
    pass
""",
    12: """
type Pair[T] = tuple[T, T]
def generic[T: int, *Ts, **P, U: (int, str)](a: T): return a
class Box[T](list[T]):
    x: T
    type Own = T
    type Other = int
    def m(self): return [super().m() for i in self]
def comprehended(a):
    x = 1
    return [lambda: x for x in a], x
class Late:
    y = [undefined for i in ()]
    z = __class__
""",
    13: """
def defaulted[T = int, *Ts = *tuple[int, ...], **P = [int]](a: T): return a
""",
}

LONG = "def long(a, b):\n    while a:\n" + "        b(a.x[1])\n" * 400 + "    return a\n"


def statements():
    for minor, text in PROGRAMS.items():
        if MINOR >= minor:
            yield from with_inner(compile(text, "statements", "exec"))
    yield from with_inner(compile(LONG, "long", "exec"))
    yield compile("len(())", "shown", "single")
    yield compile("a.b + c[0]", "expression", "eval")


#: Opcodes that twins are made of and that the compiler has no statement for.
NOT_COMPILED = {
    "CACHE": "follows other instructions; decoded with them",
    "EXTENDED_ARG": "decoded with the instruction after it",
}


def test_programs_have_every_opcode():
    found = {op for code in statements() for op in code.co_code[::2]}
    left = {opcodes.TABLE[op].name for op in opcodes.SUPPORTED - found}
    assert left - set(NOT_COMPILED) == set()


def test_twins_of_every_statement_are_sound():
    assert judge(statements()) == {}


def file_of(module):
    return Path(importlib.util.find_spec(module).origin)


@pytest.mark.parametrize(
    "module",
    [
        *("argparse", "typing", "asyncio.base_events", "dataclasses", "inspect", "contextlib"),
        *("json.decoder", "json.encoder", "collections", "functools", "enum", "tempfile"),
    ],
)
def test_twins_of_the_standard_library_are_sound(module):
    path = file_of(module)
    codes = list(with_inner(compile(path.read_text("utf-8"), str(path), "exec")))
    assert len(codes) > 5
    assert judge(codes) == {}


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs the files of torch")
@pytest.mark.parametrize(
    "module",
    ["module", "linear", "conv", "activation", "normalization", "container", "transformer"],
)
def test_twins_of_torchs_modules_are_sound(module):
    path = file_of("torch").parent / "nn" / "modules" / f"{module}.py"
    codes = list(with_inner(compile(path.read_text("utf-8"), str(path), "exec")))
    assert len(codes) > 5
    assert judge(codes) == {}


# ---- the judge sees what is wrong ----


def program(a, b):
    for i in a:
        try:
            b(i.x)
        except ValueError:
            b[i] = 1
    return a


def spoiled(**changes):
    twin = instrument(program.__code__)
    return faults(program.__code__, twin.replace(**{k: f(twin) for k, f in changes.items()}))


def test_a_sound_twin_has_no_faults():
    assert spoiled() == []


def test_a_stack_that_is_too_small_is_seen():
    found = spoiled(co_stacksize=lambda twin: 1)
    assert ["deep" in f for f in found] == [True]


def test_a_wrong_position_is_seen():
    found = spoiled(co_linetable=lambda twin: program.__code__.co_linetable)
    assert found == ["instructions have other positions than the original's"]


def test_a_wrong_exception_table_is_seen():
    assert spoiled(co_exceptiontable=lambda twin: program.__code__.co_exceptiontable)
    assert spoiled(co_exceptiontable=lambda twin: b"")


def moved_loop(by):
    """Makes the loop end elsewhere."""

    def change(twin):
        raw = bytearray(twin.co_code)
        raw[raw.index(opcode.opmap["FOR_ITER"]) + 1] += by
        return bytes(raw)

    return change


def test_a_jump_to_no_instruction_is_seen():
    found = [spoiled(co_code=moved_loop(by)) for by in range(-3, 8)]
    assert any("jumps to what is no" in text for texts in found for text in texts)


def test_each_difference_has_a_reason():
    assert all(DIFFERENCES.values())
    assert all(UNREADABLE.values())
    assert all(NOT_COMPILED.values())
