"""Sizes that vary may be 1: a batch of 1 is served by what was captured for larger ones.

Where it matters whether a size is 1 (broadcasting, views, bounds, the program's own questions), a
call of that size is captured on its own, and gives what it gives in eager.
"""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import magpy
from tests.backends_of_cases import SAMPLED_BACKENDS

SIZES = [(3, 4), (5, 6), (4, 4), (1, 6), (6, 1), (1, 1), (2, 3), (1, 5), (4, 1), (7, 2)]
WEIGHT = torch.linspace(-1, 1, 64).reshape(8, 8)
ROWS = torch.linspace(0, 1, 5)


# ------------------------------------------------------------- it makes no difference


def linear(x):
    return F.linear(x, WEIGHT).relu() + 1


def attention(x):
    b, t, _ = x.shape
    q = x.view(b, t, 2, 4).transpose(1, 2)
    y = F.scaled_dot_product_attention(q, q, q, attn_mask=torch.zeros(b, 1, t, t))
    return y.transpose(1, 2).reshape(b, t, 8)


def normalized(x):
    x = F.layer_norm(x, (8,), WEIGHT[0], WEIGHT[1])
    return x.float() * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def means(x):
    return x.sum(0), x.mean(1), x.amax(-1), x.softmax(1)


def joined(x):
    return (
        torch.cat([x, x * 2], 0),
        torch.stack([x, x], 1),
        torch.cat([x[..., 4:], -x[..., :4]], -1),
    )


def masked(x):
    mask = torch.arange(x.shape[1]) < x.shape[0]
    return x.masked_fill(~mask[None, :, None], 0.0), torch.where(mask[:, None], x, -x)


def broadcast(x):
    return (
        x + x[:, :1],
        x * x[:1],
        x - x.mean((0, 1), keepdim=True),
        x[:, :, None].expand(-1, -1, 3, -1),
    )


def doubled(x):
    y = x * 2
    y += x
    y.mul_(x.shape[0])
    return y.clamp_(-3, 3)


SAME = [linear, attention, normalized, means, joined, masked, broadcast, doubled]


# ------------------------------------------------------------- it does


def flattened(x):
    return x.reshape(-1, 8) @ WEIGHT, x.flatten(0, 1), x.view(x.shape[0] * x.shape[1], 8)


def divided_by_one_less(x):
    return x * (1 / (x.shape[0] - 1))


def squeezed(x):
    return x.squeeze(), x.squeeze(0), x.squeeze(1).sum(0)


def of_two_sizes(x):
    return x[:, 0] + x[0, :1], x[:, 0, 0] * torch.ones(x.shape[1])


def with_five(x):
    return x[:, 0, 0] + ROWS


def second(x):
    return x[1] + 1, x[:, 0]


def second_of_the_middle(x):
    return x[:, 1] + 1


def narrowed(x):
    return x.narrow(1, 0, 2) * 2


def the_two_largest(x):
    return torch.topk(x, 2, dim=0).values


def asked(x):
    return x * 3 if x.shape[0] == 1 else x - x.shape[0]


def more_than_one(x):
    return x.std(0) if len(x) > 1 else x[0]


def asked_how_it_lies(x):
    y = x.transpose(0, 1)
    return (y + 1, y.is_contiguous()) if y.is_contiguous() else (y * 2, y.stride())


def made_contiguous(x):
    y = x.transpose(0, 1)
    z = y.contiguous()
    z += 1  # x as well, where that is a view
    return z, z is y


def reshaped(x):
    y = x.transpose(0, 1).reshape(-1)
    y.mul_(2)  # x as well, where that is a view
    return y


def channels_last(x):
    y = x[:, :, None].contiguous(memory_format=torch.channels_last)
    y += 1
    return y, y.is_contiguous()


def asked_after_it_was_computed_with(x):
    y = x.transpose(0, 1)
    z = y * 2 + y.softmax(-1)
    a, b = y.contiguous(), y.reshape(-1, 8)
    a += 1
    b += 2
    return z, a, b, z.transpose(0, 1).is_contiguous()


def batch_normalized(x):
    return F.batch_norm(x.reshape(-1, 8), None, None, training=True)


def groups_of_a_channel(x):
    return F.group_norm(x.reshape(x.shape[0], 8, -1), 8), F.instance_norm(x.transpose(1, 2))


def deviations(x):
    return x.std(0), x.var(1, unbiased=False)


def expanded(x):
    return x[:, 0, 0].expand(5), x.sum()


def added_in_place(x):
    y = x[:1] * 1
    y += x  # raises for more than one row
    return y


def rows_as_they_are(x):
    return [row + 1 for row in x]


def a_row_each(x):
    total = 0
    for i in range(x.shape[0]):
        total = total + x[i] * i
    return total


def _of_rows(f):
    return lambda x: f(x[:, 0])


