"""The instruction sets of CPython 3.11, 3.12 and 3.13, as far as twins differ by them.

Owns: the instructions that replace a probed one, and everything else in Python that depends on the
interpreter's version. Does not own: which opcodes are probed, left or refused, and why
(`magpy/instrument/opcode_table.py`), nor how a twin is put together
(`magpy/instrument/rewrite.py`, the caller).

`REWRITES` says for each probed opcode what replaces it. A rewrite is a function of the
instruction's argument and gives the replacement: a list of `Item(opcode, argument)`, where an
argument is an int, or `Const(value)`, the index of a value put into the twin's constants, or
`Name(i)`, the index of the code object's `i`-th name put there.
"""

from __future__ import annotations

import builtins
import opcode
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from magpy import _interp
from magpy.instrument.opcode_table import INTRINSICS, Row, Treatment, rows
from magpy.objects.types import isinstance

# Twins are made in the middle of programs, which may have put other functions in place of builtins.
# What is defined below keeps to those of now.
__builtins__ = dict(vars(builtins))  # type: ignore[assignment]

VERSION: Final = sys.version_info[:2]


@dataclass(frozen=True, slots=True)
class Const:
    """An argument: the index of `value` among the twin's constants."""

    value: object


@dataclass(frozen=True, slots=True)
class Name:
    """An argument: the index, among the twin's constants, of the code object's name `index`."""

    index: int


class Item(NamedTuple):
    """One instruction of a replacement."""

    op: int
    arg: int | Const | Name
    jump: bool = False  # its target is the original jump's


Rewrite = Callable[[int], list[Item]]

OP: Final = opcode.opmap


def _cache_counts() -> list[int]:
    counts: dict[str, int] | list[int] = opcode._inline_cache_entries  # type: ignore[attr-defined]
    if isinstance(counts, dict):  # 3.13
        return [counts.get(name, 0) for name in opcode.opname[:256]]
    return [*counts[:256], *[0] * (256 - len(counts))]


CACHES: Final = _cache_counts()
"""How many cache units follow each opcode."""

TABLE: Final = {OP[name]: row for name, row in rows(VERSION[1]).items() if name in OP}
"""The rows of this interpreter's opcodes, by number."""

SUPPORTED: Final = frozenset(
    op for op, row in TABLE.items() if row.treatment is not Treatment.UNSUPPORTED
)
"""The opcodes that a twin can be made of; code with any other one is refused."""


def why_unsupported(op: int) -> str:
    """Why code with an opcode that is not in `SUPPORTED` is refused."""
    row = TABLE.get(op)
    if row is None:
        return f"opcode {op} has no row in magpy/instrument/opcode_table.py"
    return f"{row.name}: {row.reason}"


EXTENDED_ARG: Final = OP["EXTENDED_ARG"]
KW_NAMES: Final = OP.get("KW_NAMES", -1)

JUMPS: Final = frozenset(op for op in opcode.hasjrel if op < 256)
BACKWARD_JUMPS: Final = frozenset(op for op in JUMPS if "BACKWARD" in opcode.opname[op])

EXTRA_STACK: Final = 4
"""How many more values than the original a twin may have on its stack."""


def _i(name: str, arg: int | Const | Name = 0) -> Item:
    return Item(OP[name], arg)


def _probe(name: str) -> Const:
    return Const(getattr(_interp, "probe_" + name))


def _call(count: int) -> list[Item]:
    """Calls a probe with `count` arguments (>= 1), all on the stack above it.

    The first argument stands where a method's `self` does, so no NULL is needed.
    """
    if VERSION < (3, 12):
        return [_i("PRECALL", count - 1), _i("CALL", count - 1)]
    return [_i("CALL", count - 1)]


