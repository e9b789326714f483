"""What the reference graph is made from: the run, and answers that no event of the log gives.

Owns `Run` and `World`.  Does not own what is made of them (magpy/guards/graph.py,
magpy/guards/analysis.py), which are pure functions of both.
"""

from __future__ import annotations

import collections
import types
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from magpy import _interp, _tensor
from magpy.guards.checks import ABSENT, addresses, maxlen_of, spec_of
from magpy.objects import c_state

_factory_of: Any = vars(collections.defaultdict)["default_factory"].__get__


def key_of_place(key: Any) -> Any:
    """What tells a place in a dict by its key without the program's code; None for other keys.

    A string or an integer itself; and which object another one is that is equal to itself alone:
    `velocity[parameter]`, `activations[layer]`.
    """
    t = type(key)
    if t in (str, int):
        return key
    if t in (torch.Tensor, torch.nn.Parameter):
        return "object", id(key)
    by_identity = all(_interp.type_lookup(t, name) is of for name, of in _OF_OBJECTS)
    return ("object", id(key)) if by_identity else None


_OF_OBJECTS = [(name, vars(object)[name]) for name in ("__hash__", "__eq__")]


@dataclass(frozen=True, slots=True)
class Run:
    """What is to be known of a run beside what it read.

    Attributes:
        log: (event, object, key, value) in the order of the run.
        f, args, kwargs: what was called, and with what.
        metas: what the tensors were like when the call began, by identity.
        noted: the identities of the tensors that operations took or whose metadata was read; None
            if some may have been that nobody knows.
        numbers: the identities of arguments that are numbers and inputs.
        gradients: tensors and the gradients that they had when the call began.
        overwritten: identities of dicts, with keys, under which the run stored something, or the
            program does between calls, and of such closure cells: reads were of its own state.
        rearranged: identities of lists and deques into which the run put something.
        held_numbers: numbers from outside that are inputs and no arguments, by identity: each with
            the function that reads it, what holds it, and the key.
        numbered: identities of lists and deques, with places of numbers that are inputs.
        parts: identities of dicts, with keys of tuples of which numbers are inputs.
        instances_vary: modules and functions that are reached through the arguments are other ones
            in other calls.
    """

    log: Sequence[tuple[str, Any, Any, Any]]
    f: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    metas: dict[int, Any] = field(default_factory=dict)
    noted: frozenset[int] | None = None
    numbers: frozenset[int] = frozenset()
    held_numbers: Mapping[int, tuple[Any, Any, Any, Any]] = field(default_factory=dict)
    gradients: tuple[tuple[Any, Any], ...] = ()
    overwritten: frozenset[tuple[int, Any]] = frozenset()
    rearranged: frozenset[int] = frozenset()
    numbered: frozenset[tuple[int, int]] = frozenset()
    parts: frozenset[tuple[int, Any]] = frozenset()
    instances_vary: bool = False

    def places(self, obj: Any, pre: Any) -> set[int]:
        """The places of numbers that are inputs, which may have been counted from the end."""
        return {i % len(pre) for holder, i in self.numbered if holder == id(obj)} if pre else set()


class World:
    """What the walk asks of objects as they are after the run, since no event tells it.

    A test of a hand-written log answers itself.
    """

    def instance_dict(self, obj: Any) -> Any:
        """The `__dict__` that an object has now: the run may have replaced it."""
        return object.__getattribute__(obj, "__dict__")

    def default_factory(self, d: Any) -> Any:
        """The factory of a defaultdict, unless the run has set another, of which the log tells."""
        return _factory_of(d)

    def maxlen(self, d: Any) -> int | None:
        """How many elements a deque takes; that never changes."""
        most: int | None = maxlen_of(d)
        return most

    def meta(self, tensor: Any, sizes: bool = True) -> Any:
        """What a tensor is like of which no operation took note: so it is what it was.

        Args:
            tensor: the tensor.
            sizes: its sizes and strides matter.
        """
        if sizes or tensor.layout is not torch.strided or tensor.is_nested:
            return _tensor.TensorMeta(tensor)
        every = range(tensor.dim())
        return _tensor.TensorMeta(tensor, dims=every, strides=every)

    def state(self, obj: Any) -> Any:
        """The value of an object of C, which never changes; None if its type does not tell."""
        return c_state.picture(obj)

    def held(self, obj: Any) -> Iterable[Any]:
        """What an object of C holds, which never changes either."""
        return c_state.held(obj)

    def referent(self, ref: Any) -> Any:
        """What a weak reference refers to; None: it has died."""
        return weakref.ref.__call__(ref)

    def class_attribute(self, cls: type, name: str) -> Any:
        """What a class has where an operation is looked up in every call."""
        return _interp.type_lookup(cls, name)

    def module_attribute(self, module: types.ModuleType, name: str) -> tuple[Any, Any]:
        """Likewise a module: its dict, and what that has."""
        held = vars(module)
        return held, held.get(name, ABSENT)

    def placement(self, tensor: Any) -> Any:
        """How a DTensor lies on its mesh; None for other tensors."""
        return spec_of(tensor)

    def overlaps(self, tensors: list[Any], count: int) -> list[tuple[int, int, int]]:
        """Which tensors share memory with the first `count`, and how."""
        if _tensor.apart(tensors, count):
            return []
        return [
            (i, j, how)
            for i in range(count)
            for j in range(i + 1, len(tensors))
            if (how := _tensor.overlaps(tensors[i], tensors[j]))
        ]

    def addresses(self, objects: Iterable[Any]) -> list[Any]:
        """Where the data of tensors and of buffers lie."""
        return list(addresses(objects))
