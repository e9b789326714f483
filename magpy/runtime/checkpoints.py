"""Checkpointed calls: a block is computed in the forward pass, and again in the backward pass.

Owns which of the two a call is part of, and by what each call of a compiled callable was served in
the forward pass: `torch.utils.checkpoint` counts the tensors that are saved, and they must be as
many when they are computed again.  So a call that an entry served is served by that entry again,
and one that ran eagerly, captured or not, runs eagerly again.  Does not own how a call is served
(magpy/runtime/compiled.py, which calls this).

Which checkpoint a call is part of the hooks tell that it has set: those of
`torch.utils.checkpoint._checkpoint_hook` and `_recomputation_hook` enclose its `_CheckpointFrame`.
"""

from __future__ import annotations

import collections
import types
import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils.checkpoint as of_torch

from magpy.objects.types import isinstance

_MODULE = "torch.utils.checkpoint"
_SELECTIVE = (of_torch._CachingTorchDispatchMode, of_torch._CachedTorchDispatchMode)
#: The calls of compiled callables in a forward pass, with what served each; None: it ran eagerly.
_Served = list[tuple[Any, Any]]
#: By the frames of the checkpoints, which live until the backward pass is over.
_forward: weakref.WeakKeyDictionary[Any, _Served] = weakref.WeakKeyDictionary()
#: How often each callable was called so far, by the hooks of the recomputation.
_again: weakref.WeakKeyDictionary[Any, collections.Counter[Any]] = weakref.WeakKeyDictionary()


@dataclass(slots=True)
class Pass:
    """One of the passes in which a checkpointed block is computed.

    Attributes:
        served: by what the calls of the forward pass were served.
        calls: how often each callable was called so far; None in the forward pass.
        stops: the recomputation ends with the last tensor that is needed, wherever that is saved.
    """

    served: _Served = field(default_factory=list)
    calls: collections.Counter[Any] | None = None
    stops: bool = True

    @property
    def again(self) -> bool:
        """Whether it is the recomputation."""
        return self.calls is not None

    def note(self, compiled: Any, entry: Any) -> None:
        """Says what has served a call in the forward pass; None: it ran eagerly."""
        self.served.append((compiled, entry))

    def entries(self, compiled: Any) -> list[Any]:
        """The entries that may serve a call of the recomputation: what served it the first time.

        Where another callable was called then (a closure has another module by now), it is one of
        this callable's, if that one was served by an entry: they save as many tensors if the two
        are alike.
        """
        assert self.calls is not None
        own = [entry for c, entry in self.served if c is compiled]
        at, n = self.calls.total(), self.calls[compiled]
        self.calls[compiled] += 1
        if n < len(own):
            return [] if own[n] is None else [own[n]]
        instead = self.served[at][1] if not own and at < len(self.served) else None
        return [] if instead is None else list(compiled._magpy_entries)


def is_selective() -> bool:
    """Whether a mode of a selective checkpoint hears of the operations on this thread."""
    stack: Any = torch._C
    return any(
        type(stack._get_dispatch_stack_at(i)) in _SELECTIVE
        for i in range(stack._len_torch_dispatch_stack())
    )


def pass_of(pack: Any) -> Pass | None:
    """The pass of a checkpoint that has set this hook for what is saved; None: it is no such hook.

    In one of which nothing else is known, all calls run eagerly.
    """
    if not isinstance(pack, types.FunctionType) or pack.__module__ != _MODULE:
        return None
    inner = getattr(pack, "_torchdynamo_orig_callable", pack)
    held = dict(zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True))
    if "frame" in held:
        frame = held["frame"].cell_contents
        return Pass(_forward.setdefault(frame, []), None, frame.early_stop)
    if "target_frame_ref" in held:
        frame = held["target_frame_ref"].cell_contents()
        served = _forward.get(frame, []) if frame is not None else []
        return Pass(served, _again.setdefault(pack, collections.Counter()))
    return Pass(calls=collections.Counter())
