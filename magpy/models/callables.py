"""What builtins and C functions do, which no frame hook can look into.

Owns the verdict on every callable that is not a Python frame (`classify`) and on the few Python
functions that are called as a whole.  Does not own the tables that are read
(magpy/models/c_function_tables.py, magpy/models/torch_callables.py), what the session does with a
verdict (csrc/interp/session_events.cpp) nor how an effect is redone (magpy/replay).  Called by
the session, once per C function of the process.
"""

from __future__ import annotations

import bisect
import collections
import functools
import importlib
import logging
import operator
import os
import random
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from magpy import _interp
from magpy.models import torch_callables, torch_state
from magpy.models.c_function_tables import (
    AMBIENT,
    BY_HOME,
    BY_METHOD,
    COMPUTE_MODULES,
    COMPUTES,
    EFFECTS,
    NO_OWNERS,
    NOT_COMPUTING,
    VERDICTS,
    Effect,
    Leaf,
)
from magpy.models.torch_callables import Does
from magpy.objects.hashing import hashes_quietly
from magpy.objects.types import answers_itself, is_heap, isinstance, module_name

T = TypeVar("T")

# Functions of numbers, strings and arrays: their result follows from their arguments' values.
SCALAR_FUNCTIONS = frozenset(
    {float, int, complex, abs, round, min, max, sum, divmod, pow, str, repr, format, bool}
    | {bin, chr, hash, hex, oct, ord, bisect.bisect_left, bisect.bisect_right}
)


# Tensor methods whose number is one of many: the program may do arithmetic with it or pass it on.
NUMBER_METHODS = frozenset(["item", "data_ptr"])


_IN_PLACE = [
    getattr(operator, name)
    for name in (
        *("setitem", "delitem", "iadd", "iand", "iconcat", "ifloordiv", "ilshift", "imatmul"),
        *("imod", "imul", "ior", "ipow", "irshift", "isub", "itruediv", "ixor"),
    )
]


def is_in_place(f: Any) -> bool:
    """Whether a function of `operator` may change its first argument."""
    return any(f is other for other in _IN_PLACE)


def _calls_python(f: Any) -> bool:
    """Whether it is, or is a method of, a ufunc that calls a Python function (np.frompyfunc).

    Or an object of a Python class (np.vectorize), whose `__call__` is Python that is watched.
    """
    if isinstance(_interp.type_lookup(type(f), "__call__"), types.FunctionType):
        return True
    ufunc = f if isinstance(f, np.ufunc) else getattr(f, "__self__", None)
    return isinstance(ufunc, np.ufunc) and all(set(t) <= set("O->") for t in ufunc.types)


def scalar_function(f: Any) -> bool:
    """Whether a C function computes a value from values, so that it can be computed again."""
    if _calls_python(f):
        return False
    try:
        if f in SCALAR_FUNCTIONS:
            return True
    except TypeError:
        return False
    module = _module_of(f)
    if module in ("math", "cmath", "_operator", "operator") or _numpy_pure(module):
        return True
    owner = _owner_of(f)
    return owner is not None and (
        owner in (float, int, str, complex) or _numpy_pure(module_of_type(owner))
    )


def is_numpys(f: Any) -> bool:
    """Whether `f` is a function or method of numpy's, but for its random generators."""
    return _numpy_pure(_module_of(f)) and not _calls_python(f)


def numpy_function(f: Any) -> bool:
    """Whether `f` is a function or type of numpy, and no method of an array."""
    if _owner_of(f) is not None or _calls_python(f):
        return False
    return _numpy_pure(module_of_type(f) if isinstance(f, type) else _module_of(f))


# Python functions that are called as a whole: looking into them would meet locks, clocks and the
# interpreter's own tables.
_WHOLE_PYTHON: dict[types.CodeType, Effect] = {}


def _code_of(f: Any) -> types.CodeType | None:
    f = getattr(f, "__func__", f)
    return getattr(f, "__code__", None)


def register_python(f: Callable[..., Any], effect: Effect) -> None:
    """Makes calls of the Python function `f` go to the handler as a whole."""
    code = _code_of(f)
    if code is None:
        raise TypeError(f"{f!r} is not a Python function")
    register_code(code, effect)


