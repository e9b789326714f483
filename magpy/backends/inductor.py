"""TorchInductor, compiling in the process of the program.

Owns the translation of `mode` and `options` into TorchInductor's settings, and what TorchInductor
takes a graph for.  Does not own compiling in another process (magpy/backends/process.py).  Made by
`magpy.backends.resolve`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from magpy.models.backward import BACKWARD, is_kept

STATIC_INPUTS = "magpy_static_inputs"
"""The key in a graph's `meta` of how many inputs, the first ones, are the same in every call."""


@dataclass(frozen=True)
class Inductor:
    """The backend "inductor" with a mode and options, as in torch.compile."""

    mode: str | None = None
    options: dict[str, Any] | None = None

    def patches(self) -> dict[str, Any]:
        """The settings of `torch._inductor.config` that mode and options stand for.

        Random numbers are the program's generator's, as in eager; `fallback_random=False` among
        the options lets TorchInductor draw others, which it can fuse with what uses them.
        """
        patches: dict[str, Any] = {"fallback_random": True}
        if self.mode not in (None, "default", "auto"):
            from torch._inductor import list_mode_options

            patches.update(list_mode_options(self.mode))
        patches.update({k.replace("-", "_"): v for k, v in (self.options or {}).items()})
        return patches

    @property
    def cuda_graphs(self) -> bool:
        """Whether CUDA graphs are asked for."""
        patches = self.patches()
        if "triton.cudagraphs" in patches:
            return bool(patches["triton.cudagraphs"])
        if not is_there() and "TORCHINDUCTOR_CUDAGRAPHS" not in os.environ:
            return False  # as it is by default
        from torch._inductor import config

        settings: Any = config
        return bool(settings.triton.cudagraphs)

    @property
    def is_shared(self) -> bool:
        """Whether what it compiles is about no tensors of one entry."""
        from torch._inductor import config

        settings: Any = config
        return not self.cuda_graphs and not self.patches().get("freezing", settings.freezing)

    def key(self) -> tuple[str, ...]:
        """What its settings are told from others by, those of the process included."""
        return repr(sorted(self.patches().items())), *of_process()

    def __call__(self, gm: Any, example_inputs: list[Any]) -> Callable[..., Any]:
        """Compiles a graph."""
        from magpy.backends import direct_calls

        with direct_calls.seen() as seen:
            compiled = self._compiled(gm, example_inputs)
        return direct_calls.shortened(compiled, seen)

    def _compiled(self, gm: Any, example_inputs: list[Any]) -> Callable[..., Any]:
        import torch
        from torch._guards import detect_fake_mode
        from torch._inductor import config

        patches, settings = self.patches(), cast(Any, config)
        mode = detect_fake_mode(example_inputs)
        if mode is not None:
            return compile_graph(gm, example_inputs, patches, mode, symbolic=True)
        fixed = gm.meta.get(STATIC_INPUTS, 0)
        if (
            fixed
            and patches.get("freezing", settings.freezing)
            and not torch.is_grad_enabled()
            and all(type(t) in (torch.Tensor, torch.nn.Parameter) for t in example_inputs[:fixed])
        ):
            from magpy.backends.freezing import fold

            return fold(gm, example_inputs, fixed, lambda g, i: compile_graph(g, i, patches))
        return compile_graph(gm, example_inputs, patches)


def of_process() -> tuple[str, ...]:
    """What the settings of this process are told from others by."""
    from torch._functorch import config as functorch
    from torch._inductor import config

    settings: Any = (config, functorch)
    return tuple(c.get_hash().hex() for c in settings)


def of_environment() -> tuple[str, ...]:
    """The variables of the environment that make settings, where nothing else has made any."""
    import torch

    root = Path(torch.__file__).parent
    files = [root / "_inductor" / "config.py", root / "_functorch" / "config.py"]
    text = "".join(f.read_text() for f in files)
    return tuple(
        f"{k}={v}"
        for k, v in sorted(os.environ.items())
        if (f'"{k}"' in text or k.startswith(_VARIABLES)) and k != "TORCHINDUCTOR_CACHE_DIR"
    )


_VARIABLES = ("TORCHINDUCTOR_", "TORCH_COMPILE")


def is_there() -> bool:
    """Whether something has imported TorchInductor or its settings, which takes seconds."""
    return "torch._inductor" in sys.modules or "torch._functorch.config" in sys.modules


