"""What a user calls the objects that a guard looks at: `self.layers[3].weight`, `global MASK`.

Owns the paths to the objects and registers of a guard program, made of the program alone.  Does not
own what is said about them (magpy/guards/words.py), nor the checks (magpy/guards/analysis.py).
Called by magpy/guards/words.py.

No code of the user's classes runs: this is also asked in calls that no entry serves.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import torch

from magpy import _interp
from magpy.errors import an
from magpy.frames.locations import is_users_code
from magpy.guards.checks import c_leaf
from magpy.objects.types import isinstance, module_name

#: Dicts of a torch.nn.Module whose keys are read as its attributes.
MODULE_TABLES = ("_parameters", "_buffers", "_modules")
_LONGEST = 60

_qualname_of: Any = vars(type)["__qualname__"].__get__
_module_of: Any = vars(type)["__module__"].__get__
_dict_of: Any = vars(types.ModuleType)["__dict__"].__get__


class Program(NamedTuple):
    """A guard program: what `_interp.Guard` was made of, except for its number of registers."""

    npos: int
    kwnames: tuple[str, ...]
    checks: list[tuple[Any, ...]]
    anchors: dict[str, Any]


class _Keys(NamedTuple):
    """How a key of a dict is read.

    Attributes:
        base: the path of what the dict belongs to.
        attributes: keys are attributes of `base`; else items of it.
        module: `base` is a torch.nn.Module.
    """

    base: str
    attributes: bool = False
    module: bool = False


class Names:
    """The paths of the objects and registers of a guard program.

    Args:
        f: the callable whose calls are guarded.
        program: the guard program, which keeps the objects alive.
        given: the callable is another one in each call, and comes before its arguments.
    """

    def __init__(self, f: Any, program: Program, given: bool = False) -> None:
        """Finds all paths."""
        code, bound = _called(f)
        #: What the callable's own state is reached by.
        self.root = code.co_varnames[0] if code and bound and code.co_argcount else "self"
        self.arguments = _arguments(code, bound, program, given)
        self._variables = code.co_freevars if code and given else ()
        if given:
            self.arguments.insert(0, f.__name__ if self._variables else self.root)
        #: The package of the callable, whose functions and classes are the user's own.
        self.package = _root_module(f).partition(".")[0]
        #: The modules of the user's functions, and the variables in their closures.
        self.modules: set[str] = set()
        self.variables: set[str] = set()
        self._objects: dict[int, str] = {}
        self._keys: dict[int, _Keys] = {}
        self._register_keys: dict[int, _Keys] = {}
        self._edges: dict[int, list[tuple[str, Any, Any]]] = collections.defaultdict(list)
        self._queue: collections.deque[tuple[Any, str]] = collections.deque()
        self._read_anchors(program.anchors)
        for check in program.checks:
            # An argument that is the same object in every call: `self` of a region.
            if check[0] == "is" and isinstance(check[1], int) and check[1] < len(self.arguments):
                self._name(check[2], self.arguments[check[1]])
        self._walk(f, program.anchors)
        self._edges.clear()
        self.registers = dict(enumerate(self.arguments))
        for check in program.checks:
            self._load(check)

    # ------------------------------------------------------------- what is asked

    def of(self, obj: Any) -> str:
        """The path of an object, or what it is if none leads to it."""
        return self._objects.get(id(obj)) or thing(obj)

    def operand(self, operand: Any) -> str:
        """The path of what a check looks at: a register, or `("a", object)`."""
        if isinstance(operand, int):
            return self.registers.get(operand, "a value")
        return self.of(operand[1])

    def key(self, holder: Any, key: Any) -> str:
        """The path of what is under a key of a dict."""
        return _at_key(self._keys.get(id(holder)) or _Keys(self.of(holder)), key)

    def operand_key(self, operand: Any, key: Any) -> str:
        """The path of what is under a key of a dict that a check looks at."""
        if isinstance(operand, int):
            return _at_key(self._register_keys.get(operand) or _Keys(self.operand(operand)), key)
        return self.key(operand[1], key)

    # ------------------------------------------------------------- objects

    def _read_anchors(self, anchors: dict[str, Any]) -> None:
        edges = self._edges
        for obj, d in anchors.get("inst_dicts", ()):
            edges[id(obj)].append(("dict", None, d))
        for d, items in anchors.get("dicts", ()):
            edges[id(d)] += [("key", key, value) for key, value, _ in items]
        for holder, items in anchors.get("lists", ()):
            edges[id(holder)] += [("item", i, v) for i, v in enumerate(items)]
        for cell, value, _ in anchors.get("cells", ()):
            edges[id(cell)].append(("content", None, value))
        for obj, name, value, _ in anchors.get("attrs", ()):
            edges[id(obj)].append(("attr", name, value))

    def _walk(self, f: Any, anchors: dict[str, Any]) -> None:
        """Gives each object the shortest path from the callable, its globals and its closure."""
        functions = [f.__func__ if isinstance(f, types.MethodType) else f]
        functions += [record[0] for record in anchors.get("funcs", ())]
        first = f.__self__ if isinstance(f, types.MethodType) else f
        if not isinstance(first, types.FunctionType):
            self._name(first, self.root)
        own = _root_module(f)
        for function in functions:
            if isinstance(function, types.FunctionType):
                self._name_function(function, own)
        while self._queue:
            self._expand(*self._queue.popleft())

    def _name_function(self, function: types.FunctionType, own: str) -> None:
        """Names the globals of a function, and what else a user's function has."""
        name = str(function.__globals__.get("__name__"))
        builtins = cast(Any, function).__builtins__
        known = ((function.__globals__, name), (builtins, "builtins"))
        for d, base in known:
            keys = _Keys("global" if base == own else base, attributes=True)
            self._keys.setdefault(id(d), keys)
            self._queue.append((d, ""))
        code = function.__code__
        if not is_users_code(code, function.__globals__):
            return
        self.modules.add(name)
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            self.variables.add(variable)
            self._name(cell, variable)
        for variable, value in _defaults(function):
            self._name(value, f"the default of {variable}")

    def _name(self, v: Any, path: str) -> None:
        if id(v) in self._objects or v is _interp.ABSENT or c_leaf(v) or own_name(v) is not None:
            if isinstance(v, types.ModuleType) and id(_dict_of(v)) not in self._keys:
                self._keys[id(_dict_of(v))] = _Keys(module_name(v), attributes=True)
                self._queue.append((_dict_of(v), ""))
            return
        self._objects[id(v)] = path
        if isinstance(v, tuple):
            for i, x in enumerate(tuple.__iter__(v)):
                self._name(x, f"{path}[{i}]")
        elif isinstance(v, types.MethodType):
            self._name(v.__self__, f"{path}.__self__")
        self._queue.append((v, path))

    def _expand(self, holder: Any, path: str) -> None:
        for kind, key, value in self._edges.get(id(holder), ()):
            if kind == "dict":
                module = isinstance(holder, torch.nn.Module)
                self._keys[id(value)] = _Keys(path, attributes=True, module=module)
                self._name(value, f"{path}.__dict__")
            elif kind == "key":
                keys = self._keys.get(id(holder)) or _Keys(path)
                if keys.module and key in MODULE_TABLES:
                    self._keys.setdefault(id(value), _Keys(keys.base, attributes=True))
                self._name(value, _at_key(keys, key))
            elif kind == "item":
                self._name(value, f"{path}[{key}]")
            elif kind == "attr":
                self._name(value, f"{path}.{key}")
            else:
                self._name(value, path)

    # ------------------------------------------------------------- registers

    def _load(self, check: tuple[Any, ...]) -> None:
        """Names the registers that a check fills."""
        match check:
            case ("dict_get", dst, operand, key):
                self.registers[dst] = self.operand_key(operand, key)
                keys = self._register_keys.get(operand) if isinstance(operand, int) else None
                if keys is not None and keys.attributes and key in MODULE_TABLES:
                    self._register_keys[dst] = keys
            case ("inst_dict", dst, operand):
                self.registers[dst] = f"{self.operand(operand)}.__dict__"
                self._register_keys[dst] = _Keys(self.operand(operand), attributes=True)
            case ("attr", dst, operand, name):
                self.registers[dst] = f"{self.operand(operand)}.{name}"
            case ("item", dst, operand, i) if self._of_closure(operand, i):
                self.registers[dst] = self._variables[i]
            case ("item", dst, operand, i):
                self.registers[dst] = f"{self.operand(operand)}[{i}]"
            case ("item_at", dst, operand, place):
                self.registers[dst] = f"{self.operand(operand)}[{self.operand(place)}]"
            case ("deque", first, operand, n):
                for i in range(n):
                    self.registers[first + i] = f"{self.operand(operand)}[{i}]"
            case ("cell", dst, operand):
                self.registers[dst] = self.operand(operand)
            case ("method", func, owner, operand):
                self.registers[func] = f"{self.operand(operand)}.__func__"
                self.registers[owner] = f"{self.operand(operand)}.__self__"
            case ("gradient", dst, operand):
                self.registers[dst] = f"{self.operand(operand)}.grad"

    def _of_closure(self, operand: Any, i: int) -> bool:
        closure = f"{self.arguments[0]}.__closure__" if self._variables else None
        return self.operand(operand) == closure and i < len(self._variables)


