"""Objects written in C that never change: another one with another value is another world."""

from __future__ import annotations

import array
import collections
import copy
import datetime
import decimal
import enum
import fractions
import functools
import hashlib
import inspect
import io
import math
import operator
import pathlib
import pickle
import re
import string
import struct
import time
import types
import uuid

import numpy as np
import pytest
import torch

import magpy


class Length(int):
    def __add__(self, other):
        return Length(int(self) + int(other))


class Share(float):
    pass


class Name(str):
    pass


class Raw(bytes):
    pass


class Phase(complex):
    pass


class Pair(tuple):
    pass


class Bag(frozenset):
    pass


class Buffer(bytearray):
    pass


class Moment(datetime.datetime):
    pass


class Money(decimal.Decimal):
    pass


class Level(enum.IntEnum):
    low = 1
    high = 2


class Rights(enum.IntFlag):
    read = 1
    write = 2


class Word(str, enum.Enum):  # noqa: UP042 - as programs have them
    a = "x"
    b = "y"


class Holder:
    def __init__(self, v):
        self.v = v


class Full:
    __slots__ = ("v",)

    def __init__(self, v):
        self.v = v

    def __repr__(self):
        return f"Full({self.v})"


class Heir(Holder):
    pass


_NUMBER = (
    int,
    float,
    str,
    lambda s: s + 1,
    lambda s: s > 1,
    lambda s: f"{s}",
    hash,
    lambda s: {1: 2}.get(s),
)
_DAY = (
    str,
    lambda s: s.year,
    lambda s: s.toordinal(),
    lambda s: s.isoformat(),
    lambda s: s.timetuple(),
)