def _perform(
    name: str, operands: int, *extra: int | Const | Name, pop: bool = False, null: bool = False
) -> list[Item]:
    """Replaces an instruction by a call of a probe with its operands and some constants."""
    items = [_i("LOAD_CONST", _probe(name))]
    if operands:
        items.append(_i("SWAP", operands + 1))
    for value in extra:
        items.append(_i("LOAD_CONST", Const(value) if isinstance(value, int) else value))
    items += _call(operands + len(extra))
    if pop:
        items.append(_i("POP_TOP"))
    if null:
        # The pair (NULL, callable) or, since 3.13, (callable, NULL) that CALL expects.
        items.append(_i("PUSH_NULL"))
        if VERSION < (3, 13):
            items.append(_i("SWAP", 2))
    return items


def _before(op: str, probe: str, operands: int, *extra: int | Const | Name) -> Rewrite:
    """Calls a probe, which gives its operand back, before the instruction."""

    def rewrite(arg: int) -> list[Item]:
        return [*_perform(probe, operands, *extra), _i(op, arg)]

    return rewrite


def _after(op: str, probe: str) -> Rewrite:
    """Calls a probe with the value that the instruction left on top, and keeps what it gives."""

    def rewrite(arg: int) -> list[Item]:
        return [_i(op, arg), *_perform(probe, 1)]

    return rewrite


REWRITES: Final[dict[int, Rewrite]] = {}


def _register(name: str, rewrite: Rewrite) -> None:
    if OP[name] in REWRITES:
        raise AssertionError(f"two rewrites for {name}: each opcode has one")
    if TABLE[OP[name]].treatment is not Treatment.PROBED:
        raise AssertionError(f"a rewrite for {name}, whose row says that it has none")
    REWRITES[OP[name]] = rewrite


def _rewrite(name: str) -> Callable[[Rewrite], Rewrite]:
    """Registers the decorated function for `name` where this version has it."""

    def decorate(rewrite: Rewrite) -> Rewrite:
        if name in OP and OP[name] < 256:
            _register(name, rewrite)
        return rewrite

    return decorate


UNARY: Final = {"UNARY_NEGATIVE": 100, "UNARY_POSITIVE": 101, "UNARY_INVERT": 102, "UNARY_NOT": 103}
"""The `UnaryOp` numbers of csrc/interp/probes.h."""

for _name, _number in UNARY.items():
    # In 3.13 `not` is applied to what TO_BOOL gave.
    if _name in OP and (_name != "UNARY_NOT" or VERSION < (3, 13)):
        _register(_name, lambda arg, number=_number: _perform("unary", 1, number))  # type: ignore[misc]

_register("BINARY_OP", lambda arg: _perform("binary", 2, arg))
_register("BINARY_SUBSCR", lambda arg: _perform("item_load", 2))
_register("STORE_SUBSCR", lambda arg: _perform("item_store", 3, pop=True))
_register("DELETE_SUBSCR", lambda arg: _perform("item_delete", 2, pop=True))
if VERSION >= (3, 12):
    # What one instruction does with two ends, 3.11 does with a slice object.
    _register("BINARY_SLICE", lambda arg: [_i("BUILD_SLICE", 2), *_perform("item_load", 2)])
    _register(
        "STORE_SLICE", lambda arg: [_i("BUILD_SLICE", 2), *_perform("item_store", 3, pop=True)]
    )
_register("IS_OP", lambda arg: _perform("identity", 2, arg))
_register("CONTAINS_OP", lambda arg: _perform("contains", 2, arg & 1))
_register("STORE_ATTR", lambda arg: _perform("attr_store", 2, Name(arg), pop=True))
_register("DELETE_ATTR", lambda arg: _perform("attr_delete", 1, Name(arg), pop=True))
_register("GET_ITER", _before("GET_ITER", "iter", 1))
_register("MAKE_FUNCTION", _after("MAKE_FUNCTION", "make_function"))
_register("IMPORT_NAME", lambda arg: [_i("IMPORT_NAME", arg), *_perform("import", 1, Name(arg))])
_register(
    "IMPORT_FROM",
    lambda arg: [
        _i("LOAD_CONST", _probe("import_access")),
        _i("COPY", 2),
        _i("LOAD_CONST", Name(arg)),
        *_call(2),
        _i("POP_TOP"),
        _i("IMPORT_FROM", arg),  # leaves the module below the value
        _i("LOAD_CONST", _probe("import_from")),
        _i("SWAP", 2),
        _i("COPY", 3),
        _i("LOAD_CONST", Name(arg)),
        *_call(3),
    ],
)

