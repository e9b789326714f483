"""Hooks of saved tensors that the program has set, called through a pair of magpy's own.

Owns that pair, below which calls are captured and entries run while the program's hooks are set:
torch finds the same pair in each of them, so that guards can compare its state, and a capture is
told when Python of the program runs in the middle of an operation.  Does not own what is captured
or served below it (magpy/runtime/compiled.py), nor what a capture does about a hook
(magpy/capture/tensors/recorder.py).

Source: https://docs.pytorch.org/docs/stable/notes/autograd.html#hooks-for-saved-tensors
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

_Hook = Callable[[Any], Any]

_autograd: Any = torch._C._autograd


@dataclass(slots=True, eq=False)
class Hooks:
    """The program's hooks, while magpy's are set in their place.

    Attributes:
        pack: is given a tensor that is saved; what it returns is kept.
        unpack: makes the tensor of that, in the backward pass.
        raised: what `pack` has raised: it ends the operation, and nothing that follows may run.
    """

    pack: _Hook
    unpack: _Hook
    raised: BaseException | None = None


class _Thread(threading.local):
    hooks: Hooks | None = None
    #: Calls a hook in the middle of an operation that is captured.
    call: Callable[[_Hook, Any], Any] | None = None


_thread = _Thread()


def set_now() -> tuple[_Hook, _Hook] | None:
    """The hooks that hear of what is saved on this thread: the last that were set."""
    found: tuple[_Hook, _Hook] | None = _autograd._top_saved_tensors_default_hooks(False)
    return found


def are_the_programs() -> bool:
    """Whether the hooks that hear are the program's, and not those that call them."""
    found = set_now()
    return found is not None and found[0] is not _pack


def in_place() -> Hooks | None:
    """The program's hooks, if magpy's are set in their place."""
    found = set_now()
    return _thread.hooks if found is not None and found[0] is _pack else None


def _pack(tensor: Any) -> tuple[_Hook, Any]:
    hooks, call = _thread.hooks, _thread.call
    assert hooks is not None
    try:
        return hooks.unpack, hooks.pack(tensor) if call is None else call(hooks.pack, tensor)
    except BaseException as e:
        hooks.raised = e
        raise


def _unpack(packed: tuple[_Hook, Any]) -> Any:
    unpack, value = packed
    return unpack(value)


@contextlib.contextmanager
def replaced() -> Iterator[Hooks]:
    """Sets magpy's hooks in place of all that the program has set, which are set again after it."""
    before: list[tuple[_Hook, _Hook]] = []
    while (found := set_now()) is not None:
        before.append(found)
        _autograd._pop_saved_tensors_default_hooks()
    hooks, outer = Hooks(*before[0]), (_thread.hooks, _thread.call)
    _thread.hooks, _thread.call = hooks, None
    _autograd._push_saved_tensors_default_hooks(_pack, _unpack)
    try:
        yield hooks
    finally:
        above: list[tuple[_Hook, _Hook]] = []
        while (found := set_now()) is not None:
            _autograd._pop_saved_tensors_default_hooks()
            if found[0] is _pack:
                break
            above.append(found)  # the program's call has set them, and they stay
        for pair in reversed([*above, *before]):
            _autograd._push_saved_tensors_default_hooks(*pair)
        _thread.hooks, _thread.call = outer
        hooks.raised = None  # its traceback holds what the call made


@contextlib.contextmanager
def called_by(call: Callable[[_Hook, Any], Any]) -> Iterator[None]:
    """Has hooks called by `call(hook, tensor)` in the block, in which operations are captured."""
    outer, _thread.call = _thread.call, call
    try:
        yield
    finally:
        _thread.call = outer


def raised_by_hook(error: BaseException) -> bool:
    """Whether it is the program's hook that has raised this, in an operation of the call."""
    hooks = in_place()
    return hooks is not None and hooks.raised is error