# What makes the objects, and what a program asks of them.
KINDS = {
    "int": ([lambda i=i: Length(i) for i in (1, 2)], _NUMBER),
    "float": ([lambda i=i: Share(i) for i in (1.0, 2.0, -0.0, 0.0)], _NUMBER),
    "str": (
        [lambda s=s: Name(s) for s in ("a", "bb")],
        (len, str, lambda s: s + "x", hash, lambda s: s[0]),
    ),
    "bytes": ([lambda s=s: Raw(s) for s in (b"a", b"bb")], (len, bytes, lambda s: s[0], hash)),
    "complex": ([lambda s=s: Phase(s) for s in (1j, 2j)], (abs, lambda s: s + 1, lambda s: s.imag)),
    "tuple": (
        [lambda s=s: Pair(s) for s in ((1, 2), (1, 3), (1,))],
        (sum, len, hash, lambda s: s[-1]),
    ),
    "frozenset": (
        [lambda s=s: Bag(s) for s in ((1, 2), (1, 3))],
        (sum, len, sorted, lambda s: 3 in s),
    ),
    "bytearray": (
        [lambda s=s: Buffer(s) for s in (b"a", b"b")],
        (bytes, list, lambda s: s.decode()),
    ),
    "Decimal": ([lambda s=s: decimal.Decimal(s) for s in ("1", "2", "1.0")], _NUMBER),
    "subclass of Decimal": ([lambda s=s: Money(s) for s in (1, 2)], _NUMBER),
    "Fraction": ([lambda s=s: fractions.Fraction(s, 2) for s in (1, 3)], _NUMBER),
    "date": ([lambda y=y: datetime.date(y, 1, 1) for y in (2020, 2021)], _DAY),
    "datetime": ([lambda y=y: Moment(y, 1, 1) for y in (2020, 2021)], _DAY),
    "time": ([lambda h=h: datetime.time(h) for h in (1, 2)], (str, lambda s: s.hour)),
    "timedelta": (
        [lambda d=d: datetime.timedelta(d) for d in (1, 2)],
        (str, lambda s: s.total_seconds(), lambda s: s / datetime.timedelta(1), lambda s: s.days),
    ),
    "zone": ([lambda h=h: datetime.timezone(datetime.timedelta(hours=h)) for h in (1, 2)], (str,)),
    "uuid": ([lambda i=i: uuid.UUID(int=i) for i in (1, 2)], (str, lambda s: s.int)),
    "pattern": (
        [lambda s=s: re.compile(s) for s in "ab"],
        (lambda s: bool(s.match("a")), lambda s: s.pattern, lambda s: s.sub("z", "ab")),
    ),
    "match": (
        [lambda s=s: re.match(s, "123") for s in ("1", "12")],
        (lambda s: s.group(), lambda s: s[0], lambda s: s.span()),
    ),
    "itemgetter": ([lambda i=i: operator.itemgetter(i) for i in (0, 1)], (lambda s: s((5, 6)),)),
    "attrgetter": (
        [lambda s=s: operator.attrgetter(s) for s in ("real", "imag")],
        (lambda s: s(1 + 2j),),
    ),
    "methodcaller": (
        [lambda s=s: operator.methodcaller(s) for s in ("upper", "title")],
        (lambda s: s("ab"),),
    ),
    "partial": (
        [lambda i=i: functools.partial(max, i) for i in (1, 3)],
        (lambda s: s(2), lambda s: s.args),
    ),
    "alias": ([lambda: list[int], lambda: list[str]], (str, lambda s: s.__args__)),
    "union": ([lambda: int | str, lambda: str | bytes], (str, lambda s: isinstance(1, s))),
    "code": (
        [lambda: (lambda: 1).__code__, lambda: (lambda: 2).__code__],
        (eval, lambda s: s.co_consts),
    ),
    "super": (
        [lambda: super(Heir, Heir(1)), lambda: super(Heir, Heir(2))],
        (lambda s: s.__self__.v,),
    ),
    "slice": (
        [lambda i=i: slice(i) for i in (2, 3)],
        (str, lambda s: s.stop, lambda s: [1, 2, 3][s]),
    ),
    "range": ([lambda i=i: range(i) for i in (2, 3)], (len, list, lambda s: s[-1])),
    "enum": ([lambda: Level.low, lambda: Level.high], _NUMBER),
    "flag": (
        [lambda: Rights.read, lambda: Rights.write, lambda: Rights(3)],
        (int, str, lambda s: s | 1),
    ),
    "str enum": ([lambda: Word.a, lambda: Word.b], (len, str, lambda s: s + "q")),
    "array": (
        [lambda i=i: array.array("i", [i]) for i in (1, 2)],
        (sum, list, lambda s: s.tobytes()),
    ),
    "deque": ([lambda i=i: collections.deque([i]) for i in (1, 2)], (sum, list, lambda s: s[0])),
    "struct": (
        [lambda s=s: struct.Struct(s) for s in "bh"],
        (lambda s: s.size, lambda s: s.pack(1)),
    ),
    "text": (
        [lambda s=s: io.StringIO(s) for s in "ab"],
        (lambda s: s.getvalue(), lambda s: s.read()),
    ),
    "proxy": (
        [lambda i=i: types.MappingProxyType({"a": i}) for i in (1, 2)],
        (dict, lambda s: s["a"]),
    ),
    "path": (
        [lambda s=s: pathlib.PurePath(s) for s in "ab"],
        (str, lambda s: s / "c", lambda s: s.name),
    ),
    "template": ([lambda s=s: string.Template(s) for s in "ab"], (lambda s: s.substitute(),)),
    "namespace": (
        [lambda i=i: types.SimpleNamespace(a=types.SimpleNamespace(b=[i])) for i in (1, 2)],
        (repr, lambda s: str(vars(s)), lambda s: s == types.SimpleNamespace(a=2), pickle.dumps),
    ),
    "slots": ([lambda i=i: Full([i]) for i in (1, 2)], (pickle.dumps, copy.deepcopy)),
    "time tuple": (
        [lambda s=s: time.gmtime(s) for s in (0, 10**9)],
        (lambda s: s.tm_year, lambda s: s[0]),
    ),
    "hash": ([lambda s=s: hashlib.sha1(s) for s in (b"a", b"b")], (lambda s: s.hexdigest(),)),
    "signature": (
        [lambda: inspect.signature(lambda a: 1), lambda: inspect.signature(lambda b: 1)],
        (str, lambda s: list(s.parameters)),
    ),
    "numpy scalar": ([lambda s=s: np.float64(s) for s in (1, 2)], (float, str, lambda s: s + 1)),
    "numpy dtype": ([lambda s=s: np.dtype(s) for s in ("f4", "f8")], (str, lambda s: s.itemsize)),
    "finfo": (
        [lambda d=d: torch.finfo(d) for d in (torch.float32, torch.float64)],
        (lambda s: s.eps,),
    ),
    "size": ([lambda i=i: torch.Size([i]) for i in (1, 2)], (sum, list, lambda s: s.numel())),
    "device": ([lambda s=s: torch.device(s) for s in ("cpu", "meta")], (str, lambda s: s.type)),
    "storage": (
        [lambda i=i: torch.ones(i).untyped_storage() for i in (2, 3)],
        (len, lambda s: s.nbytes()),
    ),
}


def _asked(look, v):
    try:
        return look(v)
    except Exception as error:
        return type(error), str(error)


