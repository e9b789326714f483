"""Backends: what turns a segment's graph into something that runs fast.

Owns the lookup of backends by name and the call convention `f(gm: torch.fx.GraphModule,
example_inputs) -> callable` (the one of torch.compile,
https://docs.pytorch.org/docs/stable/torch.compiler_custom_backends.html).  Does not own the graphs
(magpy/replay/segments.py) nor when they are compiled (magpy/runtime/entry.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from magpy.backends.inductor import Inductor
from magpy.errors import OptionError, an
from magpy.objects.imports import imported

Backend = Callable[[Any, list[Any]], Callable[..., Any]]
_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", "auto")


def known() -> list[str]:
    """Names that `magpy.compile(backend=...)` takes."""
    import torch._dynamo

    names = set(torch._dynamo.list_backends(exclude_tags=()))
    return sorted(names | {"inductor", "eager", "aot_eager"})


def eager(gm: Any, example_inputs: list[Any]) -> Callable[..., Any]:
    """Runs the graph as it is."""
    return gm.forward  # type: ignore[no-any-return]


def check_options(backend: Any, mode: Any, options: Any) -> None:
    """Raises `OptionError` when backend, mode or options cannot be what they are given as."""
    if not isinstance(backend, str) and not callable(backend):
        raise OptionError(
            "backend must be a name or a callable (gm, example_inputs), not "
            f"{type(backend).__name__}"
        )
    if (
        isinstance(backend, str)
        and backend not in ("inductor", "eager", "aot_eager")
        and backend not in known()
    ):
        raise OptionError(f"unknown backend {backend!r}; known: {', '.join(known())}")
    if mode is not None and (not isinstance(mode, str) or mode not in _MODES):
        raise OptionError(f"mode must be one of {', '.join(_MODES)}, not {mode!r}")
    if options is not None and not (
        isinstance(options, dict) and all(isinstance(k, str) for k in options)
    ):
        raise OptionError(
            f"options must be a dict with names as keys, not {type(options).__name__}"
        )
    if mode not in (None, "default", "auto") and options:
        raise OptionError("give either mode or options, not both")
    if backend == "inductor" and options:
        from torch._inductor import config

        for name in options:
            if name.replace("-", "_") not in config.get_config_copy() and not hasattr(config, name):
                raise OptionError(
                    f"unknown option {name!r} of inductor; see torch._inductor.list_options()"
                )
            default, given = getattr(config, name.replace("-", "_"), None), options[name]
            if isinstance(default, (bool, int, str)) and type(given) is not type(default):
                raise OptionError(
                    f"option {name!r} of inductor is {an(type(default).__name__)}, "
                    f"not {an(type(given).__name__)}"
                )


def resolve(backend: Any, mode: str | None, options: dict[str, Any] | None) -> Backend:
    """The compiler for a backend as the user named it.

    Raises:
        OptionError: the name is not known.
    """
    if backend == "eager":
        return eager
    if backend == "inductor":
        return Inductor(mode, options)
    if callable(backend):
        takes_options = options and "options" in inspect.signature(backend).parameters
        if takes_options:
            return lambda gm, inputs: backend(gm, inputs, options=options)
        return backend  # type: ignore[no-any-return]
    imported("torch._dynamo.backends.registry")
    from torch._dynamo.backends.registry import lookup_backend

    check_options(backend, mode, options)
    return lookup_backend(backend)
