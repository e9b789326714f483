"""Checks that follow from the inputs by little work go ahead, so that they do not cut the graph.

Owns which checks those are, the operations that move ahead with them, and the copies of the tensors
that they need.  No operation is done twice, but for changes of single numbers, of which copies are
changed ahead.  A check that needs much of the work waits until the work is done: nothing would be
known early.  Does not own the order of all other steps (magpy/replay/passes/schedule.py), nor what
counts as work (magpy/replay/passes/work.py).  Called by magpy/replay/pipeline.py.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from magpy.ir import aliasing
from magpy.ir.ops import (
    Bind,
    CheckValue,
    HostStep,
    ModeStep,
    OpStep,
    OutsideRef,
    Ref,
    Step,
    Var,
)
from magpy.ir.torch_modes import TorchModes
from magpy.ir.trees import collect, leaves, rebuilt, variables
from magpy.objects.types import isinstance
from magpy.replay.passes.schedule import (
    anywhere,
    has_a_place,
    is_differentiated,
    reads_gradient,
)
from magpy.replay.passes.work import work

# What goes ahead is at most this part of the work, or at most as many elements.
_PART = 0.25
_LITTLE = 1 << 14
# So many operations ahead, that are little work, are no graph: to call one takes longer.
_FEW = 4
# What makes a changed copy at once, by what changes a tensor.
_ALONE: dict[Any, Any] = {
    torch.Tensor.add_: torch.Tensor.add,
    torch.Tensor.sub_: torch.Tensor.sub,
    torch.Tensor.mul_: torch.Tensor.mul,
    torch.Tensor.div_: torch.Tensor.div,
}
# Single numbers are changed in copies at most as often.
_MAX_CHANGES = 24


@dataclass(slots=True)
class Slice:
    """What goes ahead for a check.

    Attributes:
        steps: all of it.
        changes: those of the steps that change single numbers in tensors from outside: ahead they
            change copies of them, and at their places these tensors.
        copied: the tensors that are copied for that.
    """

    steps: set[int]
    changes: set[int] = field(default_factory=set)
    copied: set[Var] = field(default_factory=set)


@dataclass(slots=True)
class Ahead:
    """The steps of a run in another order.

    Attributes:
        ahead: those that are done ahead of everything else.
        rest: those that remain.
        few: Python does the steps ahead one by one sooner than it calls a graph.
        copies: those of the steps ahead that make copies, or change them.
        storages: the memories of the copies, by variable.
        like: the variables that the copies stand for.
    """

    ahead: list[Step]
    rest: list[Step]
    few: bool = False
    copies: list[Step] = field(default_factory=list)
    storages: dict[Var, int] = field(default_factory=dict)
    like: dict[Var, Var] = field(default_factory=dict)


class Copies:
    """Copies of single numbers that are kept in tensors: what optimizers keep as `step` is such.

    What follows from them is computed ahead of the graphs, as if they had been changed by then.
    """

    def __init__(self, inputs: Mapping[Var, Any], storages: dict[Var, int], free: int) -> None:
        """Copies none; variables from `free` on are the copies."""
        self.of: set[Var] = set()
        #: Variables that only steps ahead define, the memories of these, and what each is like.
        self.storages: dict[Var, int] = {}
        self.like: dict[Var, Var] = {}
        self._inputs = inputs
        self._storages = storages
        self._holders = Counter(storages.values())
        self._free = free
        self._memory = 1 + max([0, *storages.values()])

    def takes(self, v: Var) -> bool:
        """Whether a variable is a single number, in a tensor that shares its memory with none."""
        t = self._inputs.get(v)
        return (
            type(t) is torch.Tensor
            and t.layout is torch.strided
            and t.device.type == "cpu"
            and t.numel() == 1
            and not (t.requires_grad or t.is_inference())
            and self._storages.get(v, aliasing.UNKNOWN) != aliasing.UNKNOWN
            and self._holders[self._storages[v]] == 1
        )

    def requires_grad(self, v: Var) -> bool:
        """Whether a tensor from outside may require gradients."""
        t = self._inputs.get(v)
        return t is None or bool(t.requires_grad)

    def made(self, without: Container[Var] = ()) -> list[Step]:
        """The steps that make the copies, but for some."""
        return [
            OpStep(torch.Tensor.clone, (Ref(v),), {}, [((), self._instead_of(v))])
            for v in sorted(self.of)
            if v not in without
        ]

    def made_changed(self, step: OpStep | HostStep) -> OpStep | None:
        """The operation that makes a copy as its first change leaves it, if one alone does that.

        Args:
            step: the change, at its place; nobody takes what it gives out.
        """
        func = _ALONE.get(step.func) if isinstance(step, OpStep) else None
        if func is None or step.kwargs or len(step.args) != 2:
            return None
        first, number = step.args
        if not isinstance(first, Ref) or first.var not in self.of:
            return None
        # Nothing else is promoted to the type of the tensor.
        floating = self._inputs[first.var].is_floating_point()
        if (type(number) is not float and type(number) is not int) or not floating:
            return None
        return OpStep(func, step.args, {}, [((), self._instead_of(first.var))])

    def taken_by(self, step: OpStep | HostStep, of: set[Var], again: bool) -> Step:
        """A step that takes the copies of some tensors instead.

        Args:
            step: the step at its place.
            of: the tensors.
            again: the step changes tensors, and is done at its place, too.
        """

        def instead(v: Any) -> Any:
            return Ref(self._instead_of(v.var)) if isinstance(v, Ref) and v.var in of else v

        args, kwargs = rebuilt((step.args, step.kwargs), instead)
        writes = frozenset(self._instead_of(v) if v in of else v for v in step.writes)
        outs = step.outs
        if again:  # it gives out what it changes
            outs = [(path, self._instead_of(v)) for path, v in outs]
        return replace(step, args=args, kwargs=kwargs, writes=writes, outs=outs)

    def _instead_of(self, v: Var) -> Var:
        """The variable that stands ahead for one whose number is changed."""
        copy = Var(self._free + v)
        memory = self._memory + self._storages.get(v, 0)
        self.storages[copy] = memory
        self.like[copy] = v
        return copy


class Hoist:
    """Moves checks that follow from the inputs by few operations ahead, so that they do not cut."""

    def __init__(
        self,
        steps: list[Step],
        start: TorchModes,
        storages: dict[Var, int],
        possible: dict[Var, set[int]],
        inputs: Mapping[Var, Any] | None = None,
        elements: Mapping[Var, int] | None = None,
        carry: Callable[[], Container[Var]] = tuple,
    ) -> None:
        self.steps = steps
        self._carry = carry
        self._elements = elements or {}
        self.start = start
        self.storages = storages
        #: The memories that tensors and arrays may have.
        self.found = possible
        self.maker: dict[Var, int] = {}
        self.users: dict[Var, set[int]] = {}
        self.modes: list[TorchModes] = []
        #: The host steps that go ahead.
        self.hoisted: set[int] = set()
        self.ahead: set[int] = set()
        #: Those of the steps ahead that change copies, and stay in their places, too.
        self.again: set[int] = set()
        self._given_out: set[Var] = set()  # by these
        self._done = 0.0  # the work that goes ahead
        self.changed: list[set[int]] = []
        # The memories that steps change, each with these steps.
        self.writers: dict[int, list[int]] = {}
        # The memories that steps change, each with the last step that does.
        self.last_change: dict[int, int] = {}
        self.engine = len(steps)  # the first step that runs autograd's engine
        now = start
        changed: set[int] = set()
        for i, s in enumerate(steps):
            if isinstance(s, ModeStep):
                now = s.modes
            self.modes.append(now)
            self.changed.append(changed)
            if isinstance(s, (OpStep, HostStep)):
                found: set[Var] = set()
                collect((s.args, s.kwargs), found)
                for v in found:
                    self.users.setdefault(v, set()).add(i)
                self.maker.update(dict.fromkeys(s.defined, i))
                if s.mutates:
                    now_changed = aliasing.changed(s, self.found)
                    changed = changed | now_changed
                    self.last_change.update(dict.fromkeys(now_changed, i))
                    for memory in now_changed:
                        self.writers.setdefault(memory, []).append(i)
                if isinstance(s, HostStep) and s.gradients is not None:
                    self.engine = min(self.engine, i)
        free = 1 + max([-1, *storages, *self.maker, *self.users])
        self._copies = Copies(inputs or {}, storages, free)

    @functools.cached_property
    def _differentiable(self) -> list[int]:
        """The operations whose results carry autograd's graph, in order, Python's among them."""
        carry = self._carry()
        return [i for i, s in enumerate(self.steps) if is_differentiated(s, carry)]

    def slice_of(self, k: int) -> Slice | None:
        """The steps that step k needs, if they can be done ahead of everything else.

        What the checks need that go ahead already is left out: a chain of numbers, each of which
        follows from the one before, would be walked from its start for each of them.
        """
        todo, found = [k], Slice({k})
        while todo:
            i = todo.pop()
            s = self.steps[i]
            assert isinstance(s, (OpStep, HostStep))
            if (
                s.random
                or s.unrepeatable
                or s.site is not None  # warnings come in order, and once
                or (s.mutates and i != k and i not in found.changes and not _makes(s))
                or (isinstance(s, HostStep) and has_a_place(s))
            ):
                return None
            taken: set[Var] = set()
            collect((s.args, s.kwargs), taken)
            if not self._as_it_was(i, taken, found):
                return None
            needs = {self.maker[v] for v in taken if v in self.maker} | found.changes
            needs -= self.hoisted | found.steps
            found.steps |= needs
            todo += needs
        if any(
            self._modes_matter(i, found.steps)
            or self._is_changed(i, found.steps)
            or (i > self.engine and reads_gradient(self.steps[i]))
            or (found.changes and not self._is_number(i))
            for i in found.steps
        ):
            return None
        if self._overtakes(found.steps):
            return None
        return found if len(found.changes) <= _MAX_CHANGES else None

    def _overtakes(self, among: set[int]) -> bool:
        """Whether operations would be done ahead of others that a backward pass comes to, too.

        Autograd's engine goes back in the order in which operations were done: the sums of
        gradients would be rounded otherwise
        (https://docs.pytorch.org/docs/stable/notes/autograd.html).
        """
        moved = [i for i in self._differentiable if i in among]
        last = max(moved, default=-1)
        return any(
            i < last and i not in among and i not in self.ahead for i in self._differentiable
        )

    def _as_it_was(self, i: int, taken: set[Var], found: Slice) -> bool:
        """Whether step i finds ahead of everything else the values that it finds at its place.

        The single numbers that it takes and that were changed before, in tensors from outside, it
        may find in copies, for which the changes are made ahead: they become part of the slice.
        """
        before = self.changed[i]
        if aliasing.UNKNOWN in before:
            return False
        moved = [v for v in taken if aliasing.meet(before, self.found.get(v, set()))]
        if i in found.changes:
            moved = [v for v in taken if v not in self.maker]
        for v in moved:
            own = self.storages.get(v)
            # What is written through another tensor, whose memory may be the same, is no change of
            # the copy.
            shared = {m for m in self.writers if aliasing.meet({m}, self.found.get(v, set()))}
            if not self._copies.takes(v) or own is None or shared - {own}:
                return False
            found.copied.add(v)
            found.changes |= {j for j in self.writers.get(own, ()) if j < i}
        return True

    def _modes_matter(self, i: int, among: set[int]) -> bool:
        """Whether a step, which is done ahead with others, may need the modes of its own place.

        Whether gradients are on does not matter where nothing that it takes requires any.
        """
        step = self.steps[i]
        if self.modes[i] == self.start:
            return False
        if self.modes[i].settings == self.start.settings and anywhere(step):
            return False
        if replace(self.modes[i], grad=self.start.grad) != self.start:
            return True
        assert isinstance(step, (OpStep, HostStep))
        taken: set[Var] = set()
        collect((step.args, step.kwargs), taken)
        return "requires_grad" in step.kwargs or any(
            self.maker[v] not in among if v in self.maker else self._copies.requires_grad(v)
            for v in taken
            if v in self.storages
        )

    def _is_changed(self, i: int, among: set[int]) -> bool:
        """Whether steps that stay take what a step makes, and its memory is changed by then.

        No graph changes what another one has made, where autograd's engine comes to both.
        """
        step = self.steps[i]
        return isinstance(step, OpStep) and any(
            self.users.get(v, set()) - among - self.ahead
            and any(
                last > i and aliasing.meet({memory}, self.found.get(v, set()))
                for memory, last in self.last_change.items()
            )
            for v in step.defined
        )

    def _is_number(self, i: int) -> bool:
        """Whether what a step gives has no part in the memory of what it takes."""
        step = self.steps[i]
        return isinstance(step, OpStep) or (
            isinstance(step, (Bind, CheckValue)) and not step.outs and not step.mutates
        )

    def run(self, total: Container[Any] = ()) -> None:
        """Chooses the checks and the operations that go ahead.

        Args:
            total: the steps that cannot fail.  Where no operation takes what such a step gives, it
                waits until the graph is done: its value decides about nothing.
        """
        operations = {i: s for i, s in enumerate(self.steps) if isinstance(s, OpStep)}
        all_work = {i: work(s, self._elements) for i, s in operations.items()}
        limit = max(_LITTLE, _PART * sum(w for w in all_work.values() if w < math.inf))
        taken = variables([(s.args, s.kwargs) for s in operations.values()])
        for k, s in enumerate(self.steps):
            if (
                not isinstance(s, HostStep)
                or has_a_place(s)
                or s.mutates
                or _symbolic(s)
                or k in self.hoisted
                or (s in total and not _reads_outside(s) and taken.isdisjoint(s.defined))
            ):
                continue
            found = self.slice_of(k)
            if found is None:
                continue
            new = sum(all_work[i] for i in found.steps - self.ahead if i in all_work)
            if self._done + new <= limit:
                self._done += new
                self.ahead |= found.steps
                self.again |= found.changes
                self._copies.of |= found.copied
                self.hoisted.update(i for i in found.steps if isinstance(self.steps[i], HostStep))

    def result(self) -> Ahead:
        """What goes ahead, and what remains."""
        if not self.hoisted:
            return Ahead([], self.steps)
        self._given_out = {v for v, i in self.maker.items() if i in self.again}
        found = {i: self._of_copies(i) for i in sorted(self.ahead)}
        alone = self._made_changed()
        found.update(alone.values())
        clones = self._copies.made(alone)
        ahead = [*clones, *found.values()]
        rest = [s for i, s in enumerate(self.steps) if i not in self.ahead - self.again]
        # What makes a changed copy is there for two.
        few = self._done <= _LITTLE and sum(map(_is_operation, ahead)) + len(alone) <= _FEW
        return Ahead(
            _in_few_graphs(ahead, self._copies.storages),
            rest,
            few and any(map(_is_operation, rest)),
            [*clones, *(found[i] for i in self.again)],
            self._copies.storages,
            self._copies.like,
        )

    def _made_changed(self) -> dict[Var, tuple[int, Step]]:
        """The first changes that make their copies, by the tensors, with their places."""
        first: dict[Var, tuple[int, OpStep | HostStep]] = {}
        for i in sorted(self.again, reverse=True):
            step = self.steps[i]
            assert isinstance(step, (OpStep, HostStep))
            first.update(dict.fromkeys(aliasing.written(step), (i, step)))
        found: dict[Var, tuple[int, Step]] = {}
        for v, (i, step) in first.items():
            taken = any(self.users.get(x, set()) & self.ahead for x in step.defined)
            made = None if taken else self._copies.made_changed(step)
            if made is not None:
                found[v] = i, made
        return found

    def _of_copies(self, i: int) -> Step:
        """A step as it is done ahead: it takes a copy of what was changed before, or changes it."""
        step = self.steps[i]
        assert isinstance(step, (OpStep, HostStep))
        taken = variables((step.args, step.kwargs))
        of = (self._given_out & taken) | {
            v
            for v in self._copies.of & taken
            if i in self.again or self.storages[v] in self.changed[i]
        }
        return self._copies.taken_by(step, of, i in self.again) if of else step


def _in_few_graphs(steps: list[Step], copies: Mapping[Var, int]) -> list[Step]:
    """Steps in an order in which Python is rarely between graphs.

    An operation comes as early as what it takes: ahead of what Python does for others.

    Args:
        steps: they change nothing but copies.
        copies: the memory of each copy.
    """
    # A graph has an even place, what Python does next an odd one.
    made: dict[int, int] = {}  # the place of the last change of a variable or a copy
    read: dict[int, int] = {}  # the last place at which it is taken
    keys = []
    for step in steps:
        assert isinstance(step, (OpStep, HostStep))

        def places(found: Iterable[Var]) -> set[int]:
            return {-copies[v] if v in copies else v for v in found}

        taken = places(variables((step.args, step.kwargs)))
        changed = places(aliasing.written(step) if step.mutates else ())
        at = max([0, *(made.get(p, 0) for p in taken), *(read.get(p, 0) for p in changed)])
        at += at % 2 != isinstance(step, HostStep)
        read.update({p: max(read.get(p, 0), at) for p in taken})
        made.update(dict.fromkeys(places(step.defined) | changed, at))
        keys.append(at)
    order = sorted(range(len(steps)), key=keys.__getitem__)
    return [steps[i] for i in order]


def _is_operation(step: Step) -> bool:
    return isinstance(step, OpStep)


def _makes(step: Step) -> bool:
    """Whether a step takes nothing that it could change: `torch.tensor(1.0)` writes to its own."""
    return isinstance(step, OpStep) and not (step.writes or variables((step.args, step.kwargs)))


def _reads_outside(step: HostStep) -> bool:
    """Whether a step reads what an object from outside holds, which an operation may change."""
    return any(isinstance(v, OutsideRef) for v in leaves((step.args, step.kwargs)))


def _symbolic(step: Step) -> bool:
    return isinstance(step, Bind) and step.symbolic
