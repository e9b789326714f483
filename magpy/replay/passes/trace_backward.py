"""Backward passes become operations of graphs: forward, backward and optimizer are one graph then.

Owns the choice, and what becomes of the accesses to `.grad` around a pass: a graph computes the
gradients, or adds to those that are there, and `.grad` is assigned when everything else is done;
`torch.autograd.grad` gives them as results, which may be differentiated in their turn (a gradient
penalty, forces that are trained).  So autograd's engine runs where a compiler traces it, and
nothing stands between the passes and the optimizer's updates.

Left as they are: passes in which Python runs (hooks, a `torch.autograd.Function`), that go on to
what was computed before the call, or whose gradients of leaves are to be differentiated; all, if
somebody else may look at a gradient.  For compilers' graphs the results must not carry autograd's
graph on, but for what was differentiated: to differentiate that again is an error
(magpy/models/backward.py).

Does not own what a pass reaches (magpy/capture/tensors/engine.py), nor which operations stand in
one graph with it (magpy/replay/passes/schedule.py).  Called by magpy/replay/pipeline.py.

Sources: https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad.html;
torch/csrc/autograd/functions/accumulate_grad.h, "Gradient Layout Contract".
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import torch

from magpy.ir.aliasing import UNKNOWN
from magpy.ir.ops import (
    Call,
    CheckMetadata,
    CheckSizes,
    CheckValue,
    EffectStep,
    HostStep,
    ModeStep,
    Operation,
    OpStep,
    Path,
    Record,
    Ref,
    Step,
    Var,
    calls_on_tensors,
    has_gradient,
)
from magpy.ir.torch_modes import TorchModes
from magpy.ir.trees import rebuilt, variables
from magpy.models import profiler_marks
from magpy.models.backward import (
    PASSES,
    derivatives,
    differentiated,
    give_gradient,
    gradients,
    new_leaf,
)
from magpy.models.torch_ops import HOST_METHODS, resizable
from magpy.objects.types import isinstance
from magpy.replay.fx_graphs import detaches
from magpy.replay.passes.totality import runs_python
from magpy.replay.support import is_leaf_tensor
from magpy.unwatched.autograd import ADDS

_GRAD = inspect.signature(torch.autograd.grad)
_ARGUMENTS = ("tensors", "gradient", "retain_graph", "create_graph", "inputs")
#: Which argument of `derivatives` says that its results can be differentiated.
_CREATES = 4
#: A tenth of what a pass finds in memory may be kept beside it for hooks.
_PART = 10
_IN_C = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


class _Declined(Exception):
    """The passes stay as they are."""


class TraceBackward:
    """The backward passes of one run.

    Args:
        record: what the run did; it gets variables for gradients that nobody has read.
        start: torch's modes when it began.
        needed: the variables that the result and the effects use.
        compiled: a compiler takes the graphs, and not Python.
    """

    def __init__(self, record: Record, start: TorchModes, needed: set[Var], compiled: bool) -> None:
        """Knows the gradients with which the call begins."""
        self._record = record
        self._start = start
        self._compiled = compiled
        self._needed = needed
        vars_of = {id(t): v for v, t in record.inputs.items()}
        #: The gradient that each tensor from outside has, where that is known.
        self._now: dict[Var, Var | None] = {}
        for t, gradient in record.gradients:
            if id(t) in vars_of and (gradient is None or id(gradient) in vars_of):
                self._now[vars_of[id(t)]] = None if gradient is None else vars_of[id(gradient)]
        self._first = dict(self._now)
        #: The first assignment to the gradient with which the call begins, if it is given up there.
        self._let_go: dict[Var, HostStep] = {}
        #: Where it is given up later on.
        self._freed_at: dict[Var, HostStep] = {}
        #: What has assigned it last.
        self._assigned: dict[Var, HostStep] = {}
        self._kept: list[Step] = []
        #: The variables that somebody uses, where hooks were given gradients.
        self._used: set[Var] | None = None
        #: The leaves that the call made, by the variables that they were made of.
        self._own: dict[Var, Var] = {}
        #: What was differentiated, so that to differentiate it again is an error.
        self.freed: set[Var] = set()

    def steps(self) -> list[Step] | None:
        """The steps of the run with the passes as operations; None if they stay as they are."""
        steps = self._record.steps
        if not any(_is_pass(s) or _is_grad(s) for s in steps):
            return None
        try:
            for at, step in enumerate(steps):
                self._take(at, step)
        except _Declined:
            return None
        return self._finish()

    def _take(self, at: int, step: Step) -> None:
        if self._own and isinstance(step, (OpStep, HostStep)):
            step = _renamed(step, self._own)
        of = step.args[0] if isinstance(step, Operation) and step.args else None
        if isinstance(step, HostStep) and _is_pass(step):
            self._pass(at, step)
        elif isinstance(step, HostStep) and _is_grad(step):
            self._grad(step)
        elif _makes_leaf(step):
            assert isinstance(step, (OpStep, HostStep))
            self._leaf(step)
        elif isinstance(step, Operation) and _is_about_a_gradient(step):
            if not isinstance(of, Ref) or of.var not in self._now:
                raise _Declined
            if isinstance(step, HostStep) and step.func is setattr:
                self._assign(of.var, step)
            else:
                self._read(of.var, step)
        elif _may_look_around(step):
            raise _Declined
        else:
            self._kept.append(step)

    def _assign(self, of: Var, step: HostStep) -> None:
        """`.grad` is assigned, or given up."""
        given = step.args[2]
        if given is not None and not isinstance(given, Ref):
            raise _Declined
        if given is None and of not in self._assigned and self._now[of] is not None:
            if not any(isinstance(s, OpStep) for s in self._kept):
                self._let_go[of] = step
            elif not self._compiled:
                # It frees memory here; what comes before may raise, and find the gradient.
                self._kept.append(step)
                self._freed_at[of] = step
        self._now[of] = None if given is None else given.var
        self._assigned[of] = step

    def _read(self, of: Var, step: Operation) -> None:
        """`.grad` is read, or compared with what it was."""
        now = self._now[of]
        if isinstance(step, OpStep):
            same = step.func is getattr and step.defined == [now]
        elif step.func is has_gradient:
            same = step.args[1].var == now and isinstance(step, CheckValue)
        elif now is None:
            same = isinstance(step, CheckValue) and step.expected is None
        else:
            same = isinstance(step, (CheckMetadata, CheckSizes)) and [v for _, v in step.outs] == [
                now
            ]
        if not same:
            raise _Declined

    def _leaf(self, step: OpStep | HostStep) -> None:
        """A tensor requires gradients from here on: what follows takes another one in its stead."""
        of = step.args[0].var
        if of in self._record.inputs:
            self._kept.append(step)
            return
        if of in self._needed or of in carrying(self._kept, self._record, self._start):
            raise _Declined
        self._own[of] = new = _another(self._record, of)
        self._now[new] = self._first[new] = None
        self._kept.append(OpStep(new_leaf, (Ref(of),), {}, [((), new)], where=step.where))

    def _grad(self, step: HostStep) -> None:
        """`torch.autograd.grad` becomes an operation."""
        engine = step.engine
        if engine is None or engine.leaves is None or engine.goes_on or engine.heard:
            raise _Declined
        given = _GRAD.bind(*step.args, **step.kwargs)
        given.apply_defaults()
        of = given.arguments
        if step.unrepeatable or of["is_grads_batched"] or _sparse(step):
            raise _Declined
        outputs, inputs, ends = (
            v if isinstance(v, (tuple, list)) or v is None else (v,)
            for v in (of["outputs"], of["inputs"], of["grad_outputs"])
        )
        create = bool(of["create_graph"])
        retain = create if of["retain_graph"] is None else bool(of["retain_graph"])
        unused = bool(of["allow_unused"] or of["materialize_grads"])
        materialize = bool(of["materialize_grads"])
        arguments = (outputs, inputs, ends, retain, create, unused, materialize)
        if not retain:
            self._frees(variables(outputs), variables(inputs))
        outs = list(step.outs)
        self._kept.append(OpStep(derivatives, arguments, {}, outs, where=step.where))

    def _frees(self, roots: set[Var], ends: set[Var] | None) -> None:
        """A pass frees the graph of what it comes through, on its way to `ends` or to all."""
        found = history(self._kept, roots, carrying(self._kept, self._record, self._start))
        if ends is not None:
            found &= followers(self._kept, ends)
        self.freed |= found

    def _pass(self, at: int, step: HostStep) -> None:
        """A backward pass becomes an operation that gives the gradients."""
        engine = step.engine
        if engine is None or not engine.leaves or engine.goes_on or step.unrepeatable:
            raise _Declined
        leaves = [
            v
            for v in (self._own.get(v, v) for v in engine.leaves)
            if v not in self._own.values() or self._is_asked(v, at)
        ]
        if not all(v in self._now for v in leaves):
            raise _Declined
        if engine.heard and self._used is None:
            steps = (s for s in self._record.steps if isinstance(s, Operation))
            self._used = self._needed.union(*(variables((s.args, s.kwargs)) for s in steps))
        heard = [(v, gradient) for v, gradient in engine.heard if gradient in (self._used or ())]
        if self._holds_much(v for v, _ in heard):
            raise _Declined
        tensors, given, retain = _arguments(step)
        if retain and engine.heard:
            raise _Declined  # another pass would call the hooks once more
        if not retain:
            self._frees(variables(tensors), None)
        held = [self._now[v] for v in leaves]
        outs: list[tuple[Path, Var]] = []
        for leaf in (v for v in leaves if self._now[v] is None):
            new = self._gradient(leaf, at)
            self._now[leaf], self._assigned[leaf] = new, step
            outs.append(((len(outs),), new))
        arguments = (
            tensors,
            tuple(map(Ref, leaves)),
            given,
            tuple(None if v is None else Ref(v) for v in held),
            retain,
            tuple(Ref(v) for v, _ in heard),
        )
        outs += [((len(outs) + i,), gradient) for i, (_, gradient) in enumerate(heard)]
        writes = frozenset(v for v in held if v is not None)
        self._kept.append(
            OpStep(
                gradients,
                arguments,
                {},
                outs,
                mutates=bool(writes),
                writes=writes,
                where=step.where,
            )
        )

    def _holds_much(self, heard: Iterable[Var]) -> bool:
        """Whether the gradients of what was computed on the way, all kept, need much memory.

        Beside what a pass finds: what is from outside, and most of what was computed.
        """
        record = self._record
        there = {*record.inputs}
        for step in self._kept:
            if isinstance(step, OpStep):
                there.update(step.defined)
        elements = record.elements
        memories = {record.storages.get(v): elements.get(v, 0) for v in there}
        return sum(elements.get(v, 0) for v in heard) * _PART > sum(memories.values())

    def _gradient(self, leaf: Var, at: int) -> Var:
        """The variable of what a pass gives a leaf: that of the program's first read of it."""
        step = self._asked(leaf, at)
        if step is not None and step.func is getattr and len(step.outs) == 1:
            return step.outs[0][1]
        var = _another(self._record, leaf)
        self._record.storages[var] = 1 + max(self._record.storages.values())
        return var

    def _is_asked(self, leaf: Var, at: int) -> bool:
        return self._asked(leaf, at) is not None

    def _asked(self, leaf: Var, at: int) -> Operation | None:
        """The program's first look at the gradient of a leaf after a pass."""
        for step in self._record.steps[at + 1 :]:
            if isinstance(step, Operation) and _is_about_a_gradient(step):
                of = step.args[0]
                if isinstance(of, Ref) and self._own.get(of.var, of.var) == leaf:
                    return step
        return None

    def _finish(self) -> list[Step]:
        """The steps, with what is assigned to `.grad` at their end."""
        used = self._needed.union(
            *(variables((s.args, s.kwargs)) for s in self._kept if isinstance(s, Operation))
        )
        start, end = [], []
        put_back: list[HostStep | None] = []
        for leaf, step in self._assigned.items():
            now, first = self._now[leaf], self._first[leaf]
            if now == first:  # given up, and put back: there is nothing to free meanwhile
                put_back.append(self._freed_at.get(leaf))
                continue
            # Whoever frees memory by `zero_grad` has it free while the model runs.
            early = leaf in self._let_go and first not in used
            if early:
                start.append(self._let_go[leaf])
            own = leaf in self._own.values()  # nobody has it when the call is over
            if not (early and now is None) and not own:
                args: tuple[Any, ...] = (Ref(leaf), None if now is None else Ref(now))
                new = _is_pass(step) and (early or first is None)
                func, args = (give_gradient, args) if new else (setattr, (args[0], "grad", args[1]))
                end.append(Call(func, args, {}, mutates=True, where=step.where))
        effects = [s for s in self._kept if isinstance(s, EffectStep)]
        rest = [
            s
            for s in self._kept
            if not isinstance(s, EffectStep) and not any(s is p for p in put_back)
        ]
        return [*start, *rest, *end, *effects]


