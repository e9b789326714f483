"""What mock code calls: small helpers that would be unreadable inline.

Owns nothing but these functions.  Called only by generated code
(magpy/replay/codegen.py, magpy/replay/object_code.py).
"""

from __future__ import annotations

import collections
import contextlib
import functools
import struct
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter

from magpy import _interp, _tensor
from magpy.errors import InternalError
from magpy.frames.synthetic import placed
from magpy.ir.tensor_meta import tensor_meta
from magpy.ir.torch_modes import TorchModes
from magpy.models.torch_state import settings
from magpy.objects.buffers import as_it_lies
from magpy.objects.quiet import unheard
from magpy.objects.types import isinstance


class Unforeseen(InternalError):
    """Something that follows from what the guard has found is not what it was."""

    def __init__(self) -> None:
        """Says so."""
        super().__init__(
            "a value that follows from what was checked is not what it was; please report this"
        )


def same_leaf(a: Any, b: Any) -> bool:
    """Same type and same value; nan equals nan of the same bits, 0.0 is not -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (a == b and a != 0.0) or struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, complex):
        return same_leaf(a.real, b.real) and same_leaf(a.imag, b.imag)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same_leaf, a, b))
    return bool(a == b)


def same_array(a: Any, b: Any) -> bool:
    """Same numpy type, dtype, shape and bytes."""
    return (
        type(a) is type(b)
        and a.dtype == b.dtype
        and a.shape == b.shape
        and a.tobytes() == b.tobytes()
    )


def same_meta(result: Any, expected: Any) -> bool:
    """The tensors of a result have the metadata that the captured ones had."""
    try:
        return bool(tensor_meta(result) == expected)
    except Exception:  # noqa: BLE001 - what cannot be described is not what was captured
        return False


def same_sized(result: Any, expected: list[Any]) -> bool:
    """A tensor or a sequence of tensors and None, each as its `TensorMeta` says."""
    found = result if isinstance(result, (tuple, list)) else [result]
    return len(found) == len(expected) and all(
        t is None if meta is None else meta.matches(t)
        for meta, t in zip(expected, found, strict=True)
    )


def new_array(array: Any) -> Any:
    """A copy of an array, as it lies and as it may be written to."""
    copy = as_it_lies(array)
    copy.flags.writeable = array.flags.writeable
    return copy


def new_defaultdict(cls: type, factory: Any) -> Any:
    """An empty defaultdict of a class, without its constructor."""
    d: Any = collections.defaultdict.__new__(cls)
    collections.defaultdict.__init__(d, factory)
    return d


def new_deque(cls: type, maxlen: int | None) -> Any:
    """An empty deque of a class, without its constructor."""
    d: Any = collections.deque.__new__(cls)
    collections.deque.__init__(d, (), maxlen)
    return d


def set_own_dict(obj: Any, attributes: dict[str, Any]) -> None:
    """Gives an object the dict of its attributes, whatever its class does where one is stored."""
    found: Any = _interp.type_lookup(type(obj), "__dict__")
    found.__set__(obj, attributes)


def discard_attribute(delete: Any, obj: Any, name: str) -> None:
    """Deletes an attribute, as `delete` of the class does, that may be missing."""
    with contextlib.suppress(AttributeError):
        delete(obj, name)


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


_EFFECT = compile("def call(f, a, k): return f(*a, **k)", "<magpy>", "exec").co_consts[0]


def call_at(sites: list[tuple[str, int, str, dict[str, Any]]]) -> Callable[..., Any]:
    """A function `call(f, args, kwargs)` that calls through frames that look like the program's.

    warnings and logging report a frame that called them.
    """
    if not sites:
        return lambda f, a, k: f(*a, **k)
    *outer, inner = sites
    chain = [*(placed(_CALL, site) for site in outer), placed(_EFFECT, inner)]
    return functools.partial(chain[0], *chain[1:]) if outer else chain[0]


_CALL = compile("def call(f, *a): return f(*a)", "<magpy>", "exec").co_consts[0]


@contextlib.contextmanager
def modes_set(m: TorchModes) -> Iterator[None]:
    """Torch's modes for the duration of a host step."""
    with contextlib.ExitStack() as stack:
        if m.inference != torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(m.inference))
        for device, enabled, dtype in m.autocast:
            stack.enter_context(
                torch.autocast(device, enabled=enabled, dtype=dtype, cache_enabled=m.cache)
            )
        stack.enter_context(torch.set_grad_enabled(m.grad))
        for name, keys, value in m.settings:
            setting = settings()[name]
            stack.callback(setting.write, *keys, setting.read(*keys))
            setting.write(*keys, value)
        yield