for _name, _probe_name in {
    "GET_YIELD_FROM_ITER": "touch_iter",
    "GET_AITER": "touch_iter",
    "GET_AWAITABLE": "touch_iter",
    "UNPACK_SEQUENCE": "touch_unpack",
    "UNPACK_EX": "touch_unpack",
    "LIST_EXTEND": "touch_extend",
    "GET_LEN": "touch_match",
    "MATCH_MAPPING": "touch_match",
    "MATCH_SEQUENCE": "touch_match",
    "BEFORE_WITH": "touch_with",
    "BEFORE_ASYNC_WITH": "touch_with",
}.items():
    _register(_name, _before(_name, _probe_name, 1))


# ---- displays: what is hashed chooses a place ----


@_rewrite("BUILD_SET")
def _build_set(arg: int) -> list[Item]:
    return [_i("BUILD_TUPLE", arg), *_perform("build_set", 1)] if arg else [_i("BUILD_SET", 0)]


@_rewrite("BUILD_MAP")
def _build_map(arg: int) -> list[Item]:
    return [_i("BUILD_TUPLE", 2 * arg), *_perform("build_map", 1)] if arg else [_i("BUILD_MAP", 0)]


@_rewrite("MAP_ADD")
def _map_add(arg: int) -> list[Item]:
    # The key is below the value.
    return [
        _i("LOAD_CONST", _probe("hashed")),
        _i("COPY", 3),
        *_call(1),
        _i("POP_TOP"),
        _i("MAP_ADD", arg),
    ]


_register("SET_ADD", _before("SET_ADD", "hashed", 1))


@_rewrite("SET_UPDATE")
def _set_update(arg: int) -> list[Item]:
    if arg != 1:  # no compiler emits it
        return [*_perform("touch_extend", 1), _i("SET_UPDATE", arg)]
    return _perform("set_update", 2)


def _merge(op: str) -> Rewrite:
    """Keys of a mapping choose a place or a parameter."""

    def rewrite(arg: int) -> list[Item]:
        return [*_perform("merge", 1), _i(op, arg), *_perform("merged", 0, 0, pop=True)]

    return rewrite


_register("DICT_UPDATE", _merge("DICT_UPDATE"))
_register("DICT_MERGE", _merge("DICT_MERGE"))


@_rewrite("FOR_ITER")
def _for_iter(arg: int) -> list[Item]:
    # [iterator, value] -> [iterator, probe(value, iterator)]
    return [
        Item(OP["FOR_ITER"], arg, jump=True),
        _i("LOAD_CONST", _probe("next")),
        _i("SWAP", 2),
        _i("COPY", 3),
        *_call(2),
    ]


# ---- names ----


@_rewrite("LOAD_GLOBAL")
def _load_global(arg: int) -> list[Item]:
    # Where it raises, nothing after it runs.
    before = _perform("global_access", 0, Name(arg >> 1), pop=True)
    items = [*_perform("global_load", 1, Name(arg >> 1))]
    if VERSION < (3, 13) or not arg & 1:
        # Up to 3.12 the NULL is below the value, out of the way.
        return [*before, _i("LOAD_GLOBAL", arg), *items]
    return [*before, _i("LOAD_GLOBAL", arg & ~1), *items, _i("PUSH_NULL")]


@_rewrite("STORE_GLOBAL")
def _store_global(arg: int) -> list[Item]:
    return [*_perform("global_store", 1, Name(arg)), _i("STORE_GLOBAL", arg)]


