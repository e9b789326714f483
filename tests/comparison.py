"""Exact comparison of everything a caller can see of two results.

Owns: what "equal to eager" means in tests: types, structure, sharing, tensor metadata and every
bit of the values. Does not own: the worlds that are compared; each test builds its own two.
"""

from __future__ import annotations

import dataclasses
import math
import types
from typing import Any

import numpy as np
import torch

ATOMS = (type(None), bool, int, str, bytes, type(...), range, slice, torch.dtype, torch.device)
SHARED = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.CodeType)


def difference(got: Any, want: Any, path: str = "result", tol: float = 0.0) -> str | None:
    """The first difference in words, or None."""
    return _difference(got, want, path, tol, {}, {})


def assert_same(got: Any, want: Any, path: str = "result", tol: float = 0.0) -> None:
    """Fails with the path to the first difference."""
    found = difference(got, want, path, tol)
    assert found is None, found


def _same_class(a, b):
    """One class, or the same local class made in two worlds."""
    return a is b or (a.__module__, a.__qualname__) == (b.__module__, b.__qualname__)


def _difference(got, want, path, tol, memo_got, memo_want):
    if not _same_class(type(got), type(want)):
        names = type(got).__name__, type(want).__name__
        return f"{path}: {names[0]} {got!r:.80} instead of {names[1]} {want!r:.80}"
    if isinstance(want, ATOMS):
        return None if got == want else f"{path}: {got!r:.200} instead of {want!r:.200}"
    if isinstance(want, SHARED):
        local = "<locals>" in getattr(want, "__qualname__", "")
        same = got is want or (local and got.__qualname__ == want.__qualname__)
        return None if same else f"{path}: {got!r:.200} instead of {want!r:.200}"
    if isinstance(want, (float, complex)):
        return _number(got, want, path, tol)
    if isinstance(want, (tuple, frozenset)):
        # Immutable: whether two equal ones are one object is the interpreter's choice.
        return _container(got, want, path, tol, memo_got, memo_want)
    # Sharing: an object met before must be met at the same place in both.
    seen_got, seen_want = memo_got.get(id(got)), memo_want.get(id(want))
    if seen_got != seen_want:
        return f"{path}: is {seen_got or 'a new object'} instead of {seen_want or 'a new object'}"
    if seen_want is not None:
        return None
    memo_got[id(got)] = memo_want[id(want)] = path
    if isinstance(want, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            return _tensor(got, want, path, tol)
    return _container(got, want, path, tol, memo_got, memo_want)


def _number(got, want, path, tol):
    if isinstance(want, complex):
        return None if got == want else f"{path}: {got} instead of {want}"
    if math.isnan(got) and math.isnan(want):
        return None
    if got == want and math.copysign(1, got) == math.copysign(1, want):
        return None
    if tol and abs(got - want) <= tol * max(1.0, abs(want)):
        return None
    return f"{path}: {got!r} instead of {want!r}"


def _tensor(got, want, path, tol):
    for name in ("dtype", "device", "shape", "layout", "requires_grad", "is_leaf"):
        a, b = getattr(got, name), getattr(want, name)
        if a != b:
            return f"{path}.{name}: {a} instead of {b}"
    if want.device.type == "meta":
        return None
    if want.layout == torch.strided and not tol and got.stride() != want.stride():
        return f"{path}.stride(): {got.stride()} instead of {want.stride()}"
    a, b = got.detach(), want.detach()
    if want.is_quantized:
        a, b = a.dequantize(), b.dequantize()
    if want.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if tol and (a.is_floating_point() or a.is_complex()):
        if torch.allclose(a, b, rtol=tol, atol=tol, equal_nan=True):
            return None
        return f"{path}: differs by up to {(a - b).abs().max().item():.3g}, tolerance {tol:.3g}"
    if torch.equal(a, b):
        return None
    if a.is_floating_point() or a.is_complex():
        if bool(((a == b) | (a.isnan() & b.isnan())).all()):
            return None
    return f"{path}: {int((a != b).sum())} of {b.numel()} elements differ"


def _container(got, want, path, tol, memo_got, memo_want):
    def walk(a, b, where):
        return _difference(a, b, where, tol, memo_got, memo_want)

    if isinstance(want, np.ndarray):
        if got.dtype == want.dtype and np.array_equal(got, want, equal_nan=want.dtype.kind in "fc"):
            return None
        return f"{path}: arrays differ"
    if isinstance(want, np.generic):
        equal = got == want or (got != got and want != want)
        return None if equal else f"{path}: {got} instead of {want}"
    if isinstance(want, BaseException):
        if str(got) != str(want):
            return f"{path}: message {str(got)!r} instead of {str(want)!r}"
        return None
    if isinstance(want, dict):
        if list(got) != list(want):
            return f"{path}: keys {list(got)} instead of {list(want)}"
        for key in want:
            found = walk(
                dict.__getitem__(got, key), dict.__getitem__(want, key), f"{path}[{key!r}]"
            )
            if found:
                return found
    elif isinstance(want, (set, frozenset)):
        if got != want:
            return f"{path}: {got} instead of {want}"
    elif isinstance(want, (list, tuple)) or type(want).__name__ in ("deque", "odict_values"):
        if len(got) != len(want):
            return f"{path}: length {len(got)} instead of {len(want)}"
        for i, (a, b) in enumerate(zip(got, want, strict=True)):
            found = walk(a, b, f"{path}[{i}]")
            if found:
                return found
    names = list(vars(want)) if hasattr(want, "__dict__") else []
    if dataclasses.is_dataclass(want):
        names += [f.name for f in dataclasses.fields(want) if f.name not in names]
    for name in names:
        if not hasattr(got, name):
            return f"{path}: has no attribute {name}"
        found = walk(getattr(got, name), getattr(want, name), f"{path}.{name}")
        if found:
            return found
    return None