def is_whole(code: types.CodeType) -> bool:
    """Whether calls of Python functions with this code are not looked into."""
    return code in _WHOLE_PYTHON


def register_code(code: types.CodeType, effect: Effect) -> None:
    """Makes calls of Python functions with this code go to the handler as a whole."""
    _WHOLE_PYTHON[code] = effect


for _name in ["debug", "info", "warning", "error", "exception", "critical", "log", "warn"]:
    register_python(getattr(logging.Logger, _name), Effect.EFFECT)
    if _name != "warn":
        register_python(getattr(logging, _name), Effect.EFFECT)
for _name in dir(random.Random):
    _f = getattr(random.Random, _name)
    if isinstance(_f, types.FunctionType) and not _name.startswith("_"):
        register_python(_f, Effect.RANDOM)
if isinstance(warnings.warn, types.FunctionType):
    register_python(warnings.warn, Effect.EFFECT)
for _name in ["exists", "lexists", "isfile", "isdir", "islink"]:
    # They look at one bit of what `stat` gives, which has times and counts, too.
    if isinstance(getattr(os.path, _name), types.FunctionType):
        register_python(getattr(os.path, _name), Effect.FILES)
if isinstance(os.path.join, types.FunctionType):
    register_python(os.path.join, Effect.PATH)
register_python(importlib._bootstrap._find_and_load_unlocked, Effect.IMPORT)  # type: ignore[attr-defined]


def python_leaves() -> dict[types.CodeType, Effect]:
    """The code objects of the Python functions that are called as a whole."""
    return _WHOLE_PYTHON


def module_of_type(t: type) -> str:
    """The module that a class names; a program may have put anything there."""
    module = t.__module__
    return module if isinstance(module, str) else ""


def _module_of(f: Any) -> str:
    module = getattr(f, "__module__", None)
    if module is None:
        owner = getattr(f, "__self__", None)
        if isinstance(owner, types.ModuleType):
            module = module_name(owner)
        elif owner is not None:
            module = (owner if isinstance(owner, type) else type(owner)).__module__
        else:
            module = type(f).__module__
    return module if isinstance(module, str) else ""


def _owner_of(f: Any) -> type | None:
    owner = getattr(f, "__objclass__", None)
    if owner is None:
        owner = getattr(f, "__self__", None)
        if owner is None or isinstance(owner, types.ModuleType):
            return None
        meta = type(owner)
        name = getattr(f, "__name__", "")
        of_meta = isinstance(owner, type) and _interp.type_lookup(owner, name) is _interp.ABSENT
        if not isinstance(owner, type) or (of_meta and issubclass(meta, type)):
            owner = meta  # `C.mro` is a method of `type`, `C.fromkeys` one of `C`
    return owner if isinstance(owner, type) else None


_IO_METHODS = frozenset(["write", "writelines", "flush"])
_COMPILED = (_interp.Compiled, _interp.ModuleCall)
_DESCRIPTORS = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
)


def classify(f: Any) -> Leaf:
    """The verdict on a callable that is not a Python function or method."""
    if isinstance(f, _COMPILED):
        # During a capture a compiled callable is what it wraps.
        return Leaf.FRAME
    verdict = _registered(VERDICTS, f)
    if verdict is not None:
        return verdict
    if _answers_anything(f):
        return Leaf.FRAME
    if effect_of(f) is not Effect.UNKNOWN:
        return Leaf.HANDLER
    name = getattr(f, "__name__", "")
    if name in NOT_COMPUTING and _keeps_or_reads(f):
        return Leaf.HANDLER
    if name in ("__instancecheck__", "__subclasscheck__") and isinstance(f, _DESCRIPTORS):
        return Leaf.PURE
    if isinstance(f, _DESCRIPTORS):
        verdict = _classify_method(f, name)
        if verdict is not None:
            return verdict
    if isinstance(f, type):
        return _classify_type(f)
    module = _module_of(f)
    root = module.partition(".")[0]
    if module.startswith("torch.nn.") and isinstance(type(f).__call__, _FRAMES):
        return Leaf.FRAME  # a module, of which Python is watched
    if root == "torch":
        return Leaf.TORCH  # what it does otherwise, `effect_of` knows
    if _computes(module) or name in COMPUTES.get(module, ()):
        return Leaf.TOUCH
    if not isinstance(f, _DESCRIPTORS) and type(f).__flags__ & (1 << 9):
        # An instance of a Python class: its __call__ is a frame, unless it was inherited from C.
        watched = isinstance(type(f).__call__, _FRAMES)
        return Leaf.FRAME if watched else _classify_call(f, module, root)
    return Leaf.HANDLER


