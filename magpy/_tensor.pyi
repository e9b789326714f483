"""What magpy asks of tensors and of torch's state (csrc/tensor)."""

from collections.abc import Sequence
from typing import Any, Final, final

import torch

DATA_DEPENDENT: Final[int]
"""An operator whose result is a Python number that depends on tensor data (`item`, `equal`)."""
LOOKS: Final[int]
"""Such an operator, or `is_nonzero`, that Python calls, and no other operator."""
DYNAMIC_SHAPE: Final[int]
"""An operator whose result's shape depends on tensor data (`nonzero`, `masked_select`)."""
RANDOM: Final[int]
"""An operator that may draw from a torch generator."""
MUTATES: Final[int]
"""An operator called by the program that writes to one of its arguments."""
STATISTICS: Final[int]
"""An operator that writes running statistics if it is told to train (`native_batch_norm`)."""

_api: object

@final
class TensorMeta:
    """What a guard remembers of a tensor.

    That is its class, dtype, device, layout, sizes, strides, gradient flags and dispatch keys.

    Args:
        tensor: what to record.
        offset: whether the storage offset is compared too.
        dims: the dimensions whose sizes are not compared, as a bit mask or a sequence of indices.
            Strides that followed from the sizes of other dimensions must then follow from them.
        strides: the dimensions whose strides are not compared, likewise.
    """

    def __new__(
        cls,
        tensor: torch.Tensor,
        *,
        offset: bool = False,
        dims: int | Sequence[int] | None = None,
        strides: int | Sequence[int] | None = None,
    ) -> TensorMeta: ...
    def matches(self, object: object, /) -> bool: ...
    def difference(self, object: object, /) -> str | None: ...
    def ignore_view(self) -> None:
        """From here on what requires no grad may be a view, made in whatever way, or none."""
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def inner(self) -> tuple[int, ...]:
        """For each dimension the one whose size times stride is this one's stride, or -1."""
    @property
    def opaque(self) -> str | None:
        """Why no tensor ever matches (symbolic sizes, nested, functorch, ...), or None."""

@final
class TorchState:
    """A snapshot of torch's global and thread-local state; takes 0.3 us to compare.

    Never matches inside a functorch transform (vmap, grad, ...), whose own state is out of reach.
    """

    def __new__(cls) -> TorchState: ...
    def matches(self) -> bool: ...
    def difference(self) -> str | None: ...
    def values(self) -> tuple[int, ...] | None:
        """The state as numbers; None where it has modes or hooks, objects of this process."""
    @staticmethod
    def of(values: tuple[int, ...], /) -> TorchState:
        """The state that `values` told of, in a process with the same torch."""

@final
class Observer:
    """Watches which kinds of operators run on the thread that started it."""

    def __new__(cls) -> Observer: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def take(self) -> int: ...
    operators: int
    """How many Python called, but for those that read a number and those of autograd's engine."""

def apart(tensors: list[torch.Tensor], m: int, /) -> bool:
    """Whether none of the first m tensors overlaps in memory with another of the list."""

def overlaps(a: torch.Tensor, b: torch.Tensor, /) -> int:
    """0 where their ranges of memory do not intersect, 2 where they start together, else 1."""

def tensor_version(tensor: torch.Tensor, /) -> int: ...
def storage_id(tensor: torch.Tensor, /) -> int: ...
def node_hooks(node: Any, /) -> list[Any]:
    """The Python hooks of a node of autograd's graph, or of what adds to a leaf's gradient."""

def has_native_hooks(node: Any, /) -> bool:
    """Whether such a node has hooks of C++: of a reducer of gradients, or of `retain_grad`."""

def unheard(*leaves: Any) -> bool:
    """Whether no hook, of Python or of C++, hears of the gradients of any of these leaves."""

def own_gradients(
    gradients: Sequence[torch.Tensor],
    leaves: Sequence[torch.Tensor],
    given: Sequence[torch.Tensor | None] | None,
    /,
) -> list[torch.Tensor | None]:
    """The gradients that autograd's engine gave for leaves, as AccumulateGrad keeps them.

    Args:
        gradients: those of the leaves, and maybe more.
        leaves: the leaves.
        given: the gradients that the pass began with.

    Returns:
        None for a gradient whose memory another one has, too, or that does not lie as its leaf
        does: it has to be copied.
    """

def gradient(tensor: torch.Tensor, /) -> torch.Tensor | None:
    """`tensor.grad`, of which no `__torch_function__` hears and nobody is warned."""

def put_gradient(tensor: torch.Tensor, grad: torch.Tensor | None, /) -> None:
    """Sets `tensor.grad`, whatever sizes and dtype the tensor has by now; nobody hears of it.

    `Tensor.grad` itself refuses a gradient that is not like the tensor, as one is whose leaf was
    given other `data` since (https://docs.pytorch.org/docs/stable/generated/torch.Tensor.grad.html).
    """
