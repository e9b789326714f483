"""Sizes that vary go through calls which are recorded as one operation: checkpoints, Functions.

What such a call gives is asked for its sizes in each call, so that two captures serve all.
"""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS

WIDTH = 6
SIZES = [(3, 5), (5, 4), (4, 7), (7, 6), (5, 8), (3, 9), (6, 4), (8, 8), (4, 9), (7, 5)]


@pytest.fixture(autouse=True)
def regions(monkeypatch):
    monkeypatch.setattr(magpy.config, "regions", True)


def _layers(*more):
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), *more, nn.GELU(), nn.Linear(WIDTH, WIDTH))


class Model(nn.Module):
    """Layers each of which is checkpointed."""

    def __init__(self, reentrant, *more):
        super().__init__()
        self.layers = nn.ModuleList(_layers(*more) for _ in range(2))
        self.checkpoint = functools.partial(checkpoint, use_reentrant=reentrant)


class Stack(Model):
    def forward(self, x):
        for layer in self.layers:
            x = x + self.checkpoint(layer, x)
        return x.mean(1)


class ReadsSizes(Model):
    def forward(self, x):
        y = self.checkpoint(self.layers[0], x)
        b, t, _ = y.shape
        y = y.reshape(b * t, -1) * t
        return self.layers[1](y).reshape(b, t, -1).sum(1)


