"""What requires grad and is changed in place keeps its sizes as symbols."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS


def added(x):
    y = x * 2
    y.add_(1)
    return y


def item(x):
    y = x * 2
    y[:, 0] = 0
    return y


def indexed(x):
    y = x * 2
    y[torch.arange(x.shape[0]), 0] = 0
    return y


def masked(x):
    y = x * 2
    return y.masked_fill_(y > 1, 0.0)


def scaled(x):
    y = x * 2
    y *= 0.5
    return y.clamp_(-1, 1)


def rows_of_zeros(x):
    y = torch.zeros(x.shape[0], 8)
    y[:, :4] = x[:, :4]
    y += x
    return y


def of_a_view(x):
    y = x * 2
    y.view(-1).mul_(2)
    return y


def strided(x):
    y = x * 2
    y[:, 1:-1] += 1
    part = y[:, ::2]
    part.mul_(3)
    return y + part.sum()


def of_a_shared_form(x):
    # What is done twice is done once with fake tensors: each result is changed on its own.
    a, b = (x * 2)[:, 1:], (x * 2)[:, 1:]
    a += 1
    b.mul_(3)
    return a + b


def unsqueezed(x):
    y = x * 2
    y.unsqueeze_(1)
    return (y * y.shape[0]).squeeze(1)


def moved(x):
    y = x * 2
    y.transpose_(0, 1)
    y.add_(1)
    return (y * y.shape[1]).t()


def squeezed(x):
    y = (x * 2).unsqueeze(1)
    y.squeeze_(1)
    return y.reshape(-1)[: y.shape[0] * 3]


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (2, 2, 2)),
        nn.Conv2d(2, 4, 1),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Dropout(0.25),
        nn.Conv2d(4, 4, 1),
        nn.LeakyReLU(0.1, inplace=True),
    )


def agrees(f, c, parameters=()):
    for i, rows in enumerate((4, 7, 6, 5, 3, 8, 2, 9, 4, 7)):
        results = []
        for call, own in ((f, 0), (c, 1)):
            torch.manual_seed(i)
            x = torch.randn(rows, 8, requires_grad=True)
            y = call(x)
            y.square().sum().backward()
            found = parameters[own] if parameters else []
            results.append((y.detach(), x.grad, *(p.grad for p in found)))
        for a, b in zip(*results, strict=True):
            assert torch.equal(a, b)


KINDS = (added, item, indexed, masked, scaled, rows_of_zeros, of_a_view, strided, of_a_shared_form)
FORMS = (unsqueezed, moved, squeezed)


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("f", (*KINDS, *FORMS), ids=lambda f: f.__name__)
def test_two_captures_serve_all_sizes(f, backend):
    c = magpy.compile(f, backend=backend)
    agrees(f, c)
    assert magpy.stats(c).captures == 2
    assert magpy.stats(c).share == 1.0


def test_layers_that_work_in_place():
    models = network(), network()
    c = magpy.compile(models[1], backend="eager")
    agrees(models[0], c, [list(m.parameters()) for m in models])
    assert magpy.stats(c).captures == 2


def test_an_input_that_becomes_a_view_of_itself_is_captured_for_its_size():
    """TorchInductor takes it for one of its old size afterwards."""

    def f(x):
        x.t_()
        return x * 2

    c = magpy.compile(f, backend="aot_eager")
    for rows in (2, 3, 5, 3):
        x, y = torch.ones(rows, 4), torch.ones(rows, 4)
        assert torch.equal(c(x), f(y))
        assert x.shape == y.shape and x.stride() == y.stride()


# ------------------------------------------------------------- `.data` of a tensor from outside


def descends(p, buffer, x, rate):
    loss = (x @ p).pow(2).mean()
    loss.backward()
    p.data -= rate * p.grad
    p.grad = None
    return loss.detach() * x.shape[0]


def averages(p, buffer, x, rate):
    buffer.data = buffer.data * (1 - rate) + p.data * rate
    return x @ buffer * len(x)


def swaps(p, buffer, x, rate):
    kept = p.data
    p.data = buffer.data
    y = x @ p
    p.data = kept
    return y + x @ p * rate


def keeps_the_batch(p, buffer, x, rate):
    buffer.data = x.detach() * rate
    return buffer.sum() + (x @ p).mean() * x.shape[0]


def keeps_part_of_the_batch(p, buffer, x, rate):
    y = (x @ p).detach()
    buffer.data = y[: x.shape[0] // 2]
    buffer.mul_(rate)
    return y.sum() + buffer.sum() * buffer.shape[0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "program", [descends, averages, swaps, keeps_the_batch, keeps_part_of_the_batch]
)
def test_data_is_assigned_beside_sizes_that_vary(program, backend):
    worlds = []
    for _ in range(2):
        torch.manual_seed(0)
        worlds.append((torch.nn.Parameter(torch.rand(4)), torch.rand(4)))
    compiled = magpy.compile(program, backend=backend)
    for i, batch in enumerate([5, 3, 4, 6, 8, 7, 3, 9, 4]):
        x = torch.rand(batch, 4, generator=torch.Generator().manual_seed(i))
        want = program(*worlds[0], x, 0.1 / (i + 1))
        got = compiled(*worlds[1], x, 0.1 / (i + 1))
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(worlds[1], worlds[0])
    if program in (descends, averages, swaps):
        assert magpy.stats(compiled).captures == 2, magpy.stats(compiled).misses_by
