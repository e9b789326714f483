"""Are two worlds the same?  Walks eager's objects and the compiled program's side by side.

Owns: equality of values, types, structure, tensor metadata and aliasing between two object graphs
that should be copies of each other; equality of random number generators' states.  Does not own:
what is compared when (`protocol`, `mutate`).  Pure: changes neither graph.
"""

from __future__ import annotations

import collections
import enum
import functools
import math
import random
import types
import unittest.mock
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from parity_tests.standins import StandIn, StandInUsed

#: Attributes that compilers may leave on a module and that no program reads.
COMPILER_ATTRIBUTES = (
    "_magpy",
    "_dynamo",
    "_torchdynamo",
    "_compiled_call_impl",
    "_is_torch_compile",
)

_PLAIN = (
    bool,
    int,
    str,
    bytes,
    type(None),
    enum.Enum,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    range,
    slice,
    type(...),
    type(NotImplemented),
    torch.Size,
)
_BY_IDENTITY = (
    types.ModuleType,
    type,
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
)
_BY_TYPE = (unittest.mock.NonCallableMock, types.GeneratorType, types.CodeType, types.FrameType)


@dataclass(frozen=True)
class Rules:
    """How strict a comparison is.

    Attributes:
        atol, rtol: for floating point tensors; both 0 means bit for bit (NaN equals NaN).
        layout: strides and `requires_grad` count as well.
        unit_strides: so do the strides of dimensions of size 1, which lead nowhere and which
            compilers choose for themselves (docs/semantics.md).
        types: containers' types count as well (TorchScript returns a list for some tuples).
        aliasing: what was one object must be one object, and what was two must be two.
    """

    atol: float = 0.0
    rtol: float = 0.0
    layout: bool = True
    unit_strides: bool = True
    types: bool = True
    aliasing: bool = True


EXACT = Rules()


class Different(Exception):
    """Where two worlds differ, in words."""


def difference(expected: Any, actual: Any, rules: Rules = EXACT) -> str | None:
    """The first difference between two object graphs, or None when there is none.

    Raises:
        StandInUsed: when eager's world holds a stand-in, so that equality would say nothing.
    """
    walk = _Walk(rules)
    walk.push(expected, actual, "")
    try:
        walk.run()
    except Different as found:
        return str(found)
    return None


def rng_state() -> dict[str, Any]:
    """The state of every random number generator that a program can draw from."""
    state = {
        "torch": torch.get_rng_state(),
        "random": repr(random.getstate()),  # hundreds of numbers: quicker compared as one text
        "numpy": np.random.get_state(),
    }
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state()
    return state


