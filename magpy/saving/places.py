"""Where the program's objects are found: the names and paths by which another process finds them.

A capture is about objects: by which it names the function, the module, the dict that it read. None
of them travels. What is written is how each is reached from the callable, or its name in a module,
and what is assumed of an object because it is that very one: the class, the code of a function, the
items of a tuple, what a tensor is like.  What a guard checks in every call (the values in dicts,
attributes, cells) is checked by the guard that is made where the entry is loaded.

Owns the names and paths (`Places`, as rows of plain values), finding the objects (`find`) and
comparing them.  Does not own what is written beside them (magpy/saving/portable.py).
"""

from __future__ import annotations

import collections
import contextvars
import enum
import functools
import gc
import importlib
import sys
import types
from typing import Any, NamedTuple

import torch

from magpy import _interp
from magpy.errors import an
from magpy.guards.checks import ABSENT, c_leaf
from magpy.guards.names import thing
from magpy.objects.types import is_heap, isinstance
from magpy.saving import fingerprints

_DESCRIPTORS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
)
_NAMED_TYPES = (torch.dtype, torch.layout, torch.memory_format)
#: What C code makes an object of, where its state is in what a log has of it, or in parts.
_KNOWN = (
    *(object, type, dict, list, set, frozenset, tuple, collections.OrderedDict),
    *(collections.deque, collections.defaultdict, contextvars.ContextVar),
    *(types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType),
    *(types.CellType, types.CodeType, types.MethodWrapperType, *_DESCRIPTORS, *_NAMED_TYPES),
    *(property, staticmethod, classmethod, functools.partial, torch._C.TensorBase),
)
#: The parts that an object has for good, by its class.
_PARTS: dict[Any, tuple[str, ...]] = {
    types.MethodType: ("__func__", "__self__"),
    enum.Enum: ("_name_", "_value_"),
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    functools.partial: ("func", "args", "keywords"),
    collections.deque: ("maxlen",),
    collections.defaultdict: ("default_factory",),
    types.MethodWrapperType: ("__self__", "__name__"),
}
_EMPTY: dict[str, Any] = {}


class Unable(Exception):
    """The entry cannot travel."""


class Mismatch(Exception):
    """The program is another one than that which was saved."""


class Obj(NamedTuple):
    """A row in the place of an object."""

    row: int


class Rows(NamedTuple):
    """What `find` needs.

    Attributes:
        rows: how each object is found: a kind, and rows and plain values.
        facts: what must hold of those that are found: a kind, a row, and what is expected.
    """

    rows: list[tuple[Any, ...]]
    facts: list[tuple[Any, ...]]


def module_of(f: Any) -> dict[str, Any]:
    """The globals of the module in which a callable, or the class of one, was defined."""
    f = getattr(f, "__func__", f) if isinstance(f, types.MethodType) else f
    if isinstance(f, types.FunctionType):
        return f.__globals__
    module = sys.modules.get(str(type(f).__module__))
    return _EMPTY if module is None else vars(module)


def picture(t: Any) -> tuple[Any, ...]:
    """What a guard looks at of a tensor."""
    strided = t.layout is torch.strided
    return (
        *(str(t.dtype), str(t.layout), str(t.device), tuple(t.shape)),
        *(t.stride() if strided else None, t.storage_offset() if strided else None),
        *(t.requires_grad, t.is_leaf, t._is_view(), t.is_conj(), t.is_neg(), t.is_inference()),
        torch._C._dispatch_keys(t).raw_repr(),
    )


def stand_in(meta: tuple[Any, ...]) -> Any:
    """A tensor for an argument that only a call has."""
    shape, strides, dtype, device, requires_grad, parameter = meta
    with torch.inference_mode(False), torch.no_grad():
        t = torch.empty_strided(shape, strides, dtype=getattr(torch, dtype), device=device)
        if parameter:
            return torch.nn.Parameter(t, requires_grad=requires_grad)
        return t.requires_grad_(requires_grad)


def _dict_of(v: Any) -> Any:
    return type.__getattribute__(v, "__dict__")


def _resolved(space: dict[str, Any], name: str) -> Any:
    first, *rest = name.split(".")
    found = space[first]
    for part in rest:
        found = _dict_of(found)[part] if isinstance(found, type) else getattr(found, part)
    return found


_CONTAINERS: dict[str, Any] = {"list": list, "tuple": tuple}


def _container(objects: list[Any], cls: str, items: Any) -> Any:
    def value(v: Any) -> Any:
        return objects[v.row] if type(v) is Obj else v

    if cls == "dict":
        return {k: value(v) for k, v in items}
    return _CONTAINERS[cls](map(value, items))


