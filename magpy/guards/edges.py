"""The edges of the reference graph: one class for each kind of read.

Owns all that follows from a read: the check of an object that is another one in every call, the
record about one that stays, the expression that reads the value again in mock code, the label in
pictures and the words for people.  Does not own the log, nor the walk that lowers the reads in
their order and guards the values that they gave (magpy/guards/graph.py).  Called by that and by
magpy/guards/draw.py.
"""

from __future__ import annotations

import collections
import types
from typing import Any

import torch

from magpy import _tensor
from magpy.errors import Refusal, an
from magpy.guards.checks import (
    ABSENT,
    attribute_equals,
    bytearray_equal,
    c_leaf,
    deque_equal,
    maxlen_equal,
    mode_of,
)
from magpy.guards.program import CLASSES, Check, Edge, Name, Operand, Program, Relative
from magpy.guards.world import Run, key_of_place
from magpy.ir.ops import slot_held
from magpy.objects import c_state
from magpy.objects.types import isinstance

# Keys that dicts find by identity, and that are other objects in other calls.
_TENSORS = (torch.Tensor, torch.nn.Parameter)
# What torch keeps with a function that TorchDynamo leaves alone (`Optimizer.zero_grad`) from its
# first call in a process on (torch/_compile.py).  Whichever call makes it, it is the same.
_MADE_AT_FIRST = "__dynamo_disable"


class Load(Edge, gives_object=True):
    """A read of one value, which the guard and the mock code can do again."""

    def load(self, dst: int, source: Operand) -> Check:
        """The check that puts the value into a register."""
        return (self.load_check, dst, source, self.key)

    def absent(self, source: Operand) -> Check:
        """The check that there is no value."""
        return (self.absent_check, source, self.key)

    def expression(self, source: str, name: Name) -> str:
        """The expression of the value in mock code."""
        raise NotImplementedError

    def lower(self, program: Program) -> None:
        """Of an object that is another one in every call, the guard reads it again."""
        found = program.relative.get(id(self.source))
        if found is None:
            self.lower_anchored(program)
        elif self.value is ABSENT:
            program.check(self.absent(found.register))
        else:
            self.lower_load(program, found.register, found.expr)

    def lower_load(self, program: Program, source: Operand, expr: str) -> None:
        """The guard reads the value into a register, and goes on from there."""
        dst = program.register()
        program.check(self.load(dst, source))
        program.bind(self.value, dst, self.expression(expr, program.name))

    def lower_anchored(self, program: Program) -> None:
        """Of an object that stays, what it holds stays too."""
        raise NotImplementedError


def class_of_event(event: str) -> type[Edge]:
    """The class of what an event of the log tells.

    Raises:
        ValueError: no class is registered for the event.
    """
    cls = CLASSES.get(event)
    if cls is None:
        raise ValueError(f"no class of edges is registered for the event {event!r}")
    return cls


def _subscript(base: str, exact: bool, source: str, key: str) -> str:
    """The expression of an item, whatever the `__getitem__` of a subclass gives."""
    return f"{source}[{key}]" if exact else f"{base}.__getitem__({source}, {key})"


class Called(Edge, gives_object=True, label="callable", words="what is called"):
    """What is called; the source is the `Run`."""

    def lower(self, program: Program) -> None:
        """The same in every call: an entry is one of this callable."""
        program.anchor(self.value)


class Argument(Edge, gives_object=True, label="arg {key}", words="the argument {key}"):
    """An argument of the call, by its place or its name; the source is the `Run`."""

    def lower(self, program: Program) -> None:
        """It is in a register when the guard begins, and has a name in the mock function."""
        run: Run = self.source
        if isinstance(self.key, int):
            program.bind(self.value, self.key, f"_a{self.key}")
        else:
            i = list(run.kwargs).index(self.key)
            program.bind(self.value, len(run.args) + i, f"_k{i}")


# ------------------------------------------------------------- dicts