@_rewrite("DELETE_GLOBAL")
def _delete_global(arg: int) -> list[Item]:
    return [*_perform("global_store", 0, Name(arg), pop=True), _i("DELETE_GLOBAL", arg)]


@_rewrite("LOAD_NAME")
def _load_name(arg: int) -> list[Item]:
    return [
        *_perform("name_access", 0, Name(arg), pop=True),
        _i("LOAD_NAME", arg),
        *_perform("name_load", 1, Name(arg)),
    ]


@_rewrite("STORE_NAME")
def _store_name(arg: int) -> list[Item]:
    return [*_perform("name_access", 0, Name(arg), pop=True), _i("STORE_NAME", arg)]


@_rewrite("DELETE_NAME")
def _delete_name(arg: int) -> list[Item]:
    return [*_perform("name_access", 0, Name(arg), pop=True), _i("DELETE_NAME", arg)]


@_rewrite("LOAD_FROM_DICT_OR_GLOBALS")
def _load_from_dict_or_globals(arg: int) -> list[Item]:
    return [
        *_perform("name_access", 0, Name(arg), pop=True),
        _i("LOAD_FROM_DICT_OR_GLOBALS", arg),
        *_perform("name_load", 1, Name(arg)),
    ]


def _cell(op: str, probe: str) -> None:
    """Reports the cell (a local variable's slot holds it) before the instruction."""
    if op not in OP or OP[op] >= 256:
        return

    def rewrite(arg: int) -> list[Item]:
        return [
            _i("LOAD_CONST", _probe(probe)),
            _i("LOAD_FAST", arg),
            *_call(1),
            _i("POP_TOP"),
            _i(op, arg),
        ]

    _register(op, rewrite)


_cell("LOAD_DEREF", "cell_load")
_cell("LOAD_CLASSDEREF", "cell_load")
_cell("LOAD_FROM_DICT_OR_DEREF", "cell_load")
_cell("DELETE_DEREF", "cell_store")


@_rewrite("STORE_DEREF")
def _store_deref(arg: int) -> list[Item]:
    call = [_i("LOAD_CONST", _probe("cell_store")), _i("LOAD_FAST", arg), _i("COPY", 3), *_call(2)]
    return [*call, _i("POP_TOP"), _i("STORE_DEREF", arg)]


# ---- attributes ----

if VERSION >= (3, 12):
    _register("LOAD_ATTR", lambda arg: _perform("attr_load", 1, Name(arg >> 1), null=bool(arg & 1)))
else:
    _register("LOAD_ATTR", lambda arg: _perform("attr_load", 1, Name(arg)))
    _register("LOAD_METHOD", lambda arg: _perform("attr_load", 1, Name(arg), null=True))


@_rewrite("LOAD_SUPER_ATTR")
def _load_super_attr(arg: int) -> list[Item]:
    # [super, class, self]; bit 1 says that the program wrote the arguments of super().
    explicit = Const(bool(arg & 2))
    return _perform("super_attr", 3, Name(arg >> 2), explicit, null=bool(arg & 1))


# ---- comparison and truth ----

_COMPARE_SHIFT: Final = {(3, 11): 0, (3, 12): 4, (3, 13): 5}[VERSION]


@_rewrite("COMPARE_OP")
def _compare(arg: int) -> list[Item]:
    items = _perform("compare", 2, arg >> _COMPARE_SHIFT)
    if VERSION >= (3, 13) and arg & 16:
        items += _to_bool(0)
    return items


def _to_bool(arg: int) -> list[Item]:
    return [*_perform("truth", 1), _i("TO_BOOL")]


if VERSION >= (3, 13):
    _register("TO_BOOL", _to_bool)
else:
    for _op, _row in TABLE.items():
        if _row.probes == ("truth",):

            def _jump_if(arg: int, op: int = _op) -> list[Item]:
                return [*_perform("truth", 1), Item(op, arg, jump=True)]

            _register(_row.name, _jump_if)


