"""Programs: containers as arguments, attributes and results."""

import collections
import dataclasses
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModuleOutput(collections.OrderedDict):
    """A dictionary read by key, by attribute and by position, as libraries of models return."""

    def __init__(self, **kwargs):
        super().__init__((key, value) for key, value in kwargs.items() if value is not None)
        for key, value in self.items():
            object.__setattr__(self, key, value)

    def __getitem__(self, key):
        return super().__getitem__(key) if isinstance(key, str) else self.to_tuple()[key]

    def to_tuple(self):
        return tuple(super(ModuleOutput, self).__getitem__(key) for key in self.keys())


class ReturnsModelOutput(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x, hidden=False):
        h = self.fc(x)
        out = ModuleOutput(logits=h.relu(), hidden=h if hidden else None, pooled=h.mean(1))
        out["first"] = out[0][:, 0]
        return out


@dataclasses.dataclass
class Prediction:
    mean: torch.Tensor
    scale: torch.Tensor
    names: list = dataclasses.field(default_factory=list)

    def confident(self):
        return dataclasses.replace(self, scale=self.scale * 0.5)


class ReturnsDataclass(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        mean, log_scale = self.head(x).unbind(-1)
        return Prediction(mean, log_scale.exp(), ["mean", "scale"]).confident()


class Encoded(NamedTuple):
    values: torch.Tensor
    lengths: torch.Tensor
    note: str = "none"


class ReturnsNamedTuple(nn.Module):
    def forward(self, x):
        encoded = Encoded(x.cumsum(1), (x > 0.5).sum(1))
        return encoded._replace(note="counted")


class ListOfLayers(nn.Module):
    """Every layer's output kept in a list, some chosen by index."""

    def __init__(self, depth, taps):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(depth))
        self.taps = taps

    def forward(self, x):
        outputs = [x]
        for layer in self.layers:
            outputs.append(F.relu(layer(outputs[-1])))
        return [outputs[i] for i in self.taps], torch.stack(outputs[1:], 0).mean(0)


class DictOfHeads(nn.Module):
    """Heads by name; the result is a dictionary with the same keys."""

    def __init__(self, classes):
        super().__init__()
        self.heads = nn.ModuleDict(
            {name: nn.Linear(4, count) for name, count in sorted(classes.items())}
        )

    def forward(self, x, only=None):
        wanted = self.heads.keys() if only is None else only
        return {name: head(x) for name, head in self.heads.items() if name in wanted}


class ParameterContainers(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.rand(4)) for _ in range(3)])
        self.shifts = nn.ParameterDict({"a": torch.rand(4), "b": nn.Parameter(torch.rand(4))})

    def forward(self, x):
        for index, scale in enumerate(self.scales):
            x = x * scale + index
        return x + self.shifts["a"] - self.shifts["b"]


class NestedArguments(nn.Module):
    """A nested structure of tensors comes in, one of the same structure goes out."""

    def forward(self, features):
        def scale(item, by):
            if isinstance(item, torch.Tensor):
                return item * by
            if isinstance(item, dict):
                return {k: scale(v, by + 1) for k, v in item.items()}
            return type(item)(scale(v, by + 1) for v in item)

        return scale(features, 1)


class SortedByKey(nn.Module):
    """Feature maps sorted by size, with names."""

    def forward(self, maps):
        ordered = sorted(maps.items(), key=lambda pair: (-pair[1].shape[-1], pair[0]))
        pooled = [F.adaptive_avg_pool2d(m, 1).flatten(1) for _, m in ordered]
        return torch.cat(pooled, 1), [name for name, _ in ordered]


class ZipLongLists(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.up = nn.ModuleList([nn.Linear(8, 4), nn.Linear(8, 4)])

    def forward(self, x):
        skips = []
        for layer in self.down:
            x = layer(x)
            skips.append(x)
        for layer, skip in zip(self.up, skips[::-1]):
            x = layer(torch.cat([x, skip], -1))
        return x


class DefaultDictGroups(nn.Module):
    """Tensors grouped by a key and reduced group by group."""

    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, *tensors):
        grouped = collections.defaultdict(list)
        for name, tensor in zip(self.groups, tensors):
            grouped[name].append(tensor)
        return {name: sum(items) / len(items) for name, items in grouped.items()}