class _Walk:
    """One comparison: a work list, and which object of one world stands for which of the other."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.todo: list[tuple[Any, Any, str]] = []
        self.found: list[tuple[Any, Any, str]] = []
        self.partner: dict[int, int] = {}
        self.reverse: dict[int, int] = {}
        self.pairs: set[tuple[int, int]] = set()
        self.alive: list[Any] = []

    def push(self, a: Any, b: Any, path: str) -> None:
        self.found.append((a, b, path))

    def run(self) -> None:
        """Compare depth first, in the order in which objects hold their parts."""
        while self.found or self.todo:
            self.todo.extend(reversed(self.found))
            self.found.clear()
            self.one(*self.todo.pop())

    def one(self, a: Any, b: Any, path: str) -> None:
        """Compare one pair and push what it holds."""
        if isinstance(a, StandIn) or (isinstance(a, type) and issubclass(a, StandIn)):
            raise StandInUsed(f"{path or 'the result'} is a stand-in for a missing package")
        if not self._same_type(a, b):
            raise Different(f"{path or 'result'}: type {type(a).__name__}, got {type(b).__name__}")
        if isinstance(a, _PLAIN):
            if a != b:
                raise Different(f"{path or 'result'}: {_short(a)}, got {_short(b)}")
        elif isinstance(a, (float, complex, np.generic)):
            self._numbers(a, b, path)
        elif isinstance(a, torch.Tensor):
            if self._first_visit(a, b, path):
                self._tensors(a, b, path)
                self._attributes(a, b, path)
        elif isinstance(a, _BY_IDENTITY):
            if a is not b and getattr(a, "__qualname__", None) != getattr(b, "__qualname__", None):
                raise Different(f"{path}: {_short(a)}, got {_short(b)}")
        elif not isinstance(a, _BY_TYPE):
            self._objects(a, b, path)

    def _same_type(self, a: Any, b: Any) -> bool:
        if type(a) is type(b) or (
            isinstance(a, tuple) and isinstance(b, list) and not self.rules.types
        ):
            return True
        if not self.rules.types and isinstance(a, (tuple, list, dict)):
            return (
                isinstance(b, (tuple, list))
                if isinstance(a, (tuple, list))
                else isinstance(b, dict)
            )
        return (
            type(a).__qualname__ == type(b).__qualname__
            and type(a).__module__ == type(b).__module__
        )

    def _first_visit(self, a: Any, b: Any, path: str) -> bool:
        """Note that `b` stands for `a`; False when that is known already."""
        known, back = self.partner.get(id(a)), self.reverse.get(id(b))
        if known is None and back is None:
            self.partner[id(a)], self.reverse[id(b)] = id(b), id(a)
            self.alive += (a, b)
            return True
        if known == id(b) and back == id(a):
            return False
        if self.rules.aliasing and not isinstance(
            a, (tuple, types.FunctionType, functools.partial)
        ):
            what = "is one object in two places" if known is not None else "is a separate object"
            raise Different(
                f"{path or 'result'}: {type(a).__name__} {what}, and is not in the compiled program"
            )
        return (id(a), id(b)) not in self.pairs and self._remember(a, b)

    def _remember(self, a: Any, b: Any) -> bool:
        self.pairs.add((id(a), id(b)))
        self.alive += (a, b)
        return True

    def _numbers(self, a: Any, b: Any, path: str) -> None:
        if a == b or (a != a and b != b):
            return
        close = self.rules.atol or self.rules.rtol
        real = isinstance(a, (float, np.floating))
        rules = self.rules
        if close and real and math.isclose(a, b, rel_tol=rules.rtol, abs_tol=rules.atol):
            return
        raise Different(f"{path or 'result'}: {_short(a)}, got {_short(b)}")

    def _tensors(self, a: torch.Tensor, b: torch.Tensor, path: str) -> None:
        where = path or "result"
        names = ["dtype", "shape", "device", "layout"]
        if self.rules.layout:
            names.append("requires_grad")
        for name in names:
            if getattr(a, name) != getattr(b, name):
                raise Different(f"{where}: {name} {getattr(a, name)}, got {getattr(b, name)}")
        if (
            self.rules.layout
            and a.layout == torch.strided
            and a.numel() > 1
            and any(
                x != y and (n != 1 or self.rules.unit_strides)
                for x, y, n in zip(a.stride(), b.stride(), a.shape, strict=True)
            )
        ):
            raise Different(f"{where}: stride {a.stride()}, got {b.stride()}")
        if a.grad is not None or b.grad is not None:
            self.push(a.grad, b.grad, f"{where}.grad")
        with torch.no_grad():
            if not _same_values(a, b, self.rules):
                raise Different(f"{where}: values differ{_largest(a, b)}")

    def _objects(self, a: Any, b: Any, path: str) -> None:
        if not self._first_visit(a, b, path):
            return
        if isinstance(a, np.ndarray):
            self._arrays(a, b, path)
        elif isinstance(a, dict):
            self._sequences(list(a), list(b), f"keys of {path or 'result'}")
            for key, other in zip(a, b, strict=True):
                self.push(a[key], b[other], f"{path}[{_short(key)}]")
        elif isinstance(a, (list, tuple, collections.deque)):
            self._sequences(list(a), list(b), path)
        elif isinstance(a, (set, frozenset)):
            if len(a) != len(b) or (all(isinstance(item, _PLAIN) for item in a) and a != b):
                raise Different(f"{path or 'result'}: {_short(a)}, got {_short(b)}")
        elif isinstance(a, types.FunctionType):
            self._functions(a, b, path)
        elif isinstance(a, types.MethodType):
            self.push(a.__func__, b.__func__, path)
            self.push(a.__self__, b.__self__, f"{path}.__self__")
        elif isinstance(a, functools.partial):
            self.push((a.func, a.args, a.keywords), (b.func, b.args, b.keywords), path)
        elif isinstance(a, types.CellType):
            self.push(_cell(a), _cell(b), path)
        elif isinstance(a, torch.Generator):
            self.push(a.get_state(), b.get_state(), path)
        self._attributes(a, b, path)

    def _arrays(self, a: Any, b: Any, path: str) -> None:
        if a.dtype != b.dtype or a.shape != b.shape:
            raise Different(f"{path or 'result'}: {a.dtype}{a.shape}, got {b.dtype}{b.shape}")
        if a.dtype == object:
            self._sequences(a.ravel().tolist(), b.ravel().tolist(), path)
        elif not np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"):
            close = a.dtype.kind in "fc" and np.allclose(
                a, b, self.rules.rtol, self.rules.atol, equal_nan=True
            )
            if not ((self.rules.atol or self.rules.rtol) and close):
                raise Different(f"{path or 'result'}: array values differ")

    def _sequences(self, a: list[Any], b: list[Any], path: str) -> None:
        if len(a) != len(b):
            raise Different(f"{path or 'result'}: {len(a)} items, got {len(b)}")
        for index, pair in enumerate(zip(a, b, strict=True)):
            self.push(*pair, f"{path}[{index}]")

    def _functions(self, a: Any, b: Any, path: str) -> None:
        if a.__qualname__ != b.__qualname__:
            raise Different(f"{path or 'result'}: {_short(a)}, got {_short(b)}")
        for name, x, y in zip(
            a.__code__.co_freevars, a.__closure__ or (), b.__closure__ or (), strict=False
        ):
            self.push(_cell(x), _cell(y), f"{path}.<{name}>")

    def _attributes(self, a: Any, b: Any, path: str) -> None:
        """Push what two objects' dictionaries and slots hold."""
        if isinstance(a, types.FunctionType):
            return
        mine, other = _state(a), _state(b)
        if list(mine) != list(other) and sorted(mine) != sorted(other):
            odd = sorted(set(mine) ^ set(other))
            raise Different(f"{path or type(a).__name__}: attributes {odd} are in one world only")
        for name, value in mine.items():
            if name.endswith(
                ("_hooks", "_hooks_with_kwargs", "_hooks_always_called")
            ) and isinstance(value, dict):
                self._sequences(list(value.values()), list(other[name].values()), f"{path}.{name}")
            else:
                self.push(value, other[name], f"{path}.{name}")


