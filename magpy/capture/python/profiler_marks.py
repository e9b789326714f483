"""Marks of torch's profiler that the program makes: `with record_function(name)`.

A profiler hears of them in calls that are watched or run eagerly; an entry makes none.  Owns that
they are no operations of the run.  Called by magpy/capture/python/c_calls.py and arrays.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import profiler
from torch.autograd.profiler import record_function

from magpy import _interp
from magpy.capture.python.run import Run
from magpy.models import callables
from magpy.models.c_function_tables import Effect

ABSENT = _interp.ABSENT
#: What `record_function.__enter__` calls with a name, which may differ from call to call.
ENTERS: Any = torch.ops.profiler._record_function_enter_new._op


def register() -> None:
    """Has the methods of `record_function` called as a whole."""
    for name in ("__enter__", "__exit__"):
        callables.register_python(getattr(record_function, name), Effect.MARK)
    # The first mark of a process imports something, which is no matter of a watched run.
    getattr(profiler, "_maybe_cupti_monitor", bool)()


def mark(run: Run, f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A mark of the run's own begins or ends; ABSENT where a mode of the program hears of it."""
    own = getattr(f, "__self__", None)
    of = args[0] if own is None else own
    if (
        type(of) is not record_function
        or run.session.is_outside(of)
        or run.recorder.depth
        or torch._C._len_torch_function_stack() != 1
    ):
        return ABSENT
    with run.recorder.aside():
        return f(*args, **kwargs)
