"""Hooks that run compiled in a backward pass which stays Python.

Where Python of the program runs in a pass of autograd's engine, the pass is left to Python
(magpy/capture/tensors/engine.py).  What runs there may be most of the work: an optimizer that takes
its step as soon as a gradient is there, so that few gradients are there at a time.  So such hooks
of parameters are compiled callables of their own while the pass runs, each called where and when
eager calls it.  One that the call gives to what it has computed has a driver.

Owns which hooks these are, and standing in their places for the time of a pass.  Does not own how
they are compiled (magpy/runtime/blocks.py), nor which passes stay Python.  Called by
magpy/runtime/driver.py.

Source: https://docs.pytorch.org/docs/stable/notes/autograd.html#backward-hooks-execution
"""

from __future__ import annotations

import contextlib
import functools
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from magpy.errors import hide_frames
from magpy.objects.types import isinstance
from magpy.runtime.blocks import Blocks
from magpy.unwatched import autograd
from magpy.unwatched.changes import foreign

#: In so many passes one looks which leaves have hooks; those that get one later run as they are.
_LOOKS = 3
#: For so many tensors a function is compiled until an entry has served for one.
_ON_TRIAL = 2


def makes_pass(f: Any) -> bool:
    """Whether a callable runs autograd's engine."""
    if isinstance(f, types.MethodType):
        return f.__func__ is torch.Tensor.backward
    return f is torch.autograd.backward or f is torch.autograd.grad


def registers(f: Any) -> bool:
    """Whether a callable gives a tensor a hook."""
    given = isinstance(f, types.MethodType) and f.__func__ is torch.Tensor.register_hook
    return given and type(f.__self__) is torch.Tensor


def registered(driven: Callable[[Any], Any], register: Any, *args: Any, **kwargs: Any) -> Any:
    """Gives a tensor that the call has made a hook, of which regions run compiled.

    Args:
        driven: gives what runs in place of a function.
        register: the tensor's method.
        args: what it is given, with `kwargs`.
        kwargs: see `args`.
    """
    try:
        with torch._C.DisableTorchFunction():  # no mode hears of that
            node = register.__self__.grad_fn
        if len(args) == 1 and not kwargs and node is not None:
            args = (_heard(node, driven(args[0])),)
        return register(*args, **kwargs)
    except BaseException as e:
        hide_frames(e)
        raise


def stepped(driven: Callable[[Any], Any], step: Any, *args: Any, **kwargs: Any) -> Any:
    """Lets an optimizer take a step, the closure of which runs compiled.

    Args:
        driven: gives what runs in place of a function.
        step: that of the optimizer's class.
        args: the optimizer and its closure, with `kwargs`.
        kwargs: see `args`.
    """
    try:
        given = {name: driven(v) for name, v in kwargs.items()}
        return step(*args[:1], *map(driven, args[1:]), **given)
    except BaseException as e:
        hide_frames(e)
        raise


def _heard(node: Any, hook: Any) -> Any:
    """A hook that hears of no gradients which there are not.

    What a compiler made is one node of autograd's with all that it gives: one of these may get a
    gradient, and in eager the others' nodes do not run then.
    """
    if not type(node).__name__.startswith("CompiledFunction"):
        return hook
    return functools.partial(_hear, hook)


def _hear(hook: Any, gradient: Any) -> Any:
    return None if gradient is None else hook(gradient)


def _without_hearing(tb: types.TracebackType | None) -> None:
    """Takes the frames of `_hear` out of a traceback."""
    while tb is not None:
        inner = tb.tb_next
        if inner is not None and inner.tb_frame.f_code is _hear.__code__:
            tb.tb_next = inner.tb_next
        else:
            tb = inner


class Hooks:
    """The hooks of the passes that one compiled callable makes.

    Args:
        blocks: compiles them.
        keeps_graph: is called before a pass whose results can be differentiated.
    """

    def __init__(self, blocks: Blocks, keeps_graph: Callable[[], None]) -> None:
        """Knows none."""
        self._blocks = blocks
        self._keeps_graph = keeps_graph
        self._looked = 0
        self._leaves: dict[int, weakref.ref[torch.Tensor]] = {}
        #: By the code of a function: what was compiled of it first.
        self._first: dict[types.CodeType, list[Any]] = {}
        #: By the addresses of hook and tensor, which live as long as what was compiled.
        self._known: dict[tuple[int, int], Any] = {}

    def run_pass(self, f: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls `f`, which runs autograd's engine, with hooks of leaves that run compiled."""
        of, given = (f.__func__, (f.__self__, *args)) if hasattr(f, "__self__") else (f, args)
        if autograd.keeps_graph(of, given, kwargs):
            self._keeps_graph()
        try:
            if f is torch.autograd.grad:
                return f(*args, **kwargs)
            if self._looked < _LOOKS:
                self._looked += 1
                self._look((getattr(f, "__self__", None), args, kwargs))
            with self._compiled():
                return f(*args, **kwargs)
        except BaseException as e:
            _without_hearing(e.__traceback__)
            hide_frames(e)
            raise

    def _look(self, roots: Any) -> None:
        """Finds the leaves that a pass comes to and that have hooks."""
        with torch._C.DisableTorchFunction():  # no class or mode hears of that
            for leaf in autograd.reach(roots).leaves:
                if any(_dicts(leaf)) and id(leaf) not in self._leaves:
                    self._leaves[id(leaf)] = weakref.ref(leaf)

    @contextlib.contextmanager
    def _compiled(self) -> Iterator[None]:
        """Has compiled callables in the places of hooks."""
        placed: list[tuple[dict[int, Any], int, Any, Any]] = []
        for key, ref in list(self._leaves.items()):
            leaf = ref()
            if leaf is None:
                del self._leaves[key]
                continue
            for hooks in _dicts(leaf):
                for place, hook in list(hooks.items()):
                    instead = self._of(hook, leaf)
                    if instead is not None:
                        hooks[place] = instead
                        placed.append((hooks, place, hook, instead))
        try:
            yield
        finally:
            for hooks, place, hook, instead in placed:
                if hooks.get(place) is instead:  # it may have been removed meanwhile
                    hooks[place] = hook

    def _of(self, hook: Any, leaf: torch.Tensor) -> Any:
        """What is called in place of a hook; None: that itself."""
        known = self._known.get((id(hook), id(leaf)))
        if known is not None:
            return known
        function = hook.__func__ if isinstance(hook, types.MethodType) else hook
        if not isinstance(function, types.FunctionType) or foreign(function):
            return None
        first = self._first.setdefault(function.__code__, [])
        if len(first) >= _ON_TRIAL and not any(c._magpy_hits for c in first):
            return None
        known = self._blocks.of_hook(hook, leaf)
        if known is not None:
            self._known[id(hook), id(leaf)] = known
            if len(first) < _ON_TRIAL:
                first.append(known)
        return known


def _dicts(leaf: torch.Tensor) -> Iterable[dict[int, Any]]:
    """The dicts in which a leaf's hooks are, where there are any."""
    with torch._C.DisableTorchFunction():
        return [d for d in (leaf._backward_hooks, leaf._post_accumulate_grad_hooks) if d]


__all__ = ["Hooks", "makes_pass", "registered", "registers"]
