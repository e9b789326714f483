"""The gradients that tensors from outside had when the call began.

Owns which of them a run has read or added to, so that they are outside objects like others: guards
look at them (`Record.gradients`), compare which they are, and know what memory they share.  Does
not own the passes of autograd's engine (magpy/unwatched/autograd.py), nor what a call makes of a
gradient, whose later reads are steps.  Made and told by the recorder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from magpy import _tensor
from magpy.capture.tensors.identity import Identity
from magpy.ir.ops import Record
from magpy.objects.types import isinstance


class Gradients:
    """The gradients of one run.

    Args:
        record: where those that guards look at are noted.
        tensors: the variables of the run.
        is_outside: says whether an object existed before the call and was reached by it.
        reach: is told of what is reached.
    """

    def __init__(
        self,
        record: Record,
        tensors: Identity,
        is_outside: Callable[[Any], bool],
        reach: Callable[[Any], Any],
    ) -> None:
        """Knows none."""
        self._record = record
        self._tensors = tensors
        self._is_outside = is_outside
        self._reach = reach
        self._known: dict[int, torch.Tensor] = {}  # the tensors whose gradients are dealt with
        self._noted: set[int] = set()  # those of them that guards look at
        self._changed = False
        self._unseen = False

    def read(self, tensor: Any) -> bool:
        """The program reads a gradient; True if it is what the call began with, which is guarded.

        Where it is not, the call has changed a gradient (some step may have changed this one).
        """
        if not self._begins(tensor):
            return False
        return not self._changed

    def assigned(self, tensor: Any) -> None:
        """The program assigns a gradient: from here on the call knows what it is."""
        self._known.setdefault(id(tensor), tensor)
        self._changed = True

    def added(self, leaves: Iterable[torch.Tensor]) -> None:
        """Autograd's engine is about to add to the gradients of leaves."""
        for leaf in leaves:
            if not self._begins(leaf):
                # Made by the call, or not reached before: what it has now is not what it had.
                self._known.setdefault(id(leaf), leaf)
        self._changed = True

    def unseen(self) -> None:
        """Something runs that may change gradients, and tells nobody.

        What a gradient was that nobody has looked at so far cannot be found out any more.
        """
        self._changed = self._unseen = True

    def forget(self) -> None:
        """Lets go of all tensors, and of who told of them."""
        self._known.clear()
        self._noted.clear()
        self._is_outside = self._reach = bool

    def _begins(self, tensor: Any) -> bool:
        """Whether the tensor's gradient of the call's beginning is noted, now or already."""
        if id(tensor) in self._known:
            return id(tensor) in self._noted
        if self._unseen or not isinstance(tensor, torch.Tensor) or not self._is_outside(tensor):
            return False
        self._known[id(tensor)] = tensor
        self._noted.add(id(tensor))
        gradient = _tensor.gradient(tensor)
        self._record.gradients.append((tensor, gradient))
        if gradient is not None:
            self._reach(gradient)
            self._tensors.var_of(gradient)
        return True
