"""Operations at whose names the program has put something else (`F.relu = mine`).

torch tells a mode of an operation by what it finds at the operation's name, not by what was called:
where a program wraps a function of torch's and calls the former one, the mode is told of the
wrapper.  Owns finding out that there is one.  Does not own what follows: no call is watched then
(magpy/capture/session.py), and one that puts something there is refused where it does so
(`refuse_replaced` in csrc/interp/session_state.cpp).

Source: torch/csrc/utils/python_arg_parser.cpp (`handle_torch_function`) and torch/overrides.py.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from magpy import _interp
from magpy.objects.types import isinstance

_OF_C = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
)
_FILES = torch.__file__.removesuffix("__init__.py")
_C_MODULES = [
    getattr(torch._C, name)
    for name in ("_nn", "_fft", "_linalg", "_nested", "_sparse", "_special")
    if hasattr(torch._C, name)
]
_HOMES: tuple[Any, ...] = (torch.nn.functional, torch.functional, torch.Tensor, *_C_MODULES)
#: What torch has put at the names in each home; methods of C may be hidden, too.
_KNOWN = [dict(vars(home)) for home in _HOMES]
_KNOWN[_HOMES.index(torch.Tensor)] |= {**vars(torch._C.TensorBase), **vars(torch.Tensor)}


def _of_torch(v: Any) -> bool:
    """Whether it is what torch itself puts at a name: no callable of the program's."""
    if isinstance(v, types.FunctionType):
        return v.__code__.co_filename.startswith(_FILES)
    module = str(type(v).__module__).partition(".")[0]
    return isinstance(v, (*_OF_C, type)) or module in ("builtins", "torch", "types", "typing")


_BEFORE = next(
    (
        f"{home.__name__}.{name}"
        for home, known in zip(_HOMES, _KNOWN, strict=True)
        for name, v in known.items()
        if name[:2] != "__" and not _of_torch(v)
    ),
    "",
)


def homes() -> list[Any]:
    """The classes, and the dicts of the modules, by whose names torch tells of operations."""
    return [home if isinstance(home, type) else vars(home) for home in _HOMES]


def replaced() -> str:
    """A name at which something of the program's stands, by which torch tells of operations."""
    for home, known in zip(_HOMES, _KNOWN, strict=True):
        now = vars(home)
        for name, v in known.items():
            if now.get(name, v) is not v:
                return f"{home.__name__}.{name}"
    return _BEFORE


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def is_hidden(func: Any, args: Any) -> bool:
    """Whether the tensor of which a method is called may have another one at its name.

    Its class may override it, and call torch's; so may an attribute of the tensor itself.
    """
    if not args or not isinstance(args[0], torch.Tensor):
        return False
    own = _interp.own_dict(args[0])
    return type(args[0]) not in _PLAIN or (own is not None and getattr(func, "__name__", "") in own)


__all__ = ["homes", "is_hidden", "replaced"]
