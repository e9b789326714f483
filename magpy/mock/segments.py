"""Segments: tensor operations between two values that Python looks at, as torch.fx graphs.

Owns the cut of the steps into segments and the building of each `torch.fx.GraphModule`.  Does not
own what runs them (magpy/backends) nor what stands between them (magpy/mock/codegen.py).  Called
by magpy/runtime/entry.py.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from magpy.capture import copies, engine
from magpy.capture.operations import resizable, scalar_tensor
from magpy.capture.replaced import any_replaced
from magpy.capture.steps import (
    LEAF_TYPES,
    HostStep,
    ModeStep,
    OpStep,
    Ref,
    Step,
    TorchModes,
    Var,
    class_number,
    has_gradient,
    item_held,
    part_held,
    slot_held,
)
from magpy.capture.trees import collect, leaves, variables
from magpy.kinds import isinstance
from magpy.mock import memories, regions
from magpy.mock.certain import Certain
from magpy.mock.graphs import IN_PLACE, GraphBuilder, operations, safe, written
from magpy.models.torch_callables import communicates


@dataclass(slots=True)
class Segment:
    """One graph.

    Attributes:
        inputs: the variables it takes, in order.
        outputs: the variables it gives, in order.
        graph: the graph module.
        compiled: what the backend made of it, or None as long as it has not been asked.
        once: it must run once (magpy/capture/steps.py).
        unrepeatable: operations in it take part in what several processes do, or a call done as a
            whole does that, or draws numbers of Python's or numpy's.
        native: Python runs the graph as it is, whatever the backend.
        draws: how many of its operations draw random numbers.
        memory: a number for the memory of each input and output; 0 if it is not known.
        modes: torch's modes that it is called under; None where they are those of the call.
        changes: the numbers of the memories that it writes to.
        detached: the inputs that it changes and gives no gradients.
    """

    index: int
    inputs: list[Var]
    outputs: list[Var]
    graph: Any
    nodes: int
    compiled: Callable[..., Any] | None = None
    once: bool = False
    unrepeatable: bool = False
    native: bool = False
    draws: int = 0
    memory: dict[Var, int] = field(default_factory=dict)
    modes: TorchModes | None = None
    changes: frozenset[int] = frozenset()
    detached: frozenset[Var] = frozenset()


@dataclass(slots=True)
class Plan:
    """The steps in order: segments (of graph steps) and single host or effect steps.

    Attributes:
        items: segments; host steps, and operations that make views of a segment's outputs, each
            with the modes that it runs under; effect steps.
        prelude: operations and checks that are done one by one ahead of everything else.
    """

    items: list[Any] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    prelude: list[Any] = field(default_factory=list)


def swaps_data(step: Step) -> bool:
    """Whether a step assigns `Tensor.data`: the tensor has other memory from there on."""
    return isinstance(step, (OpStep, HostStep)) and step.func is setattr and step.args[1] == "data"


def switches_gradients(step: Step, inputs: Container[Var]) -> bool:
    """Whether a step says of an outside tensor whether it requires grad."""
    if not isinstance(step, (OpStep, HostStep)) or not step.args:
        return False
    target = step.args[0]
    if not isinstance(target, Ref) or target.var not in inputs:
        return False
    if step.func is setattr:
        return bool(step.args[1] == "requires_grad")
    return getattr(step.func, "__name__", "") == "requires_grad_"


def _reads_gradient(step: Step) -> bool:
    if not isinstance(step, (OpStep, HostStep)):
        return False
    return step.func is has_gradient or (step.func is getattr and step.args[1] == "grad")


# A check is computed ahead of the graph if that repeats at most this many operations.
_MAX_REPEATED = 24


class _Hoist:
    """Moves checks that follow from the inputs by few operations ahead, so that they do not cut."""

    def __init__(
        self, steps: list[Step], needed: set[Var], start: TorchModes, storages: dict[Var, int]
    ) -> None:
        self.steps = steps
        self.start = start
        self.storages = storages
        #: The memories that tensors and arrays may have.
        self.found = memories.possible(steps, storages)
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
                for _, v in s.outs:
                    self.maker[v] = i
                if isinstance(s, HostStep):
                    made = (s.result, s.told)
                    self.maker.update({v: i for v in made if v is not None})
                if s.mutates:
                    now_changed = memories.changed(s, self.found)
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
                or s.once
                or s.site is not None  # warnings come in order, and once
                or (s.mutates and s is not self.steps[k])
                or (isinstance(s, HostStep) and _has_a_place(s))
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
        if changed and (memories.UNKNOWN in changed or memories.meet(changed, memory)):
            return None
        if any(self.modes[i] != self.start and not _anywhere(self.steps[i]) for i in seen):
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
        if step.kind != "bind_array":
            return False
        if any(last > i and memory in held | {0} for memory, last in self.last_change.items()):
            return bool(made)
        return bool(made) and self._kept(step.result)

    def _kept(self, array: Var | None) -> bool:
        """Whether more is done with an array than to look at it and to compute with it."""
        if array is None:
            return False
        if array in self.needed:
            return True
        for i in self.users.get(array, ()):
            user = self.steps[i]
            if not isinstance(user, HostStep) or user.mutates or user.outs:
                return True
            if user.kind not in ("leaf", "array", "bind", "bind_array"):
                return True
            if user.kind == "bind_array" and self._kept(user.result):
                return True
        return False

    def run(self) -> None:
        """Chooses the checks and the operations that go ahead."""
        for k, s in enumerate(self.steps):
            if (
                not isinstance(s, HostStep)
                or _has_a_place(s)
                or s.mutates
                or s.symbolic
                or k in self.hoisted
            ):
                continue
            found = self.slice_of(k)
            if found is None:
                continue
            ahead, memory = found
            if self._repeated(ahead) <= _MAX_REPEATED:
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


class _Schedule:
    """Lets host steps wait until an operation needs them: they cut the graph late and rarely."""

    def __init__(self, found: dict[Var, set[int]]) -> None:
        self.found = found
        #: What runs a graph, and the settings of torch's that it runs under.
        self.kind: tuple[Any, ...] = ("graph", ())
        self.runs: list[Any] = []
        self.graph: list[Step] = []
        self.waiting: list[HostStep] = []
        self.blocked: set[Var] = set()
        self.read: set[int] = set()
        self.draws = False

    def flush(self) -> None:
        self.runs.append((self.kind, self.graph))
        self.runs.extend(self.waiting)
        self.graph, self.waiting = [], []
        self.blocked, self.read, self.draws = set(), set(), False

    def op(self, step: OpStep, kind: tuple[Any, ...]) -> None:
        if kind != self.kind:
            self.flush()
            self.kind = kind
        found: set[Var] = set()
        collect((step.args, step.kwargs), found)
        memory = memories.changed(step, self.found) if step.mutates else set()
        unknown = memories.UNKNOWN in memory or memories.UNKNOWN in self.read
        if self.waiting and (
            found & self.blocked
            or (step.mutates and (unknown or memories.meet(memory, self.read)))
            or (step.random and self.draws)
        ):
            self.flush()
        self.graph.append(step)

    def host(self, step: HostStep) -> None:
        if step.mutates or step.once or step.kind == "none" or step.in_order:
            self.flush()
            self.runs.append(step)
            return
        found: set[Var] = set()
        collect((step.args, step.kwargs), found)
        self.waiting.append(step)
        self.read.update(*(self.found[v] for v in found if v in self.found))
        self.blocked |= {v for _, v in step.outs}
        self.draws = self.draws or step.random
        if step.result is not None:
            self.blocked.add(step.result)


def _has_a_place(step: HostStep) -> bool:
    """Whether a step is done for more than its value, or draws."""
    return step.owner is not None or step.kind in ("none", "call") or step.in_order


def _symbolic(step: Step) -> bool:
    return isinstance(step, HostStep) and step.symbolic


def pruned(steps: list[Step], needed: set[Var]) -> list[Step]:
    """The steps without those that compute a size which nobody uses, and such results."""
    used, kept = set(needed), []
    for step in reversed(steps):
        if isinstance(step, HostStep) and step.symbolic and step.result not in used:
            continue
        if isinstance(step, (OpStep, HostStep)):
            collect((step.args, step.kwargs), used)
        kept.append(regions.used_only(step, used) if isinstance(step, OpStep) else step)
    kept.reverse()
    return kept


def _anywhere(step: Step) -> bool:
    """Whether a step reads or computes a Python number, which no mode of torch has a part in."""
    return (
        isinstance(step, HostStep)
        and not step.outs
        and (
            step.func in (scalar_tensor, class_number, item_held, part_held, slot_held)
            or getattr(step.func, "__module__", None) in ("_operator", "math", "builtins")
        )
    )


def _number(step: HostStep) -> bool:
    """Whether a step takes a number out of a tensor, or computes one from numbers."""
    return step.kind == "bind" and step.expected in (int, float, complex) and safe(step.args)


# Classes of tensors that every backend takes for what they are.
_PLAIN = (torch.nn.Parameter,)
# Operations that no compiler takes: one that reaches for a tensor's memory, which there is none of
# while it traces, and recurrent layers with what packs their sequences, which are one kernel each
# (torch.compile leaves them out too; AOTAutograd fails where they are trained on a CPU). So are
# fused optimizers, which functionalization refuses where one of their lists is empty.
_BEHIND = (
    copies.deep_copied,
    *(getattr(torch._VF, name) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")),
    *(getattr(torch._VF, name) for name in ("_pack_padded_sequence", "_pad_packed_sequence")),
    *(getattr(torch, f"_fused_{name}_") for name in ("adam", "adamw", "sgd", "adagrad")),
)


def _takes_objects(step: OpStep) -> bool:
    """Whether a call that is recorded as a whole is given code (a checkpointed block) or an object.

    That may hold tensors, which no compiler could tell from constants, and may be looked at later.
    One that draws numbers of Python's would draw them while a compiler traces.
    """
    return step.whole and (
        step.once
        or not all(
            isinstance(v, (Ref, type, types.BuiltinFunctionType)) or type(v) in LEAF_TYPES
            for v in leaves((step.args, step.kwargs))
        )
    )


def _runs_later(step: OpStep) -> bool:
    """Whether Python of the program looks around when autograd's engine comes to an operation.

    A compiler traces it once, at the beginning.
    """
    target = getattr(step.func, "__magpy_target__", None)
    cls = getattr(target, "__self__", None)
    return (
        isinstance(cls, type)
        and issubclass(cls, torch.autograd.Function)
        and engine.looks_around(cls)
    )


def _writes_again(step: OpStep, storages: dict[Var, int]) -> bool:
    """Whether an operation writes to a list of tensors some of which share memory.

    Eager does so one after the other. What AOTAutograd makes of it takes all of them as they were.
    """
    if not step.mutates:
        return False
    for given in (*step.args, *step.kwargs.values()):
        if isinstance(given, (list, tuple)):
            held = [storages.get(v.var, 0) for v in given if isinstance(v, Ref)]
            if len(set(held)) < len(held):
                return True
    return False


def _only_python(step: OpStep, types: dict[Var, type]) -> bool:
    """Whether only Python can do an operation: it takes or makes a tensor of a class of its own.

    A compiler traces a class that says how to take it apart (`__tensor_flatten__`); for any other
    it would leave out what the class does, and take its results for plain tensors.
    """
    if step.func in _BEHIND or _takes_objects(step) or _runs_later(step):
        return True
    if regions.only_python(step):
        return True
    if step.whole and any_replaced():
        # The program's Python below it would call what a compiler's modes are told of.
        return True
    if not types:
        return False
    found: set[Var] = set()
    collect((step.args, step.kwargs), found)
    taken = {types[v] for v in found if v in types}.difference(_PLAIN)
    made = {types[v] for _, v in step.outs if v in types}
    return any(not hasattr(t, "__tensor_flatten__") for t in taken | made)


def _seen_leaves(
    steps: list[Step], needed: set[Var], start: TorchModes, types: dict[Var, type]
) -> set[int]:
    """The operations that make leaves of autograd which somebody can tell from other tensors.

    No compiler's graph gives out leaves, nor does it add to gradients of its own.  Where gradients
    are off (a slice of an embedding in a model that serves) operations take a leaf like any other
    tensor, and it stays in the graph.

    Returns:
        The identities of the steps.
    """
    if not any(isinstance(s, OpStep) and s.leaves for s in steps):
        return set()
    now = start
    grads: list[bool] = []
    for s in steps:
        if isinstance(s, ModeStep):
            now = s.modes
        grads.append(now.grad)
    found: set[int] = set()
    seen = set(needed)
    for s, grad in zip(reversed(steps), reversed(grads), strict=True):
        if not isinstance(s, (OpStep, HostStep)):
            continue
        if isinstance(s, OpStep) and s.leaves and any(v in seen for _, v in s.outs):
            found.add(id(s))
        if grad or not isinstance(s, OpStep) or s.once or id(s) in found or _only_python(s, types):
            collect((s.args, s.kwargs), seen)
    return found


def _schedule(
    steps: list[Step],
    storages: dict[Var, int],
    possible: dict[Var, set[int]],
    types: dict[Var, type] | None,
    numbers: Certain | None,
    start: TorchModes,
    needed: set[Var],
) -> list[Any]:
    schedule = _Schedule(possible)
    leaves = set() if types is None else _seen_leaves(steps, needed, start, types)
    modes: ModeStep | None = None
    host_modes: TorchModes | None = None
    for step in steps:
        if isinstance(step, ModeStep):
            modes = step
            if schedule.waiting and host_modes != step.modes:
                schedule.flush()  # a waiting step runs under the modes of its own place
            schedule.graph.append(step)
        elif isinstance(step, OpStep):
            now = modes.modes if modes is not None else start
            kind: tuple[Any, ...] = ("graph", now.settings)
            if types is not None and (
                id(step) in leaves or _only_python(step, types) or _writes_again(step, storages)
            ):
                kind = ("native", now.settings)
            elif types is not None and now.inference != start.inference:
                # Compilers give ordinary tensors where a graph itself enters inference mode.
                kind = ("inference", now.settings)
            schedule.op(step, kind)
        elif (
            isinstance(step, HostStep)
            and step.told is None
            and (step.symbolic or (numbers and step in numbers and _number(step)))
        ):
            assert step.result is not None
            # A number does not change in place; torch.fx would give the old one's name to the new.
            func = IN_PLACE.get(step.func, step.func)
            number = OpStep(func, step.args, step.kwargs, [((), step.result)], once=step.once)
            now = modes.modes if modes is not None else start
            schedule.op(number, ("graph", now.settings))
        elif isinstance(step, HostStep):
            host_modes = modes.modes if modes is not None else None
            schedule.host(step)
        else:
            schedule.runs.append(step)  # effects wait for the end: they do not cut
    schedule.flush()
    return schedule.runs


def _last_uses(runs: list[Any], needed: set[Var]) -> dict[Var, int]:
    """The index of the last run that uses a variable, beyond all if something comes after them."""
    last: dict[Var, int] = {}
    for i, item in enumerate(runs):
        found: set[Var] = set()
        if isinstance(item, tuple):
            collect([(s.args, s.kwargs) for s in item[1] if isinstance(s, OpStep)], found)
        elif hasattr(item, "outs"):
            collect((item.args, item.kwargs), found)
        last.update(dict.fromkeys(found, i))
    last.update(dict.fromkeys(needed, len(runs)))
    return last


def _views(
    done: list[tuple[OpStep, TorchModes]],
    inputs: list[Var],
    outputs: list[Var],
    storages: dict[Var, int],
    inference: bool,
) -> list[tuple[OpStep, TorchModes]] | None:
    """The operations that make outputs which are views of other outputs, or of changed inputs.

    Compilers give outputs the same memory, but not the bond between a view and its base, by which
    autograd tells one of a change of the other. A view of an input that the graph changes they lay
    out as what they computed, which is wrong for other offsets and strides than a new tensor's.
    In inference mode they leave out the bond to an input, too.

    Returns:
        The operations in order; None if they cannot be done after the others.
    """
    taken = {storages.get(v, 0) for v in inputs}
    changed = set(taken) if inference else set()
    last: dict[int, int] = {}
    for i, (step, _) in enumerate(done):
        if step.mutates:
            targets = {storages.get(v, 0) for v in written(step)}
            changed |= targets
            if variables(resizable(step.func, step.args, step.kwargs)):
                last.update(dict.fromkeys(targets, i))
    groups: dict[int, list[Var]] = {}
    for v in outputs:
        groups.setdefault(storages.get(v, 0), []).append(v)
    maker = {v: i for i, (step, _) in enumerate(done) for _, v in step.outs}
    again: set[int] = set()
    for memory, todo in groups.items():
        if not memory or (memory not in changed if memory in taken else len(todo) < 2):
            continue
        chain: set[int] = set()
        while todo:
            made = maker.get(todo.pop())
            if made is None or made in chain:
                continue  # an input, or seen to
            step = done[made][0]
            found: set[Var] = set()
            collect((step.args, step.kwargs), found)
            bases = [v for v in found if storages.get(v, 0) == memory]
            if not bases:
                continue
            if made < last.get(memory, 0):
                return None
            if memory in taken:
                # Of several views that were made at once autograd allows no change.
                if step.mutates or step.random or step.once or len(step.outs) > 1:
                    return None
            elif step.mutates or step.random or step.once or found.difference(bases):
                break
            chain.add(made)
            todo.extend(bases)
        else:
            again |= chain
    return [done[i] for i in sorted(again)]


_DETACHES = frozenset([torch.Tensor.detach, torch.detach])


def _detaches(step: OpStep) -> bool:
    """Whether the result of an operation knows nothing of autograd's of where it comes from."""
    if step.func in _DETACHES:
        return True
    return step.func is getattr and step.args[1] == "data"


