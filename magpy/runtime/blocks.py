"""Blocks that a compiled callable gives to `torch.utils.checkpoint`, compiled on their own.

Owns what is called in place of such a block: the checkpoint calls it in the forward pass, and again
in the backward pass, when the compiled callable is over.  Does not own how the two agree
(magpy/runtime/checkpoints.py), nor how a block is compiled (magpy/runtime/compiled.py, which makes
the blocks).  Called where an entry or a driver calls a checkpoint.
"""

from __future__ import annotations

import functools
import linecache
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.utils.checkpoint
from torch.utils.checkpoint import CheckpointFunction

from magpy import _interp
from magpy.backends import eager
from magpy.capture.tensors.opaque_calls import given_instead
from magpy.ir.ops import OpStep, Record
from magpy.models.callables import is_whole
from magpy.objects.types import isinstance
from magpy.replay.rolled import Rolled

#: More are not compiled: each holds its module, which the program may make anew in each call.
_MOST_BLOCKS = 1000


class Blocks:
    """The blocks of one compiled callable.

    Args:
        compile_block: makes a compiled callable.
    """

    def __init__(self, compile_block: Callable[[Any], Any]) -> None:
        """None is known yet."""
        self._compile = compile_block
        #: By the addresses of objects, with these objects.
        self._made: dict[tuple[int, ...], tuple[Any, tuple[Any, ...]]] = {}

    @property
    def made(self) -> list[Any]:
        """The compiled blocks."""
        return [compiled for compiled, _ in self._made.values()]

    def of(self, block: Any, *, lasts: bool) -> Any:
        """What is called in place of a block; the block itself where that cannot be compiled.

        Args:
            block: what is given to a checkpoint.
            lasts: it is the same in each call, and not made anew.
        """
        if type(block) is functools.partial:
            func = self.of(block.func, lasts=lasts)
            return functools.partial(func, *block.args, **block.keywords)
        if isinstance(block, _interp.Compiled) or hasattr(type(block), _interp.MODULE_SLOT):
            return block
        if type(block) is types.FunctionType:
            function: Any = block
            lasts = lasts or function.__globals__.get(function.__name__) is function
            return functools.partial(self._call_function if lasts else self._call_made, function)
        if type(block) is types.MethodType:
            return self._compiled((block.__self__, block.__func__), lambda: block) or block
        if isinstance(block, torch.nn.Module):
            return self._compiled((block,), lambda: block) or block
        return block

    def _compiled(self, what: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What `make` makes, compiled; the objects `what` tell it from others."""
        key = tuple(map(id, what))
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= _MOST_BLOCKS:
                return None
            found = self._made[key] = self._compile(make()), what
        return found[0]

    def of_hook(self, hook: Any, of: Any) -> Any:
        """A function of the program that autograd calls for one tensor; None if it is not compiled.

        There are entries of it for each tensor: it may look anything up by that.
        """
        return self._compiled((hook, of), lambda: hook)

    def _call_function(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        compiled = self._compiled((function, *_modules(args)), lambda: function)
        return (compiled or function)(*args, **kwargs)

    def _call_made(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls a function that is made in each call: cells and defaults become arguments."""
        code, space, cells = function.__code__, function.__globals__, function.__closure__ or ()
        if is_whole(code) or any(c == types.CellType() for c in cells):
            return function(*args, **kwargs)
        held = _modules([*(c.cell_contents for c in cells), *(function.__defaults__ or ())])
        what = code, space, *held, *_modules(args)
        compiled = self._compiled(what, lambda: _with_cells(code, space))
        if compiled is None:
            return function(*args, **kwargs)
        named = {**(function.__kwdefaults__ or {}), **kwargs}
        return compiled(cells, function.__defaults__, *args, **named)

    def checkpoint(self, *args: Any, lasts: bool = False, **kwargs: Any) -> Any:
        """`torch.utils.checkpoint.checkpoint`."""
        if args:
            args = self.of(args[0], lasts=lasts), *args[1:]
        return torch.utils.checkpoint.checkpoint(*args, **kwargs)

    def _checkpoint_of_entry(self, *args: Any, **kwargs: Any) -> Any:
        return self.checkpoint(*args, lasts=True, **kwargs)

    def _reentrant_of_entry(self, block: Any, *args: Any) -> Any:
        apply: Callable[..., Any] = CheckpointFunction.apply
        return apply(self.of(block, lasts=True), *args)

    def compile_in(self, record: Record, backend: Any) -> None:
        """Has the checkpoints among a run's operations, and the turns of loops, be compiled blocks.

        Args:
            record: of the run.
            backend: compiles what the run has done; Python does the turns of a loop as they are.
        """
        for step in record.steps:
            if isinstance(step, OpStep) and isinstance(step.func, Rolled) and backend is not eager:
                step.func.call(self.of(step.func.body, lasts=True))
            if not isinstance(step, OpStep) or not step.whole:
                continue
            target = getattr(step.func, "__magpy_target__", step.func)
            if target is torch.utils.checkpoint.checkpoint:
                step.func = given_instead(step.func, self._checkpoint_of_entry)
            elif getattr(target, "__self__", None) is CheckpointFunction:
                step.func = given_instead(step.func, self._reentrant_of_entry)


def _modules(values: Iterable[Any]) -> list[Any]:
    """The modules among some values: there are entries of a block for each of them."""
    return [v for v in values if isinstance(v, torch.nn.Module)]


#: Has its source in `linecache`, so that it can be compiled in part. It is in no file of magpy's,
#: where captures look into no function, nor of the program's, whose lines a traceback would show.
_CALLS = """\
def call(cells, defaults, /, *args, **kwargs):
    for c in cells:  # so that a capture sees where the cells are from
        c.cell_contents
    made = FunctionType(code, space, name, defaults, cells or None)
    return made(*args, **kwargs)
"""
_FILE = "<magpy block>"
linecache.cache[_FILE] = len(_CALLS), None, _CALLS.splitlines(keepends=True), _FILE
_CODE = next(c for c in compile(_CALLS, _FILE, "exec").co_consts if type(c) is types.CodeType)


def _with_cells(code: types.CodeType, space: dict[str, Any]) -> Callable[..., Any]:
    """Calls a function of this code that has the given cells and defaults."""
    names = {"FunctionType": types.FunctionType, "code": code, "space": space}
    call = types.FunctionType(_CODE, {**names, "name": code.co_name})
    call.__name__, call.__qualname__ = code.co_name, code.co_qualname
    return call
