"""Programs: Python's own idioms around the arithmetic."""

import abc
import contextlib
import enum
import functools
import itertools
import operator
from types import SimpleNamespace

import torch
import torch.nn as nn
import torch.nn.functional as F

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "swish": lambda x: x * torch.sigmoid(x)}
SETTINGS = SimpleNamespace(eps=1e-5, debug=False)


class Reduction(enum.Enum):
    MEAN = "mean"
    SUM = "sum"

    def __call__(self, x):
        return getattr(x, self.value)()


class EnumDispatch(nn.Module):
    def __init__(self, reduction):
        super().__init__()
        self.reduction = Reduction(reduction)

    def forward(self, x):
        if self.reduction is Reduction.MEAN:
            x = x - 1
        return self.reduction(x), Reduction["SUM"](x), self.reduction.name


class ActivationTable(nn.Module):
    """A function from a global table, chosen by an attribute."""

    def __init__(self, name):
        super().__init__()
        self.name = name
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        act = ACTIVATIONS[self.name] if isinstance(self.name, str) else self.name
        return act(self.fc(x)) / (1 + SETTINGS.eps)


class PartialFunctions(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = functools.partial(F.layer_norm, normalized_shape=(4,), eps=1e-3)
        self.pool = functools.partial(torch.mean, dim=1, keepdim=True)

    def forward(self, x):
        return self.norm(x) + self.pool(x)


@functools.lru_cache(maxsize=8)
def sine_table(length, dim):
    position = torch.arange(length).unsqueeze(1)
    rate = torch.exp(torch.arange(0, dim, 2) * -(9.21 / dim))
    table = torch.zeros(length, dim)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate)
    return table


class CachedTable(nn.Module):
    """A table from an lru_cache'd function of the shape."""

    def forward(self, x):
        return x + sine_table(x.size(1), x.size(2)).to(x.dtype)


class Properties(nn.Module):
    def __init__(self):
        super().__init__()
        self._rate = 0.25
        self.weight = nn.Parameter(torch.rand(4))

    @property
    def rate(self):
        return self._rate * 2

    @rate.setter
    def rate(self, value):
        self._rate = value / 2

    @functools.cached_property
    def depth(self):
        return len(list(self.parameters()))

    def forward(self, x):
        self.rate = 0.5
        return x * self.rate + self.weight * self.depth


class ClosureFactory(nn.Module):
    """Functions made in the constructor that close over loop variables."""

    def __init__(self):
        super().__init__()

        def make(power, offset=0.0):
            def apply(x):
                return x**power + offset + self.bias

            return apply

        self.bias = nn.Parameter(torch.zeros(1))
        self.branches = [make(p, offset=p / 10) for p in (1, 2, 3)]

    def forward(self, x):
        return sum(branch(x) for branch in self.branches)


class TryExcept(nn.Module):
    """An attribute that is missing, an index that fails, a cleanup that always runs."""

    def __init__(self):
        super().__init__()
        self.used = 0

    def forward(self, x):
        try:
            scale = self.scale
        except AttributeError:
            scale = 2.0
        try:
            part = [x][3]  # noqa: PLE0643
        except (IndexError, KeyError) as error:
            part = x + len(str(error))
        else:
            part = part * 100
        finally:
            self.used = scale
        return part * scale


