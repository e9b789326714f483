"""The table of opcodes: a row for every opcode of CPython 3.11, 3.12, 3.13 and 3.14.

Owns: what an instruction touches outside the frame that runs it, and what a twin does about it: a
probe reports it, or it is left as it is for a stated reason, or whoever runs it is refused.  Does
not own: the instructions that call a probe (`magpy/instrument/opcodes.py`, which reads the table).
Called by
`magpy/instrument/rewrite.py`, which refuses code with an opcode that has no row or an unsupported
one, and by `magpy/instrument/code_accesses.py`, which reads code without running it.

tests/instrument/test_opcode_table.py compares the rows with the interpreters' own lists and with
the probes that the rewrites call.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Touches(enum.Flag):
    """What an instruction reads or changes that is not a local variable or on the stack."""

    NOTHING = 0
    READS_ATTRIBUTE = enum.auto()
    STORES_ATTRIBUTE = enum.auto()
    DELETES_ATTRIBUTE = enum.auto()
    READS_ITEM = enum.auto()
    STORES_ITEM = enum.auto()
    DELETES_ITEM = enum.auto()
    READS_GLOBAL = enum.auto()  # or a builtin
    STORES_GLOBAL = enum.auto()
    DELETES_GLOBAL = enum.auto()
    READS_NAME = enum.auto()  # in the namespace of a module, of a class body or of exec
    STORES_NAME = enum.auto()
    DELETES_NAME = enum.auto()
    READS_CELL = enum.auto()
    STORES_CELL = enum.auto()
    DELETES_CELL = enum.auto()
    ITERATES = enum.auto()
    OPERATES = enum.auto()  # calls a special method of an operand's class: +, ==, hash, format
    CALLS = enum.auto()  # any callable
    READS_IDENTITY = enum.auto()
    READS_CLASS = enum.auto()  # flags or bases of an operand's class
    READS_EXCEPTION = enum.auto()  # the one that the thread is handling
    IMPORTS = enum.auto()
    MAKES_FUNCTION = enum.auto()


class Treatment(enum.Enum):
    """What a twin has in place of an instruction."""

    PROBED = enum.auto()  # calls of probes, which may perform the instruction
    LEFT = enum.auto()  # the instruction itself
    REFUSED = enum.auto()  # the instruction itself; a capture that runs it is given up
    UNSUPPORTED = enum.auto()  # code with it has no twin; a capture that runs the code is given up


@dataclass(frozen=True, slots=True)
class Row:
    """One opcode in a range of versions.

    Args:
        name: of the opcode.
        first: the first minor version of CPython 3 for which the row holds.
        last: the last one.
        touches: what the instruction reads or changes outside its frame.
        treatment: what a twin has in its place.
        probes: names of the probes that the twin may call, without `probe_`.
        reason: why it is left as it is, or refused, or not supported.
    """

    name: str
    first: int
    last: int
    touches: Touches
    treatment: Treatment
    probes: tuple[str, ...] = ()
    reason: str = ""


def _versions(text: str) -> tuple[int, int]:
    """The minor versions in "11-14" or "13"."""
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _probed(name: str, versions: str, touches: Touches, *probes: str) -> Row:
    return Row(name, *_versions(versions), touches, Treatment.PROBED, probes)


def _left(name: str, versions: str, reason: str, touches: Touches = Touches.NOTHING) -> Row:
    return Row(name, *_versions(versions), touches, Treatment.LEFT, (), reason)


def _refused(name: str, versions: str, touches: Touches, reason: str) -> Row:
    return Row(name, *_versions(versions), touches, Treatment.REFUSED, ("unsupported",), reason)


def _unsupported(name: str, versions: str, touches: Touches, reason: str) -> Row:
    return Row(name, *_versions(versions), touches, Treatment.UNSUPPORTED, (), reason)


T: Final = Touches

_STACK = "only moves values on the stack"
_JUMP = "only goes on elsewhere"
_LOCAL = "a local variable of the frame; what its value holds is read by other instructions"
_CONSTANT = "a constant of the code object"
_NEW = "makes a container of values on the stack and asks them nothing"
_OWN_CELL = "makes or moves a cell and does not read it"
_BOOL = "its operand is the bool that TO_BOOL gave, where the probe of the truth value is"
_NONE = "the probe that reported the value has recorded whether it is None"
_BY_CALL = "the replacement of the CALL after it does its work"
_GENERATOR = "resumes or ends a frame, which has its own twin; GET_ITER and its like told of it"
_JUST_MADE = "changes the function that MAKE_FUNCTION just made"
_HANDLED = "moves the exception between the stack and the thread; a bare `raise` is probed"
_RETURN = "hands a value to the caller, whose own instructions are watched"
_STAR = "`from module import *` stores names that its code does not tell"
_PATTERN = "a pattern of a class or of keys looks into an object where nobody sees it"
_DISPLAY = "calls sys.displayhook, as an interactive shell does"
_NOT_IN_CODE = "never in co_code: "
_PSEUDO = _NOT_IN_CODE + "the compiler replaces this pseudo instruction"
_MONITORED = _NOT_IN_CODE + "the form that an instruction has while sys.monitoring watches it"
_INTERNAL = _NOT_IN_CODE + "the interpreter's own"
_NOT_YET = "no rewrite for CPython 3.14 yet"
_CHANGED = _NOT_YET + ": it means another thing there than in 3.13"

ROWS: Final = (
    # ---- the stack, jumps, local variables
    _left("POP_TOP", "11-14", _STACK),
    _left("PUSH_NULL", "11-14", _STACK),
    _left("COPY", "11-14", _STACK),
    _left("SWAP", "11-14", _STACK),
    _left("NOP", "11-14", "does nothing"),
    _left("CACHE", "11-14", "data of the instruction before it"),
    _left("EXTENDED_ARG", "11-14", "a part of the next instruction's argument"),
    _left("RESUME", "11-14", "signals and tracing; frames of their handlers are told apart in C"),
    _unsupported("NOT_TAKEN", "14", T.NOTHING, _NOT_YET),
    _left("JUMP_FORWARD", "11-14", _JUMP),
    _left("JUMP_BACKWARD", "11-14", _JUMP),
    _left("JUMP_BACKWARD_NO_INTERRUPT", "11-14", _JUMP),
    _left("LOAD_CONST", "11-14", _CONSTANT),
    _unsupported("LOAD_SMALL_INT", "14", T.NOTHING, _NOT_YET),
    _left("LOAD_ASSERTION_ERROR", "11-13", "the interpreter's constant AssertionError"),
    _unsupported("LOAD_COMMON_CONSTANT", "14", T.NOTHING, _NOT_YET),
    _left("LOAD_FAST", "11-14", _LOCAL),
    _left("LOAD_FAST_CHECK", "12-14", _LOCAL),
    _left("LOAD_FAST_AND_CLEAR", "12-14", _LOCAL),
    _left("LOAD_FAST_LOAD_FAST", "13-14", _LOCAL),
    _unsupported("LOAD_FAST_BORROW", "14", T.NOTHING, _NOT_YET),
    _unsupported("LOAD_FAST_BORROW_LOAD_FAST_BORROW", "14", T.NOTHING, _NOT_YET),
    _left("STORE_FAST", "11-14", _LOCAL),
    _left("STORE_FAST_LOAD_FAST", "13-14", _LOCAL),
    _left("STORE_FAST_STORE_FAST", "13-14", _LOCAL),
    _left("DELETE_FAST", "11-14", _LOCAL),
    _left("MAKE_CELL", "11-14", _OWN_CELL),
    _left("COPY_FREE_VARS", "11-14", _OWN_CELL),
    _left("LOAD_CLOSURE", "11-12", _OWN_CELL),
    # ---- operators
    _probed("UNARY_POSITIVE", "11", T.OPERATES, "unary"),
    _probed("UNARY_NEGATIVE", "11-14", T.OPERATES, "unary"),
    _probed("UNARY_INVERT", "11-14", T.OPERATES, "unary"),
    _probed("UNARY_NOT", "11-12", T.OPERATES, "unary"),
    _left("UNARY_NOT", "13-14", _BOOL),
    _probed("BINARY_OP", "11-13", T.OPERATES, "binary"),
    _unsupported("BINARY_OP", "14", T.OPERATES | T.READS_ITEM, _CHANGED),
    _probed("COMPARE_OP", "11-12", T.OPERATES, "compare"),
    _probed("COMPARE_OP", "13-14", T.OPERATES, "compare", "truth"),
    _probed("CONTAINS_OP", "11-14", T.OPERATES | T.ITERATES | T.READS_ITEM, "contains"),
    _probed("IS_OP", "11-14", T.READS_IDENTITY, "identity"),
    # ---- truth values
    _probed("TO_BOOL", "13-14", T.OPERATES, "truth"),
    _probed("JUMP_IF_FALSE_OR_POP", "11", T.OPERATES, "truth"),
    _probed("JUMP_IF_TRUE_OR_POP", "11", T.OPERATES, "truth"),
    _probed("POP_JUMP_FORWARD_IF_FALSE", "11", T.OPERATES, "truth"),
    _probed("POP_JUMP_FORWARD_IF_TRUE", "11", T.OPERATES, "truth"),
    _probed("POP_JUMP_BACKWARD_IF_FALSE", "11", T.OPERATES, "truth"),
    _probed("POP_JUMP_BACKWARD_IF_TRUE", "11", T.OPERATES, "truth"),
    _left("POP_JUMP_FORWARD_IF_NONE", "11", _NONE, T.READS_IDENTITY),
    _left("POP_JUMP_FORWARD_IF_NOT_NONE", "11", _NONE, T.READS_IDENTITY),
    _left("POP_JUMP_BACKWARD_IF_NONE", "11", _NONE, T.READS_IDENTITY),
    _left("POP_JUMP_BACKWARD_IF_NOT_NONE", "11", _NONE, T.READS_IDENTITY),
    _probed("POP_JUMP_IF_FALSE", "12", T.OPERATES, "truth"),
    _probed("POP_JUMP_IF_TRUE", "12", T.OPERATES, "truth"),
    _left("POP_JUMP_IF_FALSE", "13-14", _BOOL),
    _left("POP_JUMP_IF_TRUE", "13-14", _BOOL),
    _left("POP_JUMP_IF_NONE", "12-14", _NONE, T.READS_IDENTITY),
    _left("POP_JUMP_IF_NOT_NONE", "12-14", _NONE, T.READS_IDENTITY),
    # ---- items and attributes
    _probed("BINARY_SUBSCR", "11-13", T.READS_ITEM, "item_load"),
    _probed("BINARY_SLICE", "12-14", T.READS_ITEM, "item_load"),
    _probed("STORE_SUBSCR", "11-14", T.STORES_ITEM, "item_store"),
    _probed("STORE_SLICE", "12-14", T.STORES_ITEM, "item_store"),
    _probed("DELETE_SUBSCR", "11-14", T.DELETES_ITEM, "item_delete"),
    _probed("LOAD_ATTR", "11-14", T.READS_ATTRIBUTE, "attr_load"),
    _probed("LOAD_METHOD", "11", T.READS_ATTRIBUTE, "attr_load"),
    _probed("LOAD_SUPER_ATTR", "12-14", T.READS_ATTRIBUTE | T.CALLS, "super_attr"),
    _unsupported("LOAD_SPECIAL", "14", T.READS_ATTRIBUTE, _NOT_YET),
    _probed("STORE_ATTR", "11-14", T.STORES_ATTRIBUTE, "attr_store"),
    _probed("DELETE_ATTR", "11-14", T.DELETES_ATTRIBUTE, "attr_delete"),
    # ---- names and cells
    _probed("LOAD_GLOBAL", "11-14", T.READS_GLOBAL, "global_access", "global_load"),
    _probed("STORE_GLOBAL", "11-14", T.STORES_GLOBAL, "global_store"),
    _probed("DELETE_GLOBAL", "11-14", T.DELETES_GLOBAL, "global_store"),
    _probed("LOAD_NAME", "11-14", T.READS_NAME | T.READS_GLOBAL, "name_access", "name_load"),
    _probed("STORE_NAME", "11-14", T.STORES_NAME, "name_access"),
    _probed("DELETE_NAME", "11-14", T.DELETES_NAME, "name_access"),
    _probed(
        "LOAD_FROM_DICT_OR_GLOBALS",
        "12-14",
        T.READS_NAME | T.READS_GLOBAL,
        *("name_access", "name_load"),
    ),
    _probed("LOAD_DEREF", "11-14", T.READS_CELL, "cell_load"),
    _probed("LOAD_CLASSDEREF", "11", T.READS_NAME | T.READS_CELL, "cell_load"),
    _probed("LOAD_FROM_DICT_OR_DEREF", "12-14", T.READS_NAME | T.READS_CELL, "cell_load"),
    _probed("STORE_DEREF", "11-14", T.STORES_CELL, "cell_store"),
    _probed("DELETE_DEREF", "11-14", T.DELETES_CELL, "cell_store"),
    _left("LOAD_LOCALS", "12-14", "the namespace itself; what is read from it is probed"),
    _left(
        "SETUP_ANNOTATIONS",
        "11-14",
        "only in code of a module, a class or exec: STORE_NAME and LOAD_NAME there tell of the "
        "namespace",
        T.STORES_NAME,
    ),
    # ---- iteration
    _probed("GET_ITER", "11-14", T.ITERATES, "iter"),
    _probed("FOR_ITER", "11-14", T.ITERATES, "next"),
    _left("END_FOR", "12-14", _STACK),
    _unsupported("POP_ITER", "14", T.NOTHING, _NOT_YET),
    _probed("UNPACK_SEQUENCE", "11-14", T.ITERATES, "touch_unpack"),
    _probed("UNPACK_EX", "11-14", T.ITERATES, "touch_unpack"),
    _probed("LIST_EXTEND", "11-14", T.ITERATES, "touch_extend"),
    # ---- displays
    _left("BUILD_TUPLE", "11-14", _NEW),
    _left("BUILD_LIST", "11-14", _NEW),
    _left("BUILD_SLICE", "11-14", _NEW),
    _left("BUILD_CONST_KEY_MAP", "11-13", _NEW + ": its keys are constants"),
    _left("LIST_APPEND", "11-14", _NEW),
    _left("LIST_TO_TUPLE", "11", _NEW),
    _probed("BUILD_SET", "11-14", T.OPERATES, "build_set"),
    _probed("BUILD_MAP", "11-14", T.OPERATES, "build_map"),
    _probed("SET_ADD", "11-14", T.OPERATES, "hashed"),
    _probed("MAP_ADD", "11-14", T.OPERATES, "hashed"),
    _probed("SET_UPDATE", "11-14", T.ITERATES | T.OPERATES, "set_update", "touch_extend"),
    _probed("DICT_UPDATE", "11-14", T.ITERATES | T.OPERATES, "merge", "merged"),
    _probed("DICT_MERGE", "11-14", T.ITERATES | T.OPERATES, "merge", "merged"),
    # ---- text
    _probed("FORMAT_VALUE", "11-12", T.OPERATES, "format", "format_spec"),
    _probed("CONVERT_VALUE", "13-14", T.OPERATES, "convert"),
    _probed("FORMAT_SIMPLE", "13-14", T.OPERATES, "format"),
    _probed("FORMAT_WITH_SPEC", "13-14", T.OPERATES, "format_spec"),
    _probed("BUILD_STRING", "11-14", T.OPERATES, "build_string"),
    _unsupported("BUILD_INTERPOLATION", "14", T.NOTHING, _NOT_YET),
    _unsupported("BUILD_TEMPLATE", "14", T.NOTHING, _NOT_YET),
    # ---- calls, functions, classes, modules
    _probed("CALL", "11-14", T.CALLS, "call"),
    _left("PRECALL", "11", _BY_CALL),
    _left("KW_NAMES", "11-12", _BY_CALL),
    _probed("CALL_KW", "13-14", T.CALLS, "call_kw"),
    _probed("CALL_FUNCTION_EX", "11-13", T.CALLS | T.ITERATES, "call_ex"),
    _unsupported("CALL_FUNCTION_EX", "14", T.CALLS | T.ITERATES, _CHANGED),
    # What they do is in the rows of INTRINSICS; their rewrites refuse a number without one.
    _probed("CALL_INTRINSIC_1", "12-14", T.OPERATES, "unary"),
    _probed("CALL_INTRINSIC_2", "12-14", T.NOTHING),
    _probed("MAKE_FUNCTION", "11-14", T.MAKES_FUNCTION, "make_function"),
    _left("SET_FUNCTION_ATTRIBUTE", "13-14", _JUST_MADE),
    _left(
        "LOAD_BUILD_CLASS",
        "11-14",
        "the probe of the CALL after it is given the function that was found",
        T.READS_GLOBAL,
    ),
    _probed("IMPORT_NAME", "11-14", T.IMPORTS, "import"),
    _probed("IMPORT_FROM", "11-14", T.READS_ATTRIBUTE, "import_access", "import_from"),
    _refused(
        "IMPORT_STAR",
        "11",
        T.READS_ATTRIBUTE | T.STORES_NAME,
        _STAR,
    ),
    _refused("PRINT_EXPR", "11", T.CALLS, _DISPLAY),
    # ---- pattern matching
    _probed("GET_LEN", "11-14", T.OPERATES, "touch_match"),
    _probed("MATCH_MAPPING", "11-14", T.READS_CLASS, "touch_match"),
    _probed("MATCH_SEQUENCE", "11-14", T.READS_CLASS, "touch_match"),
    _refused("MATCH_KEYS", "11-14", T.READS_ITEM | T.CALLS, _PATTERN),
    _refused("MATCH_CLASS", "11-14", T.READS_CLASS | T.READS_ATTRIBUTE, _PATTERN),
    # ---- exceptions and `with`
    _probed("RAISE_VARARGS", "11-14", T.CALLS | T.READS_EXCEPTION, "handled"),
    _left("PUSH_EXC_INFO", "11-14", _HANDLED, T.READS_EXCEPTION),
    _left("POP_EXCEPT", "11-14", _HANDLED, T.READS_EXCEPTION),
    _left("RERAISE", "11-14", "raises again what its handler was entered with"),
    _left("PREP_RERAISE_STAR", "11", "makes an exception group of those of the frame"),
    _left("CHECK_EXC_MATCH", "11-14", "compares classes, and calls no `__subclasscheck__`"),
    _left(
        "CHECK_EG_MATCH",
        "11-14",
        "compares classes; a `split` that a program wrote runs in a frame with its own twin",
        T.CALLS,
    ),
    _probed("BEFORE_WITH", "11-13", T.READS_ATTRIBUTE | T.CALLS, "touch_with"),
    _probed("BEFORE_ASYNC_WITH", "11-13", T.READS_ATTRIBUTE | T.CALLS, "touch_with"),
    _left(
        "WITH_EXCEPT_START",
        "11-14",
        "calls the `__exit__` of a manager that BEFORE_WITH told of; its frame has its own twin",
        T.CALLS,
    ),
    # ---- generators and coroutines
    _left("RETURN_VALUE", "11-14", _RETURN),
    _left("RETURN_CONST", "12-13", _RETURN),
    _left("RETURN_GENERATOR", "11-14", _RETURN),
    _left("YIELD_VALUE", "11-14", _RETURN),
    _left("ASYNC_GEN_WRAP", "11", _RETURN),
    _probed("GET_YIELD_FROM_ITER", "11-14", T.ITERATES, "touch_iter"),
    _probed("GET_AWAITABLE", "11-14", T.ITERATES, "touch_iter"),
    _probed("GET_AITER", "11-14", T.ITERATES, "touch_iter"),
    _left("GET_ANEXT", "11-14", _GENERATOR, T.ITERATES),
    _left("SEND", "11-14", _GENERATOR, T.ITERATES),
    _left("END_SEND", "12-14", _STACK),
    _left("END_ASYNC_FOR", "11-13", "compares an exception with StopAsyncIteration"),
    _unsupported("END_ASYNC_FOR", "14", T.NOTHING, _CHANGED),
    _left("CLEANUP_THROW", "12-14", _GENERATOR),
    # ---- what co_code never has
    _unsupported("INTERPRETER_EXIT", "12-14", T.NOTHING, _INTERNAL),
    _unsupported("EXIT_INIT_CHECK", "13-14", T.NOTHING, _INTERNAL),
    _unsupported("ENTER_EXECUTOR", "13-14", T.NOTHING, _INTERNAL),
    _unsupported("RESERVED", "12-14", T.NOTHING, _INTERNAL),
    _unsupported("LOAD_METHOD", "12-13", T.READS_ATTRIBUTE, _PSEUDO),
    _unsupported("LOAD_SUPER_METHOD", "12-13", T.READS_ATTRIBUTE, _PSEUDO),
    _unsupported("LOAD_ZERO_SUPER_METHOD", "12-13", T.READS_ATTRIBUTE, _PSEUDO),
    _unsupported("LOAD_ZERO_SUPER_ATTR", "12-13", T.READS_ATTRIBUTE, _PSEUDO),
    _unsupported("LOAD_CLOSURE", "13-14", T.NOTHING, _PSEUDO),
    _unsupported("JUMP_IF_FALSE", "14", T.OPERATES, _PSEUDO),
    _unsupported("JUMP_IF_TRUE", "14", T.OPERATES, _PSEUDO),
    _unsupported("ANNOTATIONS_PLACEHOLDER", "14", T.NOTHING, _PSEUDO),
    *(
        _unsupported(name, "12-14", T.NOTHING, _PSEUDO)
        for name in (
            *("JUMP", "JUMP_NO_INTERRUPT", "POP_BLOCK", "SETUP_CLEANUP", "SETUP_FINALLY"),
            *("SETUP_WITH", "STORE_FAST_MAYBE_NULL"),
        )
    ),
    *(
        _unsupported("INSTRUMENTED_" + name, versions, T.NOTHING, _MONITORED)
        for versions, names in (
            (
                "12-14",
                "CALL CALL_FUNCTION_EX END_FOR END_SEND FOR_ITER INSTRUCTION JUMP_BACKWARD "
                "JUMP_FORWARD LINE LOAD_SUPER_ATTR POP_JUMP_IF_FALSE POP_JUMP_IF_NONE "
                "POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE RESUME RETURN_VALUE YIELD_VALUE",
            ),
            ("12-13", "RETURN_CONST"),
            ("13-14", "CALL_KW"),
            ("14", "END_ASYNC_FOR NOT_TAKEN POP_ITER"),
        )
        for name in names.split()
    ),
)
"""Every opcode, in every version; a name has several rows where versions treat it differently."""

_MAKES = "makes an object for the code of a type parameter"

INTRINSICS: Final = (
    _unsupported("INTRINSIC_1_INVALID", "12-14", T.NOTHING, _NOT_IN_CODE + "a number for none"),
    _refused("INTRINSIC_PRINT", "12-14", T.CALLS, _DISPLAY),
    _refused(
        "INTRINSIC_IMPORT_STAR",
        "12-14",
        T.READS_ATTRIBUTE | T.STORES_NAME,
        _STAR,
    ),
    _left("INTRINSIC_STOPITERATION_ERROR", "12-14", "makes an exception of the frame's"),
    _left("INTRINSIC_ASYNC_GEN_WRAP", "12-14", _RETURN),
    _probed("INTRINSIC_UNARY_POSITIVE", "12-14", T.OPERATES, "unary"),
    _left("INTRINSIC_LIST_TO_TUPLE", "12-14", _NEW),
    _left("INTRINSIC_TYPEVAR", "12-14", _MAKES),
    _left("INTRINSIC_PARAMSPEC", "12-14", _MAKES),
    _left("INTRINSIC_TYPEVARTUPLE", "12-14", _MAKES),
    _left("INTRINSIC_SUBSCRIPT_GENERIC", "12-14", _MAKES),
    _left("INTRINSIC_TYPEALIAS", "12-14", _MAKES),
    _unsupported("INTRINSIC_2_INVALID", "12-14", T.NOTHING, _NOT_IN_CODE + "a number for none"),
    _left("INTRINSIC_PREP_RERAISE_STAR", "12-14", "makes an exception group of the frame's"),
    _left("INTRINSIC_TYPEVAR_WITH_BOUND", "12-14", _MAKES),
    _left("INTRINSIC_TYPEVAR_WITH_CONSTRAINTS", "12-14", _MAKES),
    _left("INTRINSIC_SET_FUNCTION_TYPE_PARAMS", "12-14", _JUST_MADE),
    _left("INTRINSIC_SET_TYPEPARAM_DEFAULT", "13-14", "changes a type parameter just made"),
)
"""The operations of CALL_INTRINSIC_1 and CALL_INTRINSIC_2, by the interpreter's names."""


def rows(minor: int, table: tuple[Row, ...] = ROWS) -> dict[str, Row]:
    """The rows for a minor version of CPython 3, by name."""
    found: dict[str, Row] = {}
    for row in table:
        if row.first <= minor <= row.last:
            if row.name in found:
                raise AssertionError(f"two rows for {row.name} in 3.{minor}: each opcode has one")
            found[row.name] = row
    return found
