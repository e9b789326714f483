"""Arrays and other buffers whose memory tensors of the run have (PEP 3118).

Owns which buffers were given to an operation, which of them a result shares memory with, and that
nobody writes there unseen.  Does not own addresses (magpy/objects/buffers.py) nor steps.  Called by
magpy/capture/tensors/recorder.py.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from magpy.capture.tensors.identity import Identity
from magpy.errors import Refusal, an
from magpy.frames.locations import refuse, where_text
from magpy.ir.ops import Fresh, OutsideRef, Record
from magpy.ir.trees import rebuilt, tensors, variables
from magpy.objects import buffers
from magpy.objects.types import isinstance

# The tuple that tells of it, a variable, the tensor, and the arguments of `_kept` and of
# sys.getrefcount.
_HELD_BY_A_TENSOR = 5
# The array, a variable and the argument.
_HELD_BY_AN_ARRAY = 3


class Shared:
    """The buffers of one run."""

    def __init__(self, tensors: Identity, record: Record) -> None:
        """No buffer was given to an operation yet."""
        self._tensors = tensors
        self._record = record
        # Given to the operation at hand, with the copies kept of them.
        self._given: list[tuple[Any, Any]] = []
        # Those of the run whose memory a tensor has, with what they held then, by that memory.
        self._held: dict[int, tuple[Any, bytes, str]] = {}
        # The memories of tensors that have that of a buffer from outside, with its addresses.
        self._outside: list[tuple[int, buffers.Range | None]] = []
        #: The addresses of those among them that the operation at hand was given.
        self.taken: list[buffers.Range | None] = []
        # The memories of tensors that have that of a buffer which seems to be the run's own, with
        # its addresses, and where it was given.
        self._own: list[tuple[int, buffers.Range | None, str]] = []

    def begin(self) -> None:
        """Another operation is at hand."""
        self._given.clear()
        self.taken.clear()

    def give(self, buffer: Any) -> None:
        """A buffer, perhaps, that cannot be copied is among the arguments."""
        if buffers.of_buffer(buffer) is not None:
            self._given.append((buffer, buffer))

    def copy(self, buffer: Any) -> Any:
        """A buffer is among the arguments.  Returns the copy that the step keeps."""
        copy = buffers.as_it_lies(buffer) if isinstance(buffer, np.ndarray) else buffer.copy()
        self._given.append((buffer, copy))
        return copy

    def in_result(self, plan: tuple[Any, Any], result: Any, outside: Any) -> tuple[Any, Any]:
        """The arguments of an operation whose result may have the memory of one of them.

        A graph would give out the memory of its constant, call after call: such an operation is
        done between segments, on the array itself or on a new copy.

        Args:
            plan: the arguments as the step keeps them.
            result: what the operation gave.
            outside: whether an object existed before the call.

        Raises:
            Refusal: the buffer is the run's own, and cannot be copied; or it has that memory in
                common with another tensor that is alive.
        """
        if not self._given:
            return plan
        made = tensors(result)
        places: dict[int, Any] = {}
        for v, copy in self._given:
            place = buffers.of_buffer(v)
            for t in made:
                if not buffers.meet(place, buffers.of_tensor(t)):
                    continue
                if outside(v):
                    self._outside.append((self._tensors.memory_of(t), place))
                    self.taken.append(place)
                    places[id(copy)] = OutsideRef(v)
                elif copy is v:
                    raise refuse(f"a tensor shares memory with {an(type(v).__name__)} of the call")
                else:
                    self._becomes_own(v, place)
                    places[id(copy)] = Fresh(copy)
                    number, where = self._tensors.memory_of(t), where_text(5)
                    self._own.append((number, place, where))
                    self._held[number] = v, bytes(copy), where
        self._given.clear()
        return rebuilt(plan, lambda v: places.get(id(v), v)) if places else plan

    def _becomes_own(self, buffer: Any, place: buffers.Range | None) -> None:
        """A tensor has the memory of a buffer of the run's: in later calls, that of a new copy."""
        for number, (other, *_) in self._held.items():
            if buffers.meet(place, buffers.of_buffer(other)) and self._tensors.alive(number):
                raise refuse("two tensors share memory with an array of the call")

    def outside(self, plan: Any) -> list[buffers.Range | None]:
        """The addresses of the buffers from outside whose memory tensors among arguments have."""
        if not self._outside:
            return []
        storages = self._record.storages
        return self.among({storages[v] for v in variables(plan) if v in storages})

    def written(self, targets: Any) -> None:
        """Tensors among the arguments are written: nothing else may look at the array.

        Its values are those of the watched run wherever the program uses them.

        Raises:
            Refusal: something else holds it.
        """
        if not self._held:
            return
        memories = {self._record.storages.get(var, 0) for var in variables(targets)}
        for number in [n for n in self._held if self._tensors.merged(n) in memories]:
            array, _, where = self._held.pop(number)
            if _kept(array):
                raise Refusal(
                    "a tensor is changed that shares memory with an array of the call", where
                )

    def among(self, memories: set[int]) -> list[buffers.Range | None]:
        """The addresses of the buffers from outside that tensors with these memories have."""
        held = [(self._tensors.merged(number), place) for number, place in self._outside]
        return [place for number, place in held if number in memories or 0 in memories]

    def seen(self, written: set[int]) -> list[tuple[buffers.Range | None, str]]:
        """Where buffers that seem to be the run's own are which tensors show or write, at its end.

        Args:
            written: the memories that operations write to.
        """
        return [
            (place, where)
            for number, place, where in self._own
            if self._tensors.alive(number) or self._tensors.merged(number) in written
        ]

    def end(self) -> Refusal | None:
        """A refusal if an array was changed, or lives on beside a tensor; lets go of all."""
        refusal = None
        for number, (array, before, where) in self._held.items():
            if bytes(array) != before:
                reason = "an array of the call is changed that shares memory with a tensor"
            elif self._tensors.alive(number) and _kept(array):
                reason = "an array of the call is kept that shares memory with a tensor"
            else:
                continue
            refusal = refusal or Refusal(reason, where)
        self._held.clear()
        return refusal


def _kept(array: Any) -> bool:
    """Whether something holds an array, or what owns its memory, beside the tensor made of it."""
    owner = buffers.owner_of(array)
    if owner is not array and sys.getrefcount(owner) > _HELD_BY_AN_ARRAY:
        return True
    del owner
    return sys.getrefcount(array) > _HELD_BY_A_TENSOR