class Generators(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def stages(self, x):
        for index, layer in enumerate(self.layers, start=1):
            x = layer(x)
            received = yield index, x
            if received:
                return

    def delegate(self, x):
        yield from self.stages(x)

    def forward(self, x):
        return [y * index for index, y in self.delegate(x)], next(self.stages(x))[1]


class RecursiveTree(nn.Module):
    """A module that holds two of its own kind."""

    def __init__(self, depth):
        super().__init__()
        self.value = nn.Linear(4, 4)
        self.children_ = (
            nn.ModuleList([RecursiveTree(depth - 1) for _ in range(2)]) if depth else None
        )

    def forward(self, x):
        x = torch.tanh(self.value(x))
        return x if self.children_ is None else sum(child(x) for child in self.children_)


class ScaleMixin:
    scale = 3

    def post(self, x):
        return super().post(x) * self.scale if hasattr(super(), "post") else x * self.scale


class ShiftMixin:
    def post(self, x):
        return x + self.shift


class MixedIn(ScaleMixin, ShiftMixin, nn.Module):
    """Cooperative methods through two mixins and a class attribute."""

    shift = 0.5

    def forward(self, x):
        return self.post(x)


class GetAttrFallback(nn.Module):
    """Missing attributes are looked up in a wrapped module."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)
        self.inner.gain = 1.5

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, x):
        return F.linear(x, self.weight, self.bias) * self.gain + self.out_features


class CallOverride(nn.Module):
    """A class with its own __call__ in front of forward."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def __call__(self, x, *args, **kwargs):
        kwargs.setdefault("scale", 0.5)
        return super().__call__(x.flatten(1), *args, **kwargs)

    def forward(self, x, extra=None, scale=1.0):
        y = self.fc(x) * scale
        return y if extra is None else y + extra


class Indexable(nn.Module):
    """Implements __getitem__, __len__, __iter__ and __contains__ and uses them."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def __getitem__(self, index):
        return (self.a, self.b)[index]

    def __len__(self):
        return 2

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __contains__(self, item):
        return any(item is part for part in self)

    def forward(self, x):
        for part in self:
            x = part(x)
        return x, self.a in self, nn.ReLU() in self


class Vector:
    """A small class with operators over tensors."""

    __slots__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __add__(self, other):
        return Vector(self.x + other.x, self.y + other.y)

    def __rmul__(self, factor):
        return Vector(factor * self.x, factor * self.y)

    def __matmul__(self, other):
        return self.x * other.x + self.y * other.y

    def __bool__(self):
        return True


class OperatorObjects(nn.Module):
    def forward(self, a, b):
        u, v = Vector(a, b), Vector(b, a)
        w = u + 2 * v
        return (w @ u) if w else None, w.x


class ContextManagers(nn.Module):
    """Its own context manager, one from a generator, and an ExitStack."""

    def __init__(self):
        super().__init__()
        self.depth = 0
        self.trace = []

    @contextlib.contextmanager
    def level(self, name):
        self.depth += 1
        try:
            yield self.depth
        finally:
            self.depth -= 1
            self.trace.append(name)

    def forward(self, x):
        self.trace = []
        with self.level("outer") as outer, contextlib.ExitStack() as stack:
            inner = stack.enter_context(self.level("inner"))
            x = x * outer + inner
        return x, list(self.trace)


class Itertools(nn.Module):
    def forward(self, *parts):
        pairs = [a * b for a, b in itertools.combinations(parts, 2)]
        chained = torch.stack(list(itertools.chain(parts, pairs)))
        running = list(itertools.accumulate(parts, operator.add))
        grid = sum(i * j * parts[0] for i, j in itertools.product(range(2), range(3)))
        return chained, running[-1], grid, functools.reduce(torch.maximum, parts)


class FunctionalTools(nn.Module):
    """map, filter, any, all, zip with a star, reversed, min and max with keys."""

    def forward(self, items):
        shapes = list(map(lambda t: t.shape, items))
        wide = list(filter(lambda t: t.size(-1) > 2, items))
        assert all(len(shape) == 2 for shape in shapes)
        rows, columns = zip(*shapes)
        biggest = max(items, key=lambda t: t.numel())
        extra = 1 if any(c == 3 for c in columns) else 0
        return sum(t.sum() for t in reversed(wide)) * max(rows) + extra, biggest


class MatchStatement(nn.Module):
    """Structural pattern matching on a configuration."""

    def __init__(self, config):
        super().__init__()
        self.config = config

    def forward(self, x):
        match self.config:
            case {"kind": "pool", "size": size}:
                return F.avg_pool1d(x, size)
            case {"kind": "scale", "by": (int() | float()) as by}:
                return x * by
            case _:
                return x


class StringBuilding(nn.Module):
    """Names of attributes built by formatting."""

    def __init__(self, depth):
        super().__init__()
        self.depth = depth
        for i in range(depth):
            setattr(self, f"conv{i}_{'even' if i % 2 == 0 else 'odd'}", nn.Conv1d(2, 2, 1))
            self.add_module("norm%d" % i, nn.BatchNorm1d(2))  # noqa: UP031

    def forward(self, x):
        names = []
        for i in range(self.depth):
            name = "conv{}_{}".format(i, ("even", "odd")[i % 2])
            names.append(name.upper().replace("CONV", "c-"))
            x = getattr(self, f"norm{i}")(getattr(self, name)(x))
        return x, "|".join(names)


class Walrus(nn.Module):
    def forward(self, x, sizes=(3, 2, 0, 1)):
        out, index = [], 0
        while (size := sizes[index]) > 0:
            out.append(x[:size].sum())
            index += 1
        return torch.stack(out) if (count := len(out)) > 1 else count


class Strategy(abc.ABC):
    @abc.abstractmethod
    def apply(self, x): ...

    @classmethod
    def named(cls, name):
        return next(sub for sub in cls.__subclasses__() if sub.__name__.lower() == name)()


class Double(Strategy):
    def apply(self, x):
        return x * 2


class Halve(Strategy):
    def apply(self, x):
        return x / 2


class AbstractStrategy(nn.Module):
    """An object chosen by name among subclasses, made in every call."""

    def __init__(self, name):
        super().__init__()
        self.strategy_name = name

    def forward(self, x):
        return Strategy.named(self.strategy_name).apply(x)


@functools.singledispatch
def describe(value):
    return 0


@describe.register
def _(value: torch.Tensor):
    return value.sum()


@describe.register(list)
def _(value):
    return sum(describe(item) for item in value)


class SingleDispatch(nn.Module):
    def forward(self, x, others):
        return describe(x) + describe(others) + describe("text")


def logged(function):
    @functools.wraps(function)
    def wrapper(self, *args, **kwargs):
        self.calls.append(function.__name__)
        return function(self, *args, **kwargs)

    return wrapper


class Decorated(nn.Module):
    """Methods behind a decorator that records their names, cleared on every call."""

    def __init__(self):
        super().__init__()
        self.calls = []

    @logged
    def encode(self, x):
        return x * 2

    @logged
    def decode(self, x, shift=1):
        return x + shift

    def forward(self, x):
        self.calls.clear()
        return self.decode(self.encode(x), shift=3)


class KeywordOnly(nn.Module):
    def merge(self, first, /, *rest, scale=1.0, **named):
        return (
            first * scale
            + sum(rest)
            + sum(value * len(key) for key, value in sorted(named.items()))
        )

    def forward(self, *args, **kwargs):
        return self.merge(*args, **{"scale": 2.0, **kwargs})


class Descriptor:
    def __set_name__(self, owner, name):
        self.key = "_" + name

    def __get__(self, instance, owner=None):
        return self if instance is None else vars(instance).get(self.key, 1.0)

    def __set__(self, instance, value):
        vars(instance)[self.key] = float(value)


class UsesDescriptor(nn.Module):
    temperature = Descriptor()

    def __init__(self):
        super().__init__()
        self.temperature = 4

    def forward(self, x):
        return F.softmax(x / self.temperature, dim=-1)


class ConditionalImport(nn.Module):
    """Imports inside forward."""

    def forward(self, x):
        import math

        from torch.nn.functional import softplus

        return softplus(x) * math.pi


class DelAndGlobals(nn.Module):
    def forward(self, x):
        global LAST_SHAPE
        LAST_SHAPE = tuple(x.shape)
        y, z = x + 1, x + 2
        del z
        try:
            z  # noqa: B018, F821
        except UnboundLocalError:
            y = y * 3
        return y * len(LAST_SHAPE)


TESTCASES = [
    (EnumDispatch, lambda: (["mean"], {}), lambda: ([torch.rand(4)], {}), True),
    (ActivationTable, lambda: (["swish"], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (PartialFunctions, lambda: ([], {}), lambda: ([torch.rand(2, 3, 4)], {}), True),
    (CachedTable, lambda: ([], {}), lambda: ([torch.rand(2, 3, 4)], {}), True),
    (Properties, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (ClosureFactory, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (TryExcept, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (Generators, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (RecursiveTree, lambda: ([2], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (MixedIn, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (GetAttrFallback, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (
        CallOverride,
        lambda: ([], {}),
        lambda: ([torch.rand(2, 2, 2)], {"extra": torch.rand(4)}),
        True,
    ),
    (Indexable, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (OperatorObjects, lambda: ([], {}), lambda: ([torch.rand(2), torch.rand(2)], {}), True),
    (ContextManagers, lambda: ([], {}), lambda: ([torch.rand(2)], {}), True),
    (
        Itertools,
        lambda: ([], {}),
        lambda: ([torch.rand(2), torch.rand(2), torch.rand(2)], {}),
        True,
    ),
    (
        FunctionalTools,
        lambda: ([], {}),
        lambda: ([[torch.rand(2, 2), torch.rand(1, 3), torch.rand(2, 4)]], {}),
        True,
    ),
    (
        MatchStatement,
        lambda: ([{"kind": "scale", "by": 3}], {}),
        lambda: ([torch.rand(2, 2, 4)], {}),
        True,
    ),
    (StringBuilding, lambda: ([3], {}), lambda: ([torch.rand(2, 2, 4)], {}), True),
    (Walrus, lambda: ([], {}), lambda: ([torch.rand(4)], {}), True),
    (AbstractStrategy, lambda: (["halve"], {}), lambda: ([torch.rand(4)], {}), True),
    (
        SingleDispatch,
        lambda: ([], {}),
        lambda: ([torch.rand(4), [torch.rand(2), [torch.rand(1)]]], {}),
        True,
    ),
    (Decorated, lambda: ([], {}), lambda: ([torch.rand(4)], {}), True),
    (
        KeywordOnly,
        lambda: ([], {}),
        lambda: ([torch.rand(4), torch.rand(4)], {"ab": torch.rand(4), "c": 2}),
        True,
    ),
    (UsesDescriptor, lambda: ([], {}), lambda: ([torch.rand(2, 4)], {}), True),
    (ConditionalImport, lambda: ([], {}), lambda: ([torch.rand(4)], {}), True),
    (DelAndGlobals, lambda: ([], {}), lambda: ([torch.rand(4)], {}), True),
]