def trace_backward(
    record: Record, start: TorchModes, needed: set[Var], compiled: bool
) -> list[Step]:
    """The steps of a run with its backward passes as operations, if that can be.

    Args:
        record: what the run did; it gets variables for gradients that nobody has read.
        start: torch's modes when it began.
        needed: the variables that the result and the effects use.
        compiled: a compiler takes the graphs, and not Python.
    """
    trace = TraceBackward(record, start, needed, compiled)
    steps = trace.steps()
    if steps is None:
        return record.steps
    if not compiled:
        return steps
    found = _detached(steps, record, start, needed, trace.freed)
    return record.steps if found is None else found


def carrying(steps: list[Step], record: Record, start: TorchModes) -> set[Var]:
    """The variables that may carry autograd's graph, among them inputs that are written to."""
    modes = start
    # Of what was written to it shows by now whether it carries one: a mean that is kept does not.
    found = {v for v, t in record.inputs.items() if t.requires_grad}
    leaves = {v for v in found if is_leaf_tensor(record.inputs[v])}
    for step in steps:
        if isinstance(step, ModeStep):
            modes = step.modes
        elif isinstance(step, Operation) and modes.grad and not modes.inference:
            if step.func is new_leaf or _makes_leaf(step):
                found |= (
                    variables((step.args[:1], step.outs)) if step.outs else variables(step.args[:1])
                )
                continue
            if gives_values(step) or (isinstance(step, OpStep) and detaches(step)):
                continue
            if not found.isdisjoint(variables((step.args, step.kwargs))):
                found.update(v for v in step.defined if v in record.floating)
                found |= step.writes - record.inputs.keys()
    return found - leaves


