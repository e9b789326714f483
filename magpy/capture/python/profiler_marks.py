"""Marks of torch's profiler that the program makes: `with record_function(name)`.

Owns noting them: they are no operations on tensors, and stand between graphs.  Does not own what an
entry does for one (magpy/models/profiler_marks.py).  Called by magpy/capture/python/c_calls.py and
magpy/capture/python/callbacks.py.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import profiler
from torch.autograd.profiler import record_function

from magpy import _interp
from magpy.capture.python.run import Run
from magpy.ir.ops import Bind, Call, Ref
from magpy.models import callables, profiler_marks
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
    """A mark begins or ends."""
    own = getattr(f, "__self__", None)
    of = args[0] if own is None else own
    function = getattr(f, "__func__", f)
    if not _is_of_the_run(run, of):
        return ABSENT
    if function is record_function.__enter__:
        begun(run, of)
    with run.recorder.aside():
        result = f(*args, **kwargs)
    if function is record_function.__exit__ and id(of) in run.marks:
        _, var = run.marks.pop(id(of))
        call: dict[str, Any] = {"tensors": False, "in_order": True}
        run.recorder.note(profiler_marks.end, (Ref(var),), {}, Call, **call)
    return result


def begun(run: Run, manager: Any) -> None:
    """A `with` block is about to be entered, perhaps that of a mark."""
    if not _is_of_the_run(run, manager) or run.refusals.first is not None:
        return
    followed = [run.recorder.tracked(text) for text in (manager.name, manager.args)]
    given = tuple(
        text if found is None else Ref(found)  # a text that differs in every call
        for text, found in zip((manager.name, manager.args), followed, strict=True)
    )
    var = run.recorder.tensors.new()
    run.marks[id(manager)] = manager, var
    begin: dict[str, Any] = {"result": var, "in_order": True}
    run.recorder.note(profiler_marks.begin, given, {}, Bind, torch.ScriptObject, **begin)


def _is_of_the_run(run: Run, manager: Any) -> bool:
    """Whether an object is a mark of the run that is no operation: no mode of the program hears."""
    return (
        type(manager) is record_function
        and not run.session.is_outside(manager)
        and not run.recorder.depth
        and torch._C._len_torch_function_stack() == 1
    )
