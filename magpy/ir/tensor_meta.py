"""What is compared of the results of an operation that is done again in every call.

Owns that comparison's value.  Does not own what a guard compares of a tensor (csrc/tensor).  Called
by the recorder and by mock code.
"""

from __future__ import annotations

from typing import Any

import torch

from magpy.errors import an
from magpy.frames.locations import refuse
from magpy.objects.jagged import is_jagged
from magpy.objects.plain_values import is_plain
from magpy.objects.quiet import unheard
from magpy.objects.types import isinstance


def tensor_meta(result: Any) -> Any:
    """What is compared of the results of an operation that is done in every call.

    Raises:
        Refusal: the operation returns something else beside tensors.
    """
    if isinstance(result, torch.Tensor):
        with unheard():
            if result.is_nested and result.layout is torch.strided:
                sizes = result._nested_tensor_size().tolist()
                return (str(sizes), result.dtype, result.device, None)
            if is_jagged(result):
                own: Any = result
                form = f"{own.dim()} {own._ragged_idx} {own._lengths is None}"
                return (form, result.dtype, result.device, None)
            return (
                tuple(result.shape),
                result.dtype,
                result.device,
                tuple(result.stride()) if result.layout == torch.strided else None,
            )
    if isinstance(result, (tuple, list)):
        return [tensor_meta(x) for x in result]
    if isinstance(result, dict):
        return [tensor_meta(x) for x in result.values()]
    if is_plain(result):
        return result
    raise refuse(f"{an(type(result).__name__)} is returned beside tensors")