class DictKey(
    Load,
    events=("dict_key",),
    words="the key {key!r} of a dict",
    load="dict_get",
    absent="dict_absent",
):
    """The value under a key of a dict."""

    def expression(self, source: str, name: Name) -> str:
        """An item, by the key itself where it can be written down."""
        key = self.key
        large = type(key) is int and key.bit_length() > 64  # which Python may not write down
        plain = type(key) in (int, str, bool, bytes, type(None)) and not large
        text = repr(key) if plain else name(key)
        return _subscript("dict", type(self.source) is dict, source, text)

    def lower(self, program: Program) -> None:
        """A missing key of a defaultdict is made by its factory; keys stay what they are."""
        if type(self.key) is str and self.key == _MADE_AT_FIRST and self.value is ABSENT:
            return
        if type(self.source) is not dict:
            program.factory(self.source)
        text = type(self.key) is str
        if not text and type(self.key) in _TENSORS and self.value is not ABSENT:
            place = program.relative.get(id(self.key))
            if place is not None:
                self._lower_at(program, place)
                return
        if not text:
            program.anchor(self.key)
        parts = program.run.parts
        if not parts or (id(self.source), key_of_place(self.key)) not in parts:
            super().lower(program)

    def _lower_at(self, program: Program, place: Relative) -> None:
        """The key is another object in every call, as a parameter in an optimizer's state is."""
        dst = program.register()
        program.check(("item_at", dst, program.operand(self.source), place.register))
        found = program.relative.get(id(self.source))
        source = program.name(self.source) if found is None else found.expr
        expr = _subscript("dict", type(self.source) is dict, source, place.expr)
        program.bind(self.value, dst, expr)

    def lower_anchored(self, program: Program) -> None:
        """The value stays, unless another is put there, in the run as it will be in every call.

        What counts then is what the object is like.
        """
        places = program.run.overwritten
        own = bool(places) and (id(self.source), key_of_place(self.key)) in places
        if own and program.is_state(self.value):
            name = program.name(self.source)
            dst = program.register()
            program.check(self.load(dst, ("a", self.source)))
            key = repr(self.key) if type(self.key) in (str, int) else program.name(self.key)
            program.bind(self.value, dst, f"dict.__getitem__({name}, {key})")
            return
        program.group("dicts", self.source, (self.key, self.value, mode_of(self.value)))
        program.anchor(self.value)


class HasKey(Edge, events=("dict_has",), words="whether a dict has the key {key!r}"):
    """A key is in a dict, whatever the dict has under it."""

    def lower(self, program: Program) -> None:
        """The key must be there."""
        program.check(("dict_get", program.register(), program.operand(self.source), self.key))


class InstanceDict(
    Edge,
    events=("link_dict",),
    gives_object=True,
    label="__dict__",
    words="the __dict__ of an object",
):
    """The `__dict__` of an object."""

    def lower(self, program: Program) -> None:
        """Its class is not guarded: only objects of this one have that dict."""
        obj, d = self.source, self.value
        found = program.relative.get(id(obj))
        if found is None:
            self._lower_anchored(program)
            return
        dst = program.register()
        program.check(("inst_dict", dst, found.register))
        known = program.relative.get(id(d))
        if known is not None:
            program.check(("same", dst, known.register))
        else:
            program.reach(d, dst, f"{found.expr}.__dict__")

    def _lower_anchored(self, program: Program) -> None:
        obj, d = self.source, self.value
        program.class_assigned(obj)
        # Modules and functions have theirs for good.
        if not isinstance(obj, (types.ModuleType, types.FunctionType)):
            if program.world.instance_dict(obj) is not d:
                raise Refusal(f"the __dict__ of {an(type(obj).__name__)} is replaced")
            program.record("inst_dicts", obj, d)
        program.anchor(d)


# ------------------------------------------------------------- classes


class ClassOf(
    Edge, events=("type",), gives_object=True, label="__class__", words="the class of an object"
):
    """The class of an object."""

    def lower(self, program: Program) -> None:
        """The class of a relative object is checked where it is reached."""
        program.class_assigned(self.value)
        if id(self.source) not in program.relative:
            program.class_assigned(self.source)


class ClassAttribute(
    Edge,
    events=("type_attr",),
    gives_object=True,
    label=".{key}",
    words="the attribute {key!r} of a class",
):
    """An attribute of a class, looked up along its bases."""

    def lower(self, program: Program) -> None:
        """Classes stay."""
        program.class_assigned(self.source)
        program.group("types", self.source, (self.key, self.value))
        program.anchor(self.value)


