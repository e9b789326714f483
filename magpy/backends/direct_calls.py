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
from collections.abc import Callable, Iterator
from typing import Any

import torch

Seen = list[tuple[Any, Any]]
"""What AOTAutograd's outermost wrapper gave, and the graph that it calls if it does no more."""


@contextlib.contextmanager
def seen() -> Iterator[Seen]:
    """Notes what AOTAutograd wraps in the block."""
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


def shortened(compiled: Callable[..., Any], found: Seen) -> Callable[..., Any]:
    """The same, called directly from the second call on where that is all the same.

    Args:
        compiled: what TorchInductor's `compile_fx` returned.
        found: what was seen meanwhile.
    """
    from torch._dynamo import eval_frame as module
    from torch._inductor.output_code import CompiledFxGraph

    eval_frame: Any = module
    forward = getattr(compiled, "_torchdynamo_orig_callable", compiled)
    outer = _unwrapped(getattr(forward, "__wrapped__", None))
    graph = next((graph for made, graph in found if made is outer), None)
    if type(graph) is not CompiledFxGraph or graph.cudagraph_info or graph._wrap_compiled_regions:
        return compiled
    profiler: Any = torch.autograd.profiler
    is_grad_enabled, set_grad_enabled = torch.is_grad_enabled, torch._C._set_grad_enabled
    tracer = torch._C._dynamo.eval_frame.get_eval_frame_callback
    run: Any = None

    def call(*inputs: Any) -> Any:
        nonlocal run
        if run is None or profiler._is_profiler_enabled or tracer() is not None:
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

    eval_frame.skip_code(call.__code__)
    return call


__all__ = ["Seen", "seen", "shortened"]
