"""Specs: how a value that a run left behind is made again.

Owns the walk from a live object to a tree of specs, at the moment when the object is as it must be
(the end of the run, or the moment of an effect).  Does not own the code made of the specs
(magpy/replay/object_code.py).  Called by magpy/capture/session.py.

A value is a constant, an outside object, a value of the graph, or an object that the program made.
The last is rebuilt from its class and state, as copy.copy does
(https://docs.python.org/3/library/copyreg.html), with sharing and cycles kept.
"""

from __future__ import annotations

import collections
import copyreg
import enum
import itertools
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch

from magpy import _interp
from magpy.errors import FILLED, Refusal, Site, an
from magpy.instrument.key_methods import refuse_if_it_shows
from magpy.ir.ops import Var
from magpy.ir.recipes import Const, New, Outside, Spec, Value
from magpy.models.callables import module_of_type
from magpy.objects import buffers, c_state
from magpy.objects.jagged import attributes, is_jagged
from magpy.objects.plain_values import PLAIN_TYPES
from magpy.objects.types import is_heap, isinstance

S = TypeVar("S", bound=Spec)

_CONST_TYPES = (*PLAIN_TYPES, range, type(NotImplemented), types.CodeType)
_HELD_TYPES = (
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    torch._C.Generator,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)
_REDUCIBLE = frozenset(
    [
        "builtins",
        "collections",
        "itertools",
        "functools",
        "datetime",
        "decimal",
        "fractions",
        "operator",
        "_io",
        "uuid",
        "numpy",
        "torch",
    ]
)


#: Ends of names: files, and views and iterators of dicts and sets, which `copy` makes lists of.
_NOT_MADE = (
    "IOWrapper",
    "_keys",
    "_values",
    "_items",
    "keyiterator",
    "valueiterator",
    "itemiterator",
    "set_iterator",
    "odict_iterator",
)


# Exceptions whose state is their arguments.
_PLAIN_ERRORS = frozenset(
    {
        BaseException,
        Exception,
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        LookupError,
        RuntimeError,
        NotImplementedError,
        AssertionError,
        ArithmeticError,
        ZeroDivisionError,
        OverflowError,
        FloatingPointError,
        RecursionError,
        Warning,
        UserWarning,
        DeprecationWarning,
        FutureWarning,
        RuntimeWarning,
    }
)


