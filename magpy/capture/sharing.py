"""Arrays and other buffers whose memory tensors of the run have (PEP 3118).

Owns which buffers were given to an operation, which of them a result shares memory with, and that
nobody writes there unseen.  Does not own addresses (magpy/capture/memory.py) nor steps.  Called by
magpy/capture/recorder.py.
"""

from __future__ import annotations

import sys
from typing import Any

from magpy.capture import memory
from magpy.capture.identity import Identity
from magpy.capture.steps import Fresh, OutsideRef, Record
from magpy.capture.trees import rebuilt, tensors, variables
from magpy.capture.where import refuse, where_text
from magpy.errors import Refusal

# The tuple that tells of it, the tensor, and the argument of sys.getrefcount.
_HELD_BY_A_TENSOR = 3


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
        self._outside: list[tuple[int, memory.Range | None]] = []

    def begin(self) -> None:
        """Another operation is at hand."""
        self._given.clear()

    def give(self, buffer: Any) -> None:
        """A buffer, perhaps, that cannot be copied is among the arguments."""
        if memory.of_buffer(buffer) is not None:
            self._given.append((buffer, buffer))

    def copy(self, buffer: Any) -> Any:
        """A buffer is among the arguments.  Returns the copy that the step keeps."""
        copy = buffer.copy()
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
            Refusal: the buffer is the run's own, and cannot be copied.
        """
        if not self._given:
            return plan
        made = tensors(result)
        places: dict[int, Any] = {}
        for v, copy in self._given:
            place = memory.of_buffer(v)
            for t in made:
                if not memory.meet(place, memory.of_tensor(t)):
                    continue
                if outside(v):
                    self._outside.append((self._tensors.memory_of(t), place))
                    places[id(copy)] = OutsideRef(v)
                elif copy is v:
                    raise refuse(f"a tensor shares memory with a {type(v).__name__} of the call")
                else:
                    places[id(copy)] = Fresh(copy)
                    self._held[self._tensors.memory_of(t)] = v, bytes(copy), where_text(5)
        self._given.clear()
        return rebuilt(plan, lambda v: places.get(id(v), v)) if places else plan

    def written(self, targets: Any) -> None:
        """Tensors among the arguments are written: nothing else may look at the array.

        Its values are those of the watched run wherever the program uses them.

        Raises:
            Refusal: something else holds it.
        """
        if not self._held:
            return
        for var in variables(targets):
            shared = self._held.pop(self._record.storages.get(var, 0), None)
            if shared is not None and sys.getrefcount(shared[0]) > _HELD_BY_A_TENSOR:
                raise Refusal(
                    "a tensor is changed that shares memory with an array of the call", shared[2]
                )

    def among(self, memories: set[int]) -> list[memory.Range | None]:
        """The addresses of the buffers from outside that tensors with these memories have."""
        held = [(self._tensors.merged(number), place) for number, place in self._outside]
        return [place for number, place in held if number in memories or 0 in memories]

    def end(self) -> Refusal | None:
        """A refusal if an array was changed; lets go of all."""
        changed = [where for array, before, where in self._held.values() if bytes(array) != before]
        self._held.clear()
        reason = "an array of the call is changed that shares memory with a tensor"
        return Refusal(reason, changed[0]) if changed else None
