"""Calls the code that TorchInductor made without AOTAutograd's run-time wrappers in between.

What AOTAutograd returns keeps inputs that a graph changes, makes results that are views anew,
switches autocast and TorchDynamo off, and so on, and goes through a dozen Python functions for it
in every call, which takes longer than the kernel of a small graph.  Owns finding out that a graph
needs none of that, and what is then called.  Graphs that are differentiated later, change or return
inputs, or are compiled under autocast or with CUDA graphs are left as they are.  Does not own
compiling (magpy/backends/inductor.py, which calls this).

Sources: torch/_functorch/_aot_autograd/runtime_wrappers.py, `_create_runtime_wrapper`;
torch/_inductor/output_code.py, `CompiledFxGraph.__call__`.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

_dynamo: Any = torch._C._dynamo.eval_frame
_tracer = _dynamo.get_eval_frame_callback

Seen = list[tuple[Any, Any]]
"""What AOTAutograd's outermost wrapper gave, and the graph that it calls if it does no more."""


@contextlib.contextmanager
def seen() -> Iterator[Seen]:
    """Notes what AOTAutograd wraps in the block."""
    import torch._inductor.compile_fx  # noqa: F401 - before what it imports, which imports it
    from torch._functorch._aot_autograd.runtime_wrappers import RuntimeWrapper

    outermost: Any = RuntimeWrapper
    post_compile = outermost.post_compile
    found: Seen = []

    @functools.wraps(post_compile)
    def noting(wrapper: Any, compiled: Any, config: Any, *, runtime_metadata: Any) -> Any:
        made = post_compile(wrapper, compiled, config, runtime_metadata=runtime_metadata)
        if not _does_anything(wrapper, config, runtime_metadata):
            found.append((made, _unwrapped(compiled)))
        return made

    outermost.post_compile = noting
    try:
        yield found
    finally:
        outermost.post_compile = post_compile


def _does_anything(wrapper: Any, config: Any, metadata: Any) -> bool:
    """Whether the wrapper does more than to call, beside having autograd look away meanwhile.

    That it marks dimensions of results that vary is for TorchDynamo, and magpy takes it back.
    """
    return bool(
        wrapper.trace_joint
        or wrapper.disable_amp
        or wrapper.indices_of_inps_to_detach
        or metadata.num_mutated_inp_runtime_indices
        or metadata.num_outputs_aliased
        or metadata.num_intermediate_bases
        or metadata.grad_enabled_mutation is not None
        or (
            config.keep_inference_input_mutations
            and metadata.mutated_graph_handled_indices_seen_by_autograd
        )
    )


def _unwrapped(compiled: Any) -> Any:
    from torch._functorch import aot_autograd

    serializable = getattr(aot_autograd, "SerializableCompiledFunction", None)
    while type(compiled) is serializable:
        compiled = compiled.compiled_fn
    return compiled


def graph_of(compiled: Callable[..., Any], found: Seen) -> Any:
    """The `CompiledFxGraph` whose code may be called directly; None if there is none.

    Args:
        compiled: what TorchInductor's `compile_fx` returned.
        found: what was seen meanwhile.
    """
    from torch._inductor.output_code import CompiledFxGraph

    forward = getattr(compiled, "_torchdynamo_orig_callable", compiled)
    outer = _unwrapped(getattr(forward, "__wrapped__", None))
    graph = next((graph for made, graph in found if made is outer), None)
    if type(graph) is not CompiledFxGraph or graph.cudagraph_info or graph._wrap_compiled_regions:
        return None
    return graph


def shortened(compiled: Callable[..., Any], found: Seen) -> Callable[..., Any]:
    """The same, called directly from the second call on where that is all the same.

    Args:
        compiled: what TorchInductor's `compile_fx` returned.
        found: what was seen meanwhile.
    """
    graph = graph_of(compiled, found)
    if graph is None:
        return compiled
    profiler: Any = torch.autograd.profiler
    is_grad_enabled, set_grad_enabled = torch.is_grad_enabled, torch._C._set_grad_enabled
    run: Any = None

    def call(*inputs: Any) -> Any:
        nonlocal run
        if run is None or profiler._is_profiler_enabled or _tracer() is not None:
            results = compiled(*inputs)
            run = graph.current_callable  # the first call is one to tune and to check
            return results
        if not is_grad_enabled():
            return run([*inputs])
        set_grad_enabled(False)
        try:
            return run([*inputs])
        finally:
            set_grad_enabled(True)

    _skip(call.__code__)
    return call


def directly(run: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    """Calls the code of a graph, as `shortened` does."""

    def call(*inputs: Any) -> Any:
        called = run
        if _tracer() is not None:  # TorchDynamo is there, and would look into the code
            called = torch._dynamo.disable(run)  # type: ignore[no-untyped-call]
        if not torch.is_grad_enabled():
            return called([*inputs])
        with torch.no_grad():
            return called([*inputs])

    _skip(call.__code__)
    return call


def _skip(code: types.CodeType) -> None:
    """Has TorchDynamo take a function as it is, be it there or imported later."""
    there = sys.modules.get("torch._dynamo.eval_frame")
    if there is not None:
        there.skip_code(code)
    else:
        actions = _dynamo._FrameAction
        strategy = _dynamo._FrameExecStrategy(actions.SKIP, actions.DEFAULT)
        _dynamo.set_code_exec_strategy(code, strategy)


__all__ = ["Seen", "directly", "graph_of", "seen", "shortened"]
