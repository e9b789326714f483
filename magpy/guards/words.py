"""A guard in words: what it asks for, and what a call differs in that it does not fit.

Owns the summary that `magpy.explain` prints and the words for a check that failed.  Does not own
the paths to what is checked (magpy/guards/names.py), nor the checks (magpy/guards/analysis.py).
Called by magpy/explaining.py and magpy/runtime/misses.py.

The documented forms of checks and anchors (magpy/_interp.pyi) are all that is known here of a
guard.  What is not known yet of a check is said in general words, never wrongly.
"""

from __future__ import annotations

import collections
import re
import sys
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from magpy.errors import an
from magpy.guards.checks import c_leaf
from magpy.guards.names import (
    MODULE_TABLES,
    Names,
    Program,
    class_name,
    module_of,
    own_name,
    value_text,
)
from magpy.objects import c_state
from magpy.objects.types import isinstance
from magpy.shapes.conditions import Conditions

#: What every torch.nn.Module has for its own use.
OF_MODULES = frozenset({*torch.nn.Module().__dict__, "_compiled_call_impl", "_call_impl"}) - {
    "training"
}
_MOST_LINES = 40  # of a group
_ALIKE = 3  # more attributes of one name and value are told together
_TENSOR = "class, dtype, device, shape, strides, requires_grad"

#: What a check that is a Python function looks at, by the function that made it.
_PYTHON_CHECKS = {
    "answers": "what a call of {} returns",
    "array_unchanged": "the contents of {}",
    "array_lies_as": "the dtype, shape or strides of {}",
    "bytearray_equal": "the contents of {}",
    "class_holds": "the numbers that {} holds",
    "deque_equal": "the items of {}",
    "device_equal": "{}",
    "holds": "the functions that {} holds",
    "item_is_number": "the numbers that {} holds",
    "lie_as_before": "which of {} share memory",
    "maxlen_equal": "the maxlen of {}",
    "placed_as": "the mesh and placements of {}",
    "knows": "what is known of the lengths of the sequences in {}",
    "runs_below": "the hooks and callbacks that run below operations",
    "scalar_equal": "{}",
    "still_remembers": "what the lru_cache {} remembers",
    "unchanged": "the state of {}",
}


LIBRARIES = frozenset({*sys.stdlib_module_names, "torch", "numpy"})
_CODE = "classes and functions"
_TABLE = re.compile(rf"\.({'|'.join(MODULE_TABLES)})$")
_GLOBALS = "globals and closures"
_RELATIONS = ("is ", "<", ">", "=", "!", "%")
_OTHER = "settings and tables of libraries: unchanged"


# ----------------------------------------------------------------- what a guard asks for


def summary(f: Any, program: Program) -> str:
    """What a guard asks for, grouped by what a user knows: arguments, `self`, globals, code.

    Args:
        f: the callable whose calls are guarded.
        program: the guard program.
    """
    return _read(f, program).text()


def listing(f: Any, program: Program) -> list[tuple[str, str]]:
    """What a guard asks for, one by one: the path of what is looked at, and what is asked of it.

    Args:
        f: the callable whose calls are guarded.
        program: the guard program.
    """
    found = _read(f, program)
    pairs = [(p, f"is {value}") for (*_, value), paths in found.values.items() for p in paths]
    pairs += [(p, f"holds {text}") for (_, text), paths in found.contained.items() for p in paths]
    pairs += [(p, _TENSOR) for paths in found.tensors.values() for p in paths]
    for heading, lines in found.lines.items():
        for text in dict.fromkeys(lines):
            path, _, asked = text.partition(" ")
            named = heading not in ("further checks", "torch") and asked.startswith(_RELATIONS)
            pairs.append((path, asked) if named else (heading, text))
    for package, names in found.code.items():
        pairs += [(f"{_CODE}.{package or 'own'}", f"{name}: unchanged") for name in sorted(names)]
    for heading, counts in found.counts.items():
        pairs += [(heading, f"{n} {what}") for what, n in counts.items()]
    return pairs


def _read(f: Any, program: Program) -> _Summary:
    found = _Summary(Names(f, program))
    found.read_anchors(program.anchors)
    for check in program.checks:
        found.read_check(check)
    return found


