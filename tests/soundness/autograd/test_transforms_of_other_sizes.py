"""Functions that are transformed (torch.func) in calls of other sizes and numbers.

Owns programs in which what is transformed varies from call to call: batches, lengths, integers.
Does not own what a transform is otherwise (tests/soundness/autograd/test_transforms.py).
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    vjp,
    vmap,
)

import magpy
from tests.soundness.worlds import assert_served, case, check_all

CASES = []
SIZES = (3, 5, 4, 7, 2, 6)


@case(CASES)
def gradients_of_each_sample(compile):
    m = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

    def loss(params, x, y):
        return ((functional_call(m, params, (x[None],)) - y) ** 2).mean()

    @compile
    def step(x, y):
        params = {k: p.detach() for k, p in m.named_parameters()}
        return vmap(grad_and_value(loss), in_dims=(None, 0, 0))(params, x, y)

    for n in SIZES:
        yield step(torch.randn(n, 3), torch.randn(n, 2))


@case(CASES)
def sizes_that_the_function_computes_with(compile):
    @compile
    def f(x, y):
        half = vmap(lambda v: v.reshape(2, -1).sum(0) / v.shape[0])(x)
        made = vmap(lambda v: v + torch.arange(v.shape[0]) * v.numel())(x)
        inside = grad(lambda v: (v[: v.shape[0] - 1] * y[1:]).sum() / len(y))(y)
        return half, made, inside, x.shape[0] * x.shape[1]

    for n in SIZES:
        yield f(torch.randn(n, 2 * n + 2), torch.randn(n + 1))


@case(CASES)
def transforms_in_each_other(compile):
    w = torch.randn(4, 4)

    @compile
    def f(x, y):
        outer = vmap(vmap(lambda a, b: (a * b).sum(), in_dims=(0, None)), in_dims=(None, 0))
        distances = outer(x, y)
        curved = vmap(grad(lambda a: grad(lambda b: (b.sin() @ w @ b).sum())(a).sum()))(x)
        return distances, curved, vmap(lambda v: v, in_dims=1, out_dims=1)(x)

    for n in SIZES:
        yield f(torch.randn(n, 4), torch.randn(n + 2, 4))


@case(CASES)
def jacobians(compile):
    w = torch.randn(4, 3)

    @compile
    def f(x):
        rows = jacrev(lambda v: v.sin() * v.sum())(x[:, 0])
        _, back = vjp(lambda v: (v @ w).tanh(), x)
        moved = jvp(lambda v: (v @ w).sin(), (x,), (torch.ones_like(x),))
        return rows, back(torch.ones(x.shape[0], 3)), moved

    for n in SIZES:
        yield f(torch.randn(n, 4))


@case(CASES)
def an_integer_in_the_function(compile):
    @compile
    def f(x, k):
        return vmap(lambda v: v * k)(x), grad(lambda v: (v[:k] ** 2).sum() * k)(x[0])

    for k in (2, 3, 4, 5, 3):
        yield f(torch.randn(3, 6), k)


@case(CASES)
def forward_mode_within_a_batch(compile):
    @compile
    def f(x):
        return vmap(jacfwd(lambda v: v * (1 + 0.1 * v.pow(2).sum())))(x), hessian(
            lambda v: (v**3).sum()
        )(x[:, 0])

    for n in SIZES:
        yield f(torch.randn(n, 2))


@case(CASES)
def a_batch_that_draws(compile):
    @compile
    def f(x):
        drawn = vmap(lambda v: torch.randn(2) + v[:2], randomness="different")(x)
        dropped = vmap(lambda v: nn.functional.dropout(v), randomness="different")(x)
        same = vmap(lambda v: v + torch.rand(3), randomness="same")(x)
        return drawn, dropped, same

    for n in SIZES:
        yield f(torch.randn(n, 3))


@case(CASES)
def tensors_that_are_changed(compile):
    total = torch.zeros(3)

    @compile
    def f(x):
        def inside(v):
            made = torch.zeros_like(v)
            made[1:] += v[1:]
            made.mul_(2)
            return made

        out = vmap(inside)(x)
        total.add_(out.sum(0))
        return out, vmap(lambda v: v.add_(1))(x)

    for n in SIZES:
        x = torch.randn(n, 3)
        yield f(x), x, total.clone()


@case(CASES)
def chunks_of_a_batch(compile):
    @compile
    def f(x):
        return vmap(lambda v: v.cumsum(0), chunk_size=2)(x), jacrev(torch.sin, chunk_size=2)(x[0])

    for n in (4, 6, 3, 8, 5):
        yield f(torch.randn(n, 3))


@case(CASES)
def masks_and_choices(compile):
    @compile
    def f(x):
        def inside(v):
            best = v.argmax()
            picked = v.gather(0, best[None])
            return torch.where(v > picked / 2, v, -1.0), v.topk(2).values, v.sort().indices

        return vmap(inside)(x)

    for n in SIZES:
        yield f(torch.randn(n, 4))


@case(CASES)
def systems_of_equations(compile):
    @compile
    def f(d):
        def step(v):
            for _ in range(2):
                v = v - torch.linalg.solve(torch.eye(2) * 2 + torch.outer(v, v), v)
            return v

        return vmap(step)(d)

    for n in SIZES:
        yield f(torch.rand(n, 2))


@case(CASES)
def plain_work_around_a_transform(compile):
    w = torch.randn(3, 3, requires_grad=True)

    @compile
    def f(x):
        h = (x @ w).relu()
        g = grad(lambda v: (v @ w.detach()).square().sum())(h.detach())
        out = torch.cat([h, g * g.shape[0]], 1)
        return out.reshape(-1) + torch.tensor([len(x)]), out.sum() / x.numel()

    for n in SIZES:
        out, loss = f(torch.randn(n, 3))
        loss.backward()
        yield out.detach(), w.grad.clone()


test_two_worlds = check_all(CASES)


@pytest.mark.parametrize(
    "program",
    [
        gradients_of_each_sample,
        sizes_that_the_function_computes_with,
        transforms_in_each_other,
        jacobians,
        an_integer_in_the_function,
        tensors_that_are_changed,
        plain_work_around_a_transform,
    ],
    ids=lambda v: v.__name__,
)
def test_two_captures_serve_all_sizes(program):
    assert_served(program, 2, hits=3)


def test_a_transform_of_a_compiled_function_is_told_what_to_do():
    c = magpy.compile(lambda x: x.sin().sum(), backend="eager")
    with pytest.warns(magpy.MagpyWarning, match="Compile the function that makes the transform"):
        found = vmap(c)(torch.ones(2, 3))
    assert torch.equal(found, torch.ones(2, 3).sin().sum(1))
    for _ in range(20):
        assert torch.equal(grad(c)(torch.ones(3)), torch.ones(3).cos())
    # It is compiled all the same where it is called itself.
    for _ in range(3):
        c(torch.ones(3))
    s = magpy.stats(c)
    assert (s.captures, s.hits) == (1, 2)