class Several(Model):
    def halves(self, x):
        y = self.layers[0](x)
        return y[:, : y.shape[1] // 2], y.flatten(0, 1), y.sum()

    def forward(self, x):
        a, b, c = self.checkpoint(self.halves, x)
        return (a.sum(1) + c) * b.shape[0], a.shape, self.layers[1](b).mean()


class Statistics(Model):
    """Writes to buffers, which sizes do not concern."""

    def __init__(self, reentrant):
        super().__init__(reentrant, nn.Flatten(0, 1), nn.BatchNorm1d(WIDTH))

    def forward(self, x):
        y = self.checkpoint(self.layers[0], x)
        return self.layers[1](y.view(x.shape)).sum(0) + y.shape[0]


class GivesBack(Model):
    """What of one size is the argument's own memory is new memory of another."""

    def part(self, x):
        return (x if x.shape[0] > 5 else self.layers[0](x)).transpose(0, 1).contiguous()

    def forward(self, x):
        y = self.checkpoint(self.part, x * 1)
        return y * y.shape[0], y.transpose(0, 1)


class Square(torch.autograd.Function):
    """A Function with sizes of its own."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x.flatten(0, 1) @ w * x.shape[1]

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        g = g * x.shape[1]
        return (g @ w.t()).view(x.shape), x.flatten(0, 1).t() @ g


class OfFunctions(Model):
    def forward(self, x):
        y = Square.apply(x, self.layers[0][0].weight)
        return self.layers[1](y.view(x.shape[0], -1, WIDTH)).sum(1) / y.shape[0]


def _run(model, f, x):
    x = x.clone().requires_grad_()
    model.zero_grad()
    result = f(x)
    parts = result if type(result) is tuple else (result,)
    sum(t.sum() for t in parts if isinstance(t, torch.Tensor)).backward()
    grads = [x.grad, *(p.grad for p in model.parameters())]
    return result, grads, dict(model.named_buffers())


def _same(a, b):
    if isinstance(a, torch.Tensor):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()
        assert a.requires_grad == b.requires_grad
    elif type(a) in (list, tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            _same(x, y)
    elif isinstance(a, dict):
        _same(list(a.values()), list(b.values()))
    else:
        assert a == b
        assert type(a) is type(b)


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("reentrant", [False, True], ids=["", "reentrant"])
@pytest.mark.parametrize(
    "cls",
    [Stack, ReadsSizes, Several, Statistics, GivesBack, OfFunctions],
    ids=lambda c: c.__name__,
)
def test_two_captures_serve_all_sizes(cls, reentrant, backend):
    torch.manual_seed(0)
    eager = cls(reentrant).double()
    model = copy.deepcopy(eager)
    compiled = magpy.compile(model, backend=backend)
    captures = []
    for size in SIZES:
        x = torch.randn(*size, WIDTH, dtype=torch.float64)
        _same(_run(model, compiled, x), _run(eager, eager, x))
        captures.append(magpy.stats(compiled).captures)
    stats = magpy.stats(compiled)
    assert captures[7] == captures[-1], stats.misses_by
    assert stats.hits >= len(SIZES) - 3
    assert stats.share >= 0.6  # custom Functions run in Python


# ------------------------------------------------------------- what goes by sizes


class Counts(torch.autograd.Function):
    """Gives a number back with a loss."""

    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.sum(), x.shape[0]

    @staticmethod
    def backward(ctx, g, _):
        return g.expand(ctx.shape)


def _checkpointed(f):
    return lambda x: checkpoint(f, x, use_reentrant=False)


W = torch.ones(4, requires_grad=True)


def _mean_by_function(x):
    total, n = Counts.apply(x)
    return total / n


def _written_to(x):
    y = _checkpointed(lambda x: x if x.shape[0] > 5 else x * 1)(x)
    z = y.detach()
    z.add_(1)
    return y, z


def _one_after_another(x):
    y = _checkpointed(lambda x: x * 2)(x)
    return _checkpointed(lambda y: (y + 1, y.shape[0] > 4))(y)


def _within_another(x):
    def inner(x):
        return x * 2, x.shape[0] > 4

    def outer(x):
        y, is_long = checkpoint(inner, x, use_reentrant=False)
        return y * 3 if is_long else y

    y = _checkpointed(outer)(x)
    return _checkpointed(inner)(y)


def _sized_by_data(x):
    y = x[x[:, 0] > 3]
    return _checkpointed(lambda y: (y * 2, y.shape[0] > 2))(y)


def _counted_of_data(x):
    return Counts.apply(x[x[:, 0] > 3])


BY_SIZES = {
    "one after another": _one_after_another,
    "within another": _within_another,
    "sized by data": _sized_by_data,
    "counted of data": _counted_of_data,
    "number": lambda x: _checkpointed(lambda x: (x * 2, x.shape[0]))(x)[1],
    "number of a Function": _mean_by_function,
    "text": _checkpointed(lambda x: (x * 2, "long" if x.shape[0] > 4 else "short")),
    "None": _checkpointed(lambda x: (x * 2, None if x.shape[0] <= 5 else x.sum())),
    "how many": _checkpointed(lambda x: tuple(x[i] * 2 for i in range(min(x.shape[0], 6)))),
    "tensor or pair": _checkpointed(lambda x: x * 2 if x.shape[0] <= 5 else (x * 2, x.sum())),
    "dtype": _checkpointed(lambda x: x.double() if x.shape[0] > 5 else x * 1),
    "requires grad": _checkpointed(lambda x: x.detach() * 1 if x.shape[0] > 5 else x * W),
    "twice": _checkpointed(lambda x: (x * 2,) * 2 if x.shape[0] > 5 else (x * 2, x * 3)),
    "the argument": _checkpointed(lambda x: x if x.shape[0] > 5 else x * 1),
    "a view": _checkpointed(lambda x: x[:2] if x.shape[0] > 5 else x[:2] * 1),
    "dimensions": _checkpointed(lambda x: x.sum() if x.shape[0] > 5 else x * 1),
    "written to": _written_to,
}


def _described(f, rows):
    x = torch.arange(4.0 * rows).reshape(rows, 4)
    result = f(x)
    parts = list(result) if type(result) is tuple else [result]
    found = [t for t in parts if isinstance(t, torch.Tensor)]
    memory = x.untyped_storage()._cdata
    return (
        *(type(result), [type(v) if isinstance(v, torch.Tensor) else v for v in parts]),
        [(t.dtype, t.requires_grad, t.detach().tolist()) for t in found],
        [[a is b for a in (x, *found)] for b in found],
        *([t.untyped_storage()._cdata == memory for t in found], x.tolist()),
    )


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("program", BY_SIZES.values(), ids=BY_SIZES)
def test_what_such_a_call_gives_is_that_of_its_sizes(program, backend):
    compiled = magpy.compile(program, backend=backend)
    for rows in (3, 4, 5, 7, 2, 1, 6, 3, 7):
        assert _described(compiled, rows) == _described(program, rows)
