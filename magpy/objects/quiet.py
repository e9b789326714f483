"""magpy's own looks at tensors and at torch's modes.

Owns how they are looked at without the program hearing of it.  Does not own what a guard compares
(csrc/tensor).  Called while a run is watched, while an entry is made, and by mock code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _disable_current_modes

# magpy's own looks at a tensor are none of the program's: no subclass and no mode hears of them.
unheard: Any = torch._C.DisableTorchFunction


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """No dispatch mode and no hook of saved tensors of the program hears of what is done inside."""
    with contextlib.ExitStack() as stack:
        if torch._C._len_torch_dispatch_stack():
            stack.enter_context(_disable_current_modes())
        stack.enter_context(without_hooks())
        yield


@contextlib.contextmanager
def without_hooks() -> Iterator[None]:
    """No hook of saved tensors of the program hears of what is done inside."""
    if not saved_tensors_are_heard():
        yield
        return
    # The last ones that were set are those that hear.
    with saved_tensors_hooks(_itself, _itself):
        yield


def _itself(tensor: Any) -> Any:
    return tensor


def modes_of_the_program(own: Any = None) -> bool:
    """Whether a mode on this thread's stacks hears of operations that is none of torch's own.

    `torch.device(...)` as a context only says where new tensors are, and `own` is magpy's.
    """
    stack = torch._C
    return stack._len_torch_dispatch_stack() > 0 or any(
        type(mode := stack._get_function_stack_at(i)) is not DeviceContext and mode is not own
        for i in range(stack._len_torch_function_stack())
    )


def saved_tensors_are_heard() -> bool:
    """Whether hooks of tensors that are saved for a backward pass are set on this thread."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None
