"""A frame run as its twin does what it does alone.

No session is active here: the hook is in its test mode, in which every frame of the process runs as
its twin and the probes only perform their operations.
"""

import argparse
import asyncio
import builtins
import contextlib
import dis
import enum
import gc
import inspect
import io
import operator
import sys
import threading
import traceback
import types
import weakref

import pytest

from magpy import _interp
from magpy.instrument import opcodes
from magpy.instrument import rewrite as instrument_module
from magpy.instrument.rewrite import instrument

ALONE, TWIN, MOVED = 0, 1, 2


@contextlib.contextmanager
def instrumented(mode=TWIN):
    _interp.instrument_all(mode)
    try:
        yield
    finally:
        _interp.instrument_all(ALONE)


def outcome(program):
    """What a program gives, prints, and raises where."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            result = program()
    except Exception as error:
        # The first entry is this function's own.
        steps = traceback.extract_tb(error.__traceback__)[1:]
        where = [(s.name, s.lineno, s.end_lineno, s.colno, s.end_colno) for s in steps]
        chain = [type(error), str(error), type(error.__context__), type(error.__cause__)]
        return "raised", chain, where, printed.getvalue()
    return "gave", result, printed.getvalue()


# ---- programs: each is run alone and as a twin ----

GLOBAL = 3


class Point:
    __match_args__ = ("x", "y")
    __slots__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


def arguments():
    def f(a, b=2, /, c=3, *rest, d, e=5, **more):
        return a, b, c, rest, d, e, sorted(more.items())

    return f(1, d=4), f(1, 2, 3, 4, 5, d=6, z=7), f(*[1, 2], **{"d": 3, "y": 4})


def wrong_arguments():
    def f(a, b):
        return a, b

    messages = []
    for call in (
        lambda: f(1),
        lambda: f(1, 2, 3),
        lambda: f(1, a=2),
        lambda: f(*3),
        lambda: f(**3),
        lambda: f(**{1: 2}),
        lambda: f(1, **{"b": 2}, **{"b": 3}),  # noqa: PLE1132
        lambda: GLOBAL(),
        lambda: len(),
        lambda: dict(**{"a": 1}, a=2),  # noqa: PLE1132
    ):
        try:
            call()
        except TypeError as error:
            messages.append(str(error))
    return messages


def method_calls():
    class A:
        def plain(self, x):
            return self, x

        @classmethod
        def of_class(cls, x):
            return cls.__name__, x

        @staticmethod
        def static(x):
            return x

        @property
        def prop(self):
            return 7

        def __call__(self, *args):
            return args

        def __getattr__(self, name):
            return name.upper()

    a = A()
    a.held = [].append
    bound = a.plain
    a.held(3)
    a.gone = 1
    del a.gone
    return (
        a.plain(1)[1], A.plain(a, 2)[1], a.of_class(3), A.static(4), a.prop, a(5, 6), a.missing,
        bound(8)[1], a.held.__self__, "x,y".split(sep=","),
    )  # fmt: skip


def supers():
    class Base:
        tag = "base"

        def __init__(self, x):
            self.x = x

        def m(self):
            return f"base {self.x}"

        @classmethod
        def c(cls):
            return cls.__name__

    class Child(Base):
        def __init__(self):
            super().__init__(5)

        def m(self):
            return super().m() + super(Child, self).m() + super().tag  # noqa: UP008

        @classmethod
        def c(cls):
            return super().c() + "!"

        def missing(self):
            return super().nothing

    child = Child()
    try:
        child.missing()
    except AttributeError as error:
        message = str(error)
    return child.m(), Child.c(), message


def closures():
    count = 0
    late = None

    def step(n):
        nonlocal count, late
        count += n
        late = lambda: count * factor  # noqa: F821
        return late()

    try:
        step(1)
    except NameError as error:
        message = str(error)
    factor = 10
    cells = [lambda i=i: i + count for i in range(3)]
    result = step(2), [c() for c in cells], message
    del factor
    return result


def globals_and_builtins():
    global GLOBAL, MADE
    GLOBAL += 1
    MADE = len([GLOBAL])
    del MADE
    try:
        return GLOBAL, MADE
    except NameError as error:
        return str(error), GLOBAL >= 4
    finally:
        GLOBAL = 3


def class_body():
    x = "outer"

    class C:
        seen = x
        x = "inner"
        both = seen, x
        items = [i for i in range(3)]
        y: int = 1
        del y

        def get(self):
            return x, __class__.__name__

    return C.both, C.items, C().get(), C.__annotations__, C.__qualname__


def metaclass_and_decorators():
    log = []

    def decorate(f):
        log.append(f.__name__)
        return f

    class Meta(type):
        @classmethod
        def __prepare__(cls, name, bases, **kw):
            return {"prepared": kw}

        def __new__(cls, name, bases, ns, **kw):
            return super().__new__(cls, name, bases, ns)

        def __init_subclass__(cls):
            log.append("sub")

    @decorate
    class C(metaclass=Meta, flag=1):
        @decorate
        def f(self):
            pass

    return log, C.prepared


def comprehensions():
    n = 2
    rows = [[i * j for j in range(n + 1)] for i in range(3) if i != 1]
    return rows, {i: str(i) for i in range(n)}, {i % 2 for i in range(5)}, sum(i for i in range(n))


def comprehension_sees_locals():
    return [sorted(locals()) for _ in range(1)], sorted(locals())


def generators():
    def inner():
        got = yield 1
        try:
            yield got
        except KeyError as error:
            yield f"caught {error}"
        return "returned"

    def outer():
        result = yield from inner()
        yield result

    g = outer()
    values = [next(g), g.send("sent"), g.throw(KeyError("k")), *g]
    h = inner()
    next(h)
    h.close()
    return values, h.gi_frame, inspect.getgeneratorstate(h)


def generator_return_value():
    def g():
        yield 1
        return 2

    it = g()
    next(it)
    try:
        next(it)
    except StopIteration as stop:
        return stop.value


def coroutines():
    class Manager:
        async def __aenter__(self):
            await asyncio.sleep(0)
            return "entered"

        async def __aexit__(self, kind, value, tb):
            return kind is ValueError

    async def numbers(n):
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    async def main():
        out = [i async for i in numbers(3) if i]
        async with Manager() as m:
            out.append(m)
            raise ValueError
        async for i in numbers(1):
            out.append(i)
        else:
            out.append("else")
        out += await asyncio.gather(*(asyncio.sleep(0, k) for k in range(2)))
        return out

    return asyncio.run(main())


def with_statements():
    log = []

    class M:
        def __init__(self, name, swallow=False):
            self.name, self.swallow = name, swallow

        def __enter__(self):
            log.append(f"enter {self.name}")
            return self.name

        def __exit__(self, kind, value, tb):
            log.append((self.name, kind and kind.__name__))
            return self.swallow

    with M("a", True) as a, M("b") as b:
        log.append(a + b)
        raise KeyError(a)
    with M("c"):
        for _ in range(2):
            with M("d"):
                continue
    try:
        with 3:
            pass
    except TypeError as error:
        log.append(str(error))
    return log


def exceptions():
    log = []
    for error in (ValueError("v"), KeyError("k"), OSError(2, "no")):
        try:
            try:
                raise error
            except ValueError as e:
                log.append(e.args)
            except (KeyError, TypeError):
                raise RuntimeError("again") from error
            else:
                log.append("else")
            finally:
                log.append("finally")
        except RuntimeError as e:
            log.append((str(e), type(e.__cause__).__name__))
        except OSError as e:
            log.append(e.errno)
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
    except* ValueError as group:
        log.append(len(group.exceptions))
    except* TypeError:
        log.append("type")
    return log


def finally_returns():
    def f():
        for i in range(3):
            try:
                return i
            finally:
                if i < 1:
                    continue
                break
        return "after"

    return f()


def matching():
    def kind(value):
        match value:
            case 0 | 1:
                return "small"
            case str() as s if s:
                return s.upper()
            case [first, *rest]:
                return first, rest
            case {"k": v, **more}:
                return v, more
            case Point(0, y=y):
                return y
            case _:
                return None

    values = [0, "text", "", [1, 2, 3], (), {"k": 1, "m": 2}, Point(0, 9), Point(1, 2), 2.5]
    return [kind(v) for v in values]


def matching_classes():
    class Odd:
        __match_args__ = ("x", 1)
        x = 5

    class Listed:
        __match_args__ = ["x"]

    class Raises:
        @property
        def x(self):
            raise ValueError("in a property")

    def one(v):
        match v:
            case Point(a, y=b):
                return a, b

    def same_twice(v):
        match v:
            case Point(a, x=b):
                return a, b

    def many(v):
        match v:
            case Point(a, b, c):
                return a, b, c

    def plain(v):
        match v:
            case bool(b) | int(b) | str(b):
                return b
            case dict(a, b):
                return a, b

    def none_taken(v):
        match v:
            case Raises(a):
                return a

    def odd(v):
        match v:
            case Odd(a, b):
                return a, b

    def listed(v):
        match v:
            case Listed(a):
                return a

    def raising(v):
        match v:
            case Raises(missing=m):
                return m
            case Raises(x=a):
                return a

    def no_class(v):
        kind = one
        match v:
            case kind(a):
                return a

    unset = Point.__new__(Point)
    tried = [(f, v) for f in (one, same_twice, many) for v in (Point(1, 2), unset, 3)]
    tried += [(plain, v) for v in (True, 3, "s", {}, 2.5)]
    tried += [(none_taken, Raises()), (odd, Odd()), (listed, Listed())]
    tried += [(raising, Raises()), (no_class, 1)]
    out = []
    for f, v in tried:
        try:
            out.append(f(v))
        except (TypeError, ValueError) as error:
            out.append((type(error).__name__, str(error)))
    return out


def matching_mappings():
    class Asked(dict):
        asked = ()

        def get(self, key, default=None):
            self.asked += (key,)
            return super().get(key, default)

    class Raises(dict):
        def get(self, key, default=None):
            raise ValueError("in get")

    class Hidden(dict):
        get = None

    class Lacks(dict):
        def __getattribute__(self, name):
            raise AttributeError(name)

    class Names:
        a = b = "k"
        unhashable = []

    def two(v):
        match v:
            case {"k": a, "m": b}:
                return a, b
            case {"k": a}:
                return (a,)
            case {}:
                return "empty"

    def rest(v):
        match v:
            case {"k": 1, **more}:
                return more

    def duplicate(v):
        match v:
            case {Names.a: x, Names.b: y}:
                return x, y

    def unhashable(v):
        match v:
            case {Names.unhashable: x}:
                return x

    given = [{"k": 1, "m": 2}, {"k": 1}, {}, {"k": None, "m": None}, [], 3]
    given += [Asked(k=1), Raises(k=1), Hidden(k=1), Lacks(k=1)]
    out = []
    for f in (two, rest, duplicate, unhashable):
        for v in given:
            try:
                out.append(f(v))
            except (TypeError, ValueError, AttributeError) as error:
                out.append((type(error).__name__, str(error)))
    return out, given[6].asked


def operators():
    a, b = 7, 2
    out = [a + b, a - b, a * b, a / b, a // b, a % b, a**b, a << b, a >> b, a & b, a | b, a ^ b]
    out += [-a, +a, ~a, not a, a < b, a <= b, a == b, a != b, a > b, a >= b, a is b, a is not b]
    for op in ("+=", "-=", "*=", "/=", "//=", "%=", "**=", "<<=", ">>=", "&=", "|=", "^="):
        space = {"a": a, "b": b}
        exec(f"a {op} b", space)
        out.append(space["a"])

    class M:
        def __matmul__(self, other):
            return "mat"

        def __imatmul__(self, other):
            return "imat"

        def __pos__(self):
            return "pos"

    m = M()
    out += [m @ 1, +m, 1 < a < 9, 1 < a > 9, "a" in "abc", 3 not in [3]]
    m @= 1
    text = "s"
    text += "t"
    shared = other = [1]
    shared += [2]
    return out, m, text, other


def operator_errors():
    messages = []
    for f in (
        lambda: 1 + "a",
        lambda: -"a",
        lambda: "a" < 1,
        lambda: 1 in 2,
        lambda: GLOBAL[0],
        lambda: [1][5],  # noqa: PLE0643
        lambda: {}["k"],
        lambda: (1, 2).x,
        lambda: operator.matmul(1, 2),
        lambda: 1 ** "a",
        lambda: iter(3),
        lambda: [*3],
        lambda: {**3},
        lambda: f"{3:q}",
    ):
        try:
            f()
        except Exception as error:
            messages.append((type(error).__name__, str(error)))
    return messages


def items_and_slices():
    data = list(range(6))
    data[0] = 9
    data[1:3] = ["a"]
    del data[-1], data[:1]
    grid = {(0, 1): "t"}
    grid[1, 2] = "u"
    return data, data[1:], data[::2], data[-1], grid[0, 1], sorted(grid.values()), "abc"[1:2]


def unpacking():
    a, b = 1, 2
    (c, d), *e, f = [(3, 4), 5, 6, 7]
    x = [*range(2), *"ab"]
    y = {**{"k": 1}, "m": 2}
    z = {*x, 9}
    messages = []
    for f2 in (lambda: [p for p, q in [(1,)]], lambda: [p for p, *q, r in [(1,)]]):
        try:
            f2()
        except ValueError as error:
            messages.append(str(error))
    return a, b, c, d, e, f, x, y, len(z), messages


def truth():
    class T:
        def __init__(self, value):
            self.value = value

        def __bool__(self):
            print("asked", self.value)
            return self.value

    yes, no = T(True), T(False)
    out = [1 if yes else 2, 1 if no else 2, not yes, (yes and no).value, (no or yes).value]
    while no:
        pass
    assert yes, "message"
    return out, bool(yes) and not no, [i for i in range(3) if i], None is None


def formatting():
    class F:
        def __format__(self, spec):
            return f"<{spec}>"

        def __repr__(self):
            return "é"

    v, width = F(), 6
    return (
        f"{v}",
        f"{v:x}",
        f"{v!r}",
        f"{v!a:>{width}}",
        f"{3.14159:.{2}f}",
        f"{'s'}{'t'!s}",
        f"{v=}",
    )


def imports():
    import os.path as p
    from collections import OrderedDict, deque

    try:
        from collections import nothing
    except ImportError as error:
        return p.basename("a/b"), OrderedDict.__name__, deque.__name__, str(error)[:30], nothing


STAR, SHELL = "from math import *", "len('abc')"


def star_and_shell():
    names = {}
    exec(STAR, names)
    exec(compile(SHELL, "shell", "single"))
    return names["floor"](3.7)


def walrus_and_lambda():
    if (n := len("abc")) > 2:
        return (lambda x, *a, k=n: (x, a, k, [y := x, y**2]))(1, 2)


def recursion():
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return fib(12)


def entered_from_c():
    class K:
        def __init__(self, v):
            self.v = v

        def __lt__(self, other):
            return self.v < other.v

        def __hash__(self):
            return hash(self.v)

        def __eq__(self, other):
            return self.v == other.v

        def __iter__(self):
            yield self.v

        def __len__(self):
            return 3

        def __getitem__(self, i):
            return self.v, i

        def __del__(self):
            print("del")

    values = sorted([K(3), K(1)])
    return (
        [k.v for k in values], list(map(lambda x: x + 1, [1, 2])), list(K(4)), len(K(5)),
        {K(1): 1}[K(1)], K(2)[7], max([1, 5, 2], key=lambda x: -x),
    )  # fmt: skip


def dunder_locals():
    a = 1

    def f(b):
        c = b + a
        return sorted(locals().items())

    return f(2), sorted(k for k in locals() if k != "f"), sorted(vars())


def exec_and_eval():
    space = {"x": 1}
    exec("y = x + 1\nclass C:\n    z = y\n\ndef f(): return C.z + x\nw = f()\ndel y", space)
    return space["w"], eval("[x for _ in range(2)]", space), "y" in space


def enum_and_dataclass():
    class Color(enum.Enum):
        RED = 1
        GREEN = enum.auto()

    return [c.name for c in Color], Color(1).name, Color["GREEN"].value


def raises_deep():
    def a(n):
        if n == 0:
            return {}["missing"]
        return (
            a(n - 1)
            + 1
        )  # fmt: skip

    return a(3)


def raises_in_generator():
    def g():
        yield 1
        (
            yield
            [][0]  # noqa: PLE0643
        )  # fmt: skip

    return list(g())


def raises_in_finally():
    try:
        raise ValueError("first")
    finally:
        print("finally")
        undefined_name  # noqa: B018, F821


def raises_in_with():
    with contextlib.suppress(KeyError), contextlib.closing(io.StringIO()) as s:
        s.write(1)


def raises_in_comprehension():
    return [1 / x for x in (1, 0)]


def raises_unbound():
    print(later)  # noqa: F821
    later = 1  # noqa: F841


def many_names_and_jumps():
    """More constants, names and code than fit into one byte."""
    lines = ["def f(n):", "    t = 0", "    for i in range(n):", "        if i % 2:"]
    lines += [f"            t += g{k}(i, {k + 1000}) if t >= 0 else {k}.5" for k in range(400)]
    lines += ["        else:", "            t -= 1", "    return t"]
    space = {f"g{k}": (lambda i, c, k=k: i + c - k) for k in range(400)}
    exec("\n".join(lines), space)
    return space["f"](5)


PROGRAMS = [
    value
    for name, value in list(globals().items())
    if isinstance(value, types.FunctionType)
    and value.__module__ == __name__
    and name not in ("instrumented", "outcome")
]


@pytest.mark.parametrize("mode", [TWIN, MOVED], ids=["twin", "moved"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_program_as_twin_has_the_same_outcome(program, mode):
    expected = outcome(program)
    with instrumented(mode):
        first = outcome(program)
        second = outcome(program)
    assert _interp.twin_of(program.__code__) is not None
    assert first == expected
    assert second == expected


def test_programs_cover_every_probed_instruction():
    seen = set()

    def collect(code):
        seen.update(i.opname for i in dis.get_instructions(code))
        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                collect(const)

    for program in PROGRAMS:
        collect(program.__code__)
    # exec'd code has names where functions have globals.
    collect(compile("x = 1\nx\ndel x\nclass C:\n    x", "names", "exec"))
    collect(compile(STAR, "star", "exec"))
    collect(compile(SHELL, "shell", "single"))
    probed = {dis.opname[op] for op in opcodes.REWRITES}
    # Type parameters' scopes (PEP 695), which 3.11 cannot parse.
    rare = {"LOAD_FROM_DICT_OR_GLOBALS"}
    missing = {n for n in probed - seen if "JUMP" not in n} - rare
    assert not missing


# ---- the shape of twins ----


def library_codes():
    found = []

    def walk(code):
        found.append(code)
        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                walk(const)

    for module in (argparse, dis, enum, inspect, traceback, asyncio.tasks, instrument_module):
        with open(module.__file__, encoding="utf-8") as file:
            walk(compile(file.read(), module.__file__, "exec"))
    return found


def test_twin_has_the_original_s_description():
    for code in library_codes():
        twin = instrument(code)
        for name in (
            "co_argcount co_posonlyargcount co_kwonlyargcount co_nlocals co_flags co_names "
            "co_varnames co_freevars co_cellvars co_name co_qualname co_filename co_firstlineno"
        ).split():
            assert getattr(twin, name) == getattr(code, name), (code, name)
        assert twin.co_consts[: len(code.co_consts)] == code.co_consts
        assert twin.co_stacksize == code.co_stacksize + opcodes.EXTRA_STACK


def test_twin_has_the_location_of_the_original_instruction_everywhere():
    for code in library_codes():
        table = memoryview(instrument_module.offsets(code)).cast("I")
        old = list(code.co_positions())
        new = list(instrument(code).co_positions())
        assert len(new) == len(table)
        assert new == [old[unit] for unit in table], code


def test_twin_protects_the_same_instructions():
    for code in library_codes():
        twin = instrument(code)
        table = memoryview(instrument_module.offsets(code)).cast("I")
        old = [
            (e.start, e.end, e.target, e.depth, e.lasti) for e in dis._parse_exception_table(code)
        ]
        new = [
            (e.start, e.end, e.target, e.depth, e.lasti) for e in dis._parse_exception_table(twin)
        ]
        assert len(old) == len(new)
        starts = {o: n for n, o in reversed(list(enumerate(table)))}
        for (start, _, target, depth, lasti), moved in zip(old, new, strict=True):
            assert moved[3:] == (depth, lasti)
            # EXTENDED_ARGs of the original belong to the instruction after them.
            assert moved[0] // 2 == starts[min(u for u in starts if u >= start // 2)]
            assert moved[2] // 2 == starts[min(u for u in starts if u >= target // 2)]


def test_twin_without_debug_ranges_keeps_lines():
    source = "def f(x):\n    y = x.a\n    return y[0]\n"
    code = compile(source, "none", "exec").co_consts[0]
    bare = code.replace(co_linetable=b"")
    assert instrument(bare).co_consts[0] == code.co_consts[0]


# ---- what a program sees of its frames ----


def test_frame_shows_the_original_code_and_offset():
    def f():
        frame = sys._getframe()
        return frame.f_code, frame.f_lasti, frame.f_lineno

    expected = [f() for _ in range(2)][1]
    with instrumented():
        shown = [f() for _ in range(2)][1]
    assert shown == expected
    assert shown[0] is f.__code__


def test_traceback_shows_the_original_offset():
    def f():
        return {}["k"]

    def entry():
        try:
            f()
        except KeyError as error:
            tb = error.__traceback__.tb_next
            return tb.tb_frame.f_code, tb.tb_lasti, tb.tb_lineno

    expected = entry()
    with instrumented():
        shown = entry()
    assert shown == expected


def test_generator_shows_the_original_code():
    def g():
        yield

    async def c():
        pass

    async def a():
        yield

    def codes():
        coroutine = c()
        made = g().gi_code, coroutine.cr_code, a().ag_code
        coroutine.close()
        return made

    with instrumented():
        assert codes() == (g.__code__, c.__code__, a.__code__)


def test_generator_made_as_twin_goes_on_after_the_hook_is_gone():
    def g():
        total = 0
        for i in range(3):
            total += yield {"i": i}["i"]
        return total

    with instrumented():
        it = g()
        assert next(it) == 0
    assert it.send(5) == 1
    assert it.send(6) == 2
    with pytest.raises(StopIteration) as stop:
        it.send(7)
    assert stop.value.value == 18


def test_twin_generator_outlives_its_function():
    def make():
        space = {}
        exec("def g():\n    yield 1\n    yield len([2])", space)
        return space["g"]()

    with instrumented():
        it = make()
        assert next(it) == 1
    gc.collect()
    assert next(it) == 1
    assert it.gi_frame.f_code.co_name == "g"


def test_trace_function_sees_the_same_lines():
    def f(n):
        total = 0
        for i in range(n):
            if i:
                total += i
        return [total, {"a": total}["a"]]

    def traced():
        events = []

        def trace(frame, event, arg):
            if frame.f_code is f.__code__:
                events.append((event, frame.f_lineno))
            return trace

        sys.settrace(trace)
        try:
            f(3)
        finally:
            sys.settrace(None)
        return events

    expected = traced()
    with instrumented():
        shown = traced()
    assert shown == expected


def test_recursion_limit_is_met_at_the_same_depth():
    def depth():
        n = 0

        def f():
            nonlocal n
            n += 1
            f()

        with contextlib.suppress(RecursionError):
            f()
        return n

    def program():
        return depth()

    program()
    expected = program()
    with instrumented():
        program()
        assert program() == expected


def test_deep_recursion_leaves_the_c_stack_alone():
    def f(n):
        return 0 if n == 0 else 1 + f(n - 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(150_000)
    try:
        with instrumented():
            assert f(100_000) == 100_000
    finally:
        sys.setrecursionlimit(limit)


# ---- lifetimes ----


def test_arguments_die_when_the_callee_drops_them():
    class Thing:
        pass

    def positional(x):
        alive = weakref.ref(x)
        del x
        return alive() is None

    class K:
        def method(self, *, x):
            alive = weakref.ref(x), weakref.ref(self)
            del x, self
            return [a() is None for a in alive]

    def program():
        return positional(Thing()), K().method(x=Thing()), positional(x=Thing())

    expected = [program() for _ in range(3)][-1]
    with instrumented():
        assert [program() for _ in range(3)][-1] == expected


def test_calls_keep_reference_counts():
    thing = object()

    def f(*args, **kwargs):
        return args[0]

    class K:
        def m(self, x, y=None):
            return x

    k = K()

    def program():
        f(thing)
        f(thing, k=thing)
        f(*[thing], **{"k": thing})
        k.m(thing)
        k.m(thing, y=thing)
        K.m(k, thing)
        bound = k.m
        bound(thing)
        [thing].index(thing)
        _ = [thing][0] is thing, f"{thing}", thing == thing, {thing: thing}[thing]
        with contextlib.suppress(AttributeError):
            thing.missing
        with contextlib.suppress(TypeError):
            k.m(thing, thing, thing)
        for _ in (thing, thing):
            pass

    with instrumented():
        program()
        before = sys.getrefcount(thing), sys.getrefcount(k), sys.getrefcount(f)
        for _ in range(50):
            program()
        after = sys.getrefcount(thing), sys.getrefcount(k), sys.getrefcount(f)
    assert after == before


def test_twin_dies_with_its_code():
    space = {}
    exec("def f(): return len('abc')", space)
    with instrumented():
        assert space["f"]() == 3
    code = space["f"].__code__
    twin = weakref.ref(_interp.twin_of(code))
    assert twin() is not None
    del code
    space.clear()
    gc.collect()
    assert twin() is None


# ---- the hook ----


def test_hook_is_gone_after_the_last_removal():
    assert _interp.hook_installed() == 0
    with instrumented():
        assert _interp.hook_installed() == 1
    assert _interp.hook_installed() == 0


def test_twin_is_made_once():
    def f():
        return abs(-1)

    with instrumented():
        f()
        twin = _interp.twin_of(f.__code__)
        f()
    assert _interp.twin_of(f.__code__) is twin
    assert _interp.original_of(twin) is f.__code__
    assert _interp.twin_of(twin) is None


def test_skipped_file_runs_as_it_is():
    space = {}
    exec(compile("def f(): return len('ab')", "/skipped/file.py", "exec"), space)
    before = _interp.skip_prefixes()
    _interp.set_skip_prefixes([*before, "/skipped/"])
    try:
        with instrumented():
            assert space["f"]() == 2
    finally:
        _interp.set_skip_prefixes(before)
    assert _interp.twin_of(space["f"].__code__) is None


def test_code_that_cannot_be_instrumented_runs_as_it_is():
    def broken(code):
        raise RuntimeError("no twin today")

    def f():
        return len("ab")

    _interp.set_instrument(broken, instrument_module.offsets)
    try:
        with instrumented():
            assert f() == 2
    finally:
        _interp.set_instrument(instrument, instrument_module.offsets)
        native = sys.modules.get("magpy.capture.python.native")
        if native is not None:  # other tests of this process watch calls
            native.prepare.cache_clear()
            native.prepare()
    assert _interp.twin_of(f.__code__) is None


def test_program_that_replaces_builtins_is_instrumented():
    def f(x):
        return len(x), [i for i in (0, 1)]

    def refuse(*args):
        raise AssertionError("magpy called the program's function")

    replaced = {n: vars(builtins)[n] for n in ("enumerate", "zip", "isinstance", "min", "list")}
    replaced["len"] = len
    with instrumented():
        for name in replaced:
            setattr(builtins, name, refuse)
        builtins.len = lambda x: 7
        try:
            result = f("ab")
        finally:
            for name, value in replaced.items():
                setattr(builtins, name, value)
    assert result == (7, [0, 1])
    assert _interp.twin_of(f.__code__) is not None


def test_code_with_an_unknown_instruction_is_refused():
    unknown = min(set(range(1, 256)) - set(opcodes.OP.values()))
    # Only its bytes are looked at; CPython itself may crash on such code.
    code = types.SimpleNamespace(co_code=bytes([unknown, 0]), co_qualname="strange")
    with pytest.raises(ValueError, match=f"{unknown}.*strange"):
        instrument(code)


def test_threads_run_twins_at_the_same_time():
    def work(out):
        out.append(sum(len(str(i)) for i in range(2000)))

    results = []
    with instrumented():
        threads = [threading.Thread(target=work, args=(results,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [sum(len(str(i)) for i in range(2000))] * 4


def test_profiler_does_not_see_probes():
    def f(x):
        return x.real + len([x])

    names = []

    def profile(frame, event, arg):
        if event.startswith("c_"):
            names.append(repr(arg))

    with instrumented():
        f(1)
        sys.setprofile(profile)
        try:
            f(1)
        finally:
            sys.setprofile(None)
    assert not [n for n in names if "probe" in n]