#: Of a size of 1 nothing is left, or too little.
PARTS = {
    "amax": lambda x: x[1:].amax(0) * 2,
    "amin": lambda x: x[:-1].amin(0),
    "max": lambda x: x[1:].max(0).values,
    "argmax": lambda x: x[1:].argmax(0),
    "mean": lambda x: x[1:].mean(0),
    "norm": lambda x: x[1:].norm(float("inf"), 0),
    "pad": lambda x: F.pad(x.t(), (1, 0), mode="reflect"),
    "view": lambda x: x[1:].view(x.shape[0] - 1, -1),
    "reshape": lambda x: x[1:].reshape(x.shape[0] - 1, -1),
    "cat": lambda x: torch.cat([x[1:], x[:1]]),
    "softmax": lambda x: x[1:].softmax(0),
    "difference": lambda x: x[1:] - x[:-1],
    "matmul": lambda x: x[1:] @ x[:-1].t(),
    "select": lambda x: x[1:][0] * 2,
    "layer_norm": lambda x: F.layer_norm(x[1:], (8,)),
    "topk": lambda x: x[1:].topk(1, 0).values,
    "std": lambda x: x[1:].std(0),
    "loss": lambda x: F.cross_entropy(x[1:], torch.zeros(x.shape[0] - 1, dtype=torch.long)),
    "convolution": lambda x: F.conv1d(x.t()[None], torch.ones(1, 8, 2)),
    "pool": lambda x: F.max_pool1d(x.t()[None], 2),
    "attention": lambda x: F.scaled_dot_product_attention(x[None, 1:], x[None, 1:], x[None, 1:]),
    "unfold": lambda x: x.unfold(0, 2, 1) * 2,
}
DIFFER = [
    *(flattened, divided_by_one_less, groups_of_a_channel),
    *(squeezed, of_two_sizes, with_five, second, second_of_the_middle, narrowed, the_two_largest),
    *(asked, more_than_one, asked_how_it_lies, made_contiguous, reshaped, channels_last),
    asked_after_it_was_computed_with,
    *(batch_normalized, deviations, expanded, added_in_place, rows_as_they_are, a_row_each),
]


def _outcome(f, size, grad):
    x = torch.linspace(-1, 2, 8 * size[0] * size[1]).reshape(*size, 8)
    x.requires_grad_(grad)
    given = x * 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = f(given)
    except Exception as e:
        return [], [given.detach().clone()], type(e).__name__
    found = [t for t in _leaves(result) if isinstance(t, torch.Tensor)]
    if grad and any(t.requires_grad for t in found):
        sum(t.nan_to_num().sum() for t in found if t.requires_grad).backward()
    shared = [t.untyped_storage()._cdata == given.untyped_storage()._cdata for t in found]
    values = [t.detach() for t in found]
    return values, [given.detach(), x.grad], [shared, _form(result)]


def _leaves(v):
    return [x for part in v for x in _leaves(part)] if type(v) in (tuple, list) else [v]


def _form(v):
    if type(v) in (tuple, list):
        return type(v)(map(_form, v))
    return v.shape if isinstance(v, torch.Tensor) else v


def _compared(f, backend, grad, sizes=SIZES):
    compiled = magpy.compile(f, backend=backend)
    for size in sizes:
        *found, more = _outcome(compiled, size, grad)
        *wanted, expected = _outcome(f, size, grad)
        torch.testing.assert_close(found, wanted, equal_nan=True, rtol=1e-4, atol=1e-4)
        assert more == expected
    return magpy.stats(compiled)


backends = pytest.mark.parametrize("backend", ["eager", "aot_eager"])
named = {"ids": lambda v: getattr(v, "__name__", None)}


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("grad", [False, True], ids=["", "grad"])
@pytest.mark.parametrize("f", SAME, **named)
def test_two_captures_serve_a_size_of_one_as_well(f, grad, backend):
    stats = _compared(f, backend, grad)
    assert stats.captures == 2, stats.misses_by


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("grad", [False, True], ids=["", "grad"])
@pytest.mark.parametrize("f", DIFFER, **named)
def test_where_it_matters_a_size_of_one_gives_what_eager_does(f, grad, backend):
    _compared(f, backend, grad)


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("f", PARTS.values(), ids=PARTS)
def test_what_is_left_of_a_size_of_one(f, backend):
    _compared(_of_rows(f), backend, False)


def test_torch_inductor_raises_where_too_little_is_left():
    _compared(_of_rows(PARTS["pad"]), "inductor", False, [(3, 1), (4, 1), (1, 1), (2, 1)])


@pytest.mark.parametrize("f", [*SAME, *DIFFER], **named)
@pytest.mark.parametrize("first", [(1, 3), (3, 1), (1, 1)], ids=str)
def test_a_size_of_one_comes_first(f, first):
    _compared(f, "eager", False, [first, *SIZES])


@pytest.mark.parametrize("f", [attention, normalized, broadcast, made_contiguous], **named)
def test_torch_inductor_compiles_for_a_size_of_one_too(f):
    _compared(f, "inductor", True, SIZES[:6])


def test_a_number_may_be_anything():
    def f(x, n):
        return x * n if n != 1 else x - 1

    compiled = magpy.compile(f, backend="eager")
    for n, rows in itertools.product([3, 5, 1, 0, -2], [2, 3, 1]):
        x = torch.ones(rows, 2)
        assert torch.equal(compiled(x, n), f(x, n))


class Block(nn.Module):
    """A layer of a transformer."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (y.view(b, t, 2, 4).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.out(y.reshape(b, t, 8))
        return x + self.mlp(x)


@backends
def test_a_model_serves_a_batch_of_one(backend):
    model = nn.Sequential(Block(), Block())
    compiled = magpy.compile(model, backend=backend)
    with torch.no_grad():
        for batch in (3, 5, 1, 2, 1):
            x = torch.randn(batch, 4 + batch, 8)
            torch.testing.assert_close(compiled(x), model(x))
    assert magpy.stats(compiled).captures == 2


def layers_of_images():
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(8, 4)),
    )


@backends
def test_a_model_of_images_serves_a_batch_of_one(backend):
    model = layers_of_images().eval()
    compiled = magpy.compile(model, backend=backend)
    with torch.no_grad():
        for batch in (3, 5, 1, 2, 1):
            x = torch.randn(batch, 3, 8 + 2 * batch, 16)
            torch.testing.assert_close(compiled(x), model(x))
    assert magpy.stats(compiled).captures == 2