_FRAMES = (types.FunctionType, _interp.ModuleCall)


def is_known(f: Any) -> bool:
    """Whether magpy follows what a callable that is no Python function does."""
    verdict = classify(f)
    if verdict is Leaf.HANDLER:
        return effect_of(f) not in (Effect.UNKNOWN, Effect.REFUSE)
    return verdict is not Leaf.FRAME


def _answers_anything(f: Any) -> bool:
    """Whether an object that is called, by a frame, is of a class that decides what it has.

    To ask it for an attribute would run the program's `__getattr__`.
    """
    t: Any = type(f)
    root, _, part = module_of_type(t).partition(".")
    # The proxies of torch.fx write down what they are asked for.
    if not t.__flags__ & (1 << 9) or (root == "torch" and part.partition(".")[0] != "fx"):
        return False
    return (
        answers_itself(t)
        and not isinstance(f, (type, *_DESCRIPTORS))
        and isinstance(t.__call__, _FRAMES)
    )


def _registered(table: dict[object, T], f: Any) -> T | None:
    """What a table says of a callable, of which no `__hash__` of the program hears."""
    if not hashes_quietly(f):
        return next((v for k, v in table.items() if k is f), None)
    try:
        return table.get(f)
    except TypeError:
        return None


def _keeps_or_reads(f: Any) -> bool:
    """Whether a function with a name of `NOT_COMPUTING` is one that is meant there."""
    owner = _owner_of(f)
    bound = owner is not None and not owner.__name__.startswith(NO_OWNERS)
    if owner is not None and bound:
        return any(c.__name__ in ("ndarray", "Future", "StorageBase") for c in owner.__mro__)
    root = (getattr(f, "__module__", None) or "").partition(".")[0]
    return root in ("", "_codecs", "codecs", "numpy", "torch", "builtins")


def _classify_method(f: Any, name: str) -> Leaf | None:
    """The verdict on a method by the class that defines it, if that decides."""
    owner = _owner_of(f)
    if owner is None:
        return None
    own = False  # a class on the way has a C method of its own, which may look at more
    for cls in owner.__mro__:
        verdict = BY_METHOD.get((cls, name))
        if verdict is not None and not (own and verdict is Leaf.PURE):
            return verdict
        own = own or (name in cls.__dict__ and not cls.__flags__ & (1 << 9))
    # A method that a Python class inherited from C is what the C class says.
    definer = _definer(owner, name)
    if _pure_type(definer) or name in COMPUTES.get(definer.__module__, ()):
        return Leaf.TOUCH
    if module_of_type(definer).partition(".")[0] == "torch":
        return Leaf.TORCH
    return None


def _classify_call(f: Any, module: str, root: str) -> Leaf:
    for cls in type(f).__mro__:
        owner_module = module_of_type(cls).partition(".")[0]
        if "__call__" in cls.__dict__ and not cls.__flags__ & (1 << 9):
            return Leaf.TORCH if owner_module == "torch" else Leaf.HANDLER
    return Leaf.TORCH if root == "torch" else Leaf.FRAME


def _numpy_pure(module: str) -> bool:
    return module.partition(".")[0] == "numpy" and not module.startswith("numpy.random")


def _pure_type(t: type) -> bool:
    return _computes(module_of_type(t))


def _computes(module: str) -> bool:
    return (
        module in COMPUTE_MODULES
        or module.partition(".")[0] in COMPUTE_MODULES
        or _numpy_pure(module)
    )


