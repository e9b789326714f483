"""What recurrent layers give for fake tensors, so that the length of a sequence may vary.

Owns the sizes of what `torch.lstm`, `torch.gru` and the two kinds of `torch.rnn` give for a batch
of sequences that are equally long.  Does not own packed sequences, whose lengths are data, nor
fake tensors otherwise (magpy/shapes/symbols.py, the only caller).

torch's own rules for fake tensors go through a sequence step by step, but for one kernel of a CPU:
the length would be fixed, and speech or text would be captured again for each.
Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html
"""

from __future__ import annotations

from typing import Any

import torch

from magpy.shapes.fake_ops import CannotFollowError

_VF: Any = torch._C._VariableFunctions
_LAYERS = (_VF.lstm, _VF.gru, _VF.rnn_tanh, _VF.rnn_relu)
# Where autocast leaves a layer as it is: one that has no fused kernel there.
_NOT_CAST = (("cpu", _VF.gru),)


def is_recurrent(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether an operation is one of these layers, given sequences that are equally long."""
    # With packed sequences the weights stand fourth.
    return func in _LAYERS and len(args) == 9 and type(args[3]) is bool


def recurrent(func: Any, args: tuple[Any, ...]) -> Any:
    """The outputs of all steps, and the last state or states.

    Args:
        func: one of torch's layers.
        args: fake tensors for the sequences of shape (steps, batch, features) or, batch first,
            (batch, steps, features), for the first state of shape (layers, batch, width), or two of
            a width each for `torch.lstm`, and for the weights; then plain values.

    Raises:
        CannotFollowError: the arguments do not fit each other; the operation says how.
    """
    given, first, weights, _, layers, _, _, bidirectional, batch_first = args
    states = list(first) if isinstance(first, (tuple, list)) else [first]
    batch, steps = given.shape[:2] if batch_first else reversed(given.shape[:2])
    directions = 2 if bidirectional else 1
    fits = given.dim() == 3 and given.shape[2] == weights[0].shape[1]
    for state in states:
        fits = fits and state.dim() == 3 and tuple(state.shape[:2]) == (layers * directions, batch)
    if not fits:
        raise CannotFollowError("what a recurrent layer is given does not fit")
    like = {"dtype": _dtype(func, given), "device": given.device}
    width = directions * states[0].shape[2]
    outputs = torch.empty((steps, batch, width), **like)
    if batch_first:
        outputs = outputs.transpose(0, 1)
    made = outputs, *(torch.empty(state.shape, **like) for state in states)
    needed = torch.is_grad_enabled() and any(t.requires_grad for t in (given, *states, *weights))
    return tuple(t.requires_grad_(needed) for t in made)


def _dtype(func: Any, given: torch.Tensor) -> torch.dtype:
    device = given.device.type
    cast = torch.is_autocast_enabled(device) and (device, func) not in _NOT_CAST
    return torch.get_autocast_dtype(device) if cast else given.dtype


__all__ = ["is_recurrent", "recurrent"]
