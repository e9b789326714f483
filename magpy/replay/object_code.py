"""Code that makes objects anew, and that redoes changes of outside objects and calls for effects.

Owns a statement, or several, for each kind of recipe (magpy/ir/recipes.py): what is made empty and
filled when it is there, since it may hold itself, and what is called with its parts.  Does not own
the recipes (magpy/capture/rebuild.py, magpy/capture/end_state.py), the helpers that the code calls
(magpy/replay/support.py) nor the function around it (magpy/replay/codegen.py, which calls this).
"""

from __future__ import annotations

import collections
import types
from typing import Any

from magpy import _interp
from magpy.guards.analysis import Analysis
from magpy.ir.capture import Capture
from magpy.ir.ops import EffectStep
from magpy.ir.recipes import AttrEffect, Const, ContainerEffect, New, Outside, Spec, Value
from magpy.models.callables import unbound
from magpy.objects.types import isinstance
from magpy.replay import support
from magpy.replay.code_writer import CodeWriter


class ObjectCode(CodeWriter):
    """Writes how objects are made and changed; one method for each kind."""

    def __init__(self, capture: Capture, analysis: Analysis) -> None:
        """No object is made yet."""
        super().__init__(capture, analysis)
        self._unmade = 0  # objects whose parts are being made, before them
        self._empty: list[tuple[New, str]] = []  # cells that are filled when all of these are there
        self._memo: dict[int, str] = {}

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


__all__ = ["ObjectCode"]
