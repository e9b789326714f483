"""Frames that look like the program's: what is called from them warns and logs as if called there.

Owns how a frame is imitated.  Does not own where the program is (magpy/frames/call_sites.py).
Called by magpy/capture/tensors/performer.py, which calls operations so, and by generated code
(magpy/replay/support.py, magpy/replay/fx_graphs.py).
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from typing import Any

from magpy.errors import PLACED
from magpy.frames.call_sites import Site

_OPERATION = compile(
    f"def call({PLACED}, args, kwargs): return {PLACED}(*args, **kwargs)", "<magpy>", "exec"
).co_consts[0]


def placed(code: types.CodeType, site: Site) -> types.FunctionType:
    """A function of this code whose frames look like those of a line of the program."""
    filename, line, name, global_vars = site
    units = len(code.co_code) // 2
    table = b""
    while units:
        n = min(units, 8)
        table += bytes([0x80 | (13 << 3) | (n - 1), 0])  # "no columns", on the first line
        units -= n
    code = code.replace(
        co_filename=filename,
        co_firstlineno=line,
        co_name=name,
        co_qualname=name,
        co_linetable=table,
    )
    return types.FunctionType(code, global_vars, name)


class Operations:
    """Calls of operations from the lines of the program from which it has called them.

    Exceptions do not show these frames (`magpy.errors.hide_frames`).
    """

    def __init__(self) -> None:
        """Nothing was called yet."""
        self._made: dict[tuple[str, int, str, int], Callable[..., Any]] = {}

    def at(self, site: Site) -> Callable[..., Any]:
        """A function `call(f, args, kwargs)` that calls from there."""
        filename, line, name, global_vars = site
        key = filename, line, name, id(global_vars)
        call = self._made.get(key)
        if call is None:
            call = self._made[key] = placed(_OPERATION, site)
        return call

    def made(self, function: Any) -> bool:
        """Whether a function that looks like one of the program's is one of these."""
        return function in self._made.values()


#: In place of a site: the program lets no warning be shown there.
SILENT = object()
_NOTHING_SHOWN = [("ignore", None, Warning, None, 0)]


def operation(func: Callable[..., Any], site: Any) -> Callable[..., Any]:
    """The operation, always called from a site, or `SILENT`."""
    if site is SILENT:
        # A new list of filters, and no word of it: what was shown before is still known.
        def call(*args: Any, **kwargs: Any) -> Any:
            before, warnings.filters = warnings.filters, _NOTHING_SHOWN
            try:
                return func(*args, **kwargs)
            finally:
                warnings.filters = before

    else:
        at_site = placed(_OPERATION, site)

        def call(*args: Any, **kwargs: Any) -> Any:
            return at_site(func, args, kwargs)

    call.__name__ = f"warning_{getattr(func, '__name__', 'call')}"
    call.__module__ = __name__
    return call


__all__ = ["SILENT", "Operations", "operation", "placed"]