class Builder:
    """Makes specs of values.

    Args:
        is_outside: whether an object existed before the call.
        is_made: whether a function was made by the program.
        var_of: the variable of a tensor or host value, or None.
        is_shared: whether an array has memory of one that existed before the call.
    """

    def __init__(
        self,
        is_outside: Callable[[Any], bool],
        is_made: Callable[[Any], bool],
        var_of: Callable[[Any], Var | None],
        is_shared: Callable[[Any], bool],
    ) -> None:
        """Starts with an empty memo."""
        self._is_shared = is_shared
        self._is_outside = is_outside
        self._is_made = is_made
        self._var_of = var_of
        self._memo: dict[int, Spec] = {}
        self._pins: list[Any] = []
        #: Where objects were made that cannot be made again, with these, by their addresses.
        self.sites: dict[int, tuple[Any, list[Site]]] = {}
        # The memory of the buffers that are made anew, and of arrays that follow from data.
        self._places: list[buffers.Range | None] = []
        self._followed: list[buffers.Range | None] = []

    def build(self, v: Any) -> Spec:
        """The spec of `v`.

        Raises:
            Refusal: the value cannot be made again.
        """
        t = type(v)
        if t in _CONST_TYPES:
            if t in (int, float, complex, str, bytes):
                number = self._var_of(v)
                if number is not None:
                    return Value(number)
            return Const(v)
        spec = self._memo.get(id(v))
        if spec is not None:
            return spec
        if isinstance(v, BaseException) and not self._is_outside(v):
            if v.__traceback__ is not None or v.__context__ is not None or v.__cause__ is not None:
                raise Refusal("an exception is kept that was raised")
            return self._instance(v, t)
        var = self._var_of(v)
        if var is not None:
            if isinstance(v, torch.Tensor) and not self._is_outside(v) and attributes(v):
                if is_jagged(v):
                    raise Refusal("an attribute is set of a jagged tensor that is kept")
                # Attributes that the program gave to a tensor of the run.
                tensor = New("tensor", None, [Value(var)])
                self._remember(v, tensor)
                self._state(v, torch.Tensor, tensor)
                return tensor
            if isinstance(v, np.ndarray):
                self._apart(v, self._places, self._followed)
            spec = Value(var)
        elif self._is_outside(v):
            if isinstance(v, types.FunctionType) and v.__closure__:
                self._check_enclosed(v)
            spec = Outside(v)
        elif isinstance(v, (*_HELD_TYPES, enum.Enum)):
            if isinstance(v, types.BuiltinFunctionType) and not isinstance(
                v.__self__, (types.ModuleType, type, type(None))
            ):
                return self._remember(v, New("attr", v.__name__, [self.build(v.__self__)]))
            _check_held(v)
            return Const(v)
        else:
            return self._make(v, t)
        return self._remember(v, spec)

    def varies(self, v: Any) -> bool:
        """Whether a number or text is a value of the run that differs from call to call."""
        return self._var_of(v) is not None

    def knows(self, address: int) -> bool:
        """Whether an object is a part of what was built."""
        return address in self._memo

    def _remember(self, v: Any, spec: S) -> S:
        known = self._memo.get(id(v))
        if known is not None:
            return known  # type: ignore[return-value]  # a part of it holds it, and was first
        self._memo[id(v)] = spec
        self._pins.append(v)
        return spec

    def _make(self, v: Any, t: type) -> Spec:
        if isinstance(v, torch.Tensor):
            raise Refusal("a tensor is kept that no recorded operation made")
        if t is slice:
            return self._remember(
                v, New("call", slice, [self.build(v.start), self.build(v.stop), self.build(v.step)])
            )
        if isinstance(v, tuple):
            return self._tuple(v, t)
        if t is frozenset:
            return self._remember(
                v, New("call", frozenset, [self._list([self.build(x) for x in v])])
            )
        if isinstance(v, types.FunctionType):
            return self._function(v) if self._is_made(v) else Const(v)
        if t is types.MethodType:
            return self._remember(
                v, New("call", types.MethodType, [self.build(v.__func__), self.build(v.__self__)])
            )
        if t is types.CellType:
            return self._cell(v)
        if isinstance(v, (np.ndarray, np.generic)):
            return self._numpys(v, t)
        if t is super or t is weakref.ref:
            return self._stands_for(v, t)
        if is_heap(t) or t in (
            list,
            dict,
            set,
            collections.deque,
            bytearray,
            collections.OrderedDict,
            collections.defaultdict,
            types.SimpleNamespace,
        ):
            return self._instance(v, t)
        return self._reduced(v, t)

    def _stands_for(self, v: Any, t: type) -> Spec:
        """What passes on what is asked of it to another object, or leads to one."""
        if t is super:
            parts = [vars(super)[name].__get__(v) for name in ("__thisclass__", "__self__")]
        else:
            parts = [v()]
            if parts[0] is None or v.__callback__ is not None:
                # Most often a cache (`functools.singledispatch`), which is filled once.
                why = "a weak reference is kept that is dead or has a callback"
                raise Refusal(why, remedy=FILLED)
        return self._remember(v, New("call", t, [self.build(p) for p in parts]))

    @staticmethod
    def _list(parts: list[Spec]) -> Spec:
        return New("tuple", None, parts)

    def _tuple(self, v: Any, t: type) -> Spec:
        parts = [self.build(x) for x in tuple.__iter__(v)]
        if t is tuple:
            if all(isinstance(p, Const) for p in parts):
                return Const(v)
            return self._remember(v, New("tuple", None, parts))
        if t is torch.Size:
            if all(isinstance(p, Const) for p in parts):
                return Const(v)
            return self._remember(v, New("call", t, [New("tuple", None, parts)]))
        if not is_heap(t) or module_of_type(t).startswith("torch.return_types"):
            return self._remember(v, New("call", t, [New("tuple", None, parts)]))
        spec = New("tuple_subclass", t, parts)
        if self._remember(v, spec) is spec:
            self._state(v, t, spec)
        return self._memo[id(v)]

    def _function(self, v: types.FunctionType) -> Spec:
        spec = New(
            "function",
            (v.__code__, v.__globals__, v.__name__, v.__qualname__, v.__doc__, v.__module__),
        )
        self._remember(v, spec)
        spec.parts.append(
            New("tuple", None, [self.build(c) for c in v.__closure__])
            if v.__closure__
            else Const(None)
        )
        spec.fill.append(("__defaults__", self.build(v.__defaults__)))
        spec.fill.append(("__kwdefaults__", self.build(v.__kwdefaults__)))
        if v.__annotations__:
            spec.fill.append(("__annotations__", self.build(v.__annotations__)))
        for k, x in v.__dict__.items():
            spec.fill.append((k, self.build(x)))
        return spec

    def _check_enclosed(self, v: types.FunctionType) -> None:
        """Refuses a function made around one of the call's, by code that nobody watches.

        What a decorator of torch's gives (`torch.compiler.disable`) looks as if it had been there.
        """
        for cell in v.__closure__ or ():
            held = cell.cell_contents if cell != types.CellType() else None
            if isinstance(held, types.FunctionType) and self._is_made(held):
                name = held.__name__
                raise Refusal(
                    f"a function is kept that was made around {name}, which the call makes",
                    remedy="Make it outside of the compiled function",
                )

    def _cell(self, v: types.CellType) -> Spec:
        spec = New("cell", None)
        self._remember(v, spec)
        try:
            content = v.cell_contents
        except ValueError:
            return spec
        spec.fill.append(self.build(content))
        return spec

    def _instance(self, v: Any, t: type) -> Spec:
        new: Any = t.__new__
        maker = new.__self__ if isinstance(new, types.BuiltinFunctionType) else None
        if isinstance(maker, type) and is_heap(maker):
            # A class made in C, such as functools.partial: only it makes instances.
            return self._reduced(v, t)
        base: Any = next(c for c in t.__mro__ if not is_heap(c))
        if base is object or base is types.SimpleNamespace:
            spec = New("instance", t)
        elif base in (dict, collections.OrderedDict):
            spec = New("dict", (t, base))
        elif base is collections.defaultdict:
            spec = New("defaultdict", t)
            spec.parts.append(self.build(v.default_factory))
        elif base in (list, set, collections.deque, bytearray):
            spec = New(base.__name__, t)
            if base is collections.deque:
                spec.parts.append(Const(v.maxlen))
        elif issubclass(base, BaseException):
            if base not in _PLAIN_ERRORS:
                raise Refusal(f"{an(base.__name__)} is kept, which has state of its own")
            spec = New("exception", (t, base), [self.build(v.args)])
        else:
            return self._reduced(v, t)
        self._remember(v, spec)
        if isinstance(v, dict):
            items = base.items(v)
            refuse_if_it_shows(dict.keys(v))
            spec.fill.append(("items", [(self.build(k), self.build(x)) for k, x in items]))
        elif isinstance(v, (list, set, collections.deque)):
            if isinstance(v, set):
                refuse_if_it_shows(set.__iter__(v))
            spec.fill.append(("elements", [self.build(x) for x in base.__iter__(v)]))
        elif isinstance(v, bytearray):
            self._made_apart(v)
            spec.fill.append(("bytes", Const(bytes(v))))
        self._state(v, t, spec)
        return spec

    def _state(self, v: Any, t: type, spec: New) -> None:
        state = _interp.own_dict(v)
        if state is None:  # one of a class of its own
            state = getattr(v, "__dict__", None)
        if isinstance(state, dict):
            if type(state) is not dict or self.knows(id(state)) or self._is_outside(state):
                # One that the program has put there (`self.__dict__ = self`), or keeps beside it.
                spec.fill.append(("own_dict", self.build(state)))
            else:
                self._remember(state, New("attr", "__dict__", [spec]))
                if state:
                    spec.fill.append(("dict", [(k, self.build(x)) for k, x in state.items()]))
        # `copyreg` finds them, too, and leaves their names in the class.
        names = dict.fromkeys(name for name, _ in c_state.slots_of(v))
        slots = [(n, self.build(object.__getattribute__(v, n))) for n in names if _has_slot(v, n)]
        if slots:
            spec.fill.append(("slots", slots))

    def _of_its_own(self, v: Any) -> None:
        base = getattr(v, "base", None)
        # numpy leaves out the views between an array and what owns its memory.
        shared = base is not None and self._is_shared(v)
        while base is not None or shared:
            if shared or self._is_outside(base):
                raise Refusal("a numpy array is kept that shares memory with one from outside")
            base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)

    def _numpys(self, v: Any, t: type) -> Spec:
        if t.__module__ == "numpy":
            return self._array(v)
        if isinstance(v, np.ndarray):
            self._of_its_own(v)
            self._made_apart(v)
        return self._instance(v, t) if is_heap(t) else self._reduced(v, t)

    def _array(self, v: Any) -> Spec:
        self._of_its_own(v)
        if isinstance(v, np.generic):
            return self._remember(v, New("copy", v.copy("K")))
        owner = buffers.owner_of(v)
        if owner is not v and type(v) is type(owner) is np.ndarray:
            raise Refusal("a view of a numpy array is kept")
        if v.dtype.hasobject:
            raise Refusal("a numpy array of objects is kept")
        self._made_apart(v)
        copy = buffers.as_it_lies(v)
        copy.flags.writeable = buffers.is_writeable(v)
        return self._remember(v, New("array", copy))

    def _apart(
        self,
        buffer: Any,
        others: list[buffers.Range | None],
        own: list[buffers.Range | None],
    ) -> None:
        """Notes the memory of a buffer that is kept.

        Args:
            buffer: an array or a buffer.
            others: the memory of those with which it cannot share any in an entry.
            own: where its own is noted.

        Raises:
            Refusal: it does.
        """
        place = buffers.of_buffer(buffer)
        if any(buffers.meet(place, other) for other in others):
            raise Refusal("arrays or buffers of the call are kept that share memory")
        own.append(place)

    def _made_apart(self, buffer: Any) -> None:
        self._apart(buffer, [*self._places, *self._followed], self._places)

    def _reduced(self, v: Any, t: type) -> Spec:
        if isinstance(v, np.dtype) and c_state.is_numpys_own(v):
            return Const(v)  # pickling it makes another
        if module_of_type(t).partition(".")[0] not in _REDUCIBLE and not is_heap(t):
            refusal = Refusal(
                f"{an(t.__module__)}.{t.__name__} is kept, which magpy cannot make again"
            )
            refusal.frames = self.sites.get(id(v), (v, []))[1]
            raise refusal
        if t.__name__ in (
            "frame",
            "traceback",
            "generator",
            "coroutine",
            "async_generator",
            "Generator",
            "mappingproxy",
            "UntypedStorage",  # the memory of a tensor
            "TypedStorage",
        ) or t.__name__.endswith(_NOT_MADE):
            raise Refusal(f"{an(t.__name__)} is kept, which magpy cannot make again")
        try:
            cls: Any = t
            if cls.__reduce__ is frozenset.__reduce__ and cls.__reduce_ex__ is object.__reduce_ex__:
                # Its own way iterates as the program says.
                reduced: Any = t, (_VALUES[frozenset](v),), object.__getstate__(v)
            else:
                reduced = v.__reduce_ex__(4)
        except Exception as e:
            raise Refusal(
                f"{an(t.__module__)}.{t.__name__} is kept, which magpy cannot make again"
            ) from e
        if isinstance(reduced, str):
            if not _is_global(v, reduced):
                kind = an(t.__name__)
                raise Refusal(f"{kind} of the call is kept, which magpy cannot make again")
            return Const(v)
        make, args, state, items, pairs = (*reduced, None, None, None, None)[:5]
        if t is itertools.chain and state is None:
            raise Refusal("an itertools.chain is kept that is at its end")
        if make is copyreg.__newobj__ and not all(isinstance(a, type) for a in args[:1]):  # type: ignore[attr-defined]
            raise Refusal(f"{an(t.__name__)} is kept, which magpy cannot make again")
        base, own = _interp.c_base(t), isinstance(t.__new__, types.FunctionType)
        if own and base in _VALUES and make in (copyreg.__newobj__, t):  # type: ignore[attr-defined]
            # What the program does there is done already.
            make, args = base.__new__, (t, _VALUES[base](v))
        spec = New("reduce", make)
        self._remember(v, spec)
        spec.parts = [self.build(a) for a in args]
        spec.fill = [
            self.build(state) if state is not None else None,
            [self.build(x) for x in items] if items is not None else None,
            [(self.build(k), self.build(x)) for k, x in pairs] if pairs is not None else None,
        ]
        return spec


# How an object of a class derived from one of these gives an object of that one.
_VALUES: dict[type, Any] = {
    int: int.__pos__,
    float: float.__pos__,
    complex: complex.__pos__,
    str: str.__str__,
    bytes: lambda v: bytes.__getitem__(v, slice(None)),
    frozenset: lambda v: list(frozenset.__iter__(v)),
}


def _check_held(v: Any) -> None:
    """Refuses a random generator that the call makes.

    Raises:
        Refusal: it is one, which is another one in every call.
    """
    if isinstance(v, torch._C.Generator) and not any(v is g for g in _default_generators()):
        raise Refusal("a torch.Generator that the call makes is kept")


def _default_generators() -> tuple[Any, ...]:
    """Torch's own generators, of all devices that have some."""
    return torch.default_generator, *torch.cuda.default_generators


def _is_global(v: Any, name: str) -> bool:
    """Whether an object is found by its name in its module, as pickling has it."""
    found: Any = sys.modules.get(getattr(v, "__module__", None) or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is v


def _has_slot(v: Any, name: str) -> bool:
    try:
        object.__getattribute__(v, name)
    except AttributeError:
        return False
    return True


__all__ = ["Builder", "Const", "New", "Outside", "Spec", "Value"]
