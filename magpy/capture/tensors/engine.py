"""Passes of autograd's engine in a run: what they reach, and whether they can be made again.

Owns whether Python of the program runs in a pass, which is refused, and whether the pass changes
what nobody could put back.  Does not own what there is in autograd's graph
(magpy/unwatched/autograd.py), the gradients that passes add to
(magpy/capture/tensors/gradients.py) nor the step.  Called by
magpy/capture/tensors/recorder.py.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch

from magpy import _tensor
from magpy._tensor import DYNAMIC_SHAPE, LOOKS
from magpy.capture.tensors.gradients import Gradients
from magpy.capture.tensors.identity import Identity
from magpy.capture.tensors.pass_hooks import PassHooks
from magpy.errors import Refusal
from magpy.frames.locations import refuse
from magpy.ir.ops import Record, Unwatched, Var
from magpy.objects.quiet import saved_tensors_are_heard
from magpy.unwatched import autograd, listeners

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class EnginePasses:
    """The passes of autograd's engine in one run.

    Args:
        record: the record of the run.
        tensors: the variables of its tensors.
        gradients: the gradients that it reads and adds to.
        session: the C++ session.
    """

    def __init__(
        self,
        record: Record,
        tensors: Identity,
        gradients: Gradients,
        session: Any,
    ) -> None:
        """No pass was made yet."""
        self._record = record
        self._tensors = tensors
        self._gradients = gradients
        self._session = session
        self.hooks = PassHooks()

    def reached(self, func: Any, args: Any, kwargs: Any) -> autograd.Reach | None:
        """What a pass of autograd's engine will reach, if the operation makes one."""
        if func not in autograd.RUNS:
            return None
        reach = autograd.reach((args, kwargs), self.hooks.known)
        if autograd.keeps_graph(func, args, kwargs):
            self._record.keeps_graph = True
            given = self._record.inputs.values()
            self._record.again |= any(autograd.goes_on(reach.nodes, t) for t in given)
        self._gradients.added(reach.leaves if func in autograd.ADDS else ())
        ran = listeners.runs(reach.functions).functions
        if ran:
            raise _in_pass(
                f"a backward pass runs {listeners.name_of(ran[0])}, which nobody watches there"
            )
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
        """Has guards ask whether Python of the program's runs unwatched below a step.

        Raises:
            Refusal: it does.
        """
        objects = tuple(of)
        noted = [u.of for u in self._record.unwatched if u.ask is ask and len(u.of) == len(objects)]
        if not any(all(map(operator.is_, of, objects)) for of in noted):
            heard = ask(*objects)
            if heard.functions:
                name = listeners.name_of(heard.functions[0])
                raise _in_pass(
                    f"{name} runs in it, Python of the program that nobody watches there"
                )
            self._record.unwatched.append(Unwatched(ask, objects, heard.passes))

    def goes_beyond(self, reach: autograd.Reach) -> bool:
        """Whether a pass of autograd's engine has reached what cannot be put back as it was."""
        changed = self._tensors.dirty()
        given = [t for v, t in self._record.inputs.items() if v not in changed]
        return any(self._tensors.known(t) is None for t in reach.leaves) or any(
            autograd.goes_on(reach.nodes, t) for t in given
        )

    def leaves(self, reach: autograd.Reach, adds: bool) -> tuple[Var, ...] | None:
        """The tensors to whose gradients a pass has added; None if a graph cannot make the pass.

        What listens in C++ to what is added to gradients (processes that train together) would not
        hear of the pass.

        Args:
            reach: what the pass has reached.
            adds: it adds to gradients, and does not give them as results.
        """
        if any(map(_tensor.has_native_hooks, (*reach.nodes, *reach.leaves))):
            return None
        found: list[Var] = []
        for t in reach.leaves:
            var, gradient = self._tensors.known(t), t.grad
            if var is None or type(t) not in _PLAIN or saved_tensors_are_heard():
                return None
            if gradient is not None and adds:
                if type(gradient) is not torch.Tensor or gradient.layout is not torch.strided:
                    return None
                found.append(var)
        given = self._record.inputs
        self.unwatched(
            listeners.native_hooks, [t for t in reach.leaves if self._tensors.known(t) in given]
        )
        return tuple(found)

    def decides(self, reach: autograd.Reach, flags: int) -> bool:
        """Whether Python in autograd's engine looks at data, so that other data may change more."""
        return bool(flags & (LOOKS | DYNAMIC_SHAPE) and reach.functions)


def _in_pass(reason: str) -> Refusal:
    """A refusal of a pass, in which hooks may still run compiled (magpy/runtime/hooks.py)."""
    refusal = refuse(reason)
    refusal.drives = True
    return refusal


__all__ = ["EnginePasses"]
