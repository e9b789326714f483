"""Operations at whose names the program has put something else (`F.relu = mine`).

torch tells a mode of an operation by what it finds at the operation's name, not by what was called:
where a program wraps a function of torch's and calls the former one, the mode is told of the
wrapper.  Owns finding what was called, and calling it where a compiler's modes are told.  Does not
own what becomes of the operation (magpy/capture/tensors/recorder.py, which asks for each), nor what
a graph finds at a name later (magpy/replay/fx_graphs.py, which asks, too).

Source: torch/csrc/utils/python_arg_parser.cpp (`handle_torch_function`) and torch/overrides.py.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

from magpy import _interp
from magpy.frames.locations import is_users_code
from magpy.models.callables import module_of_type
from magpy.objects.types import is_heap, isinstance

_METHODS: Any = vars(torch._C.TensorBase)
_MODULES = tuple(
    getattr(torch._C, name)
    for name in ("_nn", "_fft", "_linalg", "_nested", "_sparse", "_special")
    if hasattr(torch._C, name)
)
_OF_C = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
)


def _of_torch(v: Any) -> bool:
    """Whether it is what torch itself puts at a name: functions of C, or of Python in its files."""
    if isinstance(v, types.FunctionType):
        return v.__code__.co_filename.startswith(_FILES)
    return isinstance(v, (*_OF_C, type(None)))


_FILES = torch.__file__.removesuffix("__init__.py")
_METHODS_OF_TORCH = {n: v for n, v in vars(torch.Tensor).items() if n in _METHODS and _of_torch(v)}
_HOMES: tuple[Any, ...] = (torch.nn.functional, torch.functional, torch.Tensor)
_FUNCTIONS = [(m, _interp.functions_of(m)) for m in _MODULES]


def _replaced() -> Iterator[tuple[str, Any, Any]]:
    """What the program has put at names that torch looks up in C, and what was there."""
    for name, v in tuple(vars(torch.Tensor).items()):
        was = _METHODS.get(name)
        if was is not None and v is not was and v is not _METHODS_OF_TORCH.get(name):
            yield f"torch.Tensor.{name}", v, was
    for m, functions in _FUNCTIONS:
        now = vars(m)
        for name, was in functions.items():
            if not (isinstance(now.get(name), types.BuiltinFunctionType) and now[name] == was):
                yield f"{m.__name__}.{name}", now.get(name), was


def unclear() -> str | None:
    """Why nobody could tell which operation is meant; None if it is clear."""
    found: dict[int, Any] = {}
    for name, v, was in _replaced():
        gives = _interp.type_lookup(type(v), "__get__") is not _interp.ABSENT  # another object
        odd = gives and name.startswith("torch.Tensor.") and type(v) is not types.FunctionType
        if odd or isinstance(v, _OF_C) or found.setdefault(id(v), was) is not was:
            return f"{name} has been replaced, and it is not clear by what the former one is called"
    return None


def called(func: Any, caller: types.FrameType | None) -> Any:
    """The operation that was called where torch tells of `func`.

    Args:
        func: what torch has found at the operation's name.
        caller: the frame that tells of it.
    """
    if caller is not None and caller.f_globals is _overrides and _tells(caller):
        teller = _interp.function_of(caller.f_back) if caller.f_back is not None else None
        if teller is None or teller is func:
            return func
        return teller if _of_torch(teller) and is_replaced(teller) else func
    if type(func) in _OF_C:
        return func
    holder = getattr(func, "__self__", None) if type(func) is types.MethodWrapperType else None
    for _, v, was in _replaced():
        if v is func:
            return was
        if v is holder is not None:
            return getattr(was, func.__name__)
    return func


def _of_program(v: Any) -> bool:
    """Whether it is a callable of the program's, among the names that torch's functions use."""
    while isinstance(v, (staticmethod, classmethod, types.MethodType)):
        v = v.__func__
    while isinstance(v, types.FunctionType):
        if is_users_code(v.__code__, v.__globals__):
            return True
        v = vars(v).get("__wrapped__")  # by a decorator of torch's
    if isinstance(v, functools.partial):
        return True
    cls = v if isinstance(v, type) else type(v)
    callable_ = cls is v or _interp.type_lookup(cls, "__call__") is not _interp.ABSENT
    root = module_of_type(cls).partition(".")[0]
    return is_heap(cls) and callable_ and root != "torch" and root not in sys.stdlib_module_names


def is_replaced(func: Any) -> bool:
    """Whether another object stands at the name by which torch tells of a function of its own."""
    name = getattr(func, "__name__", "")
    if isinstance(func, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return name in _METHODS and _interp.type_lookup(torch.Tensor, name) is not func
    if isinstance(func, types.BuiltinFunctionType):
        home = func.__self__
        now = vars(home).get(name, func) if isinstance(home, types.ModuleType) else func
        return not (isinstance(now, types.BuiltinFunctionType) and now == func)
    if not isinstance(func, types.FunctionType) or not _of_torch(func):
        return False
    if func.__qualname__.startswith("Tensor."):
        return vars(torch.Tensor).get(name) is not func
    names = func.__globals__
    return (func.__qualname__ == name and names.get(name, func) is not func) or any(
        _of_program(names.get(n)) for n in func.__code__.co_names
    )


def any_replaced() -> bool:
    """Whether something of the program's stands at names by which torch tells of operations."""
    return next(_replaced(), None) is not None or any(
        _of_program(v) for home in _HOMES for v in tuple(vars(home).values())
    )


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def is_hidden(func: Any, args: Any) -> bool:
    """Whether the tensor of which a method is called may have another one at its name.

    Its class may override it, and call torch's; so may an attribute of the tensor itself.
    """
    if not args or not isinstance(args[0], torch.Tensor):
        return False
    own = _interp.own_dict(args[0])
    return type(args[0]) not in _PLAIN or (own is not None and getattr(func, "__name__", "") in own)


def as_itself(func: Any) -> Any:
    """The function as a graph calls it.

    A compiler's modes are told of it, and call it, by its name; not where another stands there.
    """
    if not is_replaced(func):
        return func

    def call(*args: Any, **kwargs: Any) -> Any:
        depth = torch._C._len_torch_function_stack()
        mode = torch._C._get_function_stack_at(depth - 1) if depth else None
        if not type(mode).__module__.startswith("torch.fx."):
            return func(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            return func(*args, **kwargs)

    call.__name__ = func.__name__
    call.__module__ = __name__
    return call


_overrides = vars(torch.overrides)


def _tells(frame: types.FrameType) -> bool:
    return frame.f_code.co_name == "handle_torch_function"


__all__ = ["any_replaced", "as_itself", "called", "is_hidden", "unclear"]
