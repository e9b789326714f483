"""Mock code: a readable Python function that redoes a captured call.

Owns the text of the function: the order of graphs, host steps, checks, effects, and what is done
where one raises.  Does not own the statements that make and change objects
(magpy/replay/object_code.py), the segments (magpy/replay/segments.py) or when the function may be
called (guards).  Called by magpy/runtime/entry.py.

Order inside: segments and host steps with their checks; then every new object is made; then the
effects, which nothing can interrupt any more; then the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from magpy import faults
from magpy.frames.synthetic import operation
from magpy.guards.analysis import Analysis
from magpy.ir import aliasing
from magpy.ir.capture import Capture
from magpy.ir.ops import (
    Bind,
    BindArray,
    Binding,
    Call,
    Check,
    CheckArray,
    CheckMetadata,
    CheckSizes,
    CheckValue,
    EffectStep,
    HostStep,
    ModeStep,
    OpStep,
    Ref,
    Step,
    Var,
    calls_on_tensors,
    identity,
)
from magpy.ir.trees import generators_of
from magpy.models.numpy_warnings import strict
from magpy.objects.types import isinstance
from magpy.replay import support
from magpy.replay.object_code import ObjectCode
from magpy.replay.passes.undo import Undo
from magpy.replay.segments import Plan, Segment, assigns_gradient, swaps_data, switches_gradients


class Runs(Protocol):
    """What runs a segment."""

    def bind(self, fixed: tuple[Any, ...]) -> Callable[..., Any]:
        """What the mock function calls with the inputs that come after these."""


# How the result of a host step is compared.
_TESTS: dict[type[Check], Any] = {
    CheckValue: support.same_leaf,
    CheckArray: support.same_array,
    CheckMetadata: support.same_meta,
    CheckSizes: support.same_sized,
}


def _may_run_engine(step: HostStep) -> bool:
    return calls_on_tensors(step)


class Code(ObjectCode):
    """The mock function of one entry while it is being written."""

    def __init__(self, capture: Capture, analysis: Analysis, plan: Plan) -> None:
        """Writes nothing yet."""
        super().__init__(capture, analysis)
        self.plan = plan

    def segment(self, segment: Segment, runner: Runs) -> None:
        """The call of a segment.  Inputs that never change stand first, and are bound to it."""
        record = self.capture.record
        name = f"segment{segment.index}"
        fixed = tuple(
            v
            for v in segment.inputs
            if v in record.inputs
            and v not in record.swapped
            and id(record.inputs[v]) not in self.analysis.relative
        )
        bound = set(fixed)
        args = ", ".join([self.var(v) for v in segment.inputs if v not in bound])
        self.globals[name] = runner.bind(tuple([record.inputs[v] for v in fixed]))
        if fixed:
            self.lines.append(f"# {name}: {len(fixed)} tensors that never change come first")
        targets = "".join(f"v{v}, " for v in segment.outputs)
        call = f"{name}({args})"
        self.lines.append(f"({targets}) = {call}" if targets else call)
        self._made.update(segment.outputs)

    def operation(self, step: OpStep, modes: Any) -> None:
        """An operation that is done by itself, not in a graph."""
        args = ", ".join(
            [self.tree(a) for a in step.args]
            + [f"{k}={self.tree(v)}" for k, v in step.kwargs.items()]
        )
        result = self.temp()
        func = self.constant(step.func)
        if modes != self.capture.start_modes:
            func = self.constant(support.under(modes, step.func))
        self.lines.append(f"{result} = {func}({args})")
        self._outputs(step, result)

    def callee(self, func: Any, modes: Any, site: Any = None) -> str:
        """The expression of what a host step calls, from `site` if it may warn."""
        receiver = getattr(func, "__self__", None)
        given = receiver is not None and id(receiver) in self.analysis.relative
        if not given:
            func = func if site is None else operation(func, site)
            under = func if modes == self.capture.start_modes else support.under(modes, func)
            return self.constant(under)
        # A method of what is another object in every call (a random generator that is passed).
        text = f"{self.outside(receiver)}.{func.__name__}"
        if modes == self.capture.start_modes:
            return text
        return f"{self.constant(support.under)}({self.constant(modes)}, {text})"

    def host(self, step: HostStep, modes: Any, fail: str) -> None:
        """A host step and its check."""
        args = ", ".join(
            [self.tree(a) for a in step.args]
            + [f"{k}={self.tree(v)}" for k, v in step.kwargs.items()]
        )
        called = step.func
        self.lines.append("# " + " ".join(step.where.splitlines()))
        if step.arithmetic is not None:
            called = strict(operation(called, step.arithmetic))
        func = self.callee(called, modes, step.site)
        if isinstance(step, Call):
            self.lines.append(f"{func}({args})")
            return
        if isinstance(step, Binding):
            self.lines.append(f"v{step.result} = {func}({args})")
            self._made.add(step.result)
            expected = self.constant(step.expected)
            if isinstance(step, BindArray):
                test = f"{self.constant(support.same_array_form)}(v{step.result}, {expected})"
                self.lines.append(f"if not {test}: {fail}")
            else:
                self.lines.append(f"if v{step.result}.__class__ is not {expected}: {fail}")
        elif isinstance(step, Check):
            result = self.temp()
            self.lines.append(f"{result} = {func}({args})")
            self._check(step, result, fail)
            self._outputs(step, result)

    def _check(self, step: Check, result: str, fail: str) -> None:
        if isinstance(step, CheckValue) and isinstance(step.expected, bool):
            self.lines.append(f"if {result} is not {step.expected}: {fail}")
        else:
            test, expected = self.constant(_TESTS[type(step)]), self.constant(step.expected)
            self.lines.append(f"if not {test}({result}, {expected}): {fail}")

    def _outputs(self, step: OpStep | HostStep, result: str) -> None:
        """The variables that parts of a result become."""
        for path, var in step.outs:
            self.lines.append(f"v{var} = {result}" + "".join(f"[{self.literal(k)}]" for k in path))
            self._made.add(var)

    def function(
        self,
        runners: Sequence[Runs],
        recover: Callable[..., Any],
        is_early: Callable[[BaseException], bool],
        undo: Undo,
    ) -> tuple[Any, str]:
        """The compiled mock function and its text.

        Args:
            runners: what runs each segment of the plan.
            recover: what is called where something raises: recover(error, saved, early).
            is_early: whether an exception comes ahead of all changes, if nothing was saved.
            undo: what of what the entry changes is saved.
        """
        faults.check("mock")
        c = self.capture
        self.globals["recover"] = recover
        self.globals["is_early"] = is_early
        fail = "return MISS"
        segments = iter(runners)
        calls: list[str] = []
        pending: list[EffectStep] = []
        for i, item in enumerate(self.plan.items):
            step = item[0] if isinstance(item, tuple) else item
            if i == undo.first and undo.saves:
                fail = self._save(undo.steps)
            elif i == (undo.last + 1 if undo.saves else undo.first):
                self.lines.append("saved = None")  # what is changed from here on is not put back
                fail = f"raise {self.constant(support.Unforeseen)}"
            if (
                isinstance(step, (Segment, OpStep, HostStep))
                and undo.first <= i <= undo.last
                and step.unrepeatable
            ):
                self.lines.append("saved = None")  # nobody can take back what it does
            if isinstance(item, Segment):
                self.segment(item, next(segments))
            elif isinstance(item, EffectStep):
                pending.append(item)
            elif isinstance(item[0], OpStep):
                self.operation(*item)
            else:
                self.host(item[0], item[1], fail)
        for step in pending:
            calls.extend(self.call_effect(step))
        for e in c.effects:
            calls.extend(self.effect(e))
        result = self.spec(c.result)
        return self._assemble(calls, result)

    def _save(self, steps: Sequence[Step]) -> str:
        """From here on what these steps change is saved; returns how the entry is left."""
        c = self.capture
        inputs = c.record.inputs
        found = aliasing.possible(c.record.steps, c.record.storages)
        swapped: set[Var] = set()
        switched: set[Var] = set()
        changed: set[int] = set()  # memories
        does = [s for s in steps if isinstance(s, (OpStep, HostStep))]
        for s in does:
            if switches_gradients(s, inputs):
                switched.add(s.args[0].var)
            if swaps_data(s):
                swapped |= {r.var for r in s.args[:1] if isinstance(r, Ref)}
            elif s.mutates and not assigns_gradient(s):
                changed |= aliasing.changed(s, found)

        def meets(v: Var) -> bool:
            return aliasing.UNKNOWN in changed or aliasing.meet(found.get(v, {0}), changed)

        # What only was given other memory has its own as it was.
        copied = [v for v in sorted(c.record.mutated) if meets(v)]
        drawn = {
            s.result: s.args[0].obj
            for s in c.record.steps
            if isinstance(s, Bind) and s.result in c.record.generators and s.func is identity
        }
        owners = {id(owner): owner for s in does for owner in generators_of(s, drawn)}
        backward = any(isinstance(s, HostStep) and s.mutates and _may_run_engine(s) for s in does)
        leaves = {
            v: t
            for v, t in inputs.items()
            if backward and (t.requires_grad or v in switched) and support.is_leaf_tensor(t)
        }
        known = {id(t): v for v, t in inputs.items()}
        gradients = {id(t): g for t, g in c.record.gradients}
        # A gradient that the program lets go of is kept, and nobody writes to it.
        kept = [
            v
            for v, t in leaves.items()
            if (g := gradients.get(id(t))) is not None
            and id(g) in known
            and not meets(known[id(g)])
        ]

        def those(of: Iterable[Var]) -> str:
            return "(" + "".join(f"{self.outside(inputs[v])}, " for v in of) + ")"

        generators = "(" + "".join(f"{self.outside(o)}, " for o in owners.values()) + ")"
        self.lines.append(
            f"saved = {self.constant(support.save)}({those(copied)}, "
            f"{any(s.random for s in does)}, {generators}, "
            f"{those(v for v in leaves if v not in kept)}, "
            f"{those(v for v in sorted(swapped) if v in inputs)}, {those(sorted(switched))}, "
            f"{those(kept)})"
        )
        self.globals["undo"] = support.undo
        return "return undo(saved)"

    def _restore(self, before: list[str]) -> list[str]:
        """The lines that put torch's modes back, where a graph that fails may have switched them.

        Args:
            before: gets what must be known for that when the entry begins.
        """
        start = self.capture.start_modes
        switched = [s.modes for s in self.capture.record.steps if isinstance(s, ModeStep)]
        if all(modes == start for modes in switched):
            return []
        nesting = "None"
        if self._casts():
            nesting = "nesting"
            before.append(f"nesting = {self.constant(support.begin_autocast)}()")
        modes = self.constant(start)
        lines = [f"{self.constant(support.restore_modes)}(error, {modes}, {nesting})"]
        return [*lines, "nesting = None"] if self._casts() else lines

    def _casts(self) -> bool:
        """Whether graphs switch autocast."""
        start = self.capture.start_modes
        return any(
            (s.modes.autocast, s.modes.cache) != (start.autocast, start.cache)
            for s in self.capture.record.steps
            if isinstance(s, ModeStep)
        )

    def reads(self) -> tuple[int, ...] | None:
        """The guard's registers that the mock function takes; None: the call's arguments."""
        c = self.capture
        if not c.kwargs and not self._read:
            return None
        return (*range(len(c.args) + len(c.kwargs)), *self._read.values())

    def _assemble(self, calls: list[str], result: str) -> tuple[Any, str]:
        c = self.capture
        params = [f"_a{i}" for i in range(len(c.args))]
        params += [*(f"_k{i}" for i in range(len(c.kwargs))), *self._read]
        if params:
            params.append("/")
        body = [*self._dicts.values(), "saved = ()"]
        restore = self._restore(body)
        body.append("try:")
        if self._casts():
            self.lines += [f"{self.constant(support.end_autocast)}()", "nesting = None"]
        body.extend("    " + line for line in (self.lines or ["pass"]))
        body.append("except Exception as error:")
        # Ahead of `restore`, which empties the frames.
        body.append("    early = saved is None and is_early(error)")
        body.extend("    " + line for line in restore)
        body.append("    return recover(error, saved, early)")
        if restore:
            body.append("except BaseException as error:")
            body.extend("    " + line for line in [*restore, "raise"])
        if self._casts():
            body.append("finally:")
            leave = self.constant(support.leave_autocast)
            body.append(f"    if nesting is not None: {leave}(nesting)")
        body.extend(calls)
        body.append(f"return {result}")
        text = f"def mock({', '.join(params)}):\n" + "".join(f"    {line}\n" for line in body)
        exec(compile(text, "<magpy mock>", "exec"), self.globals)
        return self.globals["mock"], text
