"""Settings of the whole process, changed by assignment: `magpy.config.max_entries = 4`.

Owns the values and their defaults; each is read where it is used.  Environment:
MAGPY_LOGS=guards,graph,mock,capture,miss,passes, MAGPY_SKIP_PASSES=constant-checks,hoist-checks,
MAGPY_VERIFY=1.
"""

from __future__ import annotations

import os

max_entries: int = 16
"""Entries that a compiled callable keeps before calls that fit none run eagerly."""

max_captures: int = 64
"""Watched calls of a compiled callable before calls that fit no entry run eagerly."""

max_refusals: int = 3
"""Captures in a row without an entry, after which a compiled callable is left alone."""

max_operations: int = 20000
"""Tensor operations of a call beyond which it runs eagerly: a graph of them would not pay."""

background_niceness: int = 10
"""How much the process that compiles for `background=True` gives way to others (`man 2 nice`); read
when it starts."""


def _listed(variable: str) -> frozenset[str]:
    return frozenset(x.strip() for x in os.environ.get(variable, "").split(",") if x.strip())


logs: frozenset[str] = _listed("MAGPY_LOGS")
"""Topics that are logged to the logger "magpy": guards, graph, mock, capture, miss, passes."""

skip_passes: frozenset[str] = _listed("MAGPY_SKIP_PASSES")
"""Optional passes that are left out, for debugging (magpy/replay/pipeline.py lists them)."""

verify: bool = bool(os.environ.get("MAGPY_VERIFY"))
"""Whether the operations of a capture are checked after every pass (magpy/ir/verify.py): what is
wrong with them is an `InternalError` in the call, also with `fullgraph=False`."""