def compile_graph(
    gm: Any, inputs: list[Any], patches: dict[str, Any], mode: Any = None, symbolic: bool = False
) -> Callable[..., Any]:
    """What TorchInductor makes of a graph.

    Args:
        gm: the graph, which it may change.
        inputs: tensors, or fake tensors of `mode`.
        patches: settings of `torch._inductor.config`.
        mode: a `FakeTensorMode`.
        symbolic: sizes of the inputs may be symbols of its environment, which learns what the
            compiled graph relies on.

    Where a replacement of operations by faster ones fails, the graph is compiled without any:
    TorchInductor 2.13 fails for `x[torch.randperm(len(x))]`.
    """
    try:
        return _compile_graph(gm, inputs, patches, mode, symbolic)
    except Exception as e:
        if _PATTERNS in patches or not _failed_in("torch._inductor.pattern_matcher", e):
            raise
    return _compile_graph(gm, inputs, {**patches, _PATTERNS: False}, mode, symbolic)


#: The setting of whether operations are replaced by faster ones.
_PATTERNS = "pattern_matcher"


def _failed_in(module: str, error: BaseException) -> bool:
    """Whether a function of a module was at work when something was raised."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals.get("__name__") == module for frame, _ in frames)


def _compile_graph(
    gm: Any, inputs: list[Any], patches: dict[str, Any], mode: Any, symbolic: bool
) -> Callable[..., Any]:
    from torch._guards import TracingContext, tracing
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from magpy.backends import graph_cache

    # TorchInductor uses its cache of graphs only when there is an environment for symbolic sizes,
    # be there symbols or not; ours has none, and `ignore_shape_env` says so.
    settings: Any = config
    if patches.get("triton.cudagraphs", settings.triton.cudagraphs):
        _mark_static(gm)
    mode = mode or FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    # It raises the limit, which the program may have asked for (`inspect.signature` does): the next
    # call would fit no entry.
    limit = sys.getrecursionlimit()
    known = contextlib.ExitStack()
    known.enter_context(graph_cache.found(gm, inputs))
    known.enter_context(graph_cache.readable_guards(mode.shape_env))
    known.enter_context(graph_cache.of_any_size(symbolic))
    try:
        with tracing(TracingContext(mode)), known, _training_is_seen():
            compiled = compile_fx(
                gm, inputs, config_patches=patches or None, ignore_shape_env=not symbolic
            )
    finally:
        sys.setrecursionlimit(limit)
    return cast(Callable[..., Any], compiled)


@contextlib.contextmanager
def _training_is_seen() -> Iterator[None]:
    """In the block TorchInductor does not take a graph with a backward pass for one that serves.

    It does so where the passes stand in one graph.  Then it lays convolutions out with channels
    last for other reasons than where they are trained, and moves memory more often; and it adds a
    bias apart from the product of matrices, to fuse that with what follows, where the backward pass
    needs the sum again and would have to read both.  And it fuses what the backward pass computes
    of an activation (its copy in another layout) with what has made that: both would be kept from
    then on.

    And where the passes are to be two graphs it takes a copy of an input (MoCo's queue) for the
    input itself, which may be written to before the backward pass: torch.compile's gradients are
    wrong there.
    """
    import torch
    from torch._inductor.fx_passes import post_grad
    from torch._inductor.graph import GraphLowering
    from torch._inductor.scheduler import Scheduler

    lowering: Any = GraphLowering
    passes: Any = post_grad
    scheduler: Any = Scheduler
    decide, is_pointwise_use = lowering.decide_layout_opt, passes.is_pointwise_use
    can_fuse, remove_copies = scheduler.can_fuse, passes.remove_noop_ops

    @functools.wraps(decide)
    def decided(gm: Any, *, is_inference: bool) -> Any:
        backward = torch.ops.aten.convolution_backward.default
        differentiates = any(gm.graph.find_nodes(op="call_function", target=backward))
        return decide(gm, is_inference=is_inference and not differentiates)

    @functools.wraps(is_pointwise_use)
    def is_fused(use: Any, *more: Any) -> Any:
        """Whether the user of a sum is fused with it (`should_prefer_unfused_addmm`)."""
        return is_pointwise_use(use, *more) and not _is_for_backward(use)

    @functools.wraps(can_fuse)
    def may_fuse(self: Any, first: Any, second: Any, *more: Any, **kwargs: Any) -> Any:
        """Whether two kernels become one: not one of each pass.

        What comes after a backward pass, an optimizer's update, is fused with that.
        """
        if {_pass_of(self, first), _pass_of(self, second)} == {"forward", "backward"}:
            return False
        return can_fuse(self, first, second, *more, **kwargs)

    passes.remove_noop_ops = _keeping_copies(remove_copies)
    lowering.decide_layout_opt = staticmethod(decided)
    passes.is_pointwise_use = is_fused
    scheduler.can_fuse = may_fuse
    try:
        yield
    finally:
        passes.remove_noop_ops = remove_copies
        scheduler.can_fuse = can_fuse
        lowering.decide_layout_opt = staticmethod(decide)
        passes.is_pointwise_use = is_pointwise_use


def _keeping_copies(remove: Callable[[Any], None]) -> Callable[[Any], None]:
    """Removes operations that change nothing, but no copies that the backward pass may take.

    It is done ahead of the replacement of operations by faster ones.
    """

    @functools.wraps(remove)
    def removed(graph: Any) -> None:
        inputs = graph.find_nodes(op="placeholder")
        both = any("tangents" in str(node.target) for node in inputs)
        _multiply_by_alpha(graph)
        copies = {n: n.target for n in graph.nodes if is_kept(n)} if both else {}
        for node in copies:
            node.target = is_kept  # which nobody knows
        remove(graph)
        for node, target in copies.items():
            node.target = target

    return removed


def _multiply_by_alpha(graph: Any) -> None:
    """Makes products of their own of those in sums (`weight.add_(gradient, alpha=-rate)`).

    TorchInductor 2.13 takes a sum with a product of matrices for `addmm`, and forgets `alpha`.
    """
    import torch

    aten = torch.ops.aten
    for node in graph.find_nodes(op="call_function", target=aten.add.Tensor):
        alpha = node.kwargs.get("alpha", 1)
        other = node.args[1]
        if alpha == 1 or not isinstance(other, torch.fx.Node):
            continue
        with graph.inserting_before(node):
            product = graph.call_function(aten.mul.Tensor, (other, alpha))
        product.meta.update(other.meta)
        node.args, node.kwargs = (node.args[0], product), {}


def _is_for_backward(use: Any) -> bool:
    """Whether a node is a part of a backward pass, or a view that one takes."""
    from torch._inductor.utils import is_view
    from torch._ops import OpOverload

    if BACKWARD in use.meta.get("custom", ()):
        return True
    if not isinstance(use.target, OpOverload) or not is_view(use.target):
        return False
    return any(map(_is_for_backward, use.users))


def _pass_of(scheduler: Any, node: Any) -> str:
    """Which pass a node of the scheduler belongs to: "forward", "backward" or "after"."""
    found = vars(node).get(_PASS)
    if found is None:
        made = vars(scheduler).get(_PASS)
        if made is None:  # the names of all that a backward pass computes
            made = {n for n, v in scheduler.name_to_node.items() if _is_of_backward(v)}
            setattr(scheduler, _PASS, made)
        if not made.isdisjoint(node.get_operation_names()):
            found = "backward"
        else:
            found = "forward" if made.isdisjoint(node.ancestors) else "after"
        setattr(node, _PASS, found)
    return str(found)


_PASS = "magpy_pass"
"""Where that is kept: each pair of nodes is asked about."""


def _is_of_backward(node: Any) -> bool:
    buffer = getattr(node, "node", None)
    origins = () if buffer is None else buffer.get_origins()
    return any(BACKWARD in origin.meta.get("custom", ()) for origin in origins)


def _mark_static(gm: Any) -> None:
    """Tells which inputs are the same tensors in every call, in the way that TorchDynamo does.

    CUDA graphs read them where they are; the others are copied to where the graph was recorded.
    """
    from torch._dynamo.source import LocalSource

    gm.meta["dynamo_compile_id"] = None
    names = (*dict(gm.named_parameters()), *dict(gm.named_buffers()))
    gm._param_name_to_source = {name: LocalSource(name) for name in names}
    for i, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        node._dynamo_source = LocalSource(f"input{i}")
        if i < gm.meta.get(STATIC_INPUTS, 0):
            node.meta["tensor_dict"] = {"_dynamo_static_input_type": "unguarded"}


def stepped(run: Callable[..., Any]) -> Callable[..., Any]:
    """The same, as the beginning of a step: results of the step before may be overwritten.

    torch.compile counts its calls, for CUDA graphs to know when their memory is free again
    (https://docs.pytorch.org/docs/stable/torch.compiler_cudagraph_trees.html).
    """
    from torch._dynamo.mutation_guard import GenerationTracker

    def call(*inputs: Any) -> Any:
        GenerationTracker.generation += 1
        return run(*inputs)

    return call