def _of_argument(look):
    return lambda t, v: (t + 1, _asked(look, v))


def _of_item(look):
    return lambda t, v: (t + 1, [_asked(look, x) for x in v])


def _replaced(look):
    """The call itself puts a new object in the place of the one that it looks at."""
    place = {}

    def f(t, v):
        seen = _asked(look, place["v"]) if "v" in place else None
        place["v"] = v
        return t + 1, seen

    return f


WAYS = {
    "argument": (_of_argument, lambda v: v),
    "item": (_of_item, lambda v: [v]),
    "replaced": (_replaced, lambda v: v),
}


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_another_value_is_another_world(kind, way):
    makers, looks = KINDS[kind]
    make, given = WAYS[way]
    for look in looks:
        eager, f = make(look), magpy.compile(make(look), backend="eager")
        for maker in (*makers, *makers, *reversed(makers)):
            wanted, got = (h(torch.ones(2), given(maker()))[1] for h in (eager, f))
            assert type(got) is type(wanted)
            assert repr(got) == repr(wanted), magpy.stats(f)


@pytest.mark.parametrize(
    "kind",
    ["int", "float", "str", "bytes", "complex", "Decimal", "date", "timedelta", "itemgetter"],
)
def test_an_equal_value_is_the_same_world(kind):
    (maker, *_), (look, *_) = KINDS[kind]
    f = magpy.compile(_of_argument(look), backend="eager")
    for _ in range(5):
        f(torch.ones(2), maker())
    assert (magpy.stats(f).captures, magpy.stats(f).hits) == (1, 4)


def test_a_number_of_a_class_of_its_own_that_counts():
    def make():
        place = {"n": Length(3)}

        def f(t):
            place["n"] = place["n"] + 2
            return t + 1, place["n"]

        return f

    eager, f = make(), magpy.compile(make(), backend="eager")
    for _ in range(6):
        wanted, got = eager(torch.ones(1))[1], f(torch.ones(1))[1]
        assert (type(got), got) == (type(wanted), wanted)


def test_a_class_that_tells_by_itself_is_not_asked():
    asked = []

    class Told(int):
        def __getnewargs__(self):
            asked.append(self)
            return (0,)

    f = magpy.compile(lambda t, v: (t + 1, v + 1), backend="eager")
    for n in (1, 1, 2, 3, 1):
        assert f(torch.ones(1), Told(n))[1] == n + 1
    assert asked == []


def test_integers_of_thousands_of_digits_are_numbers_as_others():
    """Python refuses to write them down: `sys.get_int_max_str_digits`."""
    large = 10**5000
    kept = {"n": large, large: torch.ones(2)}

    def given(t, n):
        return t + 1, n

    def counted(t, n):
        kept["n"] = kept["n"] * 3
        return t + kept[large], kept["n"]

    def made(t, n):
        return t, [10**5000, {10**5000: n}]

    for program in (given, counted, made):
        compiled = magpy.compile(program, backend="eager")
        t = torch.ones(2)
        for n in (large, large + 1, large, large):
            before = kept["n"]
            got = compiled(t, n)
            kept["n"] = before
            want = program(t, n)
            assert torch.equal(got[0], want[0])
            assert got[1] == want[1], "the numbers differ"
        stats = magpy.stats(compiled)
        assert stats.captures > 0
        assert not [r for r in stats.reasons if "magpy failed" in r]


def test_constants_of_graphs_keep_their_bits():
    """What Python prints of a NaN, or of a complex number's zeros, has lost the sign."""
    minus = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000000))[0]
    zeros = complex(-0.0, -0.0)

    def bits(t):
        t = torch.view_as_real(t) if t.is_complex() else t
        return t.view(torch.int32).tolist()

    def kept(t):
        n = math.sin(minus)
        return [t + n, torch.full((1,), n), t * zeros, t + complex(minus, -0.0), t - -0.0], n

    def given(t, n):
        return [t + n, torch.full((1,), n)], n

    calls = [(kept, ()), (given, (minus,)), (given, (math.nan,)), (given, (zeros,))]
    compiled = {f: magpy.compile(f, backend="eager") for f in (kept, given)}
    for f, more in calls * 3:
        want, got = (g(torch.ones(1), *more) for g in (f, compiled[f]))
        assert [bits(t) for t in got[0]] == [bits(t) for t in want[0]]
        pack = [struct.pack("<dd", complex(n).real, complex(n).imag) for n in (got[1], want[1])]
        assert pack[0] == pack[1]
    assert magpy.stats(compiled[kept]).hits == 2
