"""Checks that follow from the inputs by few operations go ahead, so that they do not cut the graph.

Owns which checks those are, and the copies of the operations and of the tensors that they need.
Does not own the order of all other steps (magpy/replay/passes/schedule.py).  Called by
magpy/replay/pipeline.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from magpy.ir import aliasing
from magpy.ir.ops import (
    Bind,
    BindArray,
    CheckArray,
    CheckValue,
    HostStep,
    ModeStep,
    OpStep,
    Ref,
    Step,
    Var,
)
from magpy.ir.torch_modes import TorchModes
from magpy.ir.trees import collect, rebuilt, variables
from magpy.objects.types import isinstance
from magpy.replay.fx_graphs import operations
from magpy.replay.passes.schedule import anywhere, has_a_place, reads_gradient

# A check is computed ahead of the graph if that repeats at most this many operations.
MAX_REPEATED = 24


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


class Copies:
    """Copies of single numbers that are kept in tensors: what optimizers keep as `step` is such.

    What follows from them is computed ahead of the graphs, as if they had been changed by then.
    """

    def __init__(self, inputs: Mapping[Var, Any], storages: dict[Var, int], free: int) -> None:
        """Copies none; variables from `free` on are the copies."""
        self.of: set[Var] = set()
        self._inputs = inputs
        self._storages = storages
        self._holders = Counter(storages.values())
        self._free = free

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

    def made(self) -> list[Step]:
        """The steps that make the copies."""
        return [
            OpStep(torch.Tensor.clone, (Ref(v),), {}, [((), self._copy(v))])
            for v in sorted(self.of)
        ]

    def taken_by(self, step: OpStep | HostStep, of: set[Var]) -> Step:
        """A step that takes the copies of some tensors instead, or changes them."""

        def instead(v: Any) -> Any:
            return Ref(self._copy(v.var)) if isinstance(v, Ref) and v.var in of else v

        args, kwargs = rebuilt((step.args, step.kwargs), instead)
        return replace(step, args=args, kwargs=kwargs, mutates=False, writes=frozenset())

    def _copy(self, v: Var) -> Var:
        return Var(self._free + v)


class Hoist:
    """Moves checks that follow from the inputs by few operations ahead, so that they do not cut."""

    def __init__(
        self,
        steps: list[Step],
        needed: set[Var],
        start: TorchModes,
        storages: dict[Var, int],
        possible: dict[Var, set[int]],
        inputs: Mapping[Var, Any] | None = None,
    ) -> None:
        self.steps = steps
        self.start = start
        self.storages = storages
        #: The memories that tensors and arrays may have.
        self.found = possible
        self.maker: dict[Var, int] = {}
        self.users: dict[Var, set[int]] = {}
        self.needed = needed
        self.modes: list[TorchModes] = []
        #: The host steps that go ahead.
        self.hoisted: set[int] = set()
        self.ahead: set[int] = set()
        #: Those of the steps ahead that change copies, and stay in their places, too.
        self.again: set[int] = set()
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
            or self._shares(i)
            or (i > self.engine and reads_gradient(self.steps[i]))
            or (found.changes and not self._is_number(i))
            for i in found.steps
        ):
            return None
        return found if len(found.changes) <= MAX_REPEATED else None

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
            if not self._copies.takes(v):
                return False
            found.copied.add(v)
            found.changes |= {j for j in self.writers[self.storages[v]] if j < i}
        return True

    def _modes_matter(self, i: int, among: set[int]) -> bool:
        """Whether a step, which is done ahead with others, may need the modes of its own place.

        Whether gradients are on does not matter where nothing that it takes requires any.
        """
        step = self.steps[i]
        if self.modes[i] == self.start or anywhere(step):
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

    def _is_number(self, i: int) -> bool:
        """Whether what a step gives has no part in the memory of what it takes."""
        step = self.steps[i]
        return isinstance(step, OpStep) or (
            isinstance(step, (Bind, CheckValue)) and not step.outs and not step.mutates
        )

    def _shares(self, i: int) -> bool:
        """Whether a step makes an array or views of which somebody can tell whose memory it is.

        Ahead of the graph it would be that of a tensor which the graph makes again.
        """
        step = self.steps[i]
        if not isinstance(step, HostStep):
            return False
        taken: set[Var] = set()
        collect((step.args, step.kwargs), taken)
        made = {v for v in taken if v in self.maker}
        held = {self.storages.get(v, 0) for v in made}
        if held & {self.storages.get(v, 0) for _, v in step.outs}:
            return True
        if not isinstance(step, BindArray):
            return False
        if any(last > i and memory in held | {0} for memory, last in self.last_change.items()):
            return bool(made)
        return bool(made) and self._kept(step.result)

    def _kept(self, array: Var) -> bool:
        """Whether more is done with an array than to look at it and to compute with it."""
        if array in self.needed:
            return True
        for i in self.users.get(array, ()):
            user = self.steps[i]
            if not isinstance(user, HostStep) or user.mutates or user.outs:
                return True
            if not isinstance(user, (CheckValue, CheckArray, Bind, BindArray)):
                return True
            if isinstance(user, BindArray) and self._kept(user.result):
                return True
        return False

    def run(self) -> None:
        """Chooses the checks and the operations that go ahead."""
        for k, s in enumerate(self.steps):
            if (
                not isinstance(s, HostStep)
                or has_a_place(s)
                or s.mutates
                or _symbolic(s)
                or k in self.hoisted
            ):
                continue
            found = self.slice_of(k)
            if found is not None and self._repeated(sorted(found.steps)) <= MAX_REPEATED:
                self.ahead |= found.steps
                self.again |= found.changes
                self._copies.of |= found.copied
                self.hoisted.update(i for i in found.steps if isinstance(self.steps[i], HostStep))

    def _repeated(self, ahead: list[int]) -> int:
        """How many operations would be done ahead and again in the graph, which needs them."""
        inside = set(ahead)
        stay: set[int] = set()
        repeated = 0
        for i in reversed(ahead):
            s = self.steps[i]
            if not isinstance(s, OpStep) or i in self.ahead:
                continue
            for _, v in s.outs:
                users = self.users.get(v, set())
                if v in self.needed or users & stay or users - inside - self.hoisted:
                    repeated += 0 if i in stay else operations(s)
                    stay.add(i)
        return repeated

    def result(self) -> tuple[list[Step], list[Step]]:
        """(the steps done ahead, the steps that remain)."""
        if not self.hoisted:
            return [], self.steps
        prelude: list[Step] = self._copies.made()
        prelude += [self._of_copies(i) for i in sorted(self.ahead)]
        # What only the checks needed is not done a second time.
        gone = {i for i in self.hoisted if not _symbolic(self.steps[i])}
        for i in sorted(self.ahead - self.again, reverse=True):
            s = self.steps[i]
            if isinstance(s, OpStep) and not any(
                v in self.needed or self.users.get(v, set()) - gone for _, v in s.outs
            ):
                gone.add(i)
        return prelude, [s for i, s in enumerate(self.steps) if i not in gone]

    def _of_copies(self, i: int) -> Step:
        """A step as it is done ahead: it takes a copy of what was changed before, or changes it."""
        step = self.steps[i]
        assert isinstance(step, (OpStep, HostStep))
        taken: set[Var] = set()
        collect((step.args, step.kwargs), taken)
        of = {
            v
            for v in self._copies.of & taken
            if i in self.again or self.storages[v] in self.changed[i]
        }
        return self._copies.taken_by(step, of) if of else step


def _makes(step: Step) -> bool:
    """Whether a step takes nothing that it could change: `torch.tensor(1.0)` writes to its own."""
    return isinstance(step, OpStep) and not (step.writes or variables((step.args, step.kwargs)))


def _symbolic(step: Step) -> bool:
    return isinstance(step, Bind) and step.symbolic