def history(steps: list[Step], of: set[Var], carry: AbstractSet[Var]) -> set[Var]:
    """Variables, and all that autograd comes to from them.

    Args:
        steps: the steps, those included that Python does between two graphs.
        of: the variables.
        carry: the variables that carry autograd's graph (`carrying`).
    """
    found = set(of)
    for step in reversed(steps):
        if isinstance(step, Operation) and not (found & carry).isdisjoint(
            {*step.defined, *step.writes}
        ):
            found |= variables((step.args, step.kwargs))
    return found


def _detached(
    steps: list[Step], record: Record, start: TorchModes, needed: set[Var], freed: set[Var]
) -> list[Step] | None:
    """The steps in which nothing that leaves the graphs carries autograd's graph.

    Returns:
        None if something must.
    """
    carry = carrying(steps, record, start)
    results = carry & needed
    if not results <= freed:
        return None  # it can be differentiated after the call
    return _Detach(record, carry, results).steps(steps, start)


class _Detach:
    """Gives those who are no operation tensors that carry no graph.

    Args:
        record: what the run did; it gets variables.
        carry: the variables that carry autograd's graph.
        results: those of them that the result and the effects use; in graphs they are others.
    """

    def __init__(self, record: Record, carry: set[Var], results: set[Var]) -> None:
        self._record = record
        self._carry = carry
        self._inner = {v: _another(record, v) for v in sorted(results)}
        self._bare: dict[Var, Var] = {}

    def steps(self, steps: list[Step], start: TorchModes) -> list[Step] | None:
        """The steps; None if one makes tensors that carry a graph, and is no operation."""
        asked = set(self._inner)
        made = {v for s in steps if isinstance(s, OpStep) for v in s.defined}
        for step in steps:
            if isinstance(step, HostStep):
                taken = variables((step.args, step.kwargs)) & self._carry
                if taken and (step.outs or step.mutates):
                    return None
                asked |= taken
        if not asked <= made:
            return None
        self._bare = {v: _another(self._record, v) for v in sorted(asked)}
        after = self._after(steps, made)
        if not _reshaped(steps).isdisjoint(after):
            return None  # ahead of that, what is detached would have the form from before
        moved = {id(s) for found in after.values() for s in found}
        modes = start
        ends = next((i for i, s in enumerate(steps) if isinstance(s, EffectStep)), len(steps))
        found: list[Step] = []
        for i, step in enumerate(steps):
            if i == ends:
                found += self._results(modes)
            if isinstance(step, ModeStep):
                modes = step.modes
            if id(step) in moved:
                continue
            if isinstance(step, HostStep):
                found.append(_renamed(step, self._bare))
            elif isinstance(step, OpStep):
                found.append(_renamed(step, self._inner))
                for v in step.defined:
                    found += (_renamed(s, self._inner) for s in after.get(v, ()))
            else:
                found.append(step)
        return found if ends < len(steps) else found + self._results(modes)

    def _after(self, steps: list[Step], made: set[Var]) -> dict[Var, list[OpStep]]:
        """What follows at once on what makes a tensor, so that it alone leaves the graph."""
        found: dict[Var, list[OpStep]] = {}
        for v, bare in self._bare.items():
            found[v] = [OpStep(torch.Tensor.detach, (Ref(v),), {}, [((), bare)])]
        for step in steps:
            if isinstance(step, OpStep) and detaches(step):
                of = step.args[0]
                if isinstance(of, Ref) and of.var in self._carry & made:
                    found.setdefault(of.var, []).append(step)
        return found

    def _results(self, modes: TorchModes) -> list[Step]:
        """The results: to differentiate them again is an error."""
        if not self._inner:
            return []
        found: list[Step] = [ModeStep(replace(modes, grad=True, inference=False))]
        for v in self._inner:
            args = (Ref(self._bare[v]),)
            found.append(OpStep(differentiated, args, {}, [((), v)]))
        return [*found, ModeStep(modes)]


