# eager: the call raised TypeError: unsupported operand type(s) for +: 'Tensor' and 'list'
"""An iterator hands on a list of tensors from outside; then the call raises."""

import torch

a1 = torch.tensor(1)
al = [a1]


def f(p1):
    return torch.rand(3) + next(iter([p1]))


target = f


def steps(f):
    for _ in range(4):
        yield attempt(f, al)  # noqa: F821
