"""A file that the call opens and lets go of is written and closed there, as in eager.

Owns: files that nobody closes, in calls that are watched and in those that run in part.  Does not
own: files from outside that are written to (test_order_of_effects.py).
"""

from __future__ import annotations

import json
import os

import pytest
import torch

import magpy
from tests.comparison import assert_same


def dumped(path, x, i):
    y = x * 2
    json.dump({"i": i}, open(path, "w"))
    return y + json.load(open(path))["i"]


def written(path, x, i):
    open(path, "w").write(str(i))
    return x * 2 + int(open(path).read())


def deleted(path, x, i):
    file = open(path, "w")
    file.write(str(i))
    del file
    with open(path) as again:
        return x + int(again.read())


def appended(path, x, i):
    open(path, "a").write("line\n")
    return x * 2 + len(open(path).readlines())


def printed(path, x, i):
    print(i, file=open(path, "a"))
    return x * 2 + os.path.getsize(path)


def of_bytes(path, x, i):
    open(path, "ab").write(b"abc")
    return x * 2 + os.path.getsize(path)


def _writes(path):
    file = open(path, "a")
    file.write("q")


def in_a_function(path, x, i):
    _writes(path)
    return x * 2 + os.path.getsize(path)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("regions", [False, True])
@pytest.mark.parametrize(
    "f", [dumped, written, deleted, appended, printed, of_bytes, in_a_function]
)
def test_a_file_is_closed_where_it_dies(f, regions, tmp_path, monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", regions)
    found = []
    for call, path in ((f, tmp_path / "a"), (magpy.compile(f, backend="eager"), tmp_path / "b")):
        path.write_text("")
        found.append([call(path, torch.ones(2), i) for i in range(5)])
        found.append(path.read_text())
    assert_same(found[2:], found[:2])
