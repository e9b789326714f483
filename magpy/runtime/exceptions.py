"""Where an entry that raised had got to: whether it had changed anything yet.

Owns finding that out from the exception, and what of its traceback is the program's.  Does not own
what is done then (magpy/runtime/compiled.py).  Called by that and, for what the mock function asks,
by magpy/runtime/entry.py.

An entry that changes something saves it only where a check may fail (magpy/runtime/entry.py).  An
operation that raises for its data is not expected; where it comes ahead of all changes the call can
run eagerly, which raises at the program's line.  So it can where it is the first change itself and
has not begun: torch looks at most arguments before it writes.  Whether it has is found out by doing
it again for a copy, of plain stores only (magpy/replay/fx_graphs.py): what computes with what it
changes may have begun and not show it, what is given an output may have resized it.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import fx

from magpy.errors import an, hide_frames
from magpy.ir.ops import EffectStep, HostStep, OpStep, Step
from magpy.objects.quiet import unheard
from magpy.objects.types import isinstance
from magpy.replay.fx_graphs import CHANGES, changes
from magpy.replay.passes.schedule import lets_go
from magpy.replay.segments import Plan, Segment


def unchanged_until(plan: Plan, copies: Iterable[Step]) -> list[Segment]:
    """The segments that run when nothing was changed yet; the last of them may change something.

    Args:
        plan: what an entry does.
        copies: the steps that change only what the entry itself has copied.
    """
    found: list[Segment] = []
    own = set(map(id, copies))
    for item in plan.items:
        step = item[0] if isinstance(item, tuple) else item
        if isinstance(step, EffectStep):
            continue  # what an entry calls for its effects comes when all else is done
        if not found and lets_go(step):
            continue  # to call once more what begins with `zero_grad` comes to the same
        if isinstance(step, Segment):
            found.append(step)
            if any(changes(s) and id(s) not in own for s in step.steps):
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
    """Whether an operation that stores values raises before it does.

    It is done once more, for copies of its inputs.  What it writes to is made another there, so
    that a value that it has written already shows, too.
    """
    target = node.meta[CHANGES]
    if target is None:
        return False
    try:
        with unheard(), torch.no_grad():
            inputs = {n: frame.f_locals[n.name] for n in node.all_input_nodes}
            trial = _Trial(inputs[target], [v for n, v in inputs.items() if n is not target])

            def copied(n: fx.Node) -> Any:
                return trial.copy if n is target else inputs[n]

            args, kwargs = fx.map_arg(node.args, copied), fx.map_arg(node.kwargs, copied)
            try:
                if node.op == "call_method":
                    getattr(args[0], str(node.target))(*args[1:], **kwargs)
                elif callable(node.target):
                    node.target(*args, **kwargs)
            except Exception as again:  # noqa: BLE001 - it is compared with the first
                return type(again) is type(error) and str(again) == str(error) and trial.as_before()
            return False
    except Exception:  # noqa: BLE001 - a kind of tensor that cannot be copied so
        return False


class _Trial:
    """A copy of a tensor, every byte of whose memory is another."""

    def __init__(self, tensor: torch.Tensor, others: Iterable[Any]) -> None:
        """Copies the tensor.

        Raises:
            TypeError: it is of a kind that is not copied, or one of the others has memory with it.
        """
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter)
        if not plain or tensor.layout is not torch.strided or tensor.is_nested:
            raise TypeError(f"{an(type(tensor).__name__)} is not copied")
        if tensor.is_conj() or tensor.is_neg():
            raise TypeError("a view that computes is not copied")
        storage = tensor.untyped_storage()
        for t in others:
            if isinstance(t, torch.Tensor) and (
                t.layout is not torch.strided or t.untyped_storage()._cdata == storage._cdata
            ):
                raise TypeError("an input that may share memory")
        memory = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        memory.set_(storage)
        # Of each type of numbers the last bit of a byte may be the other one, of truth values too.
        self._memory = memory.bitwise_xor(1)
        self._before = self._memory.clone()
        self.copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        form = tensor.storage_offset(), tensor.size(), tensor.stride()
        self.copy.set_(self._memory.untyped_storage(), *form)

    def as_before(self) -> bool:
        """Whether nothing was written to the copy."""
        return torch.equal(self._memory, self._before)


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
