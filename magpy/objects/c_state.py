"""The state of objects written in C that no other guard covers, as their types themselves tell it.

Owns which types have such state (`stateful`) or a value that never changes (`settled`), and how it
is put into a form that can be compared (`picture`: what the C type's `__reduce_ex__` gives,
PEP 307).  Does not own containers, tensors, arrays and iterators, which have guards of their own.
Called by the session when C code looks into an outside object, and by the guards
(magpy/guards/analysis.py).
"""

from __future__ import annotations

import collections
import contextvars
import datetime
import decimal
import functools
import gc
import numbers
import operator
import re
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from magpy import _interp
from magpy.objects.plain_values import PLAIN_TYPES
from magpy.objects.types import is_heap, isinstance, module_name

# Types whose objects have no state that changes, or only state that is read through attributes.
# What comes from torch has its own rules.
_STATELESS = (
    object,
    int,
    float,
    complex,
    str,
    bytes,
    tuple,
    frozenset,
    range,
    slice,
    type,
    type(None),
    type(NotImplemented),
    type(...),
    property,
    staticmethod,
    classmethod,
    super,
    functools.partial,
    functools._lru_cache_wrapper,
    operator.attrgetter,
    operator.itemgetter,
    operator.methodcaller,
    re.Pattern,
    re.Match,
    weakref.ref,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.tzinfo,
    decimal.Decimal,
    types.BuiltinFunctionType,
    types.CodeType,
    types.FunctionType,
    types.GenericAlias,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.MethodType,
    types.MethodWrapperType,
    types.ModuleType,
    types.UnionType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    types.MappingProxyType,
)
# Containers: the session takes their content (csrc/interp).
_CONTAINERS = (dict, list, set, bytearray, collections.deque)
# Of the stateless ones, those whose content is guarded where it is read, and what is no value.
_FOLLOWED = (
    object,
    tuple,
    functools.partial,
    functools._lru_cache_wrapper,
    weakref.ref,
    types.MethodType,
    types.MappingProxyType,
    types.ModuleType,
    types.FunctionType,
    type,
)
# Likewise of torch and numpy.
_FOLLOWED_OF_LIBRARIES = (
    *(torch.Tensor, torch.Generator, np.ndarray, np.generic),
    *(np.random.Generator, np.random.RandomState, np.random.BitGenerator),
)
# What no guard but that on the object which holds it is needed for.
_PLAIN = (
    *(type, types.ModuleType, types.FunctionType, types.CodeType, types.BuiltinFunctionType),
    *(types.WrapperDescriptorType, types.MethodDescriptorType, datetime.timezone),
)
# A lock is taken and given back within a call.
_LOCKS = ("lock", "RLock")


def stateful(t: type) -> bool:
    """Whether objects of the type hold state in C that could change unseen."""
    return _stateful(_interp.c_base(t))  # no class of the program's is kept


@functools.lru_cache(maxsize=1024)
def _stateful(base: type) -> bool:
    if base in _STATELESS or base in _CONTAINERS or issubclass(base, numbers.Number):
        return False
    if issubclass(base, (torch._C.StorageBase, torch._C.ScriptList, torch._C.ScriptDict)):
        return True
    module = base.__module__
    # pybind11's function records stand behind torch's functions, and never change.
    if module.partition(".")[0] in ("torch", "numpy", "magpy", "pybind11_builtins"):
        return False
    return not (module == "_thread" and base.__name__ in _LOCKS)


def settled(t: type) -> bool:
    """Whether objects of the type hold a value in C that never changes, and that C code reads.

    Nobody hears of such a reading: an object of which not the identity is guarded must have the
    same value (`picture`) when an entry is used again.
    """
    return _settled(_interp.c_base(t))


@functools.lru_cache(maxsize=1024)
def _settled(base: type) -> bool:
    if base in _FOLLOWED or base in _CONTAINERS or _stateful(base):
        return False
    if base.__module__ == "_thread" or issubclass(base, types.SimpleNamespace):
        return False
    return not issubclass(base, _FOLLOWED_OF_LIBRARIES)


def held(obj: Any) -> list[Any]:
    """What an object of C whose own state never changes holds, as it is looked into from C.

    Neither plain values, classes, functions nor modules are told.
    """
    found: list[Any] = []
    todo = [obj]
    while todo:
        v = todo.pop()
        inner = gc.get_referents(v)
        if isinstance(v, (datetime.datetime, datetime.time)):
            inner.append(v.tzinfo)
        elif isinstance(v, weakref.ref):
            inner = [weakref.ref.__call__(v)]
        for x in inner:
            if x is v or isinstance(x, _PLAIN) or type(x) in PLAIN_TYPES:
                continue
            if type(x) in (tuple, slice, frozenset) or (type(x) is dict and not x):
                todo.append(x)
            else:
                found.append(x)
    return found


# Py_TPFLAGS_SEQUENCE and Py_TPFLAGS_MAPPING (PEP 634).
_MATCHED_AS = 1 << 5 | 1 << 6


def matched_as(cls: type) -> int:
    """Which patterns its objects match, as its bases and what registered it say."""
    flags: int = type.__dict__["__flags__"].__get__(cls)
    return flags & _MATCHED_AS


def can_be_called(holder: Any, name: str) -> bool | None:
    """Whether what a class, or an object itself, has under a name can be called; None: nothing."""
    if isinstance(holder, type):
        found: Any = _interp.type_lookup(holder, name)
    else:
        found = object.__getattribute__(holder, "__dict__").get(name, _interp.ABSENT)
    return None if found is _interp.ABSENT else callable(found)