def autocast_nesting() -> int:
    """How many autocast contexts the thread is in."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def begin_autocast() -> int:
    """Keeps autocast's copies of parameters from one of an entry's graphs to the next.

    Autocast forgets them at the end of its outermost context; the graphs enter and leave contexts
    where the program stays in one, and clear them where the program does
    (https://docs.pytorch.org/docs/stable/amp.html).

    Returns: how many autocast contexts the thread is in.
    """
    return int(torch.autocast_increment_nesting()) - 1


def end_autocast() -> None:
    """Ends what `begin_autocast` began, where the entry has come to its end."""
    torch.autocast_decrement_nesting()


def leave_autocast(nesting: int) -> None:
    """Leaves the autocast contexts that an entry is in; `nesting` is what `begin_autocast` gave."""
    for _ in range(autocast_nesting() - nesting):
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()


def _open_inference_modes(error: BaseException) -> list[Any]:
    """The contexts that a graph had entered, which end with what holds them: a frame, or torch.fx.

    That may be much later, because torch.fx's interpreters are parts of cycles.
    """
    kind: Any = torch._C._InferenceMode
    found = []
    for frame, _ in traceback.walk_tb(error.__traceback__):
        for v in frame.f_locals.values():
            held = v.env.values() if issubclass(type(v), torch.fx.Interpreter) else (v,)
            found += [x for x in held if type(x) is kind]
    return found[::-1]


def restore_modes(error: BaseException, modes: TorchModes, nesting: int | None) -> None:
    """Puts torch's modes back where a graph was left in the middle, having switched them.

    Args:
        error: what left it.
        modes: how the modes were when it began.
        nesting: the contexts of autocast that it was in then; None if autocast is not switched.
    """
    for context in _open_inference_modes(error):
        context.__exit__(None, None, None)
    traceback.clear_frames(error.__traceback__)
    put_modes(modes, nesting)


def put_modes(modes: TorchModes, nesting: int | None) -> None:
    """Puts back the gradient mode and autocast: see `restore_modes`."""
    torch._C._set_grad_enabled(modes.grad)
    if nesting is None:
        return
    for device, enabled, dtype in modes.autocast:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
    torch.set_autocast_cache_enabled(modes.cache)
    leave_autocast(nesting)


def under(modes: TorchModes, func: Callable[..., Any]) -> Callable[..., Any]:
    """`func` run under torch's modes."""

    def call(*args: Any, **kwargs: Any) -> Any:
        with modes_set(modes):
            return func(*args, **kwargs)

    return call


def same_array_form(a: Any, form: Any) -> bool:
    """A numpy array of this dtype and shape; of as many dimensions where its sizes are inputs."""
    dtype, shape = form
    return bool(a.dtype == dtype and (a.ndim if type(shape) is int else a.shape) == shape)


def _generator_state(owner: Any) -> tuple[Callable[[Any], Any], Any]:
    if hasattr(owner, "getstate"):
        return owner.setstate, owner.getstate()
    if hasattr(owner, "get_state"):
        return owner.set_state, owner.get_state()
    bits = owner.bit_generator
    return lambda state: setattr(bits, "state", state), bits.state


def reorder(items: Any, inner: tuple[Any, ...], own: tuple[Any, ...]) -> None:
    """Puts the keys of an OrderedDict in order.

    Args:
        items: the OrderedDict.
        inner: the keys in the order of the dict that it is made of.
        own: the keys in its own order.
    """
    base = collections.OrderedDict
    for key in inner:
        value = base.__getitem__(items, key)
        base.__delitem__(items, key)
        base.__setitem__(items, key, value)
    for key in own:
        base.move_to_end(items, key)


def save(
    tensors: tuple[Any, ...],
    rng: bool,
    owners: tuple[Any, ...] = (),
    leaves: tuple[Any, ...] = (),
    swapped: tuple[Any, ...] = (),
    switched: tuple[Any, ...] = (),
    kept: tuple[Any, ...] = (),
) -> Any:
    """Copies of what the entry changes: tensors, gradients of leaves, states of generators.

    Of tensors whose `data` is assigned it keeps the data itself, and of leaves whose
    `requires_grad` is, that; of those in `kept` the gradient itself.
    """
    with torch.no_grad(), unheard():
        required = [(t, t.requires_grad) for t in switched]
        before = [(t, t.data) for t in swapped]
        copies = []
        for t in tensors:
            parts: Any = (t,)
            if t.layout in _PARTS:
                # What it consists of, which operations replace, may be held elsewhere.
                consists = t.detach()
                before.append((t, consists))
                parts = [getattr(consists, name)() for name in _PARTS[t.layout]]
            copies += [(part, _form(part), _once(part).clone()) for part in parts]
        grads = [(t, t.grad, None if t.grad is None else t.grad.clone()) for t in leaves]
        held = [*tensors, *(grad for _, grad, _ in grads if grad is not None)]
        grads += [(t, t.grad, None) for t in kept]
        versions = _unsafe_preserve_version_counter(tuple(t for t in held if not t.is_inference()))
    states: list[tuple[Callable[[Any], Any], Any]] = [_generator_state(o) for o in owners]
    if rng:
        states.append((torch.set_rng_state, torch.get_rng_state()))
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            states.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    return before, copies, grads, versions, states, required


# What tensors of sparse layouts consist of.
_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


def is_leaf_tensor(t: Any) -> bool:
    """Whether autograd made the tensor's gradient its end; False for a view that it forbids."""
    try:
        return bool(t.is_leaf)
    except RuntimeError:
        return False


def _form(t: Any) -> Any:
    """How a tensor lies in its memory, which `t_` and `unsqueeze_` change."""
    return (t.shape, t.stride(), t.storage_offset()) if t.layout is torch.strided else None


def _once(t: Any) -> Any:
    """What an expanded tensor shows several times, once: torch writes to no other.

    Called in `no_grad`: a copy of it knows nothing of autograd, without another operation.
    """
    if t.layout is torch.strided:
        for dim, (n, stride) in enumerate(zip(t.shape, t.stride(), strict=True)):
            if stride == 0 and n > 1:
                t = t.narrow(dim, 0, 1)
    return t


def undo(saved: Any) -> Any:
    """Puts everything back as `save` found it and leaves the entry."""
    before, copies, grads, versions, states, required = saved
    with torch.no_grad(), unheard():
        for t, data in before:
            t.data = data
        for t, form, copy in copies:
            if form is not None and form != _form(t):
                t.as_strided_(*form)
            (t if form is None else _once(t)).copy_(copy)
        for t, grad, copy in grads:
            if _tensor.gradient(t) is not grad:  # of another size, perhaps, than the tensor has
                _tensor.put_gradient(t, grad)
            if copy is not None:
                grad.detach().copy_(copy)
        # As nothing has happened, nothing may tell of it: autograd looks at versions.
        versions.__exit__(None, None, None)
        for t, flag in required:
            t.requires_grad_(flag)
    for put_back, state in states:
        put_back(state)
    return _interp.MISS
