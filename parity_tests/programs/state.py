"""Programs: modules that keep something between calls."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class CallCounter(nn.Module):
    """Counts its calls in a Python int that the result does not depend on."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * 2


class CounterInResult(nn.Module):
    """The number of calls scales the result."""

    def __init__(self):
        super().__init__()
        self.step = 0

    def forward(self, x):
        self.step += 1
        return x * self.step


class BufferCounter(nn.Module):
    """A counter in a buffer, as batch normalisation's."""

    def __init__(self):
        super().__init__()
        self.register_buffer("num_updates", torch.tensor(0, dtype=torch.long))

    def forward(self, x):
        self.num_updates += 1
        return x / self.num_updates.float()


class MovingAverage(nn.Module):
    """A running mean updated in place while training, rebound as a new tensor otherwise."""

    def __init__(self, momentum):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(4))
        self.last = torch.zeros(4)

    def forward(self, x):
        batch_mean = x.detach().mean(0)
        self.mean.mul_(1 - self.momentum).add_(batch_mean, alpha=self.momentum)
        self.last = batch_mean
        return x - self.mean


class LazyProjection(nn.Module):
    """A layer built in the first call, when the width is known."""

    def __init__(self, out):
        super().__init__()
        self.out = out
        self.proj = None

    def forward(self, x):
        if self.proj is None:
            torch.manual_seed(3)
            self.proj = nn.Linear(x.size(-1), self.out)
        return self.proj(x)


class ShapeCache(nn.Module):
    """Masks remembered in a dictionary by length."""

    def __init__(self):
        super().__init__()
        self.masks = {}

    def forward(self, x):
        key = (x.size(1), x.device.type)
        if key not in self.masks:
            self.masks[key] = torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool), 1)
        scores = torch.bmm(x, x.transpose(1, 2))
        return scores.masked_fill(self.masks[key], -1e4)


class RemembersHidden(nn.Module):
    """A recurrent state kept on the module, detached between calls."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 4)
        self.hidden = None

    def reset(self):
        self.hidden = None

    def forward(self, x):
        if self.hidden is None or self.hidden.size(0) != x.size(0):
            self.hidden = x.new_zeros(x.size(0), 4)
        self.hidden = self.cell(x, self.hidden.detach())
        return self.hidden


class KeepsActivations(nn.Module):
    """Saves intermediate results on itself for whoever asks later."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 4), nn.Linear(4, 2)
        self.activations = {}
        self.attention_map = None

    def forward(self, x):
        h = F.relu(self.fc1(x))
        self.activations["fc1"] = h
        self.attention_map = h.softmax(-1).detach()
        return self.fc2(h)


class HistoryList(nn.Module):
    """Appends a number to a list in every call and keeps the last three."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def forward(self, x):
        self.sizes.append(x.shape[0])
        if len(self.sizes) > 3:
            self.sizes.pop(0)
        return x + 1


class LossTerms(nn.Module):
    """A list of auxiliary losses that is rebuilt in every call and read by the trainer."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.aux = []

    def forward(self, x):
        self.aux = []
        out = 0
        for expert in self.experts:
            y = expert(x)
            self.aux.append(y.pow(2).mean())
            out = out + y
        self.total_aux = torch.stack(self.aux).sum()
        return out


class WarmupFlag(nn.Module):
    """Behaves differently in its first call only."""

    def __init__(self):
        super().__init__()
        self.initialised = False
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        if not self.initialised:
            with torch.no_grad():
                self.scale.copy_(1 / (x.std(0) + 1e-5))
            self.initialised = True
        return x * self.scale


class TensorFlag(nn.Module):
    """The same with the flag in a buffer, read with item()."""

    def __init__(self):
        super().__init__()
        self.register_buffer("initialised", torch.tensor(0, dtype=torch.uint8))
        self.register_buffer("shift", torch.zeros(4))

    def forward(self, x):
        if self.initialised.item() == 0:
            self.shift.data.copy_(-x.mean(0))
            self.initialised.fill_(1)
        return x + self.shift


class Queue(nn.Module):
    """A memory bank with a pointer that wraps around."""

    def __init__(self, size):
        super().__init__()
        self.size = size
        self.register_buffer("bank", torch.zeros(size, 4))
        self.register_buffer("ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def enqueue(self, keys):
        ptr = int(self.ptr)
        self.bank[ptr : ptr + keys.shape[0]] = keys
        self.ptr[0] = (ptr + keys.shape[0]) % self.size

    def forward(self, x):
        scores = x @ self.bank.clone().detach().t()
        self.enqueue(x)
        return scores


class MomentumPair(nn.Module):
    """A target network that follows the online one."""

    def __init__(self):
        super().__init__()
        self.online, self.target = nn.Linear(4, 4), nn.Linear(4, 4)
        for a, b in zip(self.online.parameters(), self.target.parameters()):
            b.data.copy_(a.data)
            b.requires_grad = False

    def forward(self, x):
        with torch.no_grad():
            for a, b in zip(self.online.parameters(), self.target.parameters()):
                b.data = b.data * 0.9 + a.data * 0.1
        return F.mse_loss(self.online(x), self.target(x).detach())


class RegistersBuffer(nn.Module):
    """Registers a buffer from forward when it is not there."""

    def forward(self, x):
        if not hasattr(self, "grid") or self.grid.shape[-1] != x.shape[-1]:
            self.register_buffer("grid", torch.linspace(-1, 1, x.shape[-1]), persistent=False)
        return x * self.grid


class SharedState:
    total = 0

    def __init__(self):
        self.values = []


class OutsideObject(nn.Module):
    """Writes to a plain object that it was given."""

    def __init__(self):
        super().__init__()
        self.state = SharedState()

    def forward(self, x):
        self.state.latest = x.sum()
        self.state.values = self.state.values[-1:] + [x.dim()]
        return x * len(self.state.__dict__)


class TogglesTraining(nn.Module):
    """Switches a submodule to eval for one part and back."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        was = self.drop.training
        self.drop.eval()
        y = self.drop(self.fc(x))
        self.drop.train(was)
        return y


class RunningScale(nn.Module):
    """Counts samples beside a buffer that follows the activations from the second call on."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(1.0))
        self.samples = 0

    def forward(self, x):
        if self.samples == 0:
            self.scale = x.max().detach()
        else:
            self.scale = 0.9 * self.scale + 0.1 * x.max().detach()
        self.samples += x.shape[0]
        return x / self.scale


TESTCASES = [
    (CallCounter, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (CounterInResult, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (BufferCounter, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (MovingAverage, lambda: ([0.1], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (LazyProjection, lambda: ([3], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (ShapeCache, lambda: ([], {}), lambda: ([torch.rand(2, 3, 4)], {}), True),
    (RemembersHidden, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (KeepsActivations, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (HistoryList, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (LossTerms, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (WarmupFlag, lambda: ([], {}), lambda: ([torch.rand(3, 4)], {}), True),
    (TensorFlag, lambda: ([], {}), lambda: ([torch.rand(3, 4)], {}), True),
    (Queue, lambda: ([6], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (MomentumPair, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (RegistersBuffer, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (OutsideObject, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (TogglesTraining, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (
        RunningScale,
        lambda: ([], {}),
        lambda: ([torch.rand(4, 4)], {}),
        True,
    ),
]
