"""Lets AOTAutograd's cache on disk find magpy's graphs.

The cache is asked with a key made of a graph's code, the metadata of its inputs and torch's
settings, and it bypasses graphs with nodes of which it does not know that the key tells all about
them (torch/_functorch/_aot_autograd/autograd_cache.py, "AOTAutograd Cacheability checks").  Owns
what is known of the nodes of magpy's graphs, and what has to be in the key beside what torch puts
there.  Does not own the caches, nor compiling (magpy/backends/inductor.py, which calls this).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch._subclasses import FakeTensor

from magpy import _interp
from magpy.backends import random_ops, settings
from magpy.backends.output_aliasing import storage_of
from magpy.backends.worker import OWN
from magpy.models import backward, torch_ops
from magpy.objects import buffers

#: What decides what magpy's own functions in graphs do.
_CODE = (backward, torch_ops, buffers)
_CHANGES = Path(__file__).with_name("inductor.py")
_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)
# What they do follows from their arguments, which stand in the graph.
_MODES = (
    torch.amp.autocast_mode._enter_autocast,
    torch.amp.autocast_mode._exit_autocast,
    torch.autograd.grad_mode._enter_inference_mode,
    torch.autograd.grad_mode._exit_inference_mode,
)


def _is_torchs(method: Any) -> bool:
    """Whether it is written in C, or in one of torch's modules: torch's version tells what it does.

    What a program puts in its place has globals of its own, be its name and module torch's.
    """
    if type(method) in (types.MethodDescriptorType, types.WrapperDescriptorType):
        return True
    if type(method) is not types.FunctionType:
        return False
    return str(method.__globals__.get("__name__")).partition(".")[0] == "torch"


def _is_known(node: Any) -> bool:
    """Whether the key tells all that the operation of a node depends on.

    The graph's inputs are plain tensors, so that a method is that of `torch.Tensor`.
    """
    target = node.target
    if node.op == "call_method":
        return _is_torchs(_interp.type_lookup(torch.Tensor, target))
    if node.op != "call_function" or type(target) is not types.FunctionType:
        return False
    if target in _MODES:
        return True
    return (
        target.__module__ in OWN
        and getattr(sys.modules[target.__module__], target.__name__, None) is target
    )


@functools.cache
def _own_code() -> str:
    """A hash of the functions that stand in graphs, whose names alone are in a graph's code.

    And of what is changed in graphs while TorchInductor compiles them.
    """
    found = hashlib.sha256()
    for file in (*(Path(str(module.__file__)) for module in _CODE), _CHANGES):
        found.update(file.read_bytes())
    return found.hexdigest()


def _inputs(inputs: Sequence[Any]) -> list[Any]:
    """What AOTAutograd looks at that is not in the metadata by which it keys inputs.

    Which of them share memory decides which one a result is said to be a view of.
    """
    owners: dict[int, int] = {}
    return [
        (t.is_leaf, owners.setdefault(storage_of(t) or -i, i))
        if isinstance(t, torch.Tensor)
        else None
        for i, t in enumerate(inputs, 1)
    ]


@contextlib.contextmanager
def found(gm: Any, inputs: Sequence[Any]) -> Iterator[None]:
    """AOTAutograd's cache finds the graph in the block, or is not asked.

    Args:
        gm: the graph.
        inputs: what it is compiled for.
    """
    from torch._functorch import config
    from torch._functorch._aot_autograd import autograd_cache

    state = settings.current()
    if state is None:  # a mode of the program has a part in what the graph becomes
        with config.patch(enable_autograd_cache=False):
            yield
        return
    cache: Any = autograd_cache
    known = cache.check_node_safe
    plain = all(type(t) in _PLAIN for t in inputs if isinstance(t, torch.Tensor))

    def check(node: Any) -> None:
        if not (plain and _is_known(node)):
            known(node)

    # An attribute of the graph is part of the key.
    gm.magpy_key = repr((_own_code(), random_ops.are_told_apart(), state, _inputs(inputs)))
    cache.check_node_safe = check
    try:
        yield
    finally:
        cache.check_node_safe = known


#: Sizes of 1 are among those that a graph is compiled for (magpy/shapes/environment.py).
_OF_ONE = "magpy: sizes of 1"


def of_any_size(symbolic: bool) -> contextlib.AbstractContextManager[object]:
    """In the block a graph for sizes that vary is none that was compiled for sizes of 2 and more.

    The key of TorchInductor's cache has no ranges of sizes; torch.compile's begin with 2.
    """
    import torch.compiler.config as settings_of_torch

    if not symbolic:
        return contextlib.nullcontext()
    config: Any = settings_of_torch
    tag: str = config.cache_key_tag + _OF_ONE
    return cast(contextlib.AbstractContextManager[object], config.patch(cache_key_tag=tag))


@contextlib.contextmanager
def readable_guards(env: Any) -> Iterator[None]:
    """In the block a cached graph whose guard cannot be evaluated is no hit.

    TorchInductor's cache writes the guard of a graph that is given a product of sizes, and not the
    sizes, with names that only the process has which wrote it.

    Args:
        env: a `torch.fx.experimental.symbolic_shapes.ShapeEnv`.
    """
    evaluate = env.evaluate_guards_expression

    def evaluated(code: str, args: Sequence[object]) -> bool:
        try:
            return bool(evaluate(code, args))
        except NameError:
            return False

    env.evaluate_guards_expression = evaluated
    try:
        yield
    finally:
        del env.evaluate_guards_expression


__all__ = ["found", "of_any_size", "readable_guards"]
