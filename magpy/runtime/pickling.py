"""Pickling of compiled callables: the wrapped function and the options; entries are captured anew.

Owns `reduce`, which `_interp.Compiled.__reduce__` calls.
"""

from __future__ import annotations

from typing import Any

from magpy.objects.types import attribute, isinstance
from magpy.runtime import compiled as runtime


def reduce(compiled: Any) -> Any:
    """What pickle needs to make a compiled callable again."""
    wrapped = compiled._magpy_wrapped
    module, qualname = attribute(wrapped, "__module__"), attribute(wrapped, "__qualname__")
    if isinstance(module, str) and isinstance(qualname, str):
        import sys

        found: Any = sys.modules.get(module)
        for part in qualname.split("."):
            found = getattr(found, part, None)
        if found is compiled:
            # A decorated function: pickled by name, as functions are.
            return qualname
    return runtime.make, (wrapped, compiled._magpy_options.options)
