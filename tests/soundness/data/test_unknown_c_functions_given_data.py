"""C functions that magpy does not know, given values that follow from data."""

from __future__ import annotations

import ctypes
import hashlib
import io
import mmap
import os
import queue
import sqlite3
import zlib

import pytest
import torch

import magpy


class Stream(io.StringIO):
    """Whose `write` is not that of a known class."""


def _table():
    table = sqlite3.connect(":memory:")
    table.execute("create table t (a)")
    return table


USES = {
    "a stream": (Stream, lambda o, n, s: o.truncate(n), lambda o: o.tell()),
    "a hash": (hashlib.md5, lambda o, n, s: o.update(s.encode()), lambda o: o.hexdigest()),
    "a compressor": (
        zlib.compressobj,
        lambda o, n, s: o.compress(s.encode()),
        lambda o: o.copy().flush(),
    ),
    "a map": (lambda: mmap.mmap(-1, 64), lambda o, n, s: o.write(s.encode()), lambda o: o[:]),
    "a queue": (queue.SimpleQueue, lambda o, n, s: o.put(n), lambda o: o.qsize()),
    "a buffer": (
        lambda: (ctypes.c_int * 5)(),
        lambda o, n, s: ctypes.memset(o, n, 4),
        lambda o: list(o),
    ),
    "a table": (
        _table,
        lambda o, n, s: o.execute("insert into t values (?)", (n,)),
        lambda o: o.execute("select * from t").fetchall(),
    ),
    "a file": (
        lambda: os.memfd_create("magpy"),
        lambda o, n, s: os.write(o, s.encode()),
        lambda o: os.pread(o, 1000, 0),
    ),
}


@pytest.mark.parametrize("use", USES)
def test_are_refused(use):
    make, do, shown = USES[use]

    def outcomes(wrap):
        held = make()

        def program(x):
            n = int(x.item())
            do(held, n, str(n))
            return x * 2

        f = wrap(program)
        found = []
        for v in (1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 1.0):
            found.append((f(torch.tensor(v)).item(), shown(held)))
        return found, f

    wanted, _ = outcomes(lambda f: f)
    found, f = outcomes(lambda f: magpy.compile(f, backend="eager"))
    assert found == wanted
    assert magpy.stats(f).reasons
    assert not magpy.stats(f).hits
