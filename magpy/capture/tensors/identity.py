"""Which variable a tensor object is.

Owns the variables of one run, the tensors that they stand for (held weakly if the program made
them, so that a capture needs no more memory than eager), which of them share memory, and which
tensors from outside were changed in place.  Does not own the steps
(magpy/capture/tensors/recorder.py). Made and asked by the recorder; the handlers ask it too.
"""

from __future__ import annotations

import bisect
import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from magpy import _tensor
from magpy.capture.tensors.functorch import wrapped
from magpy.frames.locations import refuse
from magpy.ir.aliasing import UNKNOWN
from magpy.ir.capture import Dims
from magpy.ir.ops import NotStrided, Record, Var, Wrapped
from magpy.ir.trees import tensors, variables
from magpy.models.torch_ops import OF_MEMORY, OF_PARTS, OF_TENSOR
from magpy.objects import buffers as memory
from magpy.objects import jagged
from magpy.objects.quiet import unheard
from magpy.objects.types import isinstance
from magpy.shapes.symbols import Symbols

#: Why a call is refused that writes to a memory of which `Identity.is_of_jagged` tells.
JAGGED_CHANGED = "a jagged tensor from outside is changed, or the offsets of one"
# Classes whose tensors are of any layout.
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class Identity:
    """The tensors of one run.

    Args:
        record: where variables, inputs and memories are noted.
        is_outside: says whether an object existed before the call and was reached by it.
        symbols: the sizes that vary from call to call; None if there are none.
        reads: is told of an attribute of an object that guards are to read.
        compiled: a compiler takes the graphs, which has to know the sizes of their inputs.
    """

    def __init__(
        self,
        record: Record,
        is_outside: Callable[[Any], bool],
        symbols: Symbols | None,
        reads: Callable[[Any, str, Any], Any] | None = None,
        compiled: bool = False,
    ) -> None:
        """Knows no tensor."""
        self._reads = reads
        self._compiled = compiled
        #: The variables whose shapes follow from data, and those of which that was so.
        self.unsized: set[Var] = set()
        self.ever_unsized: set[Var] = set()
        #: The memories of what tells where the sequences of jagged tensors are.
        self.indices: set[int] = set()
        # What is compared of the parts of jagged tensors: not the sizes that are data.
        self._parts: dict[int, Any] = {}
        self._record = record
        self._is_outside = is_outside
        self._symbols = symbols
        self._known: dict[int, tuple[weakref.ref[Any], Var]] = {}
        self._versions: dict[Var, int] = {}
        self._memory: dict[int, tuple[int, list[weakref.ref[Any]]]] = {}
        self._memories = 0
        self._in_memory: dict[int, list[Var]] = {}
        self._merged: dict[int, int] = {}
        # Where the memories of inputs are, in order, each with one of them; none meets another.
        self._ranges: list[tuple[int, int, Var]] = []
        self._ends: list[int] = []
        #: Whether one of the tensors is jagged.
        self.any_jagged = False
        #: What each input was before the run changed it, by identity.
        self.metas: dict[int, Any] = {}

    def new(self, tensor: Any = None) -> Var:
        """A fresh variable, for `tensor` if one is given."""
        record = self._record
        var = Var(record.nvars)
        record.nvars += 1
        if tensor is not None:
            self._remember(tensor, var)
            memories = self._memories
            memory = record.storages[var] = self.memory_of(tensor)
            if self._memories > memories:
                record.fresh.add(var)
            self._in_memory.setdefault(memory, []).append(var)
            held = tensor
            if jagged.is_jagged(tensor):
                held, self.any_jagged = jagged.held(tensor), True
                self.sized_by_data([var])
                rows = [part for _, part, _ in jagged.parts(tensor)[2:] if part is not None]
                self.indices.update(map(self.memory_of, rows))
            with unheard():  # a subclass hears of what the program asks
                record.elements[var] = held.numel()
                if tensor.is_floating_point() or tensor.is_complex():
                    record.floating.add(var)
                if tensor.is_complex():
                    record.complex.add(var)
            cls = type(tensor)
            if cls in _PLAIN and (tensor.layout is not torch.strided or tensor.is_nested):
                record.types[var] = NotStrided
            elif cls is not torch.Tensor:
                record.types[var] = cls
            elif wrapped(tensor):
                record.types[var] = Wrapped
        return var

    def memory_of(self, tensor: Any) -> int:
        """A number for the tensor's memory, the same for tensors alive together that share it.

        An address alone would not do, because memory that was freed is used again.
        """
        address = _storage(tensor)
        if address == 0:
            return 0
        number, users = self._memory.get(address, (0, []))
        users = [ref for ref in users if ref() is not None]
        if not users:
            self._memories += 1
            number = self._memories
        number = self.merged(number)
        self._memory[address] = (number, [*users, weakref.ref(tensor)])
        return number

    def alive(self, number: int) -> bool:
        """Whether a tensor with this memory is alive."""
        return any(
            self.merged(n) == self.merged(number) and any(ref() is not None for ref in users)
            for n, users in self._memory.values()
        )

    def merged(self, number: int) -> int:
        """The number that a memory has now."""
        while number in self._merged:
            number = self._merged[number]
        return number

    def moves(self, tensor: Any, source: Any) -> None:
        """A tensor is given the memory of another: what is done to one of both is done to both.

        Which of them it has when counts as one: variables have one memory for the whole run.
        """
        storages = self._record.storages
        found = [self.known(tensor), self.known(source)]
        address = _storage(source)
        if address in self._memory:
            self._memory[address][1].append(weakref.ref(tensor))
        self._merge({storages[v] for v in found if v in storages})

    def may_share(self, outs: list[tuple[Any, Var]], given: Any) -> None:
        """In other calls results may have the memory of what was given, or may have their own.

        Their memory is 0, and so is that of what has it in common with them from here on.
        """
        storages = self._record.storages
        taken = {storages.get(v) for v in variables(given)}
        for _, var in outs:
            if storages[var] in taken:
                storages[var] = 0
            else:
                self._merge({storages[var], 0})

    def _merge(self, numbers: set[int]) -> None:
        """Two memories are one."""
        if len(numbers) < 2:
            return
        storages, members = self._record.storages, self._in_memory
        # Memory 0 is that of all of which it is not known.
        gone, kept = sorted(numbers, key=lambda n: (n == 0, len(members.get(n, ()))))
        for var in members.pop(gone, []):
            if storages[var] == gone:
                storages[var] = kept
                members.setdefault(kept, []).append(var)
        self._merged[gone] = kept

    def _overlap(self, var: Var, tensor: Any) -> None:
        """Merges the memory of an input with those of others that have a byte of it.

        Several storages may show one memory (`torch.from_numpy` of one array, twice).
        """
        place = memory.of_tensor(jagged.held(tensor))
        if place is None or place[0] >= place[1]:
            return
        start, end = place
        ranges, storages = self._ranges, self._record.storages
        first = bisect.bisect_right(self._ends, start)
        last = first
        while last < len(ranges) and ranges[last][0] < end:
            start, end = min(start, ranges[last][0]), max(end, ranges[last][1])
            self._merge({storages[ranges[last][2]], storages[var]})
            last += 1
        ranges[first:last] = [(start, end, var)]
        self._ends[first:last] = [end]

    def _remember(self, tensor: Any, var: Var) -> None:
        # In C, for no handler of a signal to run in it: what it raised would be lost.
        forget = functools.partial(self._known.pop, id(tensor))
        self._known[id(tensor)] = (weakref.ref(tensor, forget), var)

    def known(self, tensor: Any) -> Var | None:
        """The variable of a tensor that the run made or used, or None."""
        entry = self._known.get(id(tensor))
        return entry[1] if entry is not None and entry[0]() is tensor else None

    def var_of(self, tensor: Any) -> Var:
        """The variable of a tensor; an outside tensor becomes an input.

        Raises:
            Refusal: nothing recorded made the tensor, and nothing watched reached it.
        """
        var = self.known(tensor)
        if var is not None:
            return var
        if not self._is_outside(tensor):
            raise refuse(
                "a tensor is used of which magpy did not see where it came from: C code that magpy "
                "does not know made it or held it",
                "Register the function that returns it with magpy.allow_in_graph, or keep it in an "
                "attribute, a list or a dict instead of a container that is written in C",
            )
        var = self.new(tensor)
        self._record.inputs[var] = tensor
        self._overlap(var, tensor)
        # The guard is on what the tensor was before the run changed it.
        self.metas[id(tensor)] = self._meta(var, tensor)
        self._versions[var] = _tensor.tensor_version(tensor)
        return var

    def _meta(self, var: Var, tensor: Any) -> Any:
        """What a guard compares of a tensor from outside.

        Raises:
            Refusal: no guard can compare it.
        """
        meta = None if self._compiled else self._parts.get(id(tensor))
        if meta is not None:
            self.sized_by_data([var])
            return meta
        dims = Dims()
        ragged = jagged.is_jagged(tensor)
        if self._symbols is not None and not self._symbols.fixed and not ragged:
            with unheard():
                dims = self._symbols.tensor(var, tensor)
        meta = _tensor.TensorMeta(tensor, dims=dims.sizes, strides=dims.strides)
        if meta.opaque in _UNLIKE_ANY or (tensor.layout is torch.jagged and not ragged):
            raise refuse(
                f"{meta.opaque or 'a subclass of a jagged tensor'} is used that was there before "
                "the call: no guard can compare it",
                "Give the compiled function its parts, as values() and offsets()",
            )
        if ragged:
            self._read_parts(var, tensor)
        return meta

    def _read_parts(self, var: Var, tensor: Any) -> None:
        """Has guards read what a jagged tensor consists of, and so compare which others have it."""
        self._record.cached[var] = jagged.cached(tensor)
        for name, part, of_data in jagged.parts(tensor):
            if self._reads is not None:
                self._reads(tensor, name, part)
            if isinstance(part, torch.Tensor):
                meta = _tensor.TensorMeta(part, dims=(of_data,))
                meta = self.metas.setdefault(id(part), meta)
                self._parts.setdefault(id(part), meta)

    def sized_by_data(self, found: Iterable[Var]) -> None:
        """The shapes of these variables follow from data."""
        found = list(found)
        self.unsized.update(found)
        self.ever_unsized.update(found)

    def is_of_jagged(self, memories: set[int]) -> bool:
        """Whether some memory is that of a jagged tensor from outside, or of the offsets of any."""
        storages = self._record.storages
        known = {self.merged(n) for n in self.indices} | {storages[v] for v in self._record.cached}
        return not memories.isdisjoint(known - {UNKNOWN})

    def unguarded(self, args: tuple[Any, ...], name: str) -> bool:
        """Whether a read of metadata depends on what no guard on a tensor covers."""
        if name in OF_PARTS:
            return True
        if name not in OF_MEMORY and name not in OF_TENSOR:
            return False
        record = self._record
        found = [self.known(v) for v in args if isinstance(v, torch.Tensor)]
        if any(v in record.inputs for v in found if v is not None):
            return True
        if name in OF_TENSOR:
            return False
        outside = {record.storages.get(v, 0) for v in record.inputs}
        return any(record.storages.get(v, 0) in outside for v in found if v is not None)

    def fresh(self, result: Any) -> list[Any]:
        """The tensors in a result that come from nothing that was seen."""
        outside = self._is_outside  # what such a container holds was there, too
        return [t for t in tensors(result, outside) if self.known(t) is None and not outside(t)]

    def dirty(self) -> frozenset[Var]:
        """The outside tensors that were changed in place so far."""
        return frozenset(
            v
            for v, n in self._versions.items()
            if n >= 0 and _tensor.tensor_version(self._record.inputs[v]) != n
        )

    def forget(self) -> None:
        """Lets go of all that refers to a tensor that the run made or used."""
        self._known.clear()
        self._memory.clear()

    def end(self) -> None:
        """Lets go of the session and of all that refers to a tensor."""
        self.forget()
        self._is_outside = bool


# What `_tensor.TensorMeta.opaque` says of nested tensors, of jagged layout and of strided layout.
_UNLIKE_ANY = ("a tensor with symbolic sizes", "a nested tensor")


def _storage(tensor: Any) -> int:
    try:
        return int(_tensor.storage_id(jagged.held(tensor)))
    except (RuntimeError, NotImplementedError, TypeError):
        # Sparse and other tensors without one storage: as if all shared one.
        return 0
