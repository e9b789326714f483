"""Modules of TorchScript for programs that have no file, of which it could read no source."""

from __future__ import annotations

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.k = 1.0
        self.n = 1
        self.times = [1, 2]
        self.register_buffer("b", torch.ones(2))

    def forward(self, t):
        return (t * self.k + self.b).repeat(self.n * len(self.times))


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, t):
        return t + self.b


def scripted():
    """A scripted module whose attributes decide of the shape of its result."""
    return torch.jit.script(Net())


def traced():
    """A traced module with a parameter."""
    return torch.jit.trace(Plain(), torch.ones(2))
