"""Whole training steps with a line in the forward that is left to Python.

The backward pass goes on to what was computed before that line, so Python makes it, too.  Owns that
what comes before and after it is compiled all the same: the loss, clipping, the optimizer.
"""

import zlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "AdamW": lambda p: torch.optim.AdamW(p, 1e-3),
    "AdamW, fused": lambda p: torch.optim.AdamW(p, 1e-3, fused=True),
    "RMSprop, foreach": lambda p: torch.optim.RMSprop(p, 1e-3, foreach=True),
}


class Trainer:
    """A model with a step that keeps checksums of its activations."""

    def __init__(self, optimizer):
        torch.manual_seed(0)
        self.encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16))
        self.decoder = nn.Sequential(nn.ReLU(), nn.Linear(16, 4))
        self.parameters = [*self.encoder.parameters(), *self.decoder.parameters()]
        self.optimizer = OPTIMIZERS[optimizer](self.parameters)
        self.sums = []

    def loss(self, x, y):
        h = self.encoder(x)
        self.sums.append(zlib.crc32(h.detach().numpy().tobytes()))
        return F.mse_loss(self.decoder(h * 2), y)

    def plain(self, x, y):
        h = self.encoder(x)
        self.sums.append(zlib.crc32(h.detach().numpy().tobytes()))
        loss = F.mse_loss(self.decoder(h * 2), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def clipped(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.parameters, 0.1)
        self.optimizer.step()
        return loss.detach(), norm

    def on_one_line(self, x, y):
        loss = self.loss(x, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()  # noqa: E702
        return loss.item()

    def _update(self, loss):
        self.optimizer.zero_grad()
        torch.autograd.backward([loss])
        self.optimizer.step()

    def in_a_function_of_its_own(self, x, y):
        loss = self.loss(x, y)
        self._update(loss)
        return loss.item()

    def looks_at_the_gradients(self, x, y):
        self.optimizer.zero_grad()
        loss = self.loss(x, y)
        loss.backward()
        if all(p.grad.isfinite().all() for p in self.parameters):
            self.optimizer.step()
        return loss.item()

    def in_two_passes(self, x, y):
        self.optimizer.zero_grad()
        for a, b in zip(x.chunk(2), y.chunk(2), strict=True):
            loss = self.loss(a, b) / 2
            loss.backward()
        self.optimizer.step()
        return loss.item()


STEPS = [
    "plain",
    "clipped",
    "on_one_line",
    "in_a_function_of_its_own",
    "looks_at_the_gradients",
    "in_two_passes",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_rest_of_the_step_is_compiled(optimizer, step, backend, monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)
    mine, theirs = Trainer(optimizer), Trainer(optimizer)
    compiled = magpy.compile(getattr(mine, step), backend=backend)
    for i in range(24):
        torch.manual_seed(i)
        x, y = torch.randn(4, 8), torch.randn(4, 4)
        assert_same(compiled(x, y), getattr(theirs, step)(x, y))
        assert_same(
            [(p, p.grad) for p in mine.parameters], [(p, p.grad) for p in theirs.parameters]
        )
    assert mine.sums == theirs.sums
    stats = magpy.stats(compiled)
    assert stats.share >= 0.8 and stats.captures <= 14
    left = "\n".join(line for line, _ in stats.in_python)
    assert "optimizer.py" not in left and "(step)" not in left
