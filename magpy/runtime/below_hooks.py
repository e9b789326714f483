"""Calls while hooks of saved tensors are set, which run in the middle of an entry's operations.

Owns which entries serve such a call, and whether an entry that was made below a hook may serve
others.  Does not own what an entry must be like for that (magpy/runtime/hearing.py), nor the passes
of a checkpoint (magpy/runtime/checkpoints.py).  Called by magpy/runtime/compiled.py.
"""

from __future__ import annotations

from typing import Any

from magpy import _interp
from magpy.backends.runner import EntryInfo
from magpy.errors import Refusal
from magpy.ir.capture import Capture
from magpy.objects.quiet import unheard
from magpy.runtime import checkpoints, hearing
from magpy.runtime import entry as entries
from magpy.runtime.journal import Journal
from magpy.unwatched.reachability import is_torchs_hook

HEARD = "hooks of saved tensors are set that are Python of the program"


def serve(
    compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any], pack: Any, journal: Journal
) -> tuple[bool, Any]:
    """Whether a call is not captured, and what it gives: MISS for it to run eagerly.

    A call that is computed again for a checkpoint is only served, and as it was the first time.

    Args:
        compiled: the callable.
        args: what it is given, with `kwargs`.
        kwargs: see `args`.
        pack: the hook that packs what is saved.
        journal: the callable's.
    """
    run = checkpoints.pass_of(pack)
    again = run is not None and run.again
    theirs = run is None and not is_torchs_hook(pack)
    made = list(compiled._magpy_entries) if run is None or not again else run.entries(compiled)
    for entry in made:
        if run is not None and not again and run.stops and entry.tag.acts:
            if not entry.guard.check(args, kwargs):
                continue
            # The recomputation may end ahead of what the entry does to Python's objects.
            run.note(compiled, None)
            return True, _interp.MISS
        if (
            theirs
            and entry.guard.check(args, kwargs)
            and not hearing.may_run(entry.tag, pack, args, kwargs)
        ):
            journal.note(HEARD)
            return True, _interp.MISS
        result = compiled._magpy_run(entry, args, kwargs)
        if result is not _interp.MISS:
            if run is not None and not again:
                run.note(compiled, entry)
            return True, result
    if run is not None and not again:
        run.note(compiled, None)
    return again, _interp.MISS


def admit(capture: Capture, info: EntryInfo, pack: Any) -> None:
    """An entry was made below a hook of the program: says whether it may serve below such.

    Raises:
        Refusal: the hook may have changed what the call has looked at.
    """
    info.heard = hearing.looked_at(capture)
    if not hearing.may_run(info, pack, capture.args, capture.kwargs):
        raise Refusal(f"{HEARD}, and may change what the call looks at", passing=True)
    first = info.runners[0].segment if info.runners else None
    with unheard():
        inputs = entries.example_inputs(capture, first) if first is not None else None
        if not (info.in_order and hearing.saves_as_eager(info, inputs)):
            info.heard = None


__all__ = ["HEARD", "admit", "serve"]
