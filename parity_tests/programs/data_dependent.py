"""Programs: Python decisions and sizes that depend on the values in tensors."""

import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class BranchOnSum(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        if x.sum() > 0:
            return self.a(x)
        return self.b(-x)


class ItemAsScale(nn.Module):
    def forward(self, x):
        scale = x.max().item()
        return x / (scale + 1e-6), scale


class MaxLength(nn.Module):
    """Crops to the longest of the given lengths."""

    def forward(self, x, lengths):
        longest = int(lengths.max())
        return x[:, :longest], [x[i, :n] for i, n in enumerate(lengths.tolist())]


class NonzeroSelect(nn.Module):
    def forward(self, x):
        index = (x > 0.5).nonzero(as_tuple=True)
        picked = x[index]
        return picked, x[x < 0.2], torch.nonzero(x > 0.9).shape[0]


class NumpyMiddle(nn.Module):
    """Goes through numpy and comes back."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        h = self.fc(x)
        array = h.detach().cpu().numpy()
        order = np.argsort(array.mean(axis=0))
        weights = torch.from_numpy(np.exp(-np.arange(4)).astype(np.float32))
        return h[:, order.tolist()] * weights


class EarlyExit(nn.Module):
    """Leaves at the first classifier that is sure enough."""

    def __init__(self, threshold):
        super().__init__()
        self.stages = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.heads = nn.ModuleList([nn.Linear(4, 3) for _ in range(3)])
        self.threshold = threshold

    def forward(self, x):
        for depth, (stage, head) in enumerate(zip(self.stages, self.heads)):
            x = torch.tanh(stage(x))
            probs = head(x).softmax(-1)
            if probs.max(-1).values.min() > self.threshold:
                break
        return probs, depth


class UntilConverged(nn.Module):
    """A fixed-point iteration with a tolerance and a limit."""

    def forward(self, x):
        z = torch.zeros_like(x)
        for step in range(20):
            new = torch.cos(z) * 0.5 + x
            if (new - z).abs().max() < 1e-2:
                break
            z = new
        return z, step


class ExpertChoice(nn.Module):
    """Each token goes to the expert with the largest gate."""

    def __init__(self, experts):
        super().__init__()
        self.gate = nn.Linear(4, experts)
        self.experts = nn.ModuleList([nn.Linear(4, 4) for _ in range(experts)])

    def forward(self, x):
        choice = self.gate(x).argmax(-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            rows = torch.where(choice == i)[0]
            if rows.numel() == 0:
                continue
            out[rows] = expert(x[rows])
        return out


class GreedySuppression(nn.Module):
    """Non-maximum suppression written with a while loop."""

    def __init__(self, threshold):
        super().__init__()
        self.threshold = threshold

    def forward(self, boxes, scores):
        order = scores.argsort(descending=True)
        keep = []
        while order.numel() > 0:
            i = order[0]
            keep.append(i.item())
            if order.numel() == 1:
                break
            rest = boxes[order[1:]]
            lt = torch.max(boxes[i, :2], rest[:, :2])
            rb = torch.min(boxes[i, 2:], rest[:, 2:])
            inter = (rb - lt).clamp(min=0).prod(1)
            area = (rest[:, 2:] - rest[:, :2]).prod(1)
            order = order[1:][inter / area <= self.threshold]
        return torch.tensor(keep, dtype=torch.long)


class AssertsOnValues(nn.Module):
    def forward(self, x, target):
        assert target.min() >= 0 and target.max() < x.size(1), "labels out of range"  # noqa: PT018
        if torch.isnan(x).any():
            raise ValueError("not a number")
        assert torch.isfinite(x).all()
        return F.cross_entropy(x, target)


class UniqueLabels(nn.Module):
    """A mean for each label that occurs."""

    def forward(self, x, labels):
        means = {}
        for label in labels.unique():
            means[int(label)] = x[labels == label].mean(0)
        return means


class PythonRandom(nn.Module):
    """Augmentation decided by Python's generator."""

    def forward(self, x):
        if random.random() < 0.5:
            x = x.flip(-1)
        shift = random.randint(1, 3)
        return torch.roll(x, shift, dims=-1), shift


class NumpyRandom(nn.Module):
    def forward(self, x):
        noise = np.random.normal(0, 0.1, size=tuple(x.shape)).astype(np.float32)
        return x + torch.from_numpy(noise)


class TeacherForcing(nn.Module):
    """A coin for every step."""

    def __init__(self, ratio):
        super().__init__()
        self.cell = nn.GRUCell(3, 3)
        self.ratio = ratio

    def forward(self, x):
        h = torch.zeros(x.size(0), 3)
        step = x[:, 0]
        for t in range(1, x.size(1)):
            h = self.cell(step, h)
            step = x[:, t] if random.random() < self.ratio else h
        return h


class BoolOfTensor(nn.Module):
    def forward(self, x, flag):
        return x * 2 if flag and not (x < 0).any() else x / 2


class FormatsValue(nn.Module):
    """A value ends in a string."""

    def forward(self, x):
        return x + 1, f"mean {x.mean():.3f}", f"{x.max().item():.1f}"


class IntOfParameter(nn.Module):
    """A learned parameter decides how many steps run."""

    def __init__(self):
        super().__init__()
        self.steps = nn.Parameter(torch.tensor(3.2))
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        for _ in range(int(self.steps)):
            x = torch.tanh(self.fc(x))
        return x


class BlockDrop(nn.Module):
    """A policy decides for each block whether any sample needs it."""

    def __init__(self):
        super().__init__()
        self.policy = nn.Linear(4, 3)
        self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x):
        actions = (self.policy(x).sigmoid() > 0.5).float()
        for i, block in enumerate(self.blocks):
            action = actions[:, i].contiguous()
            if action.sum() == 0:
                continue
            x = x + block(x) * action[:, None]
        return x, actions


