"""Where an entry that raised had got to: whether it had changed anything yet.

Owns finding that out from the exception, and what of its traceback is the program's.  Does not own
what is done then (magpy/runtime/compiled.py).  Called by that and, for what the mock function asks,
by magpy/runtime/entry.py.

An entry that changes something saves it only where a check may fail (magpy/runtime/entry.py).  An
operation that raises for its data is not expected; where it comes ahead of all changes the call can
run eagerly, which raises at the program's line.  So it can where it is the first change itself and
has not begun: torch looks at most arguments before it writes.  Whether it has is found out by doing
it again, for copies.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import fx

from magpy.capture.looks import unheard
from magpy.capture.steps import EffectStep, HostStep, OpStep
from magpy.errors import hide_frames
from magpy.mock.graphs import CHANGES
from magpy.mock.segments import Plan, Segment


def unchanged_until(plan: Plan) -> list[Segment]:
    """The segments that run when nothing was changed yet; the last of them may change something."""
    found: list[Segment] = []
    for item in (*plan.prelude, *plan.items):
        step = item[0] if isinstance(item, tuple) else item
        if isinstance(step, EffectStep):
            continue  # what an entry calls for its effects comes when all else is done
        if isinstance(step, Segment):
            found.append(step)
            if any(CHANGES in node.meta for node in step.graph.graph.nodes):
                break
        elif not isinstance(step, (OpStep, HostStep)) or step.mutates or step.random:
            break
    return found


def untouched(segments: Iterable[Segment], error: BaseException) -> bool:
    """Whether an exception comes of an operation ahead of all changes, or of one that made none.

    Args:
        segments: those of `unchanged_until`.
        error: what the entry raised; its traceback begins in the mock function, and its frames
            still have their locals.
    """
    # By identity: the code objects of equal graphs are equal.
    codes = {id(s.graph.forward.__code__): s for s in segments}
    tb: TracebackType | None = error.__traceback__
    while tb is not None and id(tb.tb_frame.f_code) not in codes:
        tb = tb.tb_next
    if tb is None:
        return False
    frame = tb.tb_frame
    name = _assigned(linecache.getline(frame.f_code.co_filename, tb.tb_lineno))
    for node in codes[id(frame.f_code)].graph.graph.nodes:
        if node.name == name:
            return CHANGES not in node.meta or _raises_at_once(node, frame, error)
        if CHANGES in node.meta:
            return False
    return False


# torch.fx writes a line for each operation: "name = ...", or "x += y;  name = x".
_NAMES = (re.compile(r"\s*(\w+)(?: : [^=]+)? = "), re.compile(r"[^;]*;\s*(\w+) = "))


def _assigned(line: str) -> str:
    for pattern in _NAMES:
        found = pattern.match(line)
        if found is not None:
            return found[1]
    return ""


def _raises_at_once(node: fx.Node, frame: FrameType, error: BaseException) -> bool:
    """Whether an operation that writes raises before it does, as far as one can see.

    It is done once more, for copies of its inputs whose memory is shared as theirs is.  What it
    writes to is made another there, so that a value that it has written already shows, too.
    """
    writes = node.meta[CHANGES]
    if writes is None:
        return False
    try:
        with unheard(), torch.no_grad():
            inputs = {n: frame.f_locals[n.name] for n in node.all_input_nodes}
            trial = _Trial(t for t in inputs.values() if isinstance(t, torch.Tensor))
            for n in writes:
                trial.disturb(inputs[n])
            before = trial.bytes()

            def copied(n: fx.Node) -> Any:
                value = inputs[n]
                return trial.copies[id(value)] if isinstance(value, torch.Tensor) else value

            args, kwargs = fx.map_arg(node.args, copied), fx.map_arg(node.kwargs, copied)
            try:
                if node.op == "call_method":
                    getattr(args[0], str(node.target))(*args[1:], **kwargs)
                else:
                    assert callable(node.target)
                    node.target(*args, **kwargs)
            except Exception as again:  # noqa: BLE001 - it is compared with the first
                same = type(again) is type(error) and str(again) == str(error)
            else:
                same = False
            return same and all(map(torch.equal, before, trial.bytes()))
    except Exception:  # noqa: BLE001 - a kind of tensor that cannot be copied so
        return False


class _Trial:
    """Copies of tensors, which share memory where those do."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        """Copies them.

        Raises:
            TypeError: one is of a kind that is not copied.
        """
        self._memory: dict[int, torch.Tensor] = {}
        self._keys: dict[int, int] = {}
        self.copies: dict[int, torch.Tensor] = {}
        for t in tensors:
            plain = type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout is torch.strided
            if not plain or t.is_nested or t.is_conj() or t.is_neg():
                raise TypeError(f"a {type(t).__name__} is not copied")
            storage = t.untyped_storage()
            key = self._keys[id(t)] = storage._cdata
            if key not in self._memory:
                memory = torch.empty(0, dtype=torch.uint8, device=t.device)
                memory.set_(storage)
                self._memory[key] = memory.clone()
            copy = torch.empty(0, dtype=t.dtype, device=t.device)
            shared = self._memory[key].untyped_storage()
            copy.set_(shared, t.storage_offset(), t.size(), t.stride())
            self.copies[id(t)] = copy

    def disturb(self, tensor: torch.Tensor) -> None:
        """Changes every byte of a copy's memory; numbers of all types have two values for that."""
        self._memory[self._keys[id(tensor)]].bitwise_xor_(1)

    def bytes(self) -> list[torch.Tensor]:
        """What all memories hold, copied."""
        return [m.clone() for m in self._memory.values()]


def as_the_programs(error: BaseException) -> BaseException:
    """Takes magpy's frames, and those of its graphs, out of the traceback of what an entry raised.

    The line of the program is not known: what called the compiled callable comes first, then what
    torch's own Python did.
    """
    seen = None
    while seen is not error.__traceback__:
        hide_frames(error)
        seen = error.__traceback__
        tb: TracebackType | None = seen
        while tb is not None and _is_ours(tb.tb_frame):
            tb = tb.tb_next
        error.__traceback__ = tb
    return error


def _is_ours(frame: FrameType) -> bool:
    name = frame.f_code.co_filename
    return name == "<magpy mock>" or name.startswith("<eval_with_key>")


__all__ = ["as_the_programs", "unchanged_until", "untouched"]
