"""The table of opcodes (magpy/instrument/opcode_table.py) has a row for every opcode."""

from __future__ import annotations

import ast
import json
import opcode
import re
import sys
from pathlib import Path

import pytest

import magpy
from magpy import _interp
from magpy.instrument import opcodes
from magpy.instrument.opcode_table import INTRINSICS, ROWS, Touches, Treatment, rows
from magpy.instrument.rewrite import instrument

LISTS = json.loads(Path(__file__).with_name("opcodes_of_cpython.json").read_text())
MINOR = sys.version_info[1]


def by_version():
    return [pytest.param(int(v.split(".")[1]), found["names"], id=v) for v, found in LISTS.items()]


@pytest.mark.parametrize(("minor", "names"), by_version())
def test_each_opcode_of_a_version_has_a_row(minor, names):
    missing = set(names) - set(rows(minor))
    assert missing == set()


@pytest.mark.parametrize(("minor", "names"), by_version())
def test_each_row_of_a_version_is_an_opcode_of_it(minor, names):
    assert set(rows(minor)) - set(names) == set()


def test_each_row_is_one_of_the_versions():
    minors = {int(v.split(".")[1]) for v in LISTS}
    assert minors == {11, 12, 13, 14}
    assert [r for r in ROWS if not set(range(r.first, r.last + 1)) <= minors] == []


def test_each_opcode_of_this_interpreter_has_a_row():
    assert set(opcode.opmap) - set(rows(MINOR)) == set()
    compiled = {op for op in opcode.opmap.values() if op < 256}
    assert compiled <= set(opcodes.TABLE)


@pytest.mark.skipif(MINOR < 12, reason="CPython 3.11 has no intrinsics")
def test_each_intrinsic_of_this_interpreter_has_a_row():
    names = {*opcode._intrinsic_1_descs, *opcode._intrinsic_2_descs}
    assert names == set(rows(MINOR, INTRINSICS))


def test_a_missing_row_is_seen():
    short = tuple(row for row in ROWS if row.name != "LOAD_ATTR")
    assert set(LISTS["3.11"]["names"]) - set(rows(11, short)) == {"LOAD_ATTR"}


def test_two_rows_for_one_opcode_are_refused():
    with pytest.raises(AssertionError, match="two rows for NOP"):
        rows(11, (*ROWS, next(row for row in ROWS if row.name == "NOP")))


@pytest.mark.parametrize("row", [*ROWS, *INTRINSICS], ids=lambda r: f"{r.name}-{r.first}")
def test_a_row_says_what_becomes_of_the_instruction(row):
    if row.treatment is Treatment.PROBED:
        assert row.reason == ""
        assert row.probes or row.name == "CALL_INTRINSIC_2"
    elif row.treatment is Treatment.REFUSED:
        assert row.reason
        assert row.touches
    else:
        assert row.reason
        assert row.probes == ()
    assert [p for p in row.probes if not hasattr(_interp, f"probe_{p}")] == []


def probes(items):
    """The names of the probes in a replacement."""
    values = [item.arg.value for item in items if isinstance(item.arg, opcodes.Const)]
    found = [re.fullmatch(r"<magpy probe_(\w+)>", repr(v)) for v in values]
    return {m[1] for m in found if m is not None}


def replacement(op, arg):
    if op == opcodes.CALL:
        return opcodes.call_items(arg, None) + opcodes.call_items(arg, ("name",))
    return opcodes.REWRITES[op](arg)


@pytest.mark.parametrize("op", sorted(opcodes.SUPPORTED), ids=lambda op: opcodes.TABLE[op].name)
def test_a_twin_calls_the_probes_of_the_row(op):
    row = opcodes.TABLE[op]
    if row.treatment is Treatment.LEFT:
        assert op not in opcodes.REWRITES
        return
    if row.name.startswith("CALL_INTRINSIC"):
        names = getattr(opcode, f"_intrinsic_{row.name[-1]}_descs")
        table = rows(MINOR, INTRINSICS)
        for arg, name in enumerate(names):
            if table[name].treatment is Treatment.UNSUPPORTED:
                with pytest.raises(ValueError, match=name):
                    replacement(op, arg)
            else:
                assert probes(replacement(op, arg)) == set(table[name].probes)
        return
    called = set().union(*(probes(replacement(op, arg)) for arg in range(32)))
    assert called == set(row.probes)


def test_what_touches_nothing_is_left():
    probed = {r.name for r in ROWS if r.probes and r.touches is Touches.NOTHING}
    assert probed == set()


def test_code_with_an_opcode_without_a_row_has_no_twin(monkeypatch):
    def f(x):
        return x.real

    op = opcode.opmap["LOAD_ATTR"]
    monkeypatch.setattr(opcodes, "SUPPORTED", opcodes.SUPPORTED - {op})
    monkeypatch.delitem(opcodes.TABLE, op)
    with pytest.raises(ValueError, match=f"opcode {op} has no row"):
        instrument(f.__code__)


def test_code_with_an_unsupported_opcode_has_no_twin(monkeypatch):
    def f(x):
        return x.real

    monkeypatch.setattr(opcodes, "SUPPORTED", opcodes.SUPPORTED - {opcode.opmap["LOAD_ATTR"]})
    with pytest.raises(ValueError, match="LOAD_ATTR"):
        instrument(f.__code__)


# ---- opcodes are known in one room ----

HOME = Path(magpy.__file__).parent
NAMES = {row.name for row in ROWS if "_" in row.name}


def strings(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)


def outside_the_room():
    return [p for p in HOME.rglob("*.py") if p.parent.name != "instrument"]


def test_other_rooms_decode_no_opcodes():
    named = {(p.name, s) for p in outside_the_room() for s in strings(p) if s in NAMES}
    assert named == set()
    decoding = {p.name for p in outside_the_room() if {"dis", "opcode"} & set(imported(p))}
    assert decoding == set()


def test_the_room_names_only_opcodes_of_the_table():
    like = re.compile(
        r"(LOAD|STORE|DELETE|BUILD|CALL|RETURN|JUMP|POP|GET|MATCH|UNPACK|CHECK)_[A-Z_]+"
    )
    used = {s for p in (HOME / "instrument").glob("*.py") for s in strings(p) if like.fullmatch(s)}
    assert used
    assert used - {row.name for row in ROWS} - {"RETURN_"} == set()