def _key(objects: list[Any], i: int, key: Any) -> Any:
    return dict.__getitem__(objects[i], objects[key.row] if type(key) is Obj else key)


def _item(objects: list[Any], i: int, k: int) -> Any:
    base: Any = next(c for c in (list, tuple, collections.deque) if isinstance(objects[i], c))
    return base.__getitem__(objects[i], k)


def _slot(objects: list[Any], i: int, name: str) -> Any:
    base = type if isinstance(objects[i], type) else object
    return base.__getattribute__(objects[i], name)


def _class_dict(objects: list[Any], i: int) -> Any:
    """The dict of a class itself, and no view of it."""
    return next(d for d in gc.get_referents(objects[i]) if type(d) is dict)


#: How rows of each kind are read, of the rows before them.
_READS: dict[str, Any] = {
    "tensor": lambda _, meta: stand_in(meta),
    "container": _container,
    "absent": lambda _: ABSENT,
    "module": lambda _, name: importlib.import_module(name),
    "attr": lambda o, i, name: getattr(o[i], name),
    "in": lambda o, i, name: _dict_of(o[i])[name],
    "vars": lambda o, i: vars(o[i]),
    "class attr": lambda o, i, name: _interp.type_lookup(o[i], name),
    "key": _key,
    "dict": lambda o, i: object.__getattribute__(o[i], "__dict__"),
    "class dict": _class_dict,
    "type": lambda o, i: type(o[i]),
    "cell": lambda o, i: o[i].cell_contents,
    "item": _item,
    "slot": _slot,
}


def _read(how: tuple[Any, ...], objects: list[Any], root: Any) -> Any:
    """Does what a row tells."""
    kind, *args = how
    if kind == "root":
        return root
    if kind == "name":
        module, name = args
        space = module_of(root) if module is None else vars(importlib.import_module(module))
        return _resolved(space, name)
    return _READS[kind](objects, *args)