class OwnAttribute(
    Edge, events=("type_itself",), words="whether a class has the attribute {key!r} itself"
):
    """A class has an attribute itself, and not from a base."""

    def lower(self, program: Program) -> None:
        """The class is asked again."""
        program.record("redo", c_state.has_itself, (self.source, self.key), True, "leaf")


class SpecialMethods(
    Edge, events=("protocols",), label="special methods", words="the special methods of a class"
):
    """The special methods of a class that C code looks up: pairs of name and value."""

    def lower(self, program: Program) -> None:
        """As of other attributes of a class."""
        program.class_assigned(self.source)
        program.group("types", self.source, *self.value)
        for _, value in self.value:
            program.anchor(value)


class SuperAttribute(
    Edge,
    events=("super",),
    gives_object=True,
    label="super().{key[1]}",
    words="the attribute {key[1]!r} of super()",
):
    """An attribute looked up along the bases of a class, after one of them."""

    def lower(self, program: Program) -> None:
        """Classes stay."""
        after, name = self.key
        program.record("supers", self.source, after, name, self.value)
        program.anchor(self.value)


# ------------------------------------------------------------- other objects


class Attribute(
    Load,
    events=("attr_c",),
    label=".{key}",
    words="the attribute {key!r} of an object",
    load="attr",
    absent="attr_absent",
):
    """An attribute that a descriptor written in C gives, such as a slot."""

    def expression(self, source: str, name: Name) -> str:
        """As Python writes it."""
        return f"{source}.{self.key}"

    def lower_anchored(self, program: Program) -> None:
        """The object still has the value."""
        obj, name, value = self.source, self.key, self.value
        if isinstance(obj, (types.FunctionType, types.MethodType)) and name in (
            "__globals__",
            "__closure__",
        ):
            return
        if type(value) is torch.device:  # which is made anew for each who asks
            program.record("redo", attribute_equals, (obj, name, value), True, "leaf")
            return
        program.record("attrs", obj, name, value, mode_of(value))
        program.anchor(value)


class Cell(Load, events=("cell",), label="cell", words="the content of a closure cell"):
    """The content of a closure cell."""

    def load(self, dst: int, source: Operand) -> Check:
        """Reads the content."""
        return ("cell", dst, source)

    def absent(self, source: Operand) -> Check:
        """The cell is empty."""
        return ("cell_empty", source)

    def expression(self, source: str, name: Name) -> str:
        """As Python names it."""
        return f"{source}.cell_contents"

    def lower_anchored(self, program: Program) -> None:
        """The cell still has the content, or one like it."""
        program.anchor(self.source)
        if (id(self.source), None) in program.run.overwritten and program.is_state(self.value):
            self.lower_load(program, ("a", self.source), program.name(self.source))
            return
        program.record("cells", self.source, self.value, mode_of(self.value))
        program.anchor(self.value)


class Function(
    Edge, events=("func",), label="__code__", words="the code and the defaults of a function"
):
    """A Python function was entered: its code, its defaults, those of keywords."""

    def lower(self, program: Program) -> None:
        """They stay, as does what a function has for good."""
        f, (_, defaults, kwdefaults) = self.source, self.value
        if id(f) in program.relative:  # guarded where it was reached
            return
        program.record("funcs", f, *self.value)
        program.anchor(f.__globals__)
        program.anchor(f.__builtins__)
        program.anchor(f.__closure__ or ())
        program.anchor(defaults)
        program.anchor(kwdefaults)
        if isinstance(kwdefaults, dict):
            program.anchor(tuple(kwdefaults.values()))


class Identity(Edge, events=("identity",), label="is", words="which object it is"):
    """Which object it is was asked."""

    def lower(self, program: Program) -> None:
        """It stays this very object."""
        program.anchor(self.source)


class Gradient(Edge, gives_object=True, label=".grad", words="the gradient of a tensor"):
    """The gradient that a tensor had when the call began was read or added to."""

    def lower(self, program: Program) -> None:
        """It is another one in every call, even of a tensor that stays."""
        dst = program.register()
        program.check(("gradient", dst, program.operand(self.source)))
        found = program.relative.get(id(self.source))
        read = program.name(_tensor.gradient)
        source = program.name(self.source) if found is None else found.expr
        program.bind(self.value, dst, f"{read}({source})")