class TensorAsIndex(nn.Module):
    """A scalar tensor used as a Python index and as a range."""

    def forward(self, x, which):
        parts = [x, x * 2, x * 3]
        return parts[which], sum(range(which)), x[which]


TESTCASES = [
    (BranchOnSum, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (ItemAsScale, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (MaxLength, lambda: ([], {}), lambda: ([torch.rand(2, 6), torch.tensor([2, 4])], {}), True),
    (NonzeroSelect, lambda: ([], {}), lambda: ([torch.rand(4, 4)], {}), True),
    (NumpyMiddle, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (EarlyExit, lambda: ([0.4], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (UntilConverged, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (ExpertChoice, lambda: ([3], {}), lambda: ([torch.rand(5, 4)], {}), True),
    (
        GreedySuppression,
        lambda: ([0.3], {}),
        lambda: ([torch.tensor([[0.0, 0, 2, 2], [0, 0, 2.1, 2], [3, 3, 4, 4]]), torch.rand(3)], {}),
        True,
    ),
    (
        AssertsOnValues,
        lambda: ([], {}),
        lambda: ([torch.rand(3, 4), torch.tensor([0, 3, 1])], {}),
        True,
    ),
    (
        UniqueLabels,
        lambda: ([], {}),
        lambda: ([torch.rand(4, 2), torch.tensor([1, 0, 1, 2])], {}),
        True,
    ),
    (PythonRandom, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (NumpyRandom, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (TeacherForcing, lambda: ([0.5], {}), lambda: ([torch.rand(2, 4, 3)], {}), True),
    (BoolOfTensor, lambda: ([], {}), lambda: ([torch.rand(2, 4), torch.tensor(True)], {}), True),
    (FormatsValue, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (IntOfParameter, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (BlockDrop, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (TensorAsIndex, lambda: ([], {}), lambda: ([torch.rand(3, 4), torch.tensor(1)], {}), True),
]
