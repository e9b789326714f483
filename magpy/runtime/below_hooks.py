"""Calls while hooks of saved tensors are set, which run in the middle of an entry's operations.

Owns below which hooks calls are captured and served, and which entries serve one.  Does not own the
passes of a checkpoint (magpy/runtime/checkpoints.py).  Called by magpy/runtime/compiled.py.
"""

from __future__ import annotations

import types
from typing import Any

from magpy import _interp
from magpy.objects import saved_tensors
from magpy.objects.types import isinstance
from magpy.runtime import checkpoints
from magpy.unwatched.changes import foreign

HEARD = "hooks of saved tensors are set that are Python of the program"


def are_of_python() -> bool:
    """Whether the hooks that hear of what is saved are Python of the program's.

    Those of torch (`save_on_cpu`, checkpoints) and of C change nothing that a call reads, and do
    not tell in which order tensors are saved, nor how many.
    """
    found = saved_tensors.set_now()
    if found is None:
        return False
    pack = found[0]
    if type(pack) is types.FunctionType:
        return not foreign(pack)
    return not isinstance(pack, (types.BuiltinFunctionType, types.MethodDescriptorType))


def serve(
    compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any], pack: Any
) -> tuple[bool, Any]:
    """Whether a call is not captured, and what it gives: MISS for it to run eagerly.

    A call that is computed again for a checkpoint is only served, and as it was the first time.

    Args:
        compiled: the callable.
        args: what it is given, with `kwargs`.
        kwargs: see `args`.
        pack: the hook that packs what is saved.
    """
    run = checkpoints.pass_of(pack)
    again = run is not None and run.again
    made = list(compiled._magpy_entries) if run is None or not again else run.entries(compiled)
    for entry in made:
        if run is not None and not again and run.stops and entry.tag.acts:
            if not entry.guard.check(args, kwargs):
                continue
            # The recomputation may end ahead of what the entry does to Python's objects.
            run.note(compiled, None)
            return True, _interp.MISS
        result = compiled._magpy_run(entry, args, kwargs)
        if result is not _interp.MISS:
            if run is not None and not again:
                run.note(compiled, entry)
            return True, result
    if run is not None and not again:
        run.note(compiled, None)
    return again, _interp.MISS


__all__ = ["HEARD", "are_of_python", "serve"]