# ------------------------------------------------------------- containers


class Item(Load, label="[{key}]", words="item {key} of a {kind}", load="item"):
    """An item of a list or a tuple whose length is checked before."""

    def expression(self, source: str, name: Name) -> str:
        """Whatever the `__getitem__` of a subclass gives."""
        base = tuple if isinstance(self.source, tuple) else list
        exact = type(self.source) is base
        return _subscript(base.__name__, exact, source, str(self.key))


class ValueAt(
    Edge,
    events=("value_at",),
    gives_object=True,
    label="[an input]",
    words="what a {kind} has at a number or text that is an input",
):
    """The object in a list or dict at a number or text that is an input: `caches[self.index]`.

    Which one it is differs from call to call; the guard reads the number, then what is there.
    """

    def lower(self, program: Program) -> None:
        """The number is read first, unless it is an argument."""
        if id(self.key) not in program.relative:
            self._read_key(program)
        place = program.relative[id(self.key)]
        holder, dst = self.source, program.register()
        found = program.relative.get(id(holder))
        program.check(("item_at", dst, program.operand(holder), place.register))
        expr = program.name(holder) if found is None else found.expr
        program.bind(self.value, dst, f"{expr}[{place.expr}]")

    def _read_key(self, program: Program) -> None:
        held = program.run.held_numbers.get(id(self.key))
        kind = None if held is None else number_of(held[2], held[1])
        if held is None or kind is None:
            raise Refusal(f"an item of {an(type(self.source).__name__)} is read at an input")
        _, _, holder, key = held
        read, dst = kind(holder, key, self.key), program.register()
        program.check(read.load(dst, program.operand(holder)))
        t = type(self.key)
        program.check(("small_int", dst) if t is int else ("type", dst, t))
        found = program.relative.get(id(holder))
        expr = program.name(holder) if found is None else found.expr
        program.reach(self.key, dst, read.expression(expr, program.name))


def number_of(holder: Any, read: Any) -> type[Load] | None:
    """How a number is read of what holds it.

    Args:
        holder: a cell, container or object with slots.
        read: the function that reads it in mock code.

    Returns:
        The class of the read; None where no guard does it by itself.
    """
    if type(holder) is types.CellType:
        return Cell
    if isinstance(holder, list):
        return Item
    if isinstance(holder, dict):
        return DictKey
    return Attribute if read is slot_held else None


class ListItem(Item, events=("list_item",)):
    """An element of a list; a negative place counts from the end.

    Of a list that the run appends to, or in which it stores elements, and does no more than that,
    this is all that counts, and in the second case the length.
    """

    def expression(self, source: str, name: Name) -> str:
        """As Python writes it."""
        return f"{source}[{self.key}]"

    def lower(self, program: Program) -> None:
        """If the list is looked at as a whole, at some time, that is guarded here."""
        if id(self.source) in program.wholes:
            program.read(Contents(self.source, None, program.wholes[id(self.source)]))
        else:
            super().lower(program)

    def lower_anchored(self, program: Program) -> None:
        """The element stays, or is like the one that was there."""
        if program.is_state(self.value):
            self.lower_load(program, ("a", self.source), program.name(self.source))
            return
        dst = program.register()
        program.check(self.load(dst, ("a", self.source)))
        program.check((mode_of(self.value), dst, self.value))
        program.anchor(self.value)


class Capacity(Edge, label=".maxlen", words="how many elements a deque takes"):
    """How many elements a deque takes at most, which no operation on it changes."""

    def lower(self, program: Program) -> None:
        """Another deque must take as many."""
        program.check(("py", maxlen_equal(self.value), (program.operand(self.source),)))


