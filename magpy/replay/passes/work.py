"""An estimate of how much work an operation is.

Owns the estimate: the elements that an operation takes and makes, and for what multiplies matrices
the multiplications.  It compares parts of one run, and is no time.  Called by
magpy/replay/passes/hoist.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from magpy.ir.ops import OpStep, Var
from magpy.ir.trees import variables

# Functions and methods of torch that multiply matrices, or solve equations, by name.
_NAMES = """
    matmul __matmul__ __rmatmul__ mm bmm mv addmm addmm_ addbmm addbmm_ baddbmm baddbmm_ addmv
    addmv_ chain_matmul linear bilinear einsum tensordot cdist kron
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution
    scaled_dot_product_attention multi_head_attention_forward lstm gru rnn_tanh rnn_relu
"""
_MULTIPLY = frozenset(_NAMES.split())


def work(step: OpStep, elements: Mapping[Var, int]) -> float:
    """How much work an operation is; infinity if nobody can tell.

    Args:
        step: the operation.
        elements: how many elements each tensor of the run has.
    """
    if step.whole:
        return math.inf
    taken = [elements.get(v, 0) for v in variables((step.args, step.kwargs))]
    made = [elements.get(v, 0) for v in step.defined]
    name = getattr(step.func, "__name__", "")
    if name in _MULTIPLY or name.startswith("linalg_"):
        # Of (n, k) by (k, m) to (n, m) this is n * k * m.
        largest = sorted([*taken, *made])[-3:]
        return math.sqrt(math.prod(map(float, largest)))
    return float(sum(taken) + sum(made))


__all__ = ["work"]
