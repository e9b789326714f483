"""Twins: the same program, with the instructions that can read or write the outside reported.

Owns: taking a code object apart and putting its twin together: replaced instructions, jumps,
locations, exception table. Does not own: what replaces an instruction
(`magpy/instrument/opcodes.py`), when a twin is made or run (csrc/interp/frame_eval.cpp, the caller,
through `_interp.set_instrument`), nor what a probe does (csrc/interp/probes.cpp).

A twin has the original's names, variables, flags, stack discipline and, at each instruction of a
replacement, the original instruction's location; so tracebacks, `locals()` and `super()` see the
same. Nested code objects stay originals: they get their own twins when they run.
"""

from __future__ import annotations

import builtins
from array import array
from types import CodeType

from magpy import _interp
from magpy.instrument import opcodes
from magpy.instrument.opcodes import CACHES, EXTENDED_ARG, EXTRA_STACK, Const, Item
from magpy.objects.types import isinstance

# Twins are made in the middle of programs, which may have put other functions in place of builtins.
# What is defined below keeps to those of now.
__builtins__ = dict(vars(builtins))  # type: ignore[assignment]

Location = tuple[int | None, int | None, int | None, int | None]

# opcode << 32 | argument -> its replacement; the replacements are few and never change.
_replacements: dict[int, list[Item] | None] = {}


class _Original:
    """A code object taken apart: parallel lists, one element for each instruction."""

    __slots__ = ("args", "index_at", "ops", "units")

    def __init__(self, code: CodeType) -> None:
        raw = code.co_code
        self.ops: list[int] = []
        self.args: list[int] = []
        self.units: list[int] = []  # of its opcode, after its EXTENDED_ARGs
        self.index_at: dict[int, int] = {}  # by the unit of its first EXTENDED_ARG
        unit, end, start, high = 0, len(raw) // 2, 0, 0
        while unit < end:
            op, arg = raw[2 * unit], raw[2 * unit + 1] | high
            if op == EXTENDED_ARG:
                high = arg << 8
                unit += 1
                continue
            self.index_at[start] = len(self.ops)
            self.ops.append(op)
            self.args.append(arg)
            self.units.append(unit)
            high = 0
            unit += 1 + CACHES[op]
            start = unit
        self.index_at[end] = len(self.ops)
        if not opcodes.SUPPORTED.issuperset(self.ops):
            refused = sorted(set(self.ops) - opcodes.SUPPORTED)
            reasons = "; ".join([opcodes.why_unsupported(op) for op in refused])
            raise ValueError(f"{reasons} (in {code.co_qualname})")

    def jump_target(self, index: int) -> int:
        """The index of the instruction that the jump at `index` goes to."""
        op = self.ops[index]
        after = self.units[index] + 1 + CACHES[op]
        arg = self.args[index]
        return self.index_at[after - arg if op in opcodes.BACKWARD_JUMPS else after + arg]


class _Twin:
    """The instructions of a twin being put together."""

    __slots__ = (
        "args",
        "const_index",
        "consts",
        "extended",
        "jumps",
        "names",
        "ops",
        "owners",
        "starts",
    )

    def __init__(self, code: CodeType) -> None:
        self.ops: list[int] = []
        self.args: list[int] = []
        self.owners: list[int] = []  # the original instruction that each one stands for
        self.starts: list[int] = []  # by original instruction: its first one here
        self.jumps: list[tuple[int, int]] = []  # (index here, original index of the target)
        self.consts: list[object] = list(code.co_consts)
        self.names = code.co_names
        self.const_index: dict[object, int] = {}
        self.extended: list[int] = []  # how many EXTENDED_ARGs each one has

    def const(self, value: object) -> int:
        # Keyed by type too: 1, 1.0 and True are equal.
        key = (type(value), value)
        index = self.const_index.get(key)
        if index is None:
            index = self.const_index[key] = len(self.consts)
            self.consts.append(value)
        return index

    def add(self, original: _Original) -> None:
        """Adds the replacement of every instruction of the original."""
        ops, args, owners, starts = self.ops, self.args, self.owners, self.starts
        kwnames: object = None
        for index, (op, arg) in enumerate(zip(original.ops, original.args, strict=True)):
            starts.append(len(ops))
            if op in opcodes.DROPPED:
                if op == opcodes.KW_NAMES:
                    kwnames = self.consts[arg]
                continue
            items: list[Item] | None
            if op == opcodes.CALL:
                items = opcodes.call_items(arg, kwnames)
                kwnames = None
            else:
                items = _replacement(op, arg)
            if items is None:
                if op in opcodes.JUMPS:
                    self.jumps.append((len(ops), original.jump_target(index)))
                ops.append(op)
                args.append(arg)
                owners.append(index)
                continue
            for item_op, item_arg, jump in items:
                if jump:
                    self.jumps.append((len(ops), original.jump_target(index)))
                ops.append(item_op)
                if isinstance(item_arg, int):
                    args.append(item_arg)
                elif isinstance(item_arg, Const):
                    args.append(self.const(item_arg.value))
                else:
                    args.append(self.const(self.names[item_arg.index]))
                owners.append(index)
        starts.append(len(ops))

    def resolve_jumps(self) -> list[int]:
        """Gives every jump its argument; returns the unit at which each instruction starts."""
        ops, args = self.ops, self.args
        extended = [_extended(arg) for arg in args]
        for here, _ in self.jumps:
            extended[here] = 0
        while True:
            starts: list[int] = []
            unit = 0
            for op, count in zip(ops, extended, strict=True):
                starts.append(unit)
                unit += 1 + count + CACHES[op]
            starts.append(unit)
            stable = True
            for here, target in self.jumps:
                after = starts[here + 1]
                to = starts[self.starts[target]]
                args[here] = after - to if ops[here] in opcodes.BACKWARD_JUMPS else to - after
                count = _extended(args[here])
                if count > extended[here]:
                    extended[here] = count
                    stable = False
            if stable:
                self.extended = extended
                return starts

    def assemble(self) -> bytes:
        """The code bytes; `resolve_jumps` came before."""
        out = bytearray()
        for op, arg, count in zip(self.ops, self.args, self.extended, strict=True):
            for shift in range(count, 0, -1):
                out.append(EXTENDED_ARG)
                out.append(arg >> 8 * shift & 255)
            out.append(op)
            out.append(arg & 255)
            if CACHES[op]:
                out += bytes(2 * CACHES[op])
        return bytes(out)


