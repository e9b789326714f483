"""Torch's modes on a thread: what an operation runs under beside its arguments.

Owns which they are and how they are read.  Does not own how generated code enters them
(magpy/replay/fx_graphs.py).  Called by the recorder at each operation and by the runner of a graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class TorchModes:
    """The part of torch's state that operators obey and programs switch while they run.

    Attributes:
        settings: what differs from the start of the call: (name, keys, value) as of
            magpy/models/torch_state.py.
    """

    grad: bool
    inference: bool
    autocast: tuple[tuple[str, bool, Any], ...]
    cache: bool
    settings: tuple[tuple[str, tuple[Any, ...], Any], ...] = ()


def _autocast_devices() -> tuple[str, ...]:
    return ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


_DEVICES = _autocast_devices()


def current_modes(settings: tuple[Any, ...] = ()) -> TorchModes:
    """Torch's modes on this thread, and the settings that a run has changed."""
    return TorchModes(
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        tuple((d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in _DEVICES),
        torch.is_autocast_cache_enabled(),
        settings,
    )
