"""Marks of torch's profiler (`record_function`): a name for what runs until the mark ends.

Owns telling a running profiler of a mark.  Does not own which marks the program makes
(magpy/capture/python/profiler_marks.py) nor between which graphs they stand
(magpy/replay/passes/schedule.py).  Called by mock code.
Source: https://docs.pytorch.org/docs/stable/generated/torch.autograd.profiler.record_function.html
"""

from __future__ import annotations

from typing import Any

import torch


def begin(name: str, args: str | None) -> Any:
    """Begins a mark; it ends when it is told to, or with the object."""
    return torch.ops.profiler._record_function_enter_new.default(name, args)


def end(mark: Any) -> None:
    """Ends a mark.

    To ask the object for a `__torch_function__` takes longer than all the rest, as torch says.
    """
    with torch._C.DisableTorchFunctionSubclass():
        torch.ops.profiler._record_function_exit._RecordFunction(mark)