# ---- calls ----


def call_items(count: int, kwnames: object) -> list[Item]:
    """What replaces CALL: the two slots of the callable and the arguments become one tuple.

    One of the two slots may be NULL; BUILD_TUPLE does not mind, and only the probe sees the tuple.
    """
    items = [
        _i("BUILD_TUPLE", count + 2),
        _i("LOAD_CONST", _probe("call")),
        _i("SWAP", 2),
    ]
    if kwnames is None:
        return items + _call(1)
    return [*items, _i("LOAD_CONST", Const(kwnames)), *_call(2)]


@_rewrite("CALL_KW")
def _call_kw(arg: int) -> list[Item]:
    items = [_i("BUILD_TUPLE", arg + 3), _i("LOAD_CONST", _probe("call_kw")), _i("SWAP", 2)]
    return items + _call(1)


@_rewrite("CALL_FUNCTION_EX")
def _call_function_ex(arg: int) -> list[Item]:
    items = [_i("BUILD_TUPLE", 3 + (arg & 1)), _i("LOAD_CONST", _probe("call_ex")), _i("SWAP", 2)]
    return items + _call(1)


CALL: Final = OP["CALL"]
DROPPED: Final = frozenset(OP[name] for name in ("PRECALL", "KW_NAMES") if name in OP)
"""Instructions whose work the replacement of the CALL after them does."""


# ---- exceptions ----


@_rewrite("RAISE_VARARGS")
def _raise(arg: int) -> list[Item]:
    """A bare `raise` raises what is being handled, which may be the caller's."""
    items = [] if arg else _perform("handled", 0, 0, pop=True)
    return [*items, _i("RAISE_VARARGS", arg)]


# ---- text ----

if VERSION >= (3, 13):
    _register("CONVERT_VALUE", lambda arg: _perform("convert", 1, arg))
    _register("FORMAT_SIMPLE", lambda arg: _perform("format", 1, 0))
    _register("FORMAT_WITH_SPEC", lambda arg: _perform("format_spec", 2, 0))
else:

    @_rewrite("FORMAT_VALUE")
    def _format_value(arg: int) -> list[Item]:
        if arg & 4:
            return _perform("format_spec", 2, arg & 3)
        return _perform("format", 1, arg & 3)


@_rewrite("BUILD_STRING")
def _build_string(arg: int) -> list[Item]:
    return [_i("BUILD_TUPLE", arg), *_perform("build_string", 1)]


_INTRINSICS: Final = rows(VERSION[1], INTRINSICS)


def _refuse(row: Row) -> list[Item]:
    """Tells the session, before the instruction, that it is given up."""
    return _perform("unsupported", 0, Const(row.reason), pop=True)


def _register_refused() -> None:
    for op, row in TABLE.items():
        if row.treatment is Treatment.REFUSED:
            REWRITES[op] = lambda arg, op=op, row=row: [*_refuse(row), Item(op, arg)]  # type: ignore[misc]


_register_refused()


def _intrinsic(op: str, names: str) -> None:
    """The rows of the intrinsics say what becomes of each of them."""
    if op not in OP:
        return
    descriptions: list[str] = getattr(opcode, names)

    def rewrite(arg: int) -> list[Item]:
        name = descriptions[arg]
        row = _INTRINSICS.get(name)
        if row is None or row.treatment is Treatment.UNSUPPORTED:
            raise ValueError(f"{name}: {row.reason if row else 'no row in the table of opcodes'}")
        if name == "INTRINSIC_UNARY_POSITIVE":
            return _perform("unary", 1, UNARY["UNARY_POSITIVE"])
        before = _refuse(row) if row.treatment is Treatment.REFUSED else []
        return [*before, _i(op, arg)]

    _register(op, rewrite)


_intrinsic("CALL_INTRINSIC_1", "_intrinsic_1_descs")
_intrinsic("CALL_INTRINSIC_2", "_intrinsic_2_descs")
