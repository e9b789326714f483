"""Programs: effects beyond the result, and objects around the module."""

import copy
import dataclasses
import logging
import threading
import time
import warnings
import weakref

import torch
import torch.nn as nn
import torch.nn.functional as F

logger = logging.getLogger(__name__)
REGISTRY = {}
CALLS = {"count": 0}


class Prints(nn.Module):
    def __init__(self, verbose):
        super().__init__()
        self.verbose = verbose

    def forward(self, x):
        if self.verbose:
            print("input", tuple(x.shape), x.dtype, sep=" ", end="\n")
        return x * 2


class Logs(nn.Module):
    def forward(self, x):
        logger.debug("shape %s", x.shape)
        if logger.isEnabledFor(logging.ERROR):
            logger.info("rank %d", x.dim())
        return x + 1


class Warns(nn.Module):
    def forward(self, x):
        if x.dim() == 2:
            warnings.warn("2-dimensional input", UserWarning, stacklevel=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("never seen", stacklevel=2)
        return x - 1


class GlobalCounter(nn.Module):
    """Counts in a dictionary of the program's globals."""

    def forward(self, x):
        CALLS["count"] += 1
        return x * 3


class GlobalRegistry(nn.Module):
    """Looks functions up in a registry that it fills on demand."""

    def forward(self, x):
        if "triple" not in REGISTRY:
            REGISTRY["triple"] = lambda t: t * 3
        return REGISTRY["triple"](x)


class Callback(nn.Module):
    """Calls functions that were registered with it."""

    def __init__(self):
        super().__init__()
        self.callbacks = []
        self.losses = {}
        self.callbacks.append(lambda name, value: self.losses.__setitem__(name, value))

    def forward(self, x):
        y = x.pow(2)
        for callback in self.callbacks:
            callback("l2", y.mean())
        return y


class RaisesAndCatches(nn.Module):
    """An exception crosses two frames and its attributes are used."""

    class TooSmall(Exception):
        def __init__(self, size):
            super().__init__(f"size {size}")
            self.size = size

    def check(self, x):
        if x.size(0) < 4:
            raise self.TooSmall(x.size(0))
        return x

    def forward(self, x):
        try:
            return self.check(x)
        except self.TooSmall as error:
            return F.pad(x, (0, 0, 0, 4 - error.size)), str(error)


class Timed(nn.Module):
    """Measures itself; the time goes nowhere that matters."""

    def forward(self, x):
        start = time.perf_counter()
        y = x.exp()
        assert time.perf_counter() >= start
        return y


class LockedUpdate(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = []
        self.active = 0

    def forward(self, x):
        with threading.Lock():
            self.active = x.size(0)
        return x + self.active


@dataclasses.dataclass(frozen=True)
class Config:
    width: int = 4
    act: str = "relu"
    scales: tuple = (1.0, 0.5)


class FrozenConfig(nn.Module):
    """A configuration object read in many places, replaced for a part."""

    def __init__(self):
        super().__init__()
        self.config = Config()
        self.fc = nn.Linear(self.config.width, self.config.width)

    def forward(self, x):
        wide = dataclasses.replace(self.config, act="tanh")
        y = getattr(torch, wide.act)(self.fc(x)) + getattr(F, self.config.act)(x)
        return y * sum(self.config.scales), dataclasses.asdict(wide)["act"]


class BoxList:
    """A class around a tensor with methods that return new ones."""

    def __init__(self, box, size):
        self.bbox, self.size = box, size
        self.extra = {}

    def add_field(self, name, value):
        self.extra[name] = value
        return self

    def __len__(self):
        return self.bbox.shape[0]

    def __getitem__(self, item):
        out = BoxList(self.bbox[item], self.size)
        for name, value in self.extra.items():
            out.add_field(name, value[item])
        return out

    @property
    def area(self):
        return (self.bbox[:, 2:] - self.bbox[:, :2]).prod(1)


class ReturnsBoxes(nn.Module):
    def forward(self, boxes, scores):
        out = BoxList(boxes.sigmoid(), (4, 4)).add_field("scores", scores)
        return out[:2], out.area, len(out)


class WeakParent(nn.Module):
    """A submodule reaches its parent through a weak reference."""

    class Child(nn.Module):
        def __init__(self, parent):
            super().__init__()
            object.__setattr__(self, "parent", weakref.ref(parent))

        def forward(self, x):
            return x * self.parent().gain

    def __init__(self):
        super().__init__()
        self.gain = 1.5
        self.child = self.Child(self)

    def forward(self, x):
        return self.child(x)


class CopiesConfig(nn.Module):
    def __init__(self):
        super().__init__()
        self.defaults = {"dim": -1, "nested": {"keep": [True, False]}}

    def forward(self, x):
        options = copy.deepcopy(self.defaults)
        options["nested"]["keep"].append(x.dim())
        options.update(dim=0)
        return (
            x.mean(options["dim"], keepdim=options["nested"]["keep"][0]),
            options,
            len(self.defaults["nested"]["keep"]),
        )


class ReturnsClosure(nn.Module):
    """The result is a function over what was computed."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        h = self.fc(x)

        def later(scale):
            return h * scale

        return later


class AddsModule(nn.Module):
    """Walks over its modules by type."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Dropout(0.1))

    def forward(self, x):
        linear = [m for m in self.modules() if isinstance(m, nn.Linear)]
        total = sum(p.numel() for p in self.parameters() if p.requires_grad)
        for layer in linear:
            x = layer(x)
        return (
            x,
            total,
            dict(self.named_parameters())["body.0.bias"].shape,
            type(self.body[1]).__name__,
        )


class HasNoForward(nn.Module):
    """Renames forward per instance, as some models switch their mode."""

    def __init__(self, mode):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.forward = getattr(self, f"forward_{mode}")

    def forward_train(self, x):
        return self.fc(x)

    def forward_export(self, x):
        return self.fc(x).sigmoid()


class FindsDevice(nn.Module):
    """Asks its parameters and torch for device and type."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    @property
    def device(self):
        return next(self.parameters()).device

    def forward(self, x):
        device = torch.device("cuda" if torch.cuda.is_available() and x.is_cuda else "cpu")
        eye = torch.eye(4, device=self.device, dtype=next(iter(self.parameters())).dtype)
        return self.fc(x).to(device) @ eye, torch.get_default_dtype() == torch.float32


TESTCASES = [
    (Prints, lambda: ([True], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (Logs, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (Warns, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (GlobalCounter, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (GlobalRegistry, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (Callback, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (RaisesAndCatches, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (Timed, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (LockedUpdate, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (FrozenConfig, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (ReturnsBoxes, lambda: ([], {}), lambda: ([torch.rand(3, 4), torch.rand(3)], {}), True),
    (WeakParent, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (CopiesConfig, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (ReturnsClosure, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (AddsModule, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (HasNoForward, lambda: (["export"], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (FindsDevice, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
]
