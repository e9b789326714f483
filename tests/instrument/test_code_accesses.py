"""What code reads, changes and calls, by its instructions, alike in all versions of CPython."""

from __future__ import annotations

import pytest

from magpy.instrument.code_accesses import (
    Touches,
    accesses,
    called_methods,
    loop_names,
    may_compute,
)
from magpy.instrument.counters import counters


def touched(f, wanted):
    return {a.name for a in accesses(f.__code__) if a.touches & wanted}


def stores(a, b):
    global made
    a.x = b
    b["k"] = a.y
    a[1:2] = b
    made = a.z[b]
    del a.w, b[0]


def test_names_of_what_is_read_and_stored_are_told():
    assert touched(stores, Touches.STORES_ATTRIBUTE) == {"x"}
    assert touched(stores, Touches.READS_ATTRIBUTE) == {"y", "z"}
    assert touched(stores, Touches.DELETES_ATTRIBUTE) == {"w"}
    assert touched(stores, Touches.STORES_GLOBAL) == {"made"}
    assert sum(bool(a.touches & Touches.STORES_ITEM) for a in accesses(stores.__code__)) == 2
    assert sum(bool(a.touches & Touches.DELETES_ITEM) for a in accesses(stores.__code__)) == 1


def test_cells_and_imports_are_told():
    n = m = 0

    def f():
        nonlocal n
        import os.path as path

        n = m
        return path

    assert touched(f, Touches.STORES_CELL) == {"n"}
    assert touched(f, Touches.READS_CELL) == {"m"}
    assert "os.path" in touched(f, Touches.IMPORTS)


def test_operators_in_place_are_told():
    def f(a, b):
        a += b
        return a + b

    assert [a.in_place for a in accesses(f.__code__) if a.touches & Touches.OPERATES] == [
        True,
        False,
    ]


def test_what_is_read_and_stored_is_a_counter():
    total = 0

    def f(self, d):
        nonlocal total
        self.calls += 1
        d["k"] += 1
        d["other"] = d["that"]
        total = total + 1
        self.only_stored = self.only_read

    assert counters(f.__code__) == {"calls", "k", "total"}


WORK = [
    ("[a, (b, 1.0)]", False, False),
    ("lambda v: v * 2", False, False),
    ("a[:2]", True, False),
    ("a[:2]", False, True),
    ("a[0][1]", True, True),
    ("W[a]", True, True),
    ("a + b", True, True),
    ("a.T", True, True),
    ("len(a)", True, True),
    ("a if b else 1", True, True),
]


@pytest.mark.parametrize(("source", "plain", "expected"), WORK)
def test_what_surely_computes_nothing_is_known(source, plain, expected):
    f = eval(f"lambda a, b: {source}")
    assert may_compute(f.__code__, plain) is expected


def test_names_that_loops_assign_are_told():
    def f(a, b):
        n = 0
        for i, (x, _) in enumerate(zip(a, b, strict=True)):
            n += i
            y = x
        for k in a:
            a[k] = y
        return n

    assert loop_names(f.__code__) == {"i", "x", "_", "k"}


METHODS = [
    ("len(a) + max(a)", set()),
    ("[x.count(b) for x in a.items()]", {"count", "items"}),
    ("sum(x.pop() for x in a)", {"pop"}),
    ("a.b.c", set()),
    ("a(b)", None),
    ("a[0](b)", None),
]


@pytest.mark.parametrize(("source", "expected"), METHODS)
def test_methods_that_code_calls_are_told(source, expected):
    assert called_methods(eval(f"lambda a, b: {source}").__code__) == expected


def test_code_that_stores_outside_of_itself_tells_no_methods():
    def stores(a):
        a.count = 1

    def declares():
        global some_name
        some_name = 1

    assert called_methods(stores.__code__) is None
    assert called_methods(declares.__code__) is None