def has_itself(cls: type, name: str) -> bool:
    """Whether a class has an attribute itself, and not from a base."""
    return name in type.__dict__["__dict__"].__get__(cls)


def has_dict(obj: Any) -> bool:
    """Whether an object has a dict; gives it none.

    Partials and exceptions tell (`partial_new` and `BaseException_reduce` in CPython).
    """
    if isinstance(obj, functools.partial):
        return functools.partial.__reduce__(obj)[2][3] is not None
    if isinstance(obj, BaseException):
        return len(BaseException.__reduce__(obj)) > 2
    return hasattr(obj, "__dict__")


def without_attributes(obj: Any) -> bool:
    """Whether nothing is in an object's dict, if it has one; gives it none."""
    return not _interp.own_dict(obj)


def is_numpys_own(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype is the one object that numpy has for its type (`np.dtype("f4")`).

    Copies, also those that `copy` and `pickle` make, are equal and not the same.
    """
    if dtype.isbuiltin not in (1, 2):
        return False
    return dtype is np.dtype(dtype.type if dtype.isbuiltin == 2 else dtype.char)


def picture(obj: Any) -> Any:
    """The state of an object in a form for `same`, or None if its type does not tell it.

    Calls `__reduce_ex__` of the C type; runs no code of Python classes.
    """
    base = _interp.c_base(type(obj))
    if base is super:
        return None  # it answers for the object that it stands for
    if issubclass(base, np.dtype) and is_numpys_own(obj):
        return None  # equal ones are other objects, as the program may ask
    for c in type(obj).__mro__:
        if c is base:
            break
        if not _TELLING.isdisjoint(c.__dict__):
            return None
    own = _interp.own_dict(obj)
    try:
        reduced = base.__reduce_ex__(obj, 4)  # type: ignore[call-arg]
    except Exception:  # noqa: BLE001 - whatever the type raises, it does not tell
        return None
    return _flat(reduced, own, 0)


_TELLING = frozenset(
    ["__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__", "__getnewargs_ex__"]
)


class _Object:
    """An object in a picture: the same one must be there."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any) -> None:
        self.obj = obj


def _flat(v: Any, skip: Any, depth: int) -> Any:
    if v is skip and v is not None:
        return None  # the instance dict is watched
    if type(v) in (tuple, list) and depth < _DEPTH:
        return [_flat(x, skip, depth + 1) for x in v]
    if type(v) is dict and depth < _DEPTH:
        return [_flat(x, skip, depth + 1) for item in v.items() for x in item]
    return _Object(v)


_DEPTH = 8


def same(a: Any, b: Any) -> bool:
    """Whether two pictures show the same state."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, _Object):
        return a.obj is b.obj or _interp.leaf_equal(a.obj, b.obj)
    return a is None


def unchanged(expected: Any) -> Callable[[Any], bool]:
    """A check that an object's state is what the picture shows."""
    return lambda obj: same(picture(obj), expected)


def outcome(f: Any, *args: Any) -> Any:
    """What a call gives, as a value that can be compared: a tuple's items, or what it raises."""
    try:
        return tuple(f(*args))
    except Exception as e:  # noqa: BLE001 - that it raises is what it gives
        return type(e).__qualname__, str(e)


def slots_of(obj: Any) -> Iterator[tuple[str, Any]]:
    """The slots that an object's classes give it, and what is in those that are not empty."""
    for c in type(obj).__mro__:
        for name, slot in list(vars(c).items()):
            if type(slot) is types.MemberDescriptorType and is_heap(c):
                try:
                    yield name, slot.__get__(obj)
                except AttributeError:
                    yield name, _interp.ABSENT
                except TypeError:
                    continue  # a slot of other objects, under a name of this class


def behind(proxy: types.MappingProxyType[Any, Any]) -> Any:
    """The dict that a mapping proxy shows."""
    return gc.get_referents(proxy)[0]


def _numpy_context() -> tuple[contextvars.ContextVar[Any], ...]:
    places = (
        ("numpy._core.umath", "_extobj_contextvar"),
        ("numpy._core.printoptions", "format_options"),
    )
    found = (getattr(sys.modules.get(module), name, None) for module, name in places)
    return tuple(v for v in found if isinstance(v, contextvars.ContextVar))


#: The context variables that numpy's C code and its printing look at (numpy 2).
NUMPY_CONTEXT = _numpy_context()


# The state of numpy that a context variable had last, and what it says: a state never changes,
# another one takes its place (`extobj.c` in numpy).
_ERRORS = NUMPY_CONTEXT[0] if NUMPY_CONTEXT and "extobj" in NUMPY_CONTEXT[0].name else None
_asked_last: tuple[Any, tuple[Any, ...]] = (None, ())


def numpy_errors() -> tuple[Any, ...]:
    """What numpy does where floating-point arithmetic fails, and its buffers (`numpy.seterr`)."""
    global _asked_last  # noqa: PLW0603 - put there at once, so that threads find what goes together
    state = None if _ERRORS is None else _ERRORS.get()
    known, found = _asked_last
    if state is not None and known is state:
        return found
    found = *np.geterr().values(), np.geterrcall(), np.getbufsize()
    if np.geterrcall() is None:  # what the program has put there is not kept alive
        _asked_last = state, found
    return found


def of_numpy(obj: Any) -> bool:
    """Whether a program that reaches an object may compute with numpy."""
    if isinstance(obj, types.ModuleType):
        return module_name(obj).partition(".")[0] == "numpy"
    return isinstance(obj, (np.ndarray, np.generic, np.ufunc)) or (
        isinstance(obj, type) and issubclass(obj, np.generic)
    )
