"""What one watched run was, as a whole: the record of its operations, its log, its result.

Owns the data types that the capture hands on.  Does not own the run itself
(magpy/capture/session.py).  Called by it, by the guards' analysis, by the passes, by magpy/runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from magpy.errors import Refusal
from magpy.ir.ops import Record
from magpy.ir.recipes import AttrEffect, ContainerEffect, Spec


class Dims(NamedTuple):
    """Dimensions of a tensor, as bit masks: those whose sizes, and whose strides, are meant."""

    sizes: int = 0
    strides: int = 0


@dataclass(slots=True)
class Varying:
    """What varies among the arguments of a call.

    Attributes:
        sizes: the dimensions by the identity of a tensor.
        numbers: places of positional arguments and names of keyword arguments.
        texts: likewise of strings and bytes.
        arrays: numpy arrays among the arguments.
        lists: lists of numbers in the arguments, each with whether its sizes differ.
        tuples: places and names of tuples of numbers, each with the places in it that differ.
        sized: the addresses of those that had other sizes in other calls.
        places: containers and keys at which there are numbers, or cells with None, each with
            whether what follows from the number is followed.
        data: whether sizes and integers that follow from data are followed.
        contents: what small numpy arrays hold that are reached otherwise is an input, too.
        alike: by the identity of a tensor, its place without the index in a row, if the tensors of
            that row were equally large in each call that was captured: they are taken to be so.
        turns: arguments that are another integer in each turn of the loop around a region: where
            one is fixed (`layers[i]`), each turn would be a capture.
    """

    sizes: dict[int, Dims]
    numbers: set[int | str]
    places: list[tuple[Any, Any, bool]] = field(default_factory=list)
    data: bool = False
    texts: set[int | str] = field(default_factory=set)
    arrays: list[Any] = field(default_factory=list)
    lists: list[tuple[list[Any], bool]] = field(default_factory=list)
    tuples: dict[int | str, frozenset[int]] = field(default_factory=dict)
    sized: set[int] = field(default_factory=set)
    contents: bool = False
    alike: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    turns: frozenset[int] = frozenset()

    @property
    def follow(self) -> bool:
        """Whether a size can depend on something of this."""
        return bool(self.sizes or self.numbers or self.data or self.tuples) or any(
            follow for *_, follow in self.places
        )

    def replace(
        self,
        change: Callable[[Any], Any],
        parts: Callable[[Any, frozenset[int]], Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with the numbers and texts changed, and those in tuples by `parts`."""
        varies = self.numbers | self.texts

        def changed(at: int | str, v: Any) -> Any:
            if at in self.tuples:
                return parts(v, self.tuples[at])
            return change(v) if at in varies else v

        return (
            tuple(changed(i, v) for i, v in enumerate(args)),
            {k: changed(k, v) for k, v in kwargs.items()},
        )


@dataclass(slots=True)
class Differing:
    """What was another value in every call so far: a run that goes by it is refused there.

    Attributes:
        places: what holds such a value, and the key; None for all that is in the holder.
        checked: by the program's line, the values that followed from data and were relied on.
        fixed: expressions, with their lines, that relied on a size or number that varies.
    """

    places: list[tuple[Any, Any]] = field(default_factory=list)
    checked: dict[str, set[Any]] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class Capture:
    """A finished, successful capture: all that the later stages need.

    Attributes:
        f, args, kwargs: the call.
        log: what the run read and wrote of Python's objects, in order.
        record: what it did to tensors.
        metas: the metadata that tensors from outside had when the call began, by identity.
        state: torch's global state when the call began (magpy/models/torch_state.py).
        result: how the result, or the exception, is made again.
        effects: what outside objects must become.
        redo: questions that the guard asks again: a function, its arguments, the answer.
        opaque: outside objects with state in C, and a picture of it (magpy/objects/c_state.py).
        arrays: numpy arrays from outside, and what they were (magpy/objects/buffers.py).
        array_inputs: numpy arrays whose contents are inputs, each with whether its sizes are, too.
        buffers: bytes from outside that were read as such.
        memos: caches that were asked (`functools.lru_cache`), the key, what they knew.
        start_modes: torch's modes when the call began.
        events: how many events the session saw.
        instances_vary: modules and functions that are reached through the arguments are other ones
            in other calls, and count by what they are like.
        again: what it gives may be differentiated so that the derivatives can be.
        renewed: addresses of dicts, with keys, of closure cells, with None, and of lists, with
            places: what they hold is another object in other calls.
    """

    f: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    log: list[tuple[str, Any, Any, Any]]
    record: Record
    metas: dict[int, Any]
    state: Any
    result: Spec
    effects: list[ContainerEffect | AttrEffect]
    redo: list[tuple[Any, tuple[Any, ...], Any]]
    opaque: list[tuple[Any, Any]]
    arrays: list[tuple[Any, Any]]
    array_inputs: list[tuple[Any, bool]] = field(default_factory=list)
    buffers: list[Any]
    memos: list[tuple[Any, Any, Any, Any]]
    start_modes: Any
    events: int
    instances_vary: bool = False
    again: bool = False
    renewed: frozenset[tuple[int, Any]] = frozenset()


@dataclass(slots=True)
class Outcome:
    """What came of the watched run: its own outcome, and the capture or why there is none.

    Attributes:
        contents: whether it was refused, and what a small array holds that was reached an input.
        again: as of its record.
        keeps_graph: likewise.
    """

    value: Any = None
    exception: BaseException | None = None
    capture: Capture | None = None
    refusal: Refusal | None = None
    failure: BaseException | None = None
    stage: str = ""
    contents: bool = False
    again: bool = False
    keeps_graph: bool = False

    def taken(self) -> BaseException:
        """Why there is no capture, which is forgotten.

        An exception that is raised refers to its frames: where these refer to what keeps the
        exception, only the collector would let go of the call's arguments.
        """
        error = self.failure or self.refusal
        assert error is not None
        self.failure = self.refusal = None
        return error