def _detached(
    done: list[tuple[OpStep, TorchModes]],
    inputs: list[Var],
    outputs: list[Var],
    changes: frozenset[int],
    storages: dict[Var, int],
) -> frozenset[Var]:
    """The inputs that a graph changes behind autograd's back, and that no gradients come to.

    A compiler takes what becomes of them for a result, and gives them gradients of zeros
    (`b.data.add_(1)` beside a loss that has nothing to do with b).
    """
    if not any(modes.grad and not modes.inference and _detaches(s) for s, modes in done):
        return frozenset()
    found = set()
    for v in inputs:
        if storages.get(v, 0) not in changes or not storages.get(v, 0):
            continue
        reached = {v}
        for step, modes in done:
            if not modes.grad or modes.inference or _detaches(step):
                continue
            if reached & variables((step.args, step.kwargs)):
                reached.update(x for _, x in step.outs)
                reached.update(written(step) if step.mutates else ())
        if not reached & (set(outputs) | set(inputs) - {v}):
            found.add(v)
    return frozenset(found)


def _modes_around(run: Any, now: TorchModes, start: TorchModes) -> TorchModes:
    """The modes under which a graph is called, of operations that begin under `now`."""
    (kind, settings), _ = run
    if kind != "inference":
        return start if settings == start.settings else replace(start, settings=settings)
    for step in run[1]:
        if isinstance(step, OpStep):
            break
        if isinstance(step, ModeStep):
            now = step.modes
    return replace(start, inference=now.inference, grad=now.grad, settings=settings)


