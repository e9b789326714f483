"""Operations that the program's own classes take over with `__torch_function__`.

Owns telling which operations those are, and calling the methods as parts of the program, which the
probes watch.  Does not own the recording of the operations that these do in turn, for which torch
hands nothing over to classes.  Called by magpy/capture/tensors/recorder.py.
Source: https://docs.pytorch.org/docs/stable/notes/extending.html#extending-torch-python-api
"""

from __future__ import annotations

import warnings
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch

from magpy import _interp
from magpy.objects.jagged import NestedTensor
from magpy.objects.types import isinstance

torch.overrides.get_default_nowrap_functions()  # Tensor.__torch_function__ fills a cache with it

# Whose operations are torch's own: one that a jagged tensor takes over is one operation.
_QUIET: tuple[Any, ...] = (
    vars(NestedTensor)["__torch_function__"].__func__,
    vars(torch.Tensor)["__torch_function__"].__func__,
    torch._C._disabled_torch_function_impl,
)


def hears(cls: Any) -> bool:
    """Whether Python of the program runs when an operation is given an instance of a class."""
    method = getattr(cls, "__torch_function__", None)  # an instance may have one
    return getattr(method, "__func__", method) not in _QUIET


def by_class(cls: Any) -> bool:
    """Whether a class, and not each of its instances, has the method."""
    return not isinstance(getattr(cls, "__torch_function__", None), (FunctionType, property)) and (
        hasattr(cls, "__torch_function__")
    )


def dispatched(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """An operation on objects whose classes hear of it: what their methods do is the program's.

    Returns: its result, or NotImplemented if no method takes it.
    """
    given = (func, types, args) if kwargs is None else (func, types, args, kwargs)
    for t in types:
        owner = _first_of(t, (*args, *(kwargs or {}).values()))
        method = _interp.call(getattr, (t if owner is None else owner, "__torch_function__"), {})
        with mode:  # torch has put the mode aside
            result = _interp.watched(method, given, {})
        if result is not NotImplemented:
            return result
    return NotImplemented


def not_taken(func: Any, types: Any) -> TypeError:
    """What torch raises where no method takes an operation."""
    if isinstance(func, FunctionType):  # torch.overrides.handle_torch_function
        return TypeError(
            f"no implementation found for '{func.__module__}.{func.__name__}' on types that "
            f"implement __torch_function__: {list(types)}"
        )
    heard = "".join(f"  - tensor subclass {t!r}\n" for t in types)
    return TypeError(
        f"Multiple dispatch failed for '{_name(func)}'; all "
        f"__torch_function__ handlers returned NotImplemented:\n\n{heard}"
        "\nFor more information, try re-running with TORCH_LOGS=not_implemented"
    )


def _nothing() -> None:
    pass


def _name(func: Any) -> str:
    """What torch's bindings call a function of theirs."""
    if not isinstance(func, BuiltinFunctionType):
        mutated = warnings._filters_mutated  # type: ignore[attr-defined]
        # It sets filters for a while: warnings that were shown once would be shown again.
        warnings._filters_mutated = _nothing  # type: ignore[attr-defined]
        try:
            return str(torch.overrides.resolve_name(func))
        finally:
            warnings._filters_mutated = mutated  # type: ignore[attr-defined]
    owner = func.__self__
    module = owner.__name__.rpartition(".")[2].strip("_") if isinstance(owner, ModuleType) else ""
    return f"torch.{module}.{func.__name__}" if module else f"torch.{func.__name__}"


def _first_of(t: type, values: Any) -> Any:
    """The first object of this very type among arguments, or None."""
    for v in values:
        if type(v) is t:
            return v
        if isinstance(v, (tuple, list)):
            found = _first_of(t, v)
            if found is not None:
                return found
    return None
