"""magpy: a Python-to-graph JIT extraction compiler for PyTorch.

Owns the public names and the check that this CPython and torch are supported.  `import
magpy._interp` and `magpy.instrument.rewrite` work without torch: everything that needs torch is
imported when it is first asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "CaptureError",
    "LoadError",
    "MagpyWarning",
    "OptionError",
    "SaveError",
    "Stats",
    "allow_in_graph",
    "cache",
    "compile",
    "config",
    "disable",
    "effect",
    "explain",
    "load",
    "pure",
    "reset",
    "save",
    "stats",
    "unsupported",
]

if TYPE_CHECKING:
    from magpy import cache, config
    from magpy.api import (
        Stats,
        allow_in_graph,
        compile,
        disable,
        effect,
        load,
        pure,
        reset,
        save,
        stats,
    )
    from magpy.errors import CaptureError, LoadError, MagpyWarning, OptionError, SaveError
    from magpy.explaining import explain

_HOME = {
    **dict.fromkeys(
        (
            *("Stats", "allow_in_graph", "compile", "disable", "effect", "load", "pure", "reset"),
            *("save", "stats"),
        ),
        "magpy.api",
    ),
    **dict.fromkeys(
        ("CaptureError", "LoadError", "MagpyWarning", "OptionError", "SaveError"), "magpy.errors"
    ),
    "explain": "magpy.explaining",
}


def _unsupported() -> str | None:
    if sys.implementation.name != "cpython" or not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return (
            f"magpy supports CPython 3.11 to 3.13, not {sys.implementation.name} "
            f"{sys.version.split()[0]}: magpy.compile returns functions as they are."
        )
    if importlib.util.find_spec("magpy._interp") is None:
        return (
            "magpy's extension modules are not built: magpy.compile returns functions as they are."
        )
    if sys.version_info >= (3, 13) and not getattr(sys, "_is_gil_enabled", lambda: True)():
        return (
            "magpy does not support CPython without the GIL: magpy.compile returns functions as "
            "they are."
        )
    if importlib.util.find_spec("torch") is None:
        return (
            "magpy needs torch, which is not installed: magpy.compile returns functions as they "
            "are."
        )
    return None


unsupported: str | None = _unsupported()
"""Why magpy cannot compile here, or None."""


def _plain_compile(f: Any = None, **options: Any) -> Any:
    import warnings

    from magpy.errors import MagpyWarning

    warnings.warn(MagpyWarning(unsupported), stacklevel=2)
    globals()["compile"] = _quiet_compile
    return _quiet_compile(f, **options)


def _quiet_compile(f: Any = None, **options: Any) -> Any:
    return (lambda g: g) if f is None else f


if unsupported is not None and importlib.util.find_spec("torch") is not None:
    print(unsupported, file=sys.stderr)  # noqa: T201 - what the user must know at import


def __getattr__(name: str) -> Any:
    if name in ("cache", "config"):
        return importlib.import_module(f"magpy.{name}")
    if name == "compile" and unsupported is not None:
        return _plain_compile
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'magpy' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
