"""TorchInductor, compiling in the process of the program.

Owns the translation of `mode` and `options` into TorchInductor's settings.  Does not own compiling
in another process (magpy/backends/elsewhere.py).  Made by `magpy.backends.resolve`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True)
class Inductor:
    """The backend "inductor" with a mode and options, as in torch.compile."""

    mode: str | None = None
    options: dict[str, Any] | None = None

    def patches(self) -> dict[str, Any]:
        """The settings of `torch._inductor.config` that mode and options stand for."""
        patches: dict[str, Any] = {}
        if self.mode is not None and self.mode != "default":
            from torch._inductor import list_mode_options

            patches.update(list_mode_options(self.mode))
        patches.update({k.replace("-", "_"): v for k, v in (self.options or {}).items()})
        return patches

    def __call__(self, gm: Any, example_inputs: list[Any]) -> Callable[..., Any]:
        """Compiles a graph."""
        return compile_graph(gm, example_inputs, self.patches())


def compile_graph(
    gm: Any, inputs: list[Any], patches: dict[str, Any], mode: Any = None
) -> Callable[..., Any]:
    """What TorchInductor makes of a graph.

    Args:
        gm: the graph, which it may change.
        inputs: tensors, or fake tensors of `mode`.
        patches: settings of `torch._inductor.config`.
        mode: a `FakeTensorMode`.
    """
    from torch._guards import TracingContext, tracing
    from torch._inductor.compile_fx import compile_fx
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    # TorchInductor uses its cache of graphs only when there is an environment for symbolic sizes,
    # be there symbols or not; ours has none, and `ignore_shape_env` says so.
    mode = mode or FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    with tracing(TracingContext(mode)):
        compiled = compile_fx(gm, inputs, config_patches=patches or None, ignore_shape_env=True)
    return cast(Callable[..., Any], compiled)