def cut(
    steps: list[Step],
    needed: set[Var],
    start: TorchModes,
    fixed: set[Var],
    storages: dict[Var, int] | None = None,
    types: dict[Var, type] | None = None,
    numbers: Certain | None = None,
) -> Plan:
    """Cuts the steps into segments.

    Args:
        steps: what the run did, in order.
        needed: variables that the result and the effects use.
        start: torch's modes when the call begins.
        storages: memory of each variable; None forbids moving checks ahead.
        fixed: inputs that are the same tensor objects in every call; they come first among a
            segment's inputs.
        types: the classes of the tensors that are not plain ones; None when Python itself runs the
            graphs, which may then hold any tensor.
        numbers: if Python itself runs the graphs: the steps that are certain, of which graphs may
            hold those that compute Python numbers; no check would follow them there.
    """
    steps = pruned(steps, needed)
    hoist = _Hoist(steps, needed, start, storages or {})
    if storages is not None:
        hoist.run()
    prelude, steps = hoist.result()
    runs = _schedule(steps, storages or {}, hoist.found, types, numbers, start, needed)
    modes = start
    plan = Plan(prelude=prelude)
    last_uses = _last_uses(runs, needed)
    for i, item in enumerate(runs):
        if not isinstance(item, tuple):
            if hasattr(item, "outs"):
                item_modes = modes
                plan.items.append((item, item_modes))
            else:
                plan.items.append(item)
            continue
        around = _modes_around(item, modes, start)
        builder = GraphBuilder(around)
        builder.modes(modes)
        made: set[Var] = set()
        used: set[Var] = set()
        ops = 0
        for s in item[1]:
            if isinstance(s, OpStep):
                ops += 1
                found: set[Var] = set()
                collect((s.args, s.kwargs), found)
                used |= found - made
                made |= {v for _, v in s.outs}
        inputs = sorted(used & fixed) + sorted(used - fixed)
        for v in inputs:
            builder.placeholder(v)
        done: list[tuple[OpStep, TorchModes]] = []
        for s in item[1]:
            if isinstance(s, ModeStep):
                modes = s.modes
                builder.modes(modes)
            elif isinstance(s, OpStep):
                builder.op(s)
                done.append((s, modes))
        if ops == 0:
            continue
        outputs = sorted(v for v in made if last_uses.get(v, i) > i)
        views: list[tuple[OpStep, TorchModes]] | None = []
        if types is not None and item[0][0] != "native":
            inference = item[0][0] == "inference"
            views = _views(done, inputs, outputs, storages or {}, inference)
        native = item[0][0] == "native" or views is None
        if views:
            again = {v for step, _ in views for _, v in step.outs}
            bases: set[Var] = set()
            for step, _ in views:
                collect((step.args, step.kwargs), bases)
            outputs = sorted((set(outputs) | bases) - again - set(inputs))
        segment = Segment(
            len(plan.segments), inputs, outputs, builder.finish(outputs), builder.nodes
        )
        segment.once = any(isinstance(s, OpStep) and s.once for s in item[1])
        segment.unrepeatable = any(s.once and (s.whole or communicates(s.func)) for s, _ in done)
        segment.native = native
        segment.changes = frozenset(
            (storages or {}).get(v, 0) for s, _ in done if s.mutates for v in written(s)
        )
        segment.detached = _detached(done, inputs, outputs, segment.changes, storages or {})
        segment.modes = around if around is not start else None
        segment.draws = sum(s.random and getattr(s.func, "draws", 1) for s, _ in done)
        segment.memory = {v: (storages or {}).get(v, 0) for v in (*inputs, *outputs)}
        plan.segments.append(segment)
        plan.items.append(segment)
        plan.items.extend(views or ())
    _keep_differentiable(plan)
    return plan


def _keep_differentiable(plan: Plan) -> None:
    """Lets Python run what the call itself differentiates where a compiler's graph would not do.

    What AOTAutograd makes has no second derivatives, which a gradient penalty takes; and autograd's
    engine comes to all its leaves at once, whose hooks the program runs in the order of its layers.
    """
    last = 0
    for i, item in enumerate(plan.items):
        step = item[0] if isinstance(item, tuple) else item
        if isinstance(step, HostStep) and (
            step.hooks or engine.keeps_graph(step.func, step.args, step.kwargs)
        ):
            last = i
    for item in plan.items[:last]:
        if isinstance(item, Segment):
            item.native = True