class Places:
    """The rows and facts of a capture, while it is written.

    Args:
        root: the callable.
    """

    def __init__(self, root: Any) -> None:
        """Knows the callable alone."""
        self.root = root
        self.rows: list[tuple[Any, ...]] = []
        self.facts: list[tuple[Any, ...]] = []
        self.index: dict[int, int] = {}
        self._objects: list[Any] = []  # no other object gets the address of one
        self._space = module_of(root)
        self.add(root, ("root",))

    @property
    def written(self) -> Rows:
        """What `find` needs."""
        return Rows(self.rows, self.facts)

    # ------------------------------------------------------------- asked for by what is written

    def ref(self, v: Any) -> int:
        """The row of an object.

        Raises:
            Unable: no path leads to it, and it has no name.
        """
        known = self.index.get(id(v))
        if known is not None:
            return known
        how = self._named(v)
        if how is None:
            raise Unable(f"nothing that has a name leads to {thing(v)}")
        return self.add(v, how)

    def value(self, v: Any) -> Any:
        """A plain value as it is, an object as its row."""
        return v if c_leaf(v) else Obj(self.ref(v))

    def reach(self, v: Any, *how: Any) -> None:
        """An object was found by a read, unless it has another place."""
        if c_leaf(v) or id(v) in self.index:
            return
        named = self._named(v)
        if named is None:
            if not self._leads(how, v):
                return  # the run has changed what is there
            named = how
        self.add(v, named)

    def given(self, v: Any) -> None:
        """An argument, which only a call has.

        Raises:
            Unable: nothing can stand for it.
        """
        if c_leaf(v) or id(v) in self.index:
            return
        if isinstance(v, torch.Tensor) and v.device.type != "cpu":
            raise Unable(f"a tensor is on {v.device.type}")
        if type(v) in (torch.Tensor, torch.nn.Parameter) and v.layout is torch.strided:
            shape, dtype = tuple(v.shape), str(v.dtype).removeprefix("torch.")
            parameter = type(v) is torch.nn.Parameter
            meta = (shape, v.stride(), dtype, str(v.device), v.requires_grad, parameter)
            self._add_bare(v, ("tensor", meta))
        elif type(v) in (list, tuple, dict):
            for x in v.values() if type(v) is dict else v:
                self.given(x)
            items: Any = [self.value(x) for x in v] if type(v) is not dict else None
            if type(v) is dict:
                if not all(c_leaf(k) for k in v):
                    raise Unable("an argument is a dict whose keys are objects")
                items = [(k, self.value(x)) for k, x in v.items()]
            self._add_bare(v, ("container", type(v).__name__, items))
        else:
            raise Unable(f"an argument is {thing(v)}")

    def _add_bare(self, v: Any, how: tuple[Any, ...]) -> int:
        row = len(self.rows)
        self.rows.append(how)
        self.index[id(v)] = row
        self._objects.append(v)
        return row

    def add(self, v: Any, how: tuple[Any, ...]) -> int:
        """Adds a row, and what is assumed of the object since it is this one."""
        row = self._add_bare(v, how)
        self._describe(v, row)
        return row

    # ------------------------------------------------------------- names

    def _leads(self, how: tuple[Any, ...], v: Any) -> bool:
        try:
            return _read(how, self._objects, self.root) is v
        except Exception:  # noqa: BLE001 - whatever is not there any more
            return False

    def _named(self, v: Any) -> tuple[Any, ...] | None:
        if v is ABSENT:
            return ("absent",)
        if isinstance(v, types.ModuleType):
            name = v.__name__
            return ("module", name) if sys.modules.get(name) is v else None
        if isinstance(v, (type, types.FunctionType, types.BuiltinFunctionType)):
            return self._by_name(v)
        if isinstance(v, _DESCRIPTORS):
            if _dict_of(v.__objclass__).get(v.__name__) is not v:
                return None
            return ("in", self.ref(v.__objclass__), v.__name__)
        if isinstance(v, _NAMED_TYPES):
            return ("name", "torch", str(v).removeprefix("torch."))
        if isinstance(v, enum.Enum):
            return ("attr", self.ref(type(v)), v._name_)
        if v is torch.default_generator:
            return ("name", "torch", "default_generator")
        if v is sys.modules:
            return ("attr", self.ref(sys), "modules")
        if type(v) is dict:
            module = sys.modules.get(str(v.get("__name__")))
            if module is not None and vars(module) is v:
                return ("vars", self.ref(module))
        return None

    def _by_name(self, v: Any) -> tuple[Any, ...] | None:
        module, name = v.__module__, v.__qualname__
        builtin = isinstance(v, types.BuiltinFunctionType)
        if builtin and v.__self__ is not None and not isinstance(v.__self__, types.ModuleType):
            owner = v.__self__
            if isinstance(owner, type) or id(owner) in self.index:
                found: Any = getattr(owner, v.__name__, None)
                if found is v or (not isinstance(owner, type) and found == v):
                    return ("attr", self.ref(owner), v.__name__)
        if self._space is not _EMPTY and self._leads(("name", None, name), v):
            return ("name", None, name)
        known = type(module) is str and module in sys.modules
        if known and self._leads(("name", module, name), v):
            return ("name", module, name)
        return None

    # ------------------------------------------------------------- facts

    def _part(self, row: int, v: Any, name: str, kind: str = "slot") -> None:
        part = getattr(v, name)
        self.reach(part, kind, row, name)
        self.facts.append(("part", row, name, self.value(part)))

    def _type(self, t: type) -> Any:
        return Obj(self.ref(t)) if is_heap(t) else f"{t.__module__}.{t.__qualname__}"

    def _describe(self, v: Any, row: int) -> None:
        t = type(v)
        if v is ABSENT:
            return
        if is_heap(t):
            self.reach(t, "type", row)
        self.facts.append(("type", row, self._type(t)))
        if isinstance(v, type):
            mro = tuple(map(self._type, v.__mro__))
            versioned = not is_heap(v) or fingerprints.is_of_a_version(v.__module__)
            self.facts.append(("class", row, mro, None if versioned else fingerprints.body(v)))
        elif t is types.FunctionType:
            self._describe_function(v, row)
        elif t is types.CodeType:
            self.facts.append(("code", row, fingerprints.code(v)))
        elif isinstance(v, torch.Tensor):
            if v.device.type != "cpu":
                raise Unable(f"a tensor is on {v.device.type}")
            self.facts.append(("tensor", row, picture(v)))
        elif isinstance(v, tuple):
            for i, x in enumerate(tuple.__iter__(v)):
                self.reach(x, "item", row, i)
            items = tuple(self.value(x) for x in tuple.__iter__(v))
            self.facts.append(("items", row, items))
        elif t is types.BuiltinFunctionType:
            owner = v.__self__
            of_object = owner is not None and not isinstance(owner, (types.ModuleType, type))
            if of_object and id(owner) not in self.index:
                # What holds it is C code, of a version.
                at = self._add_bare(owner, ("attr", row, "__self__"))
                self.reach(type(owner), "type", at)
        elif _interp.c_base(t) not in _KNOWN and not isinstance(v, enum.Enum):
            raise Unable(f"nobody knows what makes {thing(v)} another one")
        else:
            kind: Any = next((c for c in _PARTS if isinstance(v, c)), None)
            for name in _PARTS.get(kind, ()):
                self._part(row, v, name, "slot")

    def _describe_function(self, f: types.FunctionType, row: int) -> None:
        self.facts.append(("function", row, fingerprints.code(f.__code__)))
        self.reach(f.__code__, "slot", row, "__code__")
        for name in ("__globals__", "__builtins__", "__closure__"):
            self._part(row, f, name)
        for i, cell in enumerate(f.__closure__ or ()):
            self.reach(cell, "item", self.ref(f.__closure__), i)
        # A guard compares these themselves, plain values though they may hold.
        for name in ("__defaults__", "__kwdefaults__"):
            part = getattr(f, name)
            if part is None:
                self.facts.append(("part", row, name, None))
            elif id(part) not in self.index:
                at = self._add_bare(part, ("slot", row, name))
                values = part.values() if type(part) is dict else part
                for k, x in (
                    zip(part, values, strict=True) if type(part) is dict else enumerate(part)
                ):
                    self.reach(x, "key" if type(part) is dict else "item", at, k)
                held = tuple(map(self.value, values))
                self.facts.append(("items", at, held))
                if type(part) is dict:
                    self.facts.append(("keys", at, tuple(part)))


