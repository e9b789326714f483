"""Lists, dicts, arrays, functions and cells of the run that were given to what keeps them.

Owns what each of them held when it was given, and that nobody changes it before the run is over,
nor keeps it elsewhere: an entry gives an equal one, or the very one of the watched run, in every
call.  Does not own what may be given (magpy/capture/tensors/opaque_calls.py).  Called by
magpy/capture/tensors/recorder.py, by magpy/capture/tensors/opaque_calls.py, and by
magpy/capture/session.py at the end.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from magpy._interp import ABSENT
from magpy.capture.tensors.identity import Identity
from magpy.errors import Refusal
from magpy.frames.locations import where_text
from magpy.ir.ops import Ref
from magpy.objects.hashing import pairs_of
from magpy.objects.types import isinstance

_PLAIN = (int, float, complex, str, bytes)


class Given:
    """Those of one run.

    Args:
        tensors: those of the run.
    """

    def __init__(self, tensors: Identity) -> None:
        """Nothing was given yet."""
        self._tensors = tensors
        self._held: dict[int, tuple[Any, list[Any], str, str]] = {}
        self._anew: set[int] = set()

    def hold(self, v: Any, to: str, anew: bool) -> bool:
        """Something of the run is given to what `to` names.

        Args:
            v: a list, dict, array, bytearray, function or cell.
            to: the name.
            anew: an entry makes it in every call; else it gives the very one of the watched run.

        Returns:
            Whether that can be: two things made anew are never one.
        """
        if id(v) in self._held:
            return not anew and id(v) not in self._anew
        self._held[id(v)] = v, self._state(v, self._tensors.var_of), to, where_text(2)
        if anew:
            self._anew.add(id(v))
        return True

    def has(self, v: Any) -> bool:
        """Whether it was given already."""
        return id(v) in self._held

    def changed(self) -> Refusal | None:
        """A refusal if one of them is not what it was."""
        for v, before, *_ in self._held.values():
            now = self._state(v, self._tensors.known)
            if len(now) != len(before) or not all(map(_same, now, before)):
                return self._refusal(v, "changed")
        return None

    def kept(self, knows: Callable[[int], bool]) -> Refusal | None:
        """A refusal if one of them is also kept elsewhere, whose address `knows`."""
        for v, *_ in self._held.values():
            if knows(id(v)):
                return self._refusal(v, "kept")
        return None

    def _refusal(self, v: Any, what: str) -> Refusal:
        _, _, to, where = self._held[id(v)]
        kind = "variable" if type(v) is types.CellType else type(v).__name__
        return Refusal(
            f"{to} was given a {kind} of the call, may look at it later, and it is {what}",
            where,
            "Give it one of its own",
        )

    def end(self) -> None:
        """Lets go of all."""
        self._held.clear()
        self._anew.clear()

    def _state(self, v: Any, var: Callable[[Any], Any]) -> list[Any]:
        """What it holds; of a tensor its variable, since it dies as in eager."""
        held: list[Any]
        if isinstance(v, list):
            held = list(list.__iter__(v))
        elif isinstance(v, dict):
            held = [x for pair in pairs_of(v) for x in pair]
        elif isinstance(v, np.ndarray):
            held = [v.tobytes(), str((v.shape, v.strides, v.dtype))]
        elif isinstance(v, bytearray):
            held = [bytes(v)]
        elif type(v) is types.CellType:
            held = [ABSENT if v == types.CellType() else v.cell_contents]
        else:
            keyed = v.__kwdefaults__ or {}, v.__dict__
            held = [v.__code__, *(v.__defaults__ or ()), *keyed[0], *keyed[1]]
            held += [x for d in keyed for x in d.values()]
        return [Ref(var(x)) if isinstance(x, torch.Tensor) else x for x in held]


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    return a == b if type(a) is Ref else type(a) in _PLAIN and repr(a) == repr(b)


__all__ = ["Given"]
