"""What mock code calls: small helpers that would be unreadable inline.

Owns nothing but these functions.  Called only by generated code (magpy/mock/codegen.py).
"""

from __future__ import annotations

import collections
import contextlib
import math
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from magpy import _interp
from magpy.capture.recorder import tensor_meta
from magpy.capture.steps import TorchModes


def same_leaf(a: Any, b: Any) -> bool:
    """Same type and same value; nan equals nan, 0.0 is not -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    if isinstance(a, complex):
        return same_leaf(a.real, b.real) and same_leaf(a.imag, b.imag)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same_leaf, a, b))
    return bool(a == b)


def same_array(a: Any, b: Any) -> bool:
    """Same numpy type, dtype, shape and bytes."""
    return type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def same_meta(result: Any, expected: Any) -> bool:
    """The tensors of a result have the metadata that the captured ones had."""
    try:
        return bool(tensor_meta(result) == expected)
    except Exception:  # noqa: BLE001 - what cannot be described is not what was captured
        return False


def new_defaultdict(cls: type, factory: Any) -> Any:
    """An empty defaultdict of a class, without its constructor."""
    d = collections.defaultdict.__new__(cls)
    collections.defaultdict.__init__(d, factory)
    return d


def new_deque(cls: type, maxlen: int | None) -> Any:
    """An empty deque of a class, without its constructor."""
    d: Any = collections.deque.__new__(cls)
    collections.deque.__init__(d, (), maxlen)
    return d


def restore(obj: Any, state: Any, items: Any, pairs: Any) -> None:
    """The second half of unpickling (https://docs.python.org/3/library/pickle.html#object.__reduce__)."""
    if state is not None:
        setstate = getattr(obj, "__setstate__", None)
        if setstate is not None:
            setstate(state)
        else:
            slots = None
            if isinstance(state, tuple) and len(state) == 2:
                state, slots = state
            if state:
                obj.__dict__.update(state)
            for k, v in (slots or {}).items():
                setattr(obj, k, v)
    for x in items or ():
        obj.append(x)
    for k, v in pairs or ():
        obj[k] = v


_TEMPLATE = (lambda f, a, k: f(*a, **k)).__code__


def call_at(site: tuple[str, int, str, dict[str, Any]] | None) -> Callable[..., Any]:
    """A function `call(f, args, kwargs)` whose frame looks like the user's line.

    warnings and logging report the frame that called them.
    """
    if site is None:
        return lambda f, a, k: f(*a, **k)
    filename, line, name, global_vars = site
    code = _TEMPLATE.replace(co_filename=filename, co_firstlineno=line, co_name=name, co_qualname=name)
    table = bytes([0x80 | (13 << 3) | 7, 0])  # PEP 657 entry "no columns": every instruction on the first line
    units = len(_TEMPLATE.co_code) // 2
    lines = b""
    while units:
        n = min(units, 8)
        lines += bytes([0x80 | (13 << 3) | (n - 1), 0])
        units -= n
    return types.FunctionType(code.replace(co_linetable=lines or table), global_vars, name)


@contextlib.contextmanager
def modes_set(m: TorchModes) -> Iterator[None]:
    """Torch's modes for the duration of a host step."""
    with contextlib.ExitStack() as stack:
        if m.inference != torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(m.inference))
        for device, enabled, dtype in m.autocast:
            stack.enter_context(torch.autocast(device, enabled=enabled, dtype=dtype, cache_enabled=m.cache))
        stack.enter_context(torch.set_grad_enabled(m.grad))
        yield


def under(modes: TorchModes, func: Callable[..., Any]) -> Callable[..., Any]:
    """`func` run under torch's modes."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with modes_set(modes):
            return func(*args, **kwargs)

    return call


def same_array_form(a: Any, form: Any) -> bool:
    """A numpy array of this dtype and shape."""
    return bool((a.dtype, a.shape) == form)


def _generator_state(owner: Any) -> tuple[Callable[[Any], Any], Any]:
    if hasattr(owner, "getstate"):
        return owner.setstate, owner.getstate()
    if hasattr(owner, "get_state"):
        return owner.set_state, owner.get_state()
    bits = owner.bit_generator
    return lambda state: setattr(bits, "state", state), bits.state


def save(tensors: tuple[Any, ...], rng: bool, owners: tuple[Any, ...] = ()) -> Any:
    """Copies of the tensors that the entry changes, and the states of the generators that it draws from."""
    with torch.no_grad():
        copies = [(t, t.detach().clone()) for t in tensors]
    states: list[tuple[Callable[[Any], Any], Any]] = [_generator_state(o) for o in owners]
    if rng:
        states.append((torch.set_rng_state, torch.get_rng_state()))
        if torch.cuda.is_initialized():
            states.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    return copies, states


def undo(saved: Any) -> Any:
    """Puts everything back as `save` found it and leaves the entry."""
    copies, states = saved
    with torch.no_grad():
        for t, copy in copies:
            t.detach().copy_(copy)
    for put_back, state in states:
        put_back(state)
    return _interp.MISS