class _Summary:
    """Collects what a guard asks for, under the headings of its text."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.arguments = {path.partition("[")[0] for path in names.arguments}
        self.lines: dict[str, list[str]] = collections.defaultdict(list)
        self.counts: dict[str, collections.Counter[str]] = collections.defaultdict(
            collections.Counter
        )
        # Paths by heading, attribute and value: those of many objects are told together.
        self.values: dict[tuple[str, str, str], list[str]] = collections.defaultdict(list)
        # Paths by heading and what the containers hold.
        self.contained: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
        # Paths by where they begin.
        self.tensors: dict[str, list[str]] = collections.defaultdict(list)
        self.code: dict[str, set[str]] = collections.defaultdict(set)

    # ------------------------------------------------------------- what a check asks for

    def heading(self, path: str) -> str:
        """The heading under which what is at a path is told."""
        names = self.names
        first = re.split(r"[.\[ ]", path, maxsplit=1)[0]
        if first in self.arguments:
            return "arguments"
        if first == names.root:
            return names.root
        users = first in ("global", "the") or first in names.variables
        if users or any(path.startswith(f"{module}.") for module in names.modules):
            return _GLOBALS
        return _CODE

    def add(self, path: str, text: str) -> None:
        """Something is asked of what is at a path."""
        heading = self.heading(path)
        if heading == _CODE:
            self.counts[_CODE][_OTHER] += 1
        else:
            self.lines[heading].append(text)

    def holds(self, path: str, v: Any, key: Any = None) -> None:
        """At a path there is a value, or nothing."""
        heading = self.heading(path)
        if heading == _CODE:
            self.counts[_CODE][_OTHER] += 1
        elif c_leaf(v) and key not in OF_MODULES:
            self.values[heading, path.rpartition(".")[2], value_text(v)].append(path)
        else:
            self.counts[heading][
                "attributes and items: the same objects, or missing as before"
            ] += 1

    def defined(self, v: Any) -> None:
        """A class or a function is what it was."""
        module = (
            v.__globals__.get("__name__") if isinstance(v, types.FunctionType) else module_of(v)
        )
        package = str(module).partition(".")[0]
        own = package == self.names.package and package not in LIBRARIES
        name = (own_name(v) or "").removeprefix(f"{module}.").replace("<locals>.", "")
        self.code["" if own else package].add(name)

    def read_anchors(self, anchors: dict[str, Any]) -> None:
        """What is asked of objects that are the same in every call."""
        names = self.names
        for d, items in anchors.get("dicts", ()):
            for key, value, _ in items:
                self.holds(names.key(d, key), value, key)
        for obj, name, value, _ in anchors.get("attrs", ()):
            self.holds(f"{names.of(obj)}.{name}", value)
        for cell, value, _ in anchors.get("cells", ()):
            self.holds(names.of(cell), value)
        for section in ("lists", "dict_keys", "sets"):
            for holder, items in anchors.get(section, ()):
                self.contents(names.of(holder), items)
        for t, *_ in (*anchors.get("types", ()), *anchors.get("supers", ())):
            self.defined(t)
        for function, *_ in anchors.get("funcs", ()):
            self.defined(function)
        for obj, _ in (*anchors.get("objtypes", ()), *anchors.get("inst_dicts", ())):
            if own_name(obj) is None:
                self.counts[self.heading(names.of(obj))]["objects: of the same class"] += 1
        for tensor, _ in anchors.get("tensors", ()):
            self.tensor(names.of(tensor))
        for function, args, expected, _ in anchors.get("redo", ()):
            asked = _name(_asked_function(function, args))
            self.lines["further checks"].append(f"{asked} gives {value_text(expected)}")
        if anchors.get("state") is not None:
            self.lines["torch"].append(
                "grad mode, autocast, default dtype, determinism and the like: as they were"
            )

    def tensor(self, path: str) -> None:
        """A tensor is like the one of the run."""
        self.tensors[re.split(r"[.\[]", path, maxsplit=1)[0]].append(path)

    def contents(self, path: str, items: Iterable[Any]) -> None:
        """A container holds these elements or keys, and no others."""
        items = tuple(items)
        path = _TABLE.sub("", path)
        heading = self.heading(path)
        if items and heading != _CODE and all(map(c_leaf, items)):
            text = ", ".join(map(value_text, items[:12])) + ", ..." * (len(items) > 12)
            self.contained[heading, text].append(path)
        else:
            self.counts[heading]["containers: of the same length and keys"] += 1

    def read_check(self, check: tuple[Any, ...]) -> None:
        """What is asked of arguments, and of what they lead to."""
        names = self.names
        match check:
            case ("leaf", operand, value):
                self.holds(names.operand(operand), value)
            case ("tensor", operand, _):
                self.tensor(names.operand(operand))
            case ("dict_keys" | "set", operand, items):
                self.contents(names.operand(operand), items)
            case ("py", Conditions() as conditions, operands):
                for text in conditions.said([names.operand(o) for o in operands]):
                    self.add(text, text)
            case ("py", function, operands):
                text = _subject(function, [names.operand(o) for o in operands])
                self.lines["further checks"].append(f"{text}: as before")
            case ("overlap", *_):
                self.lines["further checks"].append("which tensors share memory: as before")
            case _:
                path, text = _asked(names, check)
                if text:
                    self.add(path, text)

    # ------------------------------------------------------------- the text

    def text(self) -> str:
        """All of it, the headings in a fixed order."""
        for (heading, attribute, value), paths in self.values.items():
            if len(paths) > _ALIKE:
                self.lines[heading].append(f"{attribute} of {len(paths)} objects is {value}")
            else:
                self.lines[heading] += [f"{path} is {value}" for path in paths]
        for (heading, text), paths in self.contained.items():
            if len(paths) > _ALIKE:
                self.lines[heading].append(f"{len(paths)} objects hold {text}")
            else:
                self.lines[heading] += [f"{path} holds {text}" for path in paths]
        for owner, paths in self.tensors.items():
            lines = self.lines[self.heading(owner)]
            if len(paths) > _ALIKE and owner not in self.arguments:
                lines.append(f"{len(paths)} parameters and buffers of {owner}: {_TENSOR}")
            else:
                lines += [f"{path}: {_TENSOR}" for path in paths]
        own = sorted(self.code.pop("", ()))
        if own:
            some = ", ".join(own[:12]) + ", ..." * (len(own) > 12)
            self.lines[_CODE].append(f"{some}: unchanged")
        if self.code:
            counts = ", ".join(f"{len(found)} of {p}" for p, found in sorted(self.code.items()))
            self.lines[_CODE].append(f"{counts}: unchanged")
        order = ("arguments", self.names.root, _GLOBALS, "further checks", _CODE, "torch")
        return "\n".join(text for heading in order if (text := self._group(heading)))

    def _group(self, heading: str) -> str:
        lines = list(dict.fromkeys(self.lines[heading]))
        more = [f"... and {len(lines) - _MOST_LINES} more"] * (len(lines) > _MOST_LINES)
        counted = [f"{n} {what}" for what, n in sorted(self.counts[heading].items())]
        inner = [*lines[:_MOST_LINES], *more, *counted]
        return "\n".join([f"{heading}:", *(f"  {line}" for line in inner)]) if inner else ""


def _asked(names: Names, check: tuple[Any, ...]) -> tuple[str, str]:
    """Whom a check asks, and what; "" for those that only load a value."""
    match check:
        case ("is", operand, value):
            path = names.operand(operand)
            return path, f"{path} is the same object ({value_text(value)})"
        case ("type", operand, cls):
            path = names.operand(operand)
            return path, f"{path} is {an(class_name(cls))}"
        case ("small_int", operand):
            path = names.operand(operand)
            return path, f"{path} is an integer"
        case ("same", one, other):
            path, same = names.operand(one), names.operand(other)
            return path, f"{path} is {same}" if path != same else ""
        case ("len", operand, n) | ("deque", _, operand, n):
            path = names.operand(operand)
            return path, f"len({path}) is {n}"
        case ("dict_absent", operand, key):
            path = names.operand_key(operand, key)
            return path, f"{path} is missing"
        case ("attr_absent", operand, name):
            path = f"{names.operand(operand)}.{name}"
            return path, f"{path} is missing"
    return "", ""


def _name(function: Any) -> str:
    """What a user calls a function of which a guard asks again."""
    name = own_name(function) or value_text(function)
    return name.removeprefix("builtins.")


def _asked_function(function: Any, args: tuple[Any, ...]) -> Any:
    """What a question asks for the user: magpy may ask by way of a function of its own."""
    return args[0] if function is c_state.outcome and args else function


def _subject(check: Any, paths: list[str]) -> str:
    """What a check that is a Python function looks at."""
    maker = getattr(check, "__qualname__", type(check).__qualname__).partition(".")[0]
    several = ", ".join(paths[:4]) + ", ..." * (len(paths) > 4)
    return _PYTHON_CHECKS.get(maker, "what {} holds").format(several)


# ----------------------------------------------------------------- what a call differs in


@dataclass(frozen=True, slots=True)
class Difference:
    """What of a call did not fit an entry.

    Attributes:
        what: what was looked at, by its path: "x.shape[0]".
        was: the value that the entry needs, or "".
        now: the value that the call has, or "" where there is no more to say than `what`.
        where: the expression of the program that relies on the value, and its line, where known.
        of_tensor: it is a size, a stride or the like of a tensor.
    """

    what: str
    was: str = ""
    now: str = ""
    where: str = ""
    of_tensor: bool = False

    def __str__(self) -> str:
        """The sentence that users are told."""
        if self.was:
            text = f"{self.what} was {self.was}, is {self.now}"
        else:
            text = f"{self.what} {self.now or 'changed'}"
        return f"{text}; {self.where} fixes it" if self.where else text

    @property
    def of_presence(self) -> bool:
        """Whether it is that something is there, or no longer: another value may be an input."""
        return self.was == "missing" or "missing" in self.now.split(",")[0].split()

    @property
    def of_one(self) -> bool:
        """Whether it is that a size is 1 or is no longer: sizes of 1 are ways of their own.

        A number may be one: a batch's size that a region is given. From 0 to 1 is a counter, and
        what an expression fixes is fixed whatever it is.
        """
        if not self.was:
            return self.what.endswith(">= 2")
        both = self.was, self.now
        number = all(map(str.isdigit, both)) and "0" not in both and not self.where
        number = number and not self.what.startswith("len(")
        return (self.of_tensor or number) and "1" in both


def difference(names: Names, program: Program, failure: tuple[Any, str]) -> Difference:
    """The words for what `_interp.Guard.explain` found.

    Args:
        names: the names of what the program looks at.
        program: the guard program.
        failure: where the check is, and the text for it.
    """
    where, text = failure
    if isinstance(where, int):
        return _of_check(names, program.checks[where], text)
    section, i, j = where
    if section not in program.anchors:
        return Difference("the call", "", f"has {text}")
    if section == "state":
        return Difference(f"torch's {text.removesuffix(' changed')}", "", "changed")
    record = program.anchors[section][i]
    found = _of_anchor(names, section, record, j)
    if section == "tensors":
        return _of_tensor(found, record[1], text)
    return _parsed(found, text, anchored=True)


def _of_anchor(names: Names, section: str, record: tuple[Any, ...], j: int) -> str:
    """What an anchored check looks at."""
    holder = record[0]
    path = names.of(holder)
    match section:
        case "dicts":
            return names.key(holder, record[1][j][0])
        case "dict_keys":
            return f"the keys of {path}"
        case "inst_dicts":
            return f"{path}.__dict__"
        case "objtypes":
            return f"the class of {path}"
        case "types":
            return f"{path}.{record[1][j][0]}" if j >= 0 else f"the bases of {path}"
        case "supers":
            return f"{path}.{record[2]}"
        case "lists":
            return f"{path}[{j}]" if j >= 0 else f"len({path})"
        case "sets":
            return f"the elements of {path}"
        case "attrs":
            return f"{path}.{record[1]}"
        case "redo":
            # Not what it was given: misses are counted by these words.
            return f"what {_name(_asked_function(holder, record[1]))} gives"
    return path


#: Checks that look at one thing: its path, where the text says how it differs.
_OF_ONE = {
    "type": "the class of {}",
    "len": "len({})",
    "leaf": "{}",
    "is": "{}",
    "small_int": "{}",
    "dict_keys": "the keys of {}",
    "set": "the elements of {}",
    "func": "{}",
    "cell_empty": "{}",
}
#: Those that load a value, in which the operand is the third.
_OF_LOADED = {"deque": "len({})", "gradient": "{}.grad", "cell": "{}", "inst_dict": "{}.__dict__"}


def _of_check(names: Names, check: tuple[Any, ...], text: str) -> Difference:
    kind = check[0]
    if kind in _OF_ONE:
        return _parsed(_OF_ONE[kind].format(names.operand(check[1])), text)
    if kind in _OF_LOADED:
        return _parsed(_OF_LOADED[kind].format(names.operand(check[2])), text)
    match check:
        case ("py", Conditions() as conditions, operands):
            broken = conditions.broken([names.operand(o) for o in operands])
            return Difference("a size or number") if broken is None else Difference(*broken)
        case ("py", function, operands):
            return Difference(_subject(function, [names.operand(o) for o in operands]))
        case ("tensor", operand, meta):
            return _of_tensor(names.operand(operand), meta, text)
        case ("dict_get", _, operand, key):
            return Difference(names.operand_key(operand, key), "", "is missing")
        case ("dict_absent", operand, key):
            return Difference(names.operand_key(operand, key), "", "was missing, is there")
        case ("attr", _, operand, name):
            return Difference(f"{names.operand(operand)}.{name}", "", "is missing")
        case ("attr_absent", operand, name):
            return Difference(f"{names.operand(operand)}.{name}", "", "was missing, is there")
        case ("item", _, operand, i):
            return Difference(f"{names.operand(operand)}[{i}]", "", "is missing")
        case ("item_at", _, operand, place):
            at = f"{names.operand(operand)}[{names.operand(place)}]"
            return Difference(at, "", "is missing")
        case ("same", one, other):
            return Difference(names.operand(one), "", f"is no longer {names.operand(other)}")
        case ("distinct", *_):
            return Difference("two arguments", "", "are the same object")
        case ("overlap", *_):
            return Difference("which tensors share memory")
    return Difference("a value", "", text)


def _of_tensor(path: str, meta: Any, text: str) -> Difference:
    """A tensor is not like the one that a guard remembers."""
    found = re.fullmatch(r"(.+?) (\S+|\[.*?\]) instead of (.+)", text)
    if found is None:
        return Difference(path, "", f"is {text}")
    aspect, now, was = found.groups()
    if aspect == "shape":
        sizes, before = now.strip("[]").split(", "), was.strip("[]").split(", ")
        if len(sizes) == len(before) == len(meta.shape):
            i = next((i for i, (a, b) in enumerate(zip(sizes, before, strict=True)) if a != b), 0)
            return Difference(f"{path}.shape[{i}]", before[i], sizes[i], of_tensor=True)
    if aspect in ("type", "class"):
        return Difference(f"the class of {path}", was, now)
    return Difference(f"{path}.{aspect.replace(' ', '_')}", was, now, of_tensor=True)


def _parsed(what: str, text: str, anchored: bool = False) -> Difference:
    """The native words for a failure: "NOW instead of WAS", or what is otherwise.

    Args:
        what: what was looked at.
        text: the native words.
        anchored: they begin with what was looked at in other words, and " is ".
    """
    if anchored and " is missing (was " in text:
        return Difference(what, text.partition(" is missing (was ")[2].removesuffix(")"), "missing")
    if anchored and " is now there: " in text:
        return Difference(what, "missing", text.partition(" is now there: ")[2])
    body = text.partition(" is ")[2] if anchored else re.sub("^(type|length) ", "", text)
    now, found, was = body.partition(" instead of ")
    if found:
        return Difference(what, was, now)
    return Difference(what, "", "is another object" if "another object" in text else "")


__all__ = ["Difference", "Names", "Program", "difference", "summary"]