def _extended(arg: int) -> int:
    """How many EXTENDED_ARGs an argument needs."""
    return 0 if arg < 256 else 1 if arg < 65536 else 2 if arg < 16777216 else 3


def _replacement(op: int, arg: int) -> list[Item] | None:
    """What stands for an instruction in the twin; None when it stays."""
    rewrite = opcodes.REWRITES.get(op)
    if rewrite is None:
        return None
    key = op << 32 | arg
    items = _replacements.get(key)
    if items is None:
        items = _replacements[key] = rewrite(arg)
    return items


# NOTE: [Location table]. Entries of one to eight code units each, in order: a byte 1cccclll (c the
# form, l the units less one), then the location: forms 0-9 one line, small columns; 10-12 the same
# line or one of the next two; 13 no columns; 14 everything; 15 no location. See CPython's
# Objects/locations.md.


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 64:
        out.append(64 | value & 63)
        value >>= 6
    out.append(value)
    return bytes(out)


def _signed_varint(value: int) -> bytes:
    return _varint(-value << 1 | 1 if value < 0 else value << 1)


def _location_form(delta: int, location: Location) -> tuple[int, bytes]:
    """The form of an entry and what follows its first byte."""
    line, end_line, column, end_column = location
    if line is None:
        return 15, b""
    if column is None or end_column is None or end_line is None:
        return 13, _signed_varint(delta)
    if end_line == line:
        if delta == 0 and column < 80 and 0 <= end_column - column < 16:
            return column >> 3, bytes(((column & 7) << 4 | end_column - column,))
        if 0 <= delta < 3 and column < 128 and end_column < 128:
            return 10 + delta, bytes((column, end_column))
    rest = _varint(end_line - line) + _varint(column + 1) + _varint(end_column + 1)
    return 14, _signed_varint(delta) + rest


def _location_table(code: CodeType, original: _Original, twin: _Twin, units: list[int]) -> bytes:
    positions: list[Location] = list(code.co_positions())
    # Code that a program put together may have a table that ends early.
    missing = len(code.co_code) // 2 - len(positions)
    positions += [(None, None, None, None)] * missing
    out = bytearray()
    previous_line = code.co_firstlineno
    index, count = 0, len(original.ops)
    while index < count:
        location = positions[original.units[index]]
        first = index
        index += 1
        while index < count and positions[original.units[index]] == location:
            index += 1
        length = units[twin.starts[index]] - units[twin.starts[first]]
        line = location[0]
        while length > 0:
            form, rest = _location_form(0 if line is None else line - previous_line, location)
            if line is not None:
                previous_line = line
            piece = min(length, 8)
            out.append(128 | form << 3 | piece - 1)
            out += rest
            length -= piece
            if length >= 8:
                # The whole entries that follow are alike.
                form, rest = _location_form(0, location)
                out += (bytes((128 | form << 3 | 7,)) + rest) * (length // 8)
                length %= 8
    return bytes(out)


def _exception_table(code: CodeType, original: _Original, twin: _Twin, units: list[int]) -> bytes:
    """The table of protected ranges, moved; entries are (start, length, handler, depth) varints."""
    table = code.co_exceptiontable
    if not table:
        return table
    values: list[int] = []
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            values.append(value)
            value = 0
    out = bytearray()
    at, starts = original.index_at, twin.starts
    for i in range(0, len(values), 4):
        start, length, handler, depth = values[i : i + 4]
        new_start = units[starts[at[start]]]
        new_end = units[starts[at[start + length]]]
        entry = (new_start, new_end - new_start, units[starts[at[handler]]], depth)
        first = len(out)
        for number in entry:
            shift = 24
            while shift and not number >> shift:
                shift -= 6
            while shift:
                out.append(64 | number >> shift & 63)
                shift -= 6
            out.append(number & 63)
        out[first] |= 128
    return bytes(out)


def instrument(code: CodeType) -> CodeType:
    """Makes the twin of a code object.

    Args:
        code: any code object that the compiler made, not itself a twin.

    Returns:
        A code object for the same variables, whose stack is `EXTRA_STACK` deeper.

    Raises:
        ValueError: the code has instructions that the table of opcodes does not support.
    """
    original = _Original(code)
    twin = _Twin(code)
    twin.add(original)
    units = twin.resolve_jumps()
    return code.replace(
        co_code=twin.assemble(),
        co_consts=tuple(twin.consts),
        co_stacksize=code.co_stacksize + EXTRA_STACK,
        co_linetable=_location_table(code, original, twin, units),
        co_exceptiontable=_exception_table(code, original, twin, units),
    )


def offsets(code: CodeType) -> bytes:
    """For each code unit of the twin of `code`, the one of `code` it stands for (native uint32)."""
    original = _Original(code)
    twin = _Twin(code)
    twin.add(original)
    units = twin.resolve_jumps()
    table = array("I", bytes(4 * units[-1]))
    for here, owner in enumerate(twin.owners):
        for unit in range(units[here], units[here + 1]):
            table[unit] = original.units[owner]
    return table.tobytes()


_interp.set_instrument(instrument, offsets)