def _called(f: Any) -> tuple[types.CodeType | None, int]:
    """The code that a call begins with, and how many of its first parameters are given already."""
    bound = 0
    if isinstance(f, functools.partial):
        f, bound = f.func, len(f.args)
    if isinstance(f, types.MethodType):
        f, bound = f.__func__, bound + 1
    elif not isinstance(f, (types.FunctionType, type)):
        name = "forward" if isinstance(f, torch.nn.Module) else "__call__"
        f, bound = _interp.type_lookup(type(f), name), bound + 1
    return (f.__code__, bound) if isinstance(f, types.FunctionType) else (None, 0)


def _arguments(code: types.CodeType | None, bound: int, program: Program, given: bool) -> list[str]:
    names = list(code.co_varnames[bound : code.co_argcount]) if code else []
    rest = "argument"
    if code and code.co_flags & 0x04:  # inspect.CO_VARARGS
        rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
    count = program.npos - given
    positional = [names[i] if i < len(names) else f"{rest}[{i - len(names)}]" for i in range(count)]
    return [*positional, *program.kwnames]


def _defaults(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code, values = function.__code__, function.__defaults__ or ()
    first = code.co_argcount - len(values)
    yield from zip(code.co_varnames[first : code.co_argcount], values, strict=False)
    yield from (function.__kwdefaults__ or {}).items()


def _root_module(f: Any) -> str:
    """The name of the module in which a callable, or the class of one, was defined."""
    if isinstance(f, types.MethodType):
        f = f.__func__
    if isinstance(f, types.FunctionType):
        return str(f.__globals__.get("__name__"))
    return module_of(f if isinstance(f, type) else type(f))


def _at_key(keys: _Keys, key: Any) -> str:
    if keys.base == "global":
        return f"global {key}"
    if keys.attributes and isinstance(key, str):
        return f"{keys.base}[{key}]" if key.isdigit() else f"{keys.base}.{key}"
    return f"{keys.base}[{value_text(key)}]"


def module_of(cls: type) -> str:
    """The name of the module in which a class says that it was defined."""
    name = _module_of(cls)
    return name if isinstance(name, str) else ""


def own_name(v: Any) -> str | None:
    """The name that a module, class or function has of itself; None for other objects."""
    if isinstance(v, types.ModuleType):
        return module_name(v)
    if isinstance(v, type):
        return f"{module_of(v)}.{_qualname_of(v)}"
    if isinstance(v, types.FunctionType):
        return f"{v.__globals__.get('__name__')}.{v.__qualname__}"
    if isinstance(v, types.BuiltinFunctionType):
        owner = v.__self__
        if isinstance(owner, types.ModuleType):
            return f"{module_name(owner)}.{v.__name__}"
        cls = owner if isinstance(owner, type) else type(owner)
        return f"{own_name(cls)}.{v.__name__}"
    if isinstance(v, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return f"{own_name(v.__objclass__)}.{v.__name__}"
    return None


def thing(v: Any) -> str:
    """What an object is, where no path leads to it: "a Linear", "a dict"."""
    name = own_name(v)
    return an(class_name(type(v))) if name is None else name.replace("<locals>.", "")


def class_name(cls: type) -> str:
    """The name of a class within its module."""
    return str(_qualname_of(cls)).replace("<locals>.", "")


def value_text(v: Any) -> str:
    """A value as the user would write it, shortened, or what it is."""
    if v is _interp.ABSENT:
        return "missing"
    if not c_leaf(v):
        return thing(v)
    text = repr(v)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


__all__ = ["Names", "Program", "class_name", "module_of", "own_name", "thing", "value_text"]
