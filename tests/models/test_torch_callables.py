"""Every function, method and class of torch that is written in C has a row in the table."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed.rpc
import torch.nn.attention

from magpy.models import torch_callables as table

# Descriptors of methods written in C, by hand and with pybind11.
_METHODS = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.WrapperDescriptorType,
)


def _modules(module: types.ModuleType, seen: set[str]) -> Iterator[types.ModuleType]:
    if module.__name__ in seen:
        return
    seen.add(module.__name__)
    yield module
    for value in list(vars(module).values()):
        if isinstance(value, types.ModuleType) and value.__name__.startswith("torch._C"):
            yield from _modules(value, seen)


def _written_in_c(cls: type) -> bool:
    return table.is_pybind(cls) or not cls.__flags__ & (1 << 9)


def _classes() -> Iterator[type]:
    seen: set[type] = set()
    for module in _modules(torch._C, set()):
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__.startswith("torch"):
                if value not in seen and _written_in_c(value):
                    seen.add(value)
                    yield value
    for cls in table.pybind_classes():
        if cls not in seen:
            seen.add(cls)
            yield cls


def _is_torchs(function: Any) -> bool:
    return (getattr(function, "__module__", None) or "").partition(".")[0] == "torch"


def _callables() -> Iterator[tuple[str, str]]:
    """The homes and names of all of them."""
    for module in _modules(torch._C, set()):
        for name, value in vars(module).items():
            if isinstance(value, types.BuiltinFunctionType):
                yield module.__name__, name
    for name in dir(torch._C._VariableFunctions):
        if isinstance(getattr(torch._C._VariableFunctions, name), types.BuiltinFunctionType):
            if not name.startswith("__") or name.strip("_") in ("and", "or", "xor"):
                yield "torch._C._VariableFunctionsClass", name
    # What Python gives away under other modules, some of it once a device has been started.
    for module in [m for name, m in list(sys.modules.items()) if name.startswith("torch.")]:
        for value in list(vars(module).values()):
            if isinstance(value, types.BuiltinFunctionType) and _is_torchs(value):
                yield table.home_of(value)
    for cls in _classes():
        home = table.home_of_class(cls)
        yield table.home_of(cls)
        for name, value in vars(cls).items():
            if isinstance(getattr(value, "__func__", value), _METHODS):
                yield home, name


def test_every_function_and_method_of_torch_has_a_row() -> None:
    found = sorted(set(_callables()))
    assert len(found) > 5000
    missing = [f"{home}: {name}" for home, name in found if table.row(home, name) is None]
    assert missing == []


def test_only_what_is_refused_has_a_row_for_many_names() -> None:
    wide = [
        (home, name)
        for home, rows in table.tables().items()
        for verdict, names in rows.items()
        for name in names
        if name.endswith("*") and verdict is not table.Does.REFUSED
    ]
    assert all(home in table.PLAIN_OBJECTS for home, _ in wide)


def test_no_name_has_two_rows() -> None:
    for home, rows in table.tables().items():
        names = [name for row in rows.values() for name in row]
        assert len(names) == len(set(names)), home
