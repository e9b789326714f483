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
        from torch._inductor.compile_fx import compile_fx

        compiled = compile_fx(gm, example_inputs, config_patches=self.patches() or None)
        return cast(Callable[..., Any], compiled)