def _reshaped(steps: list[Step]) -> set[Var]:
    """The variables that are given another form in place (`squeeze_`)."""
    found: set[Var] = set()
    for s in steps:
        if isinstance(s, OpStep):
            found |= variables(resizable(s.func, s.args, s.kwargs))
    return found


def _another(record: Record, v: Var) -> Var:
    """Another variable for the memory of one."""
    new = Var(record.nvars)
    record.nvars += 1
    record.storages[new] = record.storages.get(v, UNKNOWN)
    record.elements[new] = record.elements.get(v, 0)
    record.floating.add(new)
    if record.symbols is not None:
        record.symbols.stands_for(new, v, record.inputs.get(v))
    return new


def _renamed(step: Step, others: dict[Var, Var]) -> Any:
    """A step with other variables."""
    assert isinstance(step, (OpStep, HostStep))

    def name(v: Var) -> Var:
        return others.get(v, v)

    def change(v: Any) -> Any:
        return Ref(name(v.var)) if isinstance(v, Ref) else v

    args, kwargs = rebuilt((step.args, step.kwargs), change)
    outs = [(path, name(v)) for path, v in step.outs]
    writes = frozenset(map(name, step.writes))
    return replace(step, args=args, kwargs=kwargs, outs=outs, writes=writes)