def _classify_type(t: type) -> Leaf:
    if t.__flags__ & (1 << 9):
        # A Python class with a C constructor somewhere in its bases.
        root = module_of_type(t).partition(".")[0]
        return (
            Leaf.TORCH
            if root == "torch" or any(module_of_type(c).startswith("torch") for c in t.__mro__)
            else Leaf.TOUCH
        )
    root = module_of_type(t).partition(".")[0]
    if root == "torch":
        return Leaf.TORCH
    return Leaf.TOUCH if _pure_type(t) else Leaf.HANDLER


def _unseen(owner: type, name: str) -> bool:
    """Whether a method of torch's changes something and no mode sees it."""
    return name == "set_" and any(c.__name__ == "TensorBase" for c in owner.__mro__)


def effect_of(f: Any) -> Effect:
    """How the handler treats `f`."""
    code = _code_of(f)
    if code is not None and code in _WHOLE_PYTHON:
        return _WHOLE_PYTHON[code]
    effect = _registered(EFFECTS, f)
    if effect is not None:
        return effect
    if isinstance(getattr(f, "__func__", None), functools._lru_cache_wrapper):
        return Effect.MEMO
    if torch_state.is_setting(f):
        return Effect.TORCH_STATE
    for cls, effect in _BY_TYPE:
        # A class that is called by a function of Python's may do otherwise, and that is watched.
        if isinstance(f, cls) and not isinstance(_interp.type_lookup(type(f), "__call__"), _FRAMES):
            return effect
    if any(
        c.__name__ in _SCRIPTED and module_of_type(c).startswith("torch") for c in type(f).__mro__
    ):
        return Effect.SCRIPT
    owner, name, module = _owner_of(f), getattr(f, "__name__", ""), _module_of(f)
    effect = Effect.UNKNOWN if owner is None else _effect_of_method(f, owner, name)
    if effect is not Effect.UNKNOWN:
        return effect
    if module.startswith("numpy.random"):
        return Effect.RANDOM
    if (home := _home_in_torch(f)) is not None:
        return _BY_TABLE.get(torch_callables.row(*home), Effect.UNKNOWN)
    # Types written in C may be heap types too: `decimal.Decimal` is one from 3.13 on.
    of_python = isinstance(f, type) and _interp.c_base(f) is not f
    return Effect.UNKNOWN if of_python or owner is not None else _by_home(module, name)


# How what the table of torch's callables says is treated; what has no row is refused. The rest are
# operations, or nothing that an entry must know of.
_BY_TABLE = {
    None: Effect.REFUSE,
    Does.REFUSED: Effect.REFUSE,
    Does.INSIDE: Effect.INSIDE,
    Does.COMMUNICATES: Effect.INSIDE,
    Does.ASKS: Effect.QUESTION,
    Does.ASKS_VALUE: Effect.QUESTION,
    Does.ACTS: Effect.EFFECT,
    Does.IN_ORDER: Effect.IN_ORDER,
}


def _home_in_torch(f: Any) -> tuple[str, str] | None:
    """Where a callable stands in the table of those that torch has written in C, if it is one."""
    base: type | None
    if isinstance(f, type):
        base = _interp.c_base(f)
        makes = "__init__" if torch_callables.is_pybind(base) else "__new__"
        if base is not f and isinstance(_interp.type_lookup(f, makes), _OF_PYTHON):
            return None  # its frame makes the object
    elif isinstance(f, (types.FunctionType, types.MethodType)):
        return None
    elif isinstance(f, _DESCRIPTORS):
        owner = _owner_of(f)
        base = owner if owner is None else _definer(owner, getattr(f, "__name__", ""))
    else:
        if isinstance(_interp.type_lookup(type(f), "__call__"), _FRAMES):
            return None
        base = _interp.c_base(type(f))
    module = _module_of(f) if base is None else module_of_type(base)
    if module == "pybind11_builtins":
        module = _module_of(f)  # of a function's record
    if module.partition(".")[0] != "torch" or (base is not None and is_python_class(base)):
        return None
    return torch_callables.home_of(f if not isinstance(f, type) else base)


def is_python_class(cls: type) -> bool:
    """Whether a class statement made a class."""
    return is_heap(cls) and _interp.c_base(cls) is not cls


