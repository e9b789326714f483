"""The connection of the native parts of a capture with the Python ones.

Owns what is told to `magpy._interp` once per process: torch's types, what makes a twin, whose
frames are not watched, what is called as a whole. Called by magpy/capture/session.py and
magpy/api.py.
"""

from __future__ import annotations

import collections
import functools
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils.checkpoint

from magpy import _interp, _tensor, errors, faults
from magpy.capture.python import c_calls, profiler_marks
from magpy.capture.tensors import functorch
from magpy.instrument import rewrite
from magpy.instrument.counters import counters
from magpy.models import callables, patched_names
from magpy.models.c_function_tables import Effect, Leaf
from magpy.objects import jagged
from magpy.objects.types import isinstance


def _instrument(code: types.CodeType) -> types.CodeType:
    """`instrument`, as a stage where tests inject faults; notes the names of counters."""
    faults.check("instrument")
    try:
        names = counters(code)
    except Exception:  # noqa: BLE001 - a program may have replaced builtins that `dis` needs
        names = set()
    _interp.add_counters(code, names)
    return rewrite.instrument(code)


# Of functorch, what is no transform that a program calls.
_MACHINERY = (
    *("_activation", "_aot_autograd", "aot_autograd", "autograd_function", "benchmark_utils"),
    *("compile", "config", "fx_minifier", "partitioners", "pyfunctorch", "python_key"),
)


def _inner(code: types.CodeType) -> Iterator[types.CodeType]:
    """The functions that are defined in a function."""
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            yield c
            yield from _inner(c)


@functools.cache
def prepare() -> None:
    """Connects the native parts with the Python ones, once per process."""
    types_known = (collections.deque, functools.partial, types.SimpleNamespace)
    _interp.set_types(torch.Tensor, *types_known, collections.defaultdict)
    _interp.set_homes(patched_names.homes())
    _interp.set_instrument(_instrument, rewrite.offsets)
    _interp.set_tensor_api(_tensor._api)
    for seed in (
        getattr(torch.random, "_manual_seed_impl", torch.random.manual_seed),
        torch.cuda.manual_seed,
        torch.cuda.manual_seed_all,
    ):
        callables.register_python(seed, Effect.SEED)
    for name in ("", "_unary", "_variadic"):
        callables.set_effect(getattr(torch._C, f"_has_torch_function{name}"), Effect.OVERRIDES)
    callables.register_python(torch.overrides.is_tensor_like, Effect.OVERRIDES)
    for function in jagged.FUNCTIONS:
        callables.register_python(function, Effect.OPERATION)
    functorch.register()
    profiler_marks.register()
    callables.set_effect(torch._C._autograd._push_saved_tensors_default_hooks, Effect.SAVED)
    callables.register_python(torch.utils.checkpoint.checkpoint, Effect.CHECKPOINT)
    for function in c_calls.IN_PYTHON:
        callables.register_python(function, Effect.IN_PYTHON)
    for compiles in (torch.compile, torch.cond):
        callables.register_python(compiles, Effect.DYNAMO)
    here = os.path.dirname(os.path.abspath(errors.__file__))
    torch_dir = os.path.dirname(os.path.abspath(torch.__file__))
    dynamo = os.path.join(torch_dir, "_dynamo")
    skip = [
        # A function that the program makes overridable is its own.
        *(
            f"overrides.py:{name}"
            for name in vars(torch.overrides)
            if name != "wrap_torch_function"
        ),
        "utils/_device.py",
        # What decorators.py leaves on the program's tensors and classes is seen.
        *(f"_dynamo/{name}" for name in os.listdir(dynamo) if name != "decorators.py"),
        "_inductor",
        *(f"_functorch/{name}" for name in _MACHINERY),
        "fx",
        "_subclasses",
        "testing",
        "autograd/profiler.py",
        # Called when a key dies, in the midst of anything; what holds the keys is compared.
        "utils/weak.py:WeakIdKeyDictionary.__init__.<locals>.remove",
    ]
    _interp.set_skip_prefixes([here + os.sep] + [os.path.join(torch_dir, s) for s in skip])
    _interp.set_shows_warnings(warnings._showwarnmsg.__code__)  # type: ignore[attr-defined]
    for code in callables.python_leaves():
        _interp.set_leaf_code(code, int(Leaf.HANDLER))


# Modules that run TorchDynamo, and the functions in which they do.
_DYNAMO: dict[str, Callable[[Any], list[types.CodeType]]] = {
    "torch._dynamo.eval_frame": lambda m: [
        c for c in _inner(m._TorchDynamoContext.__call__.__code__) if c.co_name == "compile_wrapper"
    ],
    "torch.nn.attention.flex_attention": lambda m: [m.flex_attention.__code__],
}
_found: set[str] = set()


def find_dynamo() -> None:
    """Has calls that run TorchDynamo go to the handler, once what they need is imported."""
    for name, codes in _DYNAMO.items():
        module: Any = sys.modules.get(name)
        if name in _found or getattr(getattr(module, "__spec__", None), "_initializing", True):
            continue
        _found.add(name)
        for code in codes(module):
            callables.register_code(code, Effect.DYNAMO)
            _interp.set_leaf_code(code, int(Leaf.HANDLER))
