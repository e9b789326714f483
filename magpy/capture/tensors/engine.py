"""Passes of autograd's engine in a run: what they reach, and whether they can be made again.

Owns which Python of the program runs in a pass, and what the pass changes that nobody could put
back.  Does not own what there is in autograd's graph (magpy/unwatched/autograd.py), the gradients
that passes add to (magpy/capture/tensors/gradients.py) nor the step.  Called by
magpy/capture/tensors/recorder.py.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from magpy._tensor import DYNAMIC_SHAPE, LOOKS
from magpy.capture.refusals import RefusalBox
from magpy.capture.tensors.gradients import Gradients
from magpy.capture.tensors.identity import Identity
from magpy.frames.locations import refuse
from magpy.ir.ops import Record, Unwatched
from magpy.unwatched import autograd, listeners
from magpy.unwatched.changes import Below


class EnginePasses:
    """The passes of autograd's engine in one run.

    Args:
        record: the record of the run.
        tensors: the variables of its tensors.
        gradients: the gradients that it reads and adds to.
        below: what Python that runs unwatched changes.
        refusals: keeps the refusal of the run.
        session: the C++ session.
    """

    def __init__(
        self,
        record: Record,
        tensors: Identity,
        gradients: Gradients,
        below: Below,
        refusals: RefusalBox,
        session: Any,
    ) -> None:
        """No pass was made yet."""
        self._record = record
        self._tensors = tensors
        self._gradients = gradients
        self._below = below
        self._refusals = refusals
        self._session = session

    def reached(self, func: Any, args: Any, kwargs: Any) -> autograd.Reach | None:
        """What a pass of autograd's engine will reach, if the operation makes one."""
        if func not in autograd.RUNS:
            return None
        reach = autograd.reach((args, kwargs))
        self._gradients.added(reach.leaves if func in autograd.ADDS else ())
        if reach.functions:
            self._gradients.unseen()
        self._hooks_noted(reach)
        return reach

    def _hooks_noted(self, reach: autograd.Reach) -> None:
        """Notes which Python runs in a pass of the engine: other calls may find more of it."""
        if self._session is None:
            return
        changed = self._tensors.dirty()
        given = [t for v, t in self._record.inputs.items() if v not in changed]
        ends = [
            t
            for t in given
            if autograd.made_by_of(t) is not None and autograd.goes_on(reach.nodes, t)
        ]
        ends += [t for t in reach.leaves if self._session.is_outside(t)]
        self.unwatched(listeners.hooks, ends)

    def unwatched(self, ask: Any, of: Iterable[Any]) -> None:
        """Notes who tells which Python runs unwatched below a step, and of which objects."""
        objects = tuple(of)
        noted = [u.of for u in self._record.unwatched if u.ask is ask and len(u.of) == len(objects)]
        if not any(all(map(operator.is_, of, objects)) for of in noted):
            try:
                heard = ask(*objects)
                reach = heard.reach()
            except Exception as error:  # noqa: BLE001 - it must not reach the program
                self._refusals.fail(error)
                return
            self._record.unwatched.append(Unwatched(ask, objects, heard.codes, reach))

    def goes_beyond(self, reach: autograd.Reach) -> bool:
        """Whether a pass of autograd's engine has reached what cannot be put back as it was."""
        changed = self._tensors.dirty()
        given = [t for v, t in self._record.inputs.items() if v not in changed]
        by_hooks = self._hooks_changed(reach)  # which is noted, whatever else there is
        return (
            by_hooks
            or any(self._tensors.known(t) is None for t in reach.leaves)
            or any(autograd.goes_on(reach.nodes, t) for t in given)
        )

    def _hooks_changed(self, reach: autograd.Reach) -> bool:
        """Whether Python that ran in the engine has changed something."""
        changed = reach.changed() if reach.functions else []
        if changed is None:
            return True
        changed += self._below.differences()
        self._below.by_hooks(changed)
        return bool(changed)

    def decides(self, reach: autograd.Reach, flags: int) -> bool:
        """Whether Python in autograd's engine looks at data, so that other data may change more.

        Raises:
            Refusal: nobody can tell what it may change.
        """
        if not flags & (LOOKS | DYNAMIC_SHAPE) or not reach.functions:
            return False
        if reach.state is None:
            raise refuse(
                "a hook of gradients reads the values of tensors, and can reach more objects than "
                "magpy can watch for changes"
            )
        self._below.by_hooks(list(reach.state))
        return True


__all__ = ["EnginePasses"]