class DequeWindow(nn.Module):
    """A sliding window over steps in a bounded deque."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        window = collections.deque(maxlen=self.size)
        means = []
        for step in x.unbind(1):
            window.append(step)
            means.append(torch.stack(list(window)).mean(0))
        return torch.stack(means, 1)


class SetOfNames(nn.Module):
    """Which parts run is a set difference."""

    def __init__(self, frozen):
        super().__init__()
        self.parts = nn.ModuleDict({name: nn.Linear(4, 4) for name in ("stem", "body", "head")})
        self.frozen = set(frozen)

    def forward(self, x):
        active = set(self.parts) - self.frozen
        for name in ("stem", "body", "head"):
            x = self.parts[name](x) if name in active else x
        return x, len(active)


class SequentialSurgery(nn.Module):
    """A Sequential read by slice, by negative index and by name."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 2)
        )
        self.net.add_module("final", nn.Softmax(dim=-1))

    def forward(self, x):
        features = self.net[:3](x)
        return self.net[3:](features), self.net[-2].weight.sum(), self.net._modules["final"].dim


class TupleUnpacking(nn.Module):
    def forward(self, pack):
        (first, *rest), options = pack
        others = {**options}
        scale = others.pop("scale")
        total = first
        for item in rest:
            total = total + item * scale
        return (*rest, total), {**others, "scale": scale + 1}


class MutatesArgument(nn.Module):
    """Fills the caller's dictionary and list."""

    def forward(self, x, out, log):
        out["y"] = x * 2
        out.setdefault("count", 0)
        out["count"] += 1
        log.extend([tuple(x.shape), "done"])
        return out


class SameObjectTwice(nn.Module):
    """One tensor appears in several places of the result."""

    def forward(self, x):
        y = x.exp()
        shared = [y, y]
        return {"a": shared, "b": shared, "c": y}


class Batch(dict):
    """A dictionary with attribute access and a device-moving method, as data pipelines use."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def apply(self, function):
        return Batch({k: function(v) if torch.is_tensor(v) else v for k, v in self.items()})


class TakesBatchObject(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(10, 4)

    def forward(self, ids, weights):
        batch = Batch(ids=ids, weights=weights, split="train").apply(lambda t: t[:, 1:])
        h = self.emb(batch.ids) * batch.weights.unsqueeze(-1)
        return h.sum(1) if batch.split == "train" else h


class ScoredPair(collections.namedtuple("ScoredPair", ["boxes", "scores"])):
    """A named tuple that takes items of each of its fields, and says that it is from nowhere."""

    __slots__ = ()
    __module__ = object()

    def __getitem__(self, where):
        return type(self)(*(field[where] for field in self))


class SlicedNamedTuple(nn.Module):
    def forward(self, boxes, scores):
        return ScoredPair(boxes * 2, scores.sigmoid())[1:]


TESTCASES = [
    (ReturnsModelOutput, lambda: ([], {}), lambda: ([torch.rand(2, 3, 4)], {"hidden": True}), True),
    (ReturnsDataclass, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (ReturnsNamedTuple, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (ListOfLayers, lambda: ([4, (0, 2, -1)], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (
        DictOfHeads,
        lambda: ([{"b": 2, "a": 3, "c": 1}], {}),
        lambda: ([torch.rand(2, 4)], {"only": ("a", "c")}),
        True,
    ),
    (ParameterContainers, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (
        NestedArguments,
        lambda: ([], {}),
        lambda: ([{"a": torch.rand(2), "b": [torch.rand(3), (torch.rand(1),)]}], {}),
        True,
    ),
    (
        SortedByKey,
        lambda: ([], {}),
        lambda: (
            [
                {
                    "p3": torch.rand(1, 2, 8, 8),
                    "p5": torch.rand(1, 2, 2, 2),
                    "p4": torch.rand(1, 2, 4, 4),
                }
            ],
            {},
        ),
        True,
    ),
    (ZipLongLists, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (
        DefaultDictGroups,
        lambda: ([["x", "y", "x"]], {}),
        lambda: ([torch.rand(2), torch.rand(2), torch.rand(2)], {}),
        True,
    ),
    (DequeWindow, lambda: ([2], {}), lambda: ([torch.rand(2, 4, 3)], {}), True),
    (SetOfNames, lambda: ([["body"]], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (SequentialSurgery, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (
        TupleUnpacking,
        lambda: ([], {}),
        lambda: ([((torch.rand(2), torch.rand(2), torch.rand(2)), {"scale": 3, "name": "n"})], {}),
        True,
    ),
    (MutatesArgument, lambda: ([], {}), lambda: ([torch.rand(2, 2), {"old": 1}, []], {}), True),
    (SameObjectTwice, lambda: ([], {}), lambda: ([torch.rand(2)], {}), True),
    (
        TakesBatchObject,
        lambda: ([], {}),
        lambda: ([torch.randint(0, 10, (2, 5)), torch.rand(2, 5)], {}),
        True,
    ),
    (
        SlicedNamedTuple,
        lambda: ([], {}),
        lambda: ([torch.rand(4, 4), torch.rand(4)], {}),
        True,
    ),
]
