"""Arrays and other buffers from outside that a run looks into, whose memory others may have.

Owns what they held when they were first read, and the refusals where a tensor shares their memory
and one of them is changed.  Does not own telling where memory lies (magpy/objects/buffers.py), nor
buffers that the run makes (magpy/capture/tensors/buffers.py).  Asked by
magpy/capture/python/callbacks.py while the program runs, and by magpy/capture/session.py at its
end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from magpy.capture.python.run import Run
from magpy.errors import Refusal, Site, an, frames_of_the_call
from magpy.frames.locations import where_text
from magpy.ir.aliasing import of_arrays, written
from magpy.ir.ops import HostStep, OpStep, Record, Var
from magpy.models.torch_ops import would_write
from magpy.objects import buffers as memory
from magpy.objects import c_state
from magpy.objects.types import isinstance


class OutsideBuffers:
    """The buffers from outside that one run has looked into.

    Args:
        run: the state of the run.
    """

    def __init__(self, run: Run) -> None:
        """None yet."""
        self._run = run
        #: Arrays, with their form at the first look.
        self.arrays = run.arrays
        #: Those whose contents are inputs, each with whether its sizes are, too.
        self.inputs: list[tuple[Any, bool]] = []
        self._first_looks: set[int] = set()
        #: Other objects with a state of C's, with a picture of that.
        self.opaque: list[tuple[Any, Any]] = []
        #: The memory that was written as that of an array.
        self.written: list[memory.Range | None] = []
        # Where the program looked first, by the object's address.
        self._sites: dict[int, tuple[str, list[Site]]] = {}

    def looked_into(self) -> bool:
        """Whether there are any."""
        return bool(self.arrays or self.opaque)

    def opaque_read(self, obj: Any, picture: Any) -> None:
        """An object with a state of C's is looked into, of which this is the picture."""
        self.opaque.append((obj, picture))
        self._seen_at(obj)

    def array_read(self, array: Any) -> None:
        """An outside array, or one of a subclass, is looked into."""
        if np.asarray(array).dtype.hasobject:
            self._run.refuse("an array of objects from outside is read", "Use a list instead")
        self.arrays.append((array, memory.form_of(array)))
        self._seen_at(array)

    def written_tensors(self, record: Record) -> frozenset[Var]:
        """The outside tensors whose memory was written as that of an array."""
        if not self.written:
            return frozenset()
        places = [(v, memory.of_tensor(t)) for v, t in record.inputs.items()]
        return frozenset(v for v, p in places if any(memory.meet(p, w) for w in self.written))

    def is_input(self, array: Any, sized: bool = False) -> None:
        """The contents of an array are an input: guards look at its layout alone.

        Args:
            array: it.
            sized: its sizes are inputs, too.
        """
        self.arrays.append((array, memory.form_of(array)))
        self._sites.setdefault(id(array), ("", []))
        self._first_looks.add(len(self.arrays) - 1)
        self.inputs.append((array, sized))

    def _seen_at(self, obj: Any) -> None:
        if id(obj) not in self._sites:
            self._sites[id(obj)] = where_text(), frames_of_the_call()

    def _refusal(self, obj: Any, reason: str, where: str, remedy: str = "") -> Refusal:
        """A refusal at the place at which the run first came to an array or a buffer."""
        site, frames = self._sites.get(id(obj), (where, []))
        refusal = Refusal(reason, site, remedy)
        refusal.frames = frames
        return refusal

    def compared(self) -> list[tuple[Any, Any]]:
        """The arrays whose contents the run has gone by: other calls must have the same."""
        # An input is there again where something has looked at all of it.
        return [v for i, v in enumerate(self.arrays) if i not in self._first_looks]

    def check_inputs(self, record: Record) -> None:
        """Refuses where an operation writes to memory of an array, which may be that of an input.

        Python writes it, ahead of what may have the entry left.
        """
        if not self.inputs:
            return
        arrays = of_arrays(record)
        for step in record.steps:
            if not isinstance(step, (OpStep, HostStep)) or not step.mutates:
                continue
            # An operation without a new tensor may be one that gives what it was given (`float`).
            writes = step.writes or would_write(step.func, None, step.kwargs)
            if writes and not arrays.isdisjoint(written(step)):
                reason = "a tensor is changed that has the memory of an array"
                self._run.refusals.keep(Refusal(reason, step.where, "Copy the array first"))
                return

    def check_arrays(self) -> None:
        """Refuses where the call has changed an array."""
        for array, before in self.arrays:
            if memory.form_of(array) != before:
                reason = "a numpy array from outside is changed"
                self._run.refusals.keep(self._refusal(array, reason, "", "Return a new array"))

    def check_shared(self, where: str) -> None:
        """Refuses where a buffer from outside and a tensor share memory, and one is changed.

        What the buffer held when it was first read need not be what it held before the call; and
        what Python writes to it is written when the operations are over.

        Args:
            where: the place to name where that of the read is not known.
        """
        read = self._looked()
        refusals = self._run.refusals
        if not read or refusals.first is not None:
            return
        record = self._run.recorder.record
        written = [*self.written, *(memory.of_tensor(record.inputs[v]) for v in record.mutated)]
        for obj, changed in read:
            place = memory.of_buffer(obj)
            shown = any(memory.meet(place, memory.of_tensor(t)) for t in record.inputs.values())
            if shown and changed():
                kind = an(type(obj).__name__)
                reason = f"{kind} from outside is changed whose memory a tensor has"
                refusals.keep(self._refusal(obj, reason, where))
                return
            if any(memory.meet(place, w) for w in written):
                reason = (
                    f"memory that is read as {an(type(obj).__name__)} from outside is changed "
                    "through a tensor"
                )
                refusals.keep(self._refusal(obj, reason, where))
                return
            for own, site in self._run.recorder.views:
                if memory.meet(place, own):
                    kind = an(type(obj).__name__)
                    reason = f"a tensor has the memory of a view of {kind} from outside"
                    remedy = "Give the operation the object itself, and take a view of the tensor"
                    refusals.keep(Refusal(reason, site, remedy))
                    return

    def check_below(self) -> None:
        """Refuses where an effect has changed what the call looks at."""
        objects = {id(v) for v, _ in (*self.arrays, *self.opaque)}
        self._run.refusals.keep(self._run.recorder.below.shared(objects))

    def shared(self) -> list[Any]:
        """The objects from outside that were read and whose memory others may have, too."""
        return [obj for obj, _ in self._looked() if memory.of_buffer(obj) is not None]

    def _looked(self) -> list[tuple[Any, Callable[[], bool]]]:
        """The buffers from outside that were read; tells of each whether it was changed since."""

        def array_changed(array: Any, form: Any) -> bool:
            return bool(memory.form_of(array) != form)

        def object_changed(obj: Any, picture: Any) -> bool:
            return not c_state.same(c_state.picture(obj), picture)

        def bytes_changed(obj: bytearray, before: bytearray) -> bool:
            return obj != before

        found = [(obj, functools.partial(array_changed, obj, form)) for obj, form in self.arrays]
        found += [(obj, functools.partial(object_changed, obj, was)) for obj, was in self.opaque]
        for obj, before, *_ in self._run.session.containers():
            if isinstance(obj, bytearray):
                found.append((obj, functools.partial(bytes_changed, obj, before)))
        return list(found)

    def is_rewritten(self, place: Any) -> bool:
        """Whether a buffer from outside with some of these bytes is not as it was at first."""
        return any(
            memory.meet(place, memory.of_buffer(obj)) and is_changed()
            for obj, is_changed in self._looked()
        )


__all__ = ["OutsideBuffers"]
