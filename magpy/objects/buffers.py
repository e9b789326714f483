"""Memory that tensors share with arrays and with other buffers of Python (PEP 3118).

Owns telling which addresses an object's data has, and what an array holds.  Does not own which
objects are read or written (magpy/capture/session.py, magpy/capture/tensors/recorder.py).  Called
by these, and by the guards of arrays (magpy/guards/analysis.py).
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch

from magpy.objects.types import isinstance

# From the first byte to behind the last.
Range = tuple[int, int]


_ctypes: Any = vars(np.ndarray)["ctypes"]


def is_dense(tensor: Any) -> bool:
    """Whether a tensor fills the memory that it spans, each element once."""
    size = 1
    for stride, n in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if n > 1 and stride != size:
            return False
        size *= n
    return size > 0


def address_of(array: Any) -> int:
    """Where an array begins.

    `__array_interface__` would warn of arrays that `np.broadcast_arrays` made, as if the program
    asked to write to them.
    """
    return int(_ctypes.__get__(array).data)


def is_writeable(array: Any) -> bool:
    """Whether an array may be written to; `flags.writeable` would warn likewise."""
    return bool(array.flags.num & 0x0400)  # NPY_ARRAY_WRITEABLE


def of_buffer(obj: Any) -> Range | None:
    """The addresses of an array's or another buffer's bytes; None for an object that is none."""
    if not isinstance(obj, np.ndarray):
        try:
            obj = np.frombuffer(obj, np.uint8)
        except (TypeError, ValueError, BufferError):
            return None
    low = high = address_of(obj)
    for size, stride in zip(obj.shape, obj.strides, strict=True):
        if size == 0:
            return None
        step = (size - 1) * stride
        low, high = min(low, low + step), max(high, high + step)
    return low, high + obj.itemsize


def owner_of(buffer: Any) -> Any:
    """What the memory of an array or of a view belongs to, as far as Python can tell."""
    while True:
        base = buffer.base if isinstance(buffer, np.ndarray) else getattr(buffer, "obj", None)
        if base is None or not isinstance(buffer, (np.ndarray, memoryview)):
            return buffer
        buffer = base


def as_it_lies(array: Any) -> Any:
    """A copy of an array of the same strides, which numpy itself makes denser where it can."""
    copy = array.copy("K")
    place = of_buffer(array)
    if copy.strides == array.strides or array.dtype.hasobject or place is None:
        return copy
    low, high = place
    held = np.frombuffer(ctypes.string_at(low, high - low), np.uint8).copy()
    start = address_of(array) - low
    return np.ndarray(array.shape, array.dtype, held, start, array.strides)


def layout_of(array: Any) -> tuple[Any, ...]:
    """What an array is like, whatever it holds; what a subclass overrides is not asked."""
    plain = np.asarray(array)
    return plain.dtype, plain.shape, plain.strides, is_writeable(plain)


def dense_form_of(array: Any) -> tuple[Any, ...]:
    """What an array is like, of whatever sizes, that lies without gaps in the order of C."""
    return array.dtype, array.ndim, array.flags.c_contiguous, is_writeable(array)


def form_of(array: Any) -> tuple[Any, ...]:
    """All that an array holds, as values."""
    plain = np.asarray(array)
    held = _Held(plain.flat) if plain.dtype.hasobject else None
    return *layout_of(array), plain.tobytes(), held


class _Held:
    """Keeps alive the objects in an array, whose addresses its bytes are; equal to any other."""

    def __init__(self, objects: Any) -> None:
        self.objects = tuple(objects)

    def __eq__(self, other: object) -> bool:
        return type(other) is _Held

    __hash__ = None  # type: ignore[assignment]


def of_tensor(tensor: torch.Tensor) -> Range | None:
    """The addresses of a tensor's storage, if the interpreter can reach them."""
    with torch._C.DisableTorchFunction():  # neither a subclass nor a mode hears of it
        if tensor.device.type != "cpu":
            return None
        try:
            storage = tensor.untyped_storage()
            start = storage.data_ptr()
        except (RuntimeError, NotImplementedError):
            return None  # sparse tensors and others without one storage
        return start, start + storage.nbytes()


def meet(a: Range | None, b: Range | None) -> bool:
    """Whether two ranges have a byte in common."""
    return a is not None and b is not None and a[0] < b[1] and b[0] < a[1]