def _state(thing: Any) -> dict[str, Any]:
    try:
        state = dict(object.__getattribute__(thing, "__dict__"))
    except AttributeError:
        state = {}
    if not isinstance(thing, torch.Tensor):
        for cls in type(thing).__mro__:
            slots = cls.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if hasattr(thing, name) and name not in ("__dict__", "__weakref__"):
                    state[name] = getattr(thing, name)
    return {
        name: value
        for name, value in state.items()
        if not str(name).startswith(COMPILER_ATTRIBUTES)
    }


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return tensor.resolve_conj().resolve_neg()


def _same_values(a: torch.Tensor, b: torch.Tensor, rules: Rules) -> bool:
    if a is b or a.is_meta:
        return True
    a, b = _dense(a), _dense(b)
    floating = a.is_floating_point() or a.is_complex()
    if torch.equal(a, b):
        return True
    if not floating:
        return False
    if rules.atol or rules.rtol:
        return torch.allclose(a, b, rtol=rules.rtol, atol=rules.atol, equal_nan=True)
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _largest(a: torch.Tensor, b: torch.Tensor) -> str:
    """How far apart two tensors of one shape are, for the message."""
    a, b = _dense(a), _dense(b)
    if a.dtype == torch.bool or a.is_complex() or not a.numel():
        return ""
    return f" (largest difference {(a.double() - b.double()).abs().nan_to_num().max().item():.3g})"


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a program's own __repr__ may do anything
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 80 else text[:77] + "..."
