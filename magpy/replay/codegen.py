"""Mock code: a readable Python function that redoes a captured call.

Owns the text of the function and its table of constants.  Does not own the segments
(magpy/replay/segments.py), the specs (magpy/capture/rebuild.py) or when the function may be called
(guards).  Called by magpy/runtime/entry.py.

Order inside: segments and host steps with their checks; then every new object is made; then the
effects, which nothing can interrupt any more; then the result.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from magpy import _interp, faults
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
    Fresh,
    HostStep,
    ModeStep,
    OpStep,
    OutsideRef,
    Ref,
    Step,
    Var,
    calls_on_tensors,
    identity,
)
from magpy.ir.recipes import AttrEffect, Const, ContainerEffect, New, Outside, Spec, Value
from magpy.ir.trees import Sizes, generators_of
from magpy.models.callables import unbound
from magpy.models.numpy_warnings import strict
from magpy.objects.types import isinstance
from magpy.replay import support
from magpy.replay.passes.schedule import reads_gradient
from magpy.replay.passes.totality import Totality
from magpy.replay.passes.undo import Undo
from magpy.replay.segments import Plan, Segment, assigns_gradient, swaps_data, switches_gradients

_LITERALS = (int, str, bool, type(None), bytes)


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


class Code:
    """The mock function of one entry while it is being written."""

    def __init__(self, capture: Capture, analysis: Analysis, plan: Plan, total: Totality) -> None:
        """Writes nothing yet."""
        self._unmade = 0  # objects whose parts are being made, before them
        self._empty: list[tuple[New, str]] = []  # cells that are filled when all of these are there
        self.capture = capture
        self.analysis = analysis
        self.plan = plan
        self.total = total
        self.globals: dict[str, Any] = {
            "__name__": "magpy.replay.generated",
            "__builtins__": {
                "getattr": getattr,
                "setattr": setattr,
                "dict": dict,
                "tuple": tuple,
                "list": list,
                "set": set,
                "object": object,
                "type": type,
                "Exception": Exception,
                "BaseException": BaseException,
            },
            "MISS": _interp.MISS,
        }
        self.lines: list[str] = []
        self._names: dict[int, str] = {}
        self._pins: list[Any] = []
        self._memo: dict[int, str] = {}
        self._made: set[Var] = set()
        # What is read of the arguments, and the guard's registers that have it.
        self._read: dict[str, int] = {}
        self._dicts: dict[str, str] = {}
        self.globals.update(analysis.constants)
        self._counter = 0

    # ------------------------------------------------------------- names

    def constant(self, obj: Any, prefix: str = "K") -> str:
        """A global name for an object."""
        name = self._names.get(id(obj))
        if name is None:
            self._counter += 1
            name = f"{prefix}{self._counter}"
            self._names[id(obj)] = name
            self._pins.append(obj)
            self.globals[name] = obj
        return name

    def literal(self, v: Any) -> str:
        """Text for an immutable value."""
        # Python does not write down, nor read, integers of thousands of digits.
        if type(v) in _LITERALS and not (type(v) is int and v.bit_length() > 64):
            return repr(v)
        return self.constant(v)

    def temp(self) -> str:
        """A fresh local name."""
        self._counter += 1
        return f"n{self._counter}"

    def outside(self, obj: Any) -> str:
        """The expression of an outside object."""
        rel = self.analysis.relative.get(id(obj))
        if rel is None:
            return self.constant(obj, "A")
        if rel.expr.isidentifier():
            return rel.expr
        # As the guard found it, before any effect can change what lies on the way.
        name = f"r{rel.register}"
        if rel.expr.endswith(".__dict__"):
            # The guard gives no dict to an object that has none yet.
            self._dicts[name] = f"{name} = {rel.expr}"
        else:
            self._read[name] = rel.register
        return name

    def var(self, var: Var) -> str:
        """The expression of a variable."""
        if var in self._made:
            return f"v{var}"
        return self.outside(self.capture.record.inputs[var])

    def tree(self, v: Any) -> str:
        """The expression of an argument tree of a step."""
        if isinstance(v, Ref):
            return self.var(v.var)
        if isinstance(v, OutsideRef):
            return self.outside(v.obj)
        if isinstance(v, Fresh):
            layout = '"K"' if isinstance(v.obj, np.ndarray) else ""
            return f"{self.constant(v.obj)}.copy({layout})"
        t = type(v)
        if t is Sizes:
            return f"{self.constant(torch.Size)}({self.tree(tuple(v))})"
        if t in (tuple, torch.Size):
            return "(" + "".join(self.tree(x) + ", " for x in v) + ")"
        if t is list:
            return "[" + ", ".join(self.tree(x) for x in v) + "]"
        if t is dict:
            return "{" + ", ".join(f"{self.literal(k)}: {self.tree(x)}" for k, x in v.items()) + "}"
        if t is slice:
            return (
                f"{self.constant(slice)}({self.tree(v.start)}, {self.tree(v.stop)}, "
                f"{self.tree(v.step)})"
            )
        return self.literal(v)

    # ------------------------------------------------------------- specs

    def spec(self, s: Spec) -> str:
        """The expression of a spec; statements that it needs are added."""
        if isinstance(s, Const):
            return self.literal(s.value)
        if isinstance(s, Outside):
            return self.outside(s.obj)
        if isinstance(s, Value):
            return self.var(s.var)
        name = self._memo.get(id(s))
        if name is None:
            name = self._new(s)
        return name

    def _parts(self, s: New) -> list[str]:
        return [self.spec(p) for p in s.parts]

    def _new(self, s: New) -> str:
        maker = getattr(self, f"_make_{s.kind}", None)
        name = self.temp()
        if maker is None:
            raise ValueError(f"no code for a new {s.kind}")
        self._unmade += 1
        if s.kind in (
            "tuple",
            "call",
            "attr",
            "method_call",
            "tuple_subclass",
            "exception",
            "reduce",
        ):
            parts = self._parts(s)
            if id(s) in self._memo:  # a part of it holds it, and has it made by now
                self._unmade -= 1
                return self._memo[id(s)]
            self._memo[id(s)] = name
            self.lines.append(f"{name} = {maker(s, parts)}")
        else:
            self._memo[id(s)] = name
            self.lines.append(f"{name} = {maker(s, self._parts(s))}")
        self._unmade -= 1
        if s.kind == "cell" and self._unmade:
            # It may hold what it is a part of (a function that its own body names).
            self._empty.append((s, name))
            return name
        self._fill(s, name)
        while self._empty and not self._unmade:
            self._fill(*self._empty.pop(0))
        return name

    def _make_tuple(self, s: New, parts: list[str]) -> str:
        return "(" + "".join(p + ", " for p in parts) + ")"

    def _make_call(self, s: New, parts: list[str]) -> str:
        return f"{self.constant(s.cls)}({', '.join(parts)})"

    def _make_attr(self, s: New, parts: list[str]) -> str:
        return f"{parts[0]}.{s.cls}"

    def _make_tensor(self, s: New, parts: list[str]) -> str:
        return parts[0]

    def _make_copy(self, s: New, parts: list[str]) -> str:
        return f'{self.constant(s.cls)}.copy("K")'

    def _make_array(self, s: New, parts: list[str]) -> str:
        return f"{self.constant(support.new_array)}({self.constant(s.cls)})"

    def _make_tuple_subclass(self, s: New, parts: list[str]) -> str:
        return f"tuple.__new__({self.constant(s.cls)}, {self._make_tuple(s, parts)})"

    def _make_exception(self, s: New, parts: list[str]) -> str:
        t, base = s.cls  # what the class's own __new__ did is among the effects
        return f"{self.constant(base)}.__new__({self.constant(t)}, *{parts[0]})"

    def _make_reduce(self, s: New, parts: list[str]) -> str:
        return f"{self.constant(s.cls)}({', '.join(parts)})"

    def _make_cell(self, s: New, parts: list[str]) -> str:
        return f"{self.constant(types.CellType)}()"

    def _make_function(self, s: New, parts: list[str]) -> str:
        code, global_vars, name, *_ = s.cls
        return (
            f"{self.constant(types.FunctionType)}({self.constant(code)}, "
            f"{self.constant(global_vars)}, {name!r}, None, {parts[0]})"
        )

    def _make_instance(self, s: New, parts: list[str]) -> str:
        if s.cls is types.SimpleNamespace:
            return f"{self.constant(s.cls)}()"
        return f"object.__new__({self.constant(s.cls)})"

    def _make_dict(self, s: New, parts: list[str]) -> str:
        t, base = s.cls
        return "{}" if t is dict else f"{self.constant(base)}.__new__({self.constant(t)})"

    def _make_defaultdict(self, s: New, parts: list[str]) -> str:
        return f"{self.constant(support.new_defaultdict)}({self.constant(s.cls)}, {parts[0]})"

    def _make_list(self, s: New, parts: list[str]) -> str:
        return "[]" if s.cls is list else f"list.__new__({self.constant(s.cls)})"

    def _make_set(self, s: New, parts: list[str]) -> str:
        return f"set.__new__({self.constant(s.cls)})"

    def _make_deque(self, s: New, parts: list[str]) -> str:
        return f"{self.constant(support.new_deque)}({self.constant(s.cls)}, {parts[0]})"

    def _make_bytearray(self, s: New, parts: list[str]) -> str:
        return f"{self.constant(bytearray)}.__new__({self.constant(s.cls)})"

    def _fill(self, s: New, name: str) -> None:
        add = self.lines.append
        if s.kind == "function":
            add(f"{name}.__qualname__ = {s.cls[3]!r}")
            add(f"{name}.__doc__ = {self.literal(s.cls[4])}")
            add(f"{name}.__module__ = {self.literal(s.cls[5])}")
            for attr, x in s.fill:
                add(f"setattr({name}, {attr!r}, {self.spec(x)})")
            return
        if s.kind == "cell":
            for x in s.fill:
                value = self.spec(x)
                add(f"{name}.cell_contents = {value}")
            return
        if s.kind == "reduce":
            state, items, pairs = s.fill
            state_text = self.spec(state) if state is not None else "None"
            items_text = (
                "[" + ", ".join([self.spec(x) for x in items]) + "]"
                if items is not None
                else "None"
            )
            pairs_text = (
                "[" + ", ".join([f"({self.spec(k)}, {self.spec(x)})" for k, x in pairs]) + "]"
                if pairs is not None
                else "None"
            )
            add(
                f"{self.constant(support.restore)}({name}, {state_text}, {items_text}, "
                f"{pairs_text})"
            )
            return
        for what, content in s.fill:
            self._fill_part(s, name, what, content)

    def _fill_part(self, s: New, name: str, what: str, content: Any) -> None:
        add = self.lines.append
        if what == "items":
            exact = s.kind == "dict" and s.cls[0] is dict
            base = collections.defaultdict if s.kind == "defaultdict" else s.cls[1]
            for k, x in content:
                key, value = self.spec(k), self.spec(x)
                add(
                    f"{name}[{key}] = {value}"
                    if exact
                    else f"{self.constant(base)}.__setitem__({name}, {key}, {value})"
                )
        elif what == "elements" and content:
            values = "".join(self.spec(x) + ", " for x in content)
            base = {"list": "list", "set": "set"}.get(s.kind) or self.constant(collections.deque)
            add(f"{base}.{'update' if s.kind == 'set' else 'extend'}({name}, ({values}))")
        elif what == "bytes":
            add(f"{name}.extend({self.spec(content)})")
        elif what == "dict":
            d = self.temp()
            add(f"{d} = {name}.__dict__")
            for k, x in content:
                value = self.spec(x)
                add(f"{d}[{k!r}] = {value}")
        elif what == "own_dict":
            add(f"{self.constant(support.set_own_dict)}({name}, {self.spec(content)})")
        elif what == "slots":
            for k, x in content:
                value = self.spec(x)
                add(f"object.__setattr__({name}, {k!r}, {value})")

    # ------------------------------------------------------------- effects

    def effect(self, e: ContainerEffect | AttrEffect) -> list[str]:
        """The statements of an effect; the values are made before."""
        target = self.outside(e.obj)
        if isinstance(e, AttrEffect):
            value = self.spec(e.spec) if e.spec is not None else None
            if e.name is None:
                return [
                    f"{target}.cell_contents = {value}"
                    if value is not None
                    else f"del {target}.cell_contents"
                ]
            # What a Python class does is done; the C type below it may have a way of its own.
            definer: Any = _interp.c_base(type(e.obj))
            own = definer.__setattr__
            setter = "object.__setattr__" if own is object.__setattr__ else self.constant(own)
            if value is None:
                discard = self.constant(support.discard_attribute)
                return [f"{discard}({self.constant(definer.__delattr__)}, {target}, {e.name!r})"]
            return [f"{setter}({target}, {e.name!r}, {value})"]
        if e.kind == "dict":
            return self._dict_effect(e, target)
        values = "(" + "".join(self.spec(x) + ", " for x in e.content or ()) + ")"
        base = {"list": "list", "set": "set"}.get(e.kind) or self.constant(
            {"deque": collections.deque, "bytearray": bytearray}[e.kind]
        )
        if not e.rebuild:
            lines = [f"set.discard({target}, {self.spec(x)})" for x in e.deletes]
            for place, v in e.stores:
                at, value = self.spec(place), self.spec(v)
                lines.append(
                    f"{target}[{at}] = {value}"
                    if type(e.obj) is list
                    else f"list.__setitem__({target}, {at}, {value})"
                )
            if not e.content and e.kind == "list":
                return lines
            put = "update" if e.kind == "set" else "extend"
            return [*lines, f"{base}.{put}({target}, {values})"]
        if e.kind == "list":
            return [f"list.__setitem__({target}, {self.constant(slice(None))}, {values})"]
        if e.kind == "bytearray":
            return [f"{target}[:] = {values}[0]"]
        return [
            f"{base}.clear({target})",
            f"{base}.{'update' if e.kind == 'set' else 'extend'}({target}, {values})",
        ]

    def _dict_effect(self, e: ContainerEffect, target: str) -> list[str]:
        base = collections.OrderedDict if isinstance(e.obj, collections.OrderedDict) else dict
        exact = type(e.obj) is dict
        b = self.constant(base)
        lines = []
        pairs = e.stores
        if e.rebuild:
            lines.append(f"{b}.clear({target})")
            pairs = e.content or []
        for k in e.deletes:
            lines.append(f"{b}.__delitem__({target}, {self.spec(k)})")
        for k, v in pairs:
            key, value = self.spec(k), self.spec(v)
            lines.append(
                f"{target}[{key}] = {value}"
                if exact
                else f"{b}.__setitem__({target}, {key}, {value})"
            )
        if e.orders:
            orders = ["(" + "".join(f"{self.spec(k)}, " for k in keys) + ")" for keys in e.orders]
            lines.append(f"{self.constant(support.reorder)}({target}, {', '.join(orders)})")
        return lines

    def call_effect(self, step: EffectStep) -> list[str]:
        """A call that is redone for its effect."""
        given = [self.spec(a) for a in step.args]
        kwargs = "{" + ", ".join(f"{k!r}: {self.spec(v)}" for k, v in step.kwargs.items()) + "}"
        f = step.func
        owner = getattr(f, "__self__", None)
        if owner is not None and id(owner) in self.analysis.relative:
            # It is the method of another object in every call.
            given.insert(0, self.outside(owner))
            f = unbound(f)
        func = self.constant(f) if isinstance(f, types.MethodType) else self.outside(f)
        args = "(" + "".join(f"{a}, " for a in given) + ")"
        call = support.call_at(step.sites)
        if step.modes is not None and step.modes != self.capture.start_modes:
            call = support.under(step.modes, call)
        site = self.constant(call)
        return [f"{site}({func}, {args}, {kwargs})"]

    # ------------------------------------------------------------- the function

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
        if isinstance(step, Check) and reads_gradient(step) and step in self.total:
            self._gradient(step, fail)
            return
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

    def _gradient(self, step: Check, fail: str) -> None:
        """The read of a gradient that can be no other than it was."""
        if not step.outs:
            return
        [(_, var)] = step.outs
        shape, *_, strides = step.expected
        read = f"{self.tree(step.args[0])}.grad"
        if 1 in shape:
            read = f"{self.constant(support.lying_so)}({read}, {shape}, {strides})"
        self.lines += [f"v{var} = {read}", f"if v{var} is None: {fail}"]
        self._made.add(var)

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
