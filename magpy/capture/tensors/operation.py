"""One tensor operation while it is recorded.

Owns what the recorder knows of the operation at hand: what it is called with, what is seen while it
runs (`Operation`), and what it turns out to have done (`Done`).  Does not own the decisions
(magpy/capture/tensors/recorder.py): an operation is prepared, performed, classified and emitted as
a step.  What outlives the operation does not belong here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from magpy.frames import call_sites
from magpy.ir.ops import Var
from magpy.unwatched import autograd


class Operation:
    """An operation from the time the program asks for it until its step is written.

    Args:
        func: what the step calls.
        name: its name, or that of the tensor property; "" where nothing depends on it.
        accessor: ("get" | "set" | "del", name) of a tensor property, or None.
        place: where the program calls it.
    """

    __slots__ = (
        "accessor",
        "args",
        "by_whole",
        "changes_arrays",
        "floats",
        "func",
        "given",
        "given_array",
        "guarded",
        "hidden",
        "instead",
        "kwargs",
        "leaf",
        "name",
        "on_host",
        "place",
        "reach",
        "rely",
        "resized",
        "takes_lists",
        "targets",
        "unseen",
        "warns",
        "whole",
    )

    def __init__(
        self,
        func: Any,
        name: str = "",
        accessor: tuple[str, str] | None = None,
        place: call_sites.Site = ("", 0, "", {}),
    ) -> None:
        """Nothing is known of it but what it is."""
        self.func = func
        self.name = name
        self.accessor = accessor
        self.place = place
        # Prepared: the arguments as a step keeps them.
        self.args: Any = ()
        #: What a call is given that is done as a whole.
        self.given: Any = None
        self.kwargs: Any = {}
        #: The program has put another function in place of torch's, which no graph calls.
        self.hidden = False
        #: What the step calls, where that is another function.
        self.instead: Any = None
        #: Tracked values among its arguments become constants, but for floats with `floats`.
        self.rely = self.floats = False
        #: It makes a tensor of numbers, and reads lists that are inputs; their sizes may differ.
        self.takes_lists = self.resized = False
        #: Python does it and no graph: it is given tracked values, arrays among them.
        self.on_host = self.given_array = False
        #: It reads a gradient that guards look at, and becomes no step.
        self.guarded = False
        #: It may write to arrays that were looked into.
        self.changes_arrays = False
        #: The tensors to which it may give other sizes unseen by its name, with their sizes before.
        self.targets: list[tuple[Any, torch.Size]] = []
        #: What autograd's engine reaches in it, if it runs that.
        self.reach: autograd.Reach | None = None
        #: Python of the program runs in it, which is not followed.
        self.whole = False
        # Performed.
        #: It has shown a warning.
        self.warns = False
        #: What a call that is recorded as a whole has written to.
        self.by_whole: frozenset[Var] = frozenset()
        # Classified.
        #: Nobody has seen how the sizes of its results follow from those that vary.
        self.unseen = False
        #: A leaf of autograd's graph is among its results.
        self.leaf = False

    @property
    def plan(self) -> tuple[Any, Any]:
        """The arguments as a step keeps them."""
        return self.args, self.kwargs

    def forget(self) -> None:
        """Lets go of tensors and of autograd's functions, which die as in eager."""
        self.reach = None
        self.targets = []
        self.given = None
        self.args, self.kwargs = (), {}


@dataclass(slots=True)
class Done:
    """What an operation has done and given, of which its step is made.

    Attributes:
        func: what the step calls; for a tensor property `getattr` and the like.
        args: the positional arguments as the step keeps them.
        kwargs: the keyword arguments.
        outs: the new tensors in the result: where, and their variables.
        on_host: Python does it again, and no graph.
        random: it draws from a generator of torch's.
        mutates: it writes to a tensor.
        by_data: what it gives has another form for other data.
        reshapes: so may tensors have that were there before.
        once: it reaches what cannot be put back as it was.
    """

    func: Any
    args: Any
    kwargs: Any
    outs: list[tuple[Any, Var]]
    on_host: bool
    random: bool
    mutates: bool
    by_data: bool
    reshapes: bool
    once: bool


__all__ = ["Done", "Operation"]