# ------------------------------------------------------------- in the other process


def _words(rows: list[tuple[Any, ...]], i: int) -> str:
    """What a user calls the object of a row."""
    match rows[i]:
        case ("root",):
            return "the callable"
        case ("module", name) | ("name", None, name):
            return str(name)
        case ("name", module, name):
            return f"{module}.{name}"
        case ("vars", j):
            return _words(rows, j)
        case ("dict", j) | ("cell", j) | ("class dict", j):
            return _words(rows, j)
        case ("type", j):
            return f"the class of {_words(rows, j)}"
        case ("item", j, k):
            return f"{_words(rows, j)}[{k!r}]"
        case ("key", j, key) if type(key) is str:
            return f"{_words(rows, j)}.{key}"
        case ("key", j, key):
            return f"{_words(rows, j)}[{key!r}]"
        case (_, int() as j, str() as name):
            return f"{_words(rows, j)}.{name}"
    return "an object"


def find(found: Rows, root: Any) -> list[Any]:
    """The objects of all rows, from the callable `root` of this process.

    Raises:
        Mismatch: one is not there, or is not like the one that was saved.
    """
    objects: list[Any] = []
    for i, how in enumerate(found.rows):
        try:
            objects.append(_read(how, objects, root))
        except Mismatch:
            raise
        except Exception as e:
            what = _words(found.rows, i)
            raise Mismatch(f"{what} is not there ({type(e).__name__}: {e})") from e
    for kind, i, *expected in found.facts:
        wrong = _difference(kind, objects[i], expected, objects)
        if wrong is not None:
            raise Mismatch(f"{_words(found.rows, i)} {wrong}")
    return objects


def _difference(kind: str, v: Any, expected: list[Any], objects: list[Any]) -> str | None:
    """What an object is not like; None: it is as it should be."""

    def same(found: Any, wanted: Any) -> bool:
        if type(wanted) is Obj:
            return found is objects[wanted.row] or _equal_methods(found, objects[wanted.row])
        return bool(c_leaf(found) and _interp.leaf_equal(found, wanted))

    def is_type(t: type, wanted: Any) -> bool:
        if type(wanted) is Obj:
            return t is objects[wanted.row]
        return not is_heap(t) and f"{t.__module__}.{t.__qualname__}" == wanted

    match kind, expected:
        case "type", [wanted]:
            return None if is_type(type(v), wanted) else f"is {an(type(v).__qualname__)} now"
        case "class", [mro, body]:
            if len(v.__mro__) != len(mro) or not all(map(is_type, v.__mro__, mro)):
                return "has other bases"
            return None if body in (None, fingerprints.body(v)) else "is another class: its body"
        case "function", [code]:
            return None if fingerprints.code(v.__code__) == code else "has other code"
        case "code", [code]:
            return None if fingerprints.code(v) == code else "is other code"
        case "tensor", [meta]:
            now = picture(v)
            differ = [f"{b} was {a}" for a, b in zip(meta, now, strict=True) if a != b]
            return f"is another tensor: {'; '.join(differ)}" if differ else None
        case "items", [items]:
            now = tuple(v.values() if type(v) is dict else tuple.__iter__(v))
            alike = len(now) == len(items) and all(map(same, now, items))
            return None if alike else "has other items"
        case "keys", [keys]:
            return None if tuple(v) == keys else "has other keys"
        case "part", [name, wanted]:
            return None if same(getattr(v, name), wanted) else f"has another {name}"
    return f"is compared in an unknown way ({kind})"


def _equal_methods(a: Any, b: Any) -> bool:
    """Bound methods are made anew for each who asks."""
    return type(a) is type(b) is types.MethodType and a == b


__all__ = ["Mismatch", "Obj", "Places", "Rows", "Unable", "find", "picture", "stand_in"]