_OF_PYTHON = (types.FunctionType, staticmethod, classmethod)


_BY_TYPE: tuple[tuple[type, Effect], ...] = (
    (functools._lru_cache_wrapper, Effect.MEMO),
    (functools.partial, Effect.PARTIAL),
    (weakref.ref, Effect.WEAKREF),
    (operator.attrgetter, Effect.REFUSE),
    (operator.methodcaller, Effect.REFUSE),
)


# What TorchScript compiles to; by name, as the table needs no torch.
_SCRIPTED = frozenset(["ScriptFunction", "ScriptMethod", "ScriptModule"])


# What becomes of these is followed, or they have no state.
_FOLLOWED = (object, type, dict, list, set, bytearray, collections.OrderedDict)


def _effect_of_method(f: Any, owner: type, name: str) -> Effect:
    origin = module_of_type(owner)
    if name in ("format", "format_map") and issubclass(owner, str):
        return Effect.FORMAT
    if name in _IO_METHODS and module_of_type(_definer(owner, name) or owner) in ("_io", "io"):
        return Effect.EFFECT  # Python below it is heard of
    if _unseen(owner, name) or name == "__length_hint__":
        return Effect.REFUSE  # how much of an iterator is left is compared as far as it is used
    if origin in ("_random", "random") or origin.startswith("numpy.random"):
        return Effect.RANDOM
    if BY_METHOD.get((object, name)) is Leaf.HANDLER and isinstance(f, _DESCRIPTORS):
        return Effect.REDUCE
    if name in ("__init__", "__setstate__") and isinstance(f, _DESCRIPTORS):
        return Effect.UNKNOWN if _definer(owner, name) in _FOLLOWED else Effect.REMADE
    if name == "__subclasses__" and issubclass(owner, type):
        return Effect.REFUSE
    if name == "with_traceback" and issubclass(owner, BaseException):
        return Effect.REMADE
    if name in ("register_hook", "register_prehook") and hasattr(owner, "next_functions"):
        # They run later, in the engine's hands.
        return Effect.NODE_HOOK if name == "register_hook" else Effect.REFUSE
    if name == "apply" and any(c.__name__ == "_FunctionBase" for c in owner.__mro__):
        return Effect.WHOLE
    return _by_home(module_of_type(_definer(owner, name)), name)


def _by_home(home: str, name: str) -> Effect:
    """The effect of a C function by the module that it comes from."""
    for table, effect in BY_HOME:
        if name in table.get(home, ()):
            return effect
    return Effect.REFUSE if home in AMBIENT else Effect.UNKNOWN


def _definer(owner: type, name: str) -> type:
    """The C class of `owner`'s bases that has the method."""
    return next(
        (c for c in owner.__mro__ if name in c.__dict__ and not c.__flags__ & (1 << 9)), owner
    )


def unbound(f: Any) -> Any:
    """The function that takes the object to which a method is bound as its first argument."""
    if isinstance(f, types.MethodType):
        return f.__func__
    return getattr(_interp.c_base(type(f.__self__)), f.__name__)


def set_effect(f: Any, effect: Effect) -> None:
    """Registers a user's verdict on `f`."""
    VERDICTS.pop(f, None)
    EFFECTS[f] = effect


def set_pure(f: Any) -> None:
    """Registers `f` as pure."""
    EFFECTS.pop(f, None)
    VERDICTS[f] = Leaf.TOUCH


def forget(f: Any) -> None:
    """Takes back what a user registered about the C function `f`."""
    EFFECTS.pop(f, None)
    VERDICTS.pop(f, None)
    _interp.forget_leaves()


def name_of(f: Any) -> str:
    """What messages call a callable: "list.append", "_warnings.warn"."""
    owner = getattr(f, "__self__", None)
    bound = torch_callables.name_of(f)
    if bound is not None:
        return bound
    if owner is not None and not isinstance(owner, types.ModuleType):
        cls = owner if isinstance(owner, type) else type(owner)
        return f"{cls.__name__}.{getattr(f, '__name__', f)}"
    return str(getattr(f, "__qualname__", None) or getattr(f, "__name__", None) or f)
