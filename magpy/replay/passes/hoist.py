"""Checks that follow from the inputs by few operations go ahead, so that they do not cut the graph.

Owns which checks those are, and the copies of the operations that they need.  Does not own the
order of all other steps (magpy/replay/passes/schedule.py).  Called by magpy/replay/pipeline.py.
"""

from __future__ import annotations

from magpy.ir import aliasing
from magpy.ir.ops import (
    Bind,
    BindArray,
    CheckArray,
    CheckValue,
    HostStep,
    ModeStep,
    OpStep,
    Step,
    Var,
    has_gradient,
)
from magpy.ir.torch_modes import TorchModes
from magpy.ir.trees import collect
from magpy.objects.types import isinstance
from magpy.replay.fx_graphs import operations
from magpy.replay.passes.schedule import anywhere, has_a_place


def _reads_gradient(step: Step) -> bool:
    if not isinstance(step, (OpStep, HostStep)):
        return False
    return step.func is has_gradient or (step.func is getattr and step.args[1] == "grad")


# A check is computed ahead of the graph if that repeats at most this many operations.
MAX_REPEATED = 24


class Hoist:
    """Moves checks that follow from the inputs by few operations ahead, so that they do not cut."""

    def __init__(
        self,
        steps: list[Step],
        needed: set[Var],
        start: TorchModes,
        storages: dict[Var, int],
        possible: dict[Var, set[int]],
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
        # A host step that goes ahead -> the memories that what it follows from lives in.
        self.hoisted: dict[int, set[int]] = {}
        self.ahead: set[int] = set()
        self.changed: list[set[int]] = []
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
                if isinstance(s, HostStep) and s.gradients is not None:
                    self.engine = min(self.engine, i)

    def slice_of(self, k: int) -> tuple[list[int], set[int]] | None:
        """The steps that step k needs, in order, if they can be done ahead of everything else.

        What the checks need that go ahead already is left out: a chain of numbers, each of which
        follows from the one before, would be walked from its start for each of them. The second
        part is the memories that the tensors of all steps may live in.
        """
        todo, seen = [k], {k}
        memory: set[int] = set()
        while todo:
            s = self.steps[todo.pop()]
            assert isinstance(s, (OpStep, HostStep))
            if (
                s.random
                or s.unrepeatable
                or s.site is not None  # warnings come in order, and once
                or (s.mutates and s is not self.steps[k])
                or (isinstance(s, HostStep) and has_a_place(s))
            ):
                return None
            variables: set[Var] = set()
            collect((s.args, s.kwargs), variables)
            for v in variables:
                memory |= self.found.get(v, set())
                i = self.maker.get(v)
                if i in self.hoisted:
                    memory |= self.hoisted[i]
                elif i is not None and i not in seen:
                    seen.add(i)
                    todo.append(i)
        changed = self.changed[k]
        if changed and (aliasing.UNKNOWN in changed or aliasing.meet(changed, memory)):
            return None
        if any(self.modes[i] != self.start and not anywhere(self.steps[i]) for i in seen):
            return None
        if any(self._shares(i) for i in seen):
            return None
        if any(i > self.engine and _reads_gradient(self.steps[i]) for i in seen):
            return None
        return sorted(seen), memory

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
            if found is None:
                continue
            ahead, memory = found
            if self._repeated(ahead) <= MAX_REPEATED:
                self.ahead.update(ahead)
                for i in ahead:
                    if isinstance(self.steps[i], HostStep):
                        self.hoisted[i] = memory

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
                if v in self.needed or users & stay or users - inside - self.hoisted.keys():
                    repeated += 0 if i in stay else operations(s)
                    stay.add(i)
        return repeated

    def result(self) -> tuple[list[Step], list[Step]]:
        """(the steps done ahead, the steps that remain)."""
        if not self.hoisted:
            return [], self.steps
        prelude = [self.steps[i] for i in sorted(self.ahead)]
        # What only the checks needed is not done a second time.
        gone = {i for i in self.hoisted if not _symbolic(self.steps[i])}
        for i in sorted(self.ahead, reverse=True):
            s = self.steps[i]
            if isinstance(s, OpStep) and not any(
                v in self.needed or self.users.get(v, set()) - gone for _, v in s.outs
            ):
                gone.add(i)
        return prelude, [s for i, s in enumerate(self.steps) if i not in gone]


def _symbolic(step: Step) -> bool:
    return isinstance(step, Bind) and step.symbolic