def followers(steps: list[Step], of: set[Var]) -> set[Var]:
    """Variables, and all that is computed from them by these steps."""
    found = set(of)
    for step in steps:
        if isinstance(step, Operation) and not found.isdisjoint(
            variables((step.args, step.kwargs))
        ):
            found |= {*step.defined, *step.writes}
    return found


def gives_values(step: Step) -> bool:
    """Whether a step is a pass whose results cannot be differentiated."""
    if not isinstance(step, OpStep) or step.func not in PASSES:
        return False
    return step.func is gradients or not step.args[_CREATES]


def _is_grad(step: Step) -> bool:
    return isinstance(step, HostStep) and step.func is torch.autograd.grad


def _makes_leaf(step: Step) -> bool:
    """Whether from a step on a tensor requires gradients."""
    if not isinstance(step, (OpStep, HostStep)) or not step.args or type(step.args[0]) is not Ref:
        return False
    if step.func is setattr:
        return step.args[1:] == ("requires_grad", True)
    return step.func is torch.Tensor.requires_grad_ and step.args[1:] in ((), (True,))


def _sparse(step: HostStep) -> bool:
    """Whether something in the results of a pass is no dense tensor."""
    if isinstance(step, CheckSizes):
        return False  # sizes of others are not followed
    return not isinstance(step, CheckMetadata) or any(m and m[-1] is None for m in step.expected)