class Contents(Edge, events=("snap",), label="contents", words="all that a {kind} holds"):
    """All that a container holds; of a set, the key has the elements in their order."""

    def lower(self, program: Program) -> None:
        """Once: one of its elements may have been read before."""
        if not program.first(Contents, self.source):
            return
        program.factory(self.source)
        found = program.relative.get(id(self.source))
        if found is not None:
            self._lower_relative(program, found)
        elif program.is_rearranged(self.source, self.value) or program.run.places(
            self.source, self.value
        ):
            self._lower_alike(program)
        else:
            self._lower_anchored(program)

    def _lower_relative(self, program: Program, found: Relative) -> None:
        obj, pre, reg = self.source, self.value, found.register
        if isinstance(obj, dict):
            program.check(("dict_keys", reg, tuple(pre)))
            self._lower_keys(program)
        elif isinstance(obj, list):
            program.check(("len", reg, len(pre)))
            numbers = program.run.places(obj, pre)
            for i, v in enumerate(pre):
                if i not in numbers:  # the type of such is checked, as below
                    program.read(Item(obj, i, v))
        elif isinstance(obj, set):
            program.check(("set", reg, self.key))
            for x in self.key:
                program.anchor(x)
        elif isinstance(obj, collections.deque):
            program.capacity(obj)
            program.check(("len", reg, len(pre)))
            first = program.register(len(pre))
            program.check(("deque", first, reg, len(pre)))
            for i, v in enumerate(pre):
                program.link(Item(obj, i, v))
                program.bind(v, first + i, f"{found.expr}[{i}]")
        elif isinstance(obj, bytearray):
            program.check(("py", bytearray_equal(pre), (reg,)))

    def _lower_keys(self, program: Program) -> None:
        for k, v in self.value.items():
            program.anchor(k)
            program.read(DictKey(self.source, k, v))

    def _lower_anchored(self, program: Program) -> None:
        obj = self.source
        if isinstance(obj, dict):
            program.record("dict_keys", obj, tuple(self.value))
            self._lower_keys(program)
            return
        held = self.key if isinstance(obj, set) else self.value
        for i, v in enumerate(held):
            program.anchor(v)
            if not c_leaf(v):
                program.link(Item(obj, i, v))
        if isinstance(obj, list):
            program.record("lists", obj, held)
        elif isinstance(obj, set):
            program.record("sets", obj, held)
        elif isinstance(obj, collections.deque):
            program.check(("py", deque_equal(held), (("a", obj),)))
        elif isinstance(obj, bytearray):
            program.check(("py", bytearray_equal(held), (("a", obj),)))

    def _lower_alike(self, program: Program) -> None:
        """The run puts other elements into a list or a deque, as it will in every call.

        What counts is what they are like. Others keep numbers there that are inputs.
        """
        obj, pre = self.source, self.value
        name, place = program.name(obj), ("a", obj)
        program.check(("len", place, len(pre)))
        first = program.register(len(pre))
        if isinstance(obj, list):
            base = "list"
            for i, v in enumerate(pre):
                program.check(Item(obj, i, v).load(first + i, place))
        else:
            base = program.name(collections.deque)
            program.check(("deque", first, place, len(pre)))
        numbers = program.run.places(obj, pre)
        for i, v in enumerate(pre):
            if i in numbers:
                continue  # their type is checked (`number_read` in magpy/guards/analysis.py)
            program.link(Item(obj, i, v))
            if id(obj) in program.run.rearranged and program.is_state(v):
                program.bind(v, first + i, _subscript(base, False, name, str(i)))
            else:
                program.check((mode_of(v), first + i, v))
                program.anchor(v)


class Keys(Edge, events=("keys",), label="keys", words="which keys a {kind} has"):
    """Which keys a dict has, and not what is under them: how many there are was asked."""

    def lower(self, program: Program) -> None:
        """The same keys are there."""
        found = program.relative.get(id(self.source))
        if found is not None:
            program.check(("dict_keys", found.register, self.value))
        else:
            program.record("dict_keys", self.source, self.value)


class ListLength(Edge, events=("list_length",), label="len", words="how long a {kind} is"):
    """How many elements a list has, and not what they are."""

    def lower(self, program: Program) -> None:
        """If the list is looked at as a whole, at some time, that is guarded here."""
        if id(self.source) in program.wholes:
            program.read(Contents(self.source, None, program.wholes[id(self.source)]))
        else:
            program.check(("len", program.operand(self.source), self.value))


# ------------------------------------------------------------- events that tell of no read


class Overwritten(
    Edge, events=("write_attr", "write_type", "dict_del"), is_read=False, words="{key!r} is written"
):
    """What was at a place before the program wrote there, which it may never have read."""


class Reached(Edge, events=("object",), is_read=False, words="an object is reached"):
    """An outside object was reached: the reads that follow tell what of it counts."""
