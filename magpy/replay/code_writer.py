"""Generated code while it is being written: lines, constants, and names for what they speak of.

Owns the lines, the globals that they are run with, and the expression of an outside object, of a
variable and of an argument.  Does not own which statements there are.  The base of what writes new
objects (magpy/replay/object_code.py) and the mock function (magpy/replay/codegen.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from magpy import _interp
from magpy.guards.analysis import Analysis
from magpy.ir.capture import Capture
from magpy.ir.ops import Fresh, OutsideRef, Ref, Var
from magpy.ir.trees import Sizes

_LITERALS = (int, str, bool, type(None), bytes)


class CodeWriter:
    """The code of one entry.

    Args:
        capture: what it redoes.
        analysis: how the guard reaches outside objects.
    """

    def __init__(self, capture: Capture, analysis: Analysis) -> None:
        """Writes nothing yet."""
        self.capture = capture
        self.analysis = analysis
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
        self._made: set[Var] = set()
        # What is read of the arguments, and the guard's registers that have it.
        self._read: dict[str, int] = {}
        self._dicts: dict[str, str] = {}
        self.globals.update(analysis.constants)
        self._counter = 0

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


__all__ = ["CodeWriter"]