def _is_pass(step: Step) -> bool:
    """Whether a step adds to the gradients of leaves."""
    return isinstance(step, HostStep) and step.func in ADDS


def _is_about_a_gradient(step: Operation) -> bool:
    return step.func is has_gradient or (
        step.func in (getattr, setattr) and len(step.args) > 1 and step.args[1] == "grad"
    )


def _may_look_around(step: Step) -> bool:
    """Whether Python runs in a step, or something is changed that nobody knows here."""
    if runs_python(step):
        return True
    if not isinstance(step, HostStep) or step.func in (profiler_marks.begin, profiler_marks.end):
        return False
    if type(step.func) in _IN_C and step.func not in (setattr, delattr) and step.engine is None:
        # An operation of torch's that Python calls as it is (a fused optimizer's).
        return step.func.__name__ in HOST_METHODS
    return step.mutates or step.engine is not None or calls_on_tensors(step)


def _arguments(step: HostStep) -> tuple[tuple[Ref, ...], Any, bool]:
    """What a pass differentiates, the gradients of that, and whether the graph is kept."""
    given = dict(zip(_ARGUMENTS, step.args, strict=False)) | step.kwargs
    if "grad_tensors" in given:
        given["gradient"] = given.pop("grad_tensors")
    if not given.keys() <= {*_ARGUMENTS, "grad_variables"} or any(
        given.get(k) not in (None, False) for k in ("create_graph", "inputs", "grad_variables")
    ):
        raise _Declined
    tensors, gradient = given["tensors"], given.get("gradient")
    if isinstance(tensors, Ref):
        return (tensors,), None if gradient is None else (gradient,), bool(given["retain_graph"])
    return tuple(tensors), gradient, bool(given.get("retain_graph"))


__all__ = ["carrying", "followers", "gives_values", "history", "trace_backward"]
