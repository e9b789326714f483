"""Functions that are transformed: torch.func, forward-mode AD, torch.autograd.functional.

Owns programs in which torch transforms a function inside of the compiled call (`grad`, `vmap`,
`jvp`, `hessian`, ...), and what such a function reads and changes.  Does not own backward passes
of plain tensors (tests/soundness/autograd/test_training.py).
"""

from __future__ import annotations

import random

import pytest
import torch
import torch.autograd.forward_ad as fwd
from torch import nn
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    vjp,
    vmap,
)

import magpy
from tests.soundness.worlds import assert_served, attempt, case, check_all

CASES = []


def model():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def batch():
    return torch.randn(5, 3)


@case(CASES)
def gradients_of_every_sample(compile):
    m = model()
    params = {k: p.detach() for k, p in m.named_parameters()}

    def loss(params, x, y):
        return ((functional_call(m, params, (x[None],)) - y) ** 2).sum()

    @compile
    def step(x, y):
        return vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y)

    for _ in range(4):
        yield step(batch(), torch.randn(5, 2))


@case(CASES)
def a_function_that_reads_a_global_number(compile):
    scale = [2.0]

    def loss(x):
        return (x.sin() * scale[0]).sum()

    @compile
    def step(x):
        return grad(loss)(x)

    for s in (2.0, 2.0, 3.0, 3.0, -1.0, 2.0):
        scale[0] = s
        yield step(torch.randn(3))


@case(CASES)
def a_function_that_is_replaced(compile):
    def first(x):
        return x.sin().sum()

    def second(x):
        return x.cos().sum()

    use = {"loss": first}

    @compile
    def step(x):
        return grad(use["loss"])(x), vmap(use["loss"])(x[None])

    for f in (first, first, second, second, first):
        use["loss"] = f
        yield step(torch.randn(3))


@case(CASES)
def parameters_that_a_function_closes_over(compile):
    m = model()
    optimizer = torch.optim.SGD(m.parameters(), 0.1)

    @compile
    def sensitivity(x):
        return vmap(grad(lambda a: m(a).square().sum()))(x)

    for _ in range(4):
        x = batch()
        out = sensitivity(x)
        yield out.detach().clone()
        optimizer.zero_grad()
        out.square().sum().backward()  # through the transform, to the parameters
        yield [p.grad.clone() for p in m.parameters() if p.grad is not None]
        optimizer.step()


@case(CASES)
def a_hessian(compile):
    @compile
    def of(x):
        return hessian(lambda a: (a**3).sum() + a.prod())(x)

    for _ in range(3):
        yield of(torch.randn(3))


@case(CASES)
def jacobians(compile):
    m = model()

    @compile
    def of(x):
        return jacrev(m)(x), jacfwd(m)(x), jacrev(m, chunk_size=1)(x)

    for _ in range(3):
        yield of(torch.randn(3))


@case(CASES)
def a_residual_of_a_differential_equation(compile):
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def u(t, x):
        return net(torch.stack([t, x]))[0]

    @compile
    def residual(t, x):
        u_t = vmap(grad(u, argnums=0))(t, x)
        u_xx = vmap(grad(grad(u, argnums=1), argnums=1))(t, x)
        return (u_t - 0.1 * u_xx).square().mean()

    for _ in range(3):
        loss = residual(torch.rand(6), torch.rand(6))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach(), [p.detach().clone() for p in net.parameters()]


@case(CASES)
def products_with_a_jacobian(compile):
    def f(x):
        return x.sin() * x.sum()

    @compile
    def forwards(x, v):
        return jvp(f, (x,), (v,))

    @compile
    def backwards(x, v):
        out, product = vjp(f, x)
        return out, product(v), product(v * 2)

    @compile
    def hessian_vector(x, v):
        return jvp(grad(lambda a: f(a).sum()), (x,), (v,))

    for _ in range(3):
        x, v = torch.randn(3), torch.randn(3)
        yield forwards(x, v), backwards(x, v), hessian_vector(x, v)


@case(CASES)
def forward_mode(compile):
    m = model()

    @compile
    def f(x, t):
        with fwd.dual_level():
            dual = fwd.make_dual(x, t)
            return tuple(fwd.unpack_dual(m(dual)))

    for _ in range(3):
        yield f(batch(), batch())


@case(CASES)
def learning_to_learn(compile):
    m = nn.Linear(3, 1)
    params = {k: p.detach().clone().requires_grad_() for k, p in m.named_parameters()}

    def loss(p, x, y):
        return (functional_call(m, p, (x,)) - y).square().mean()

    def task(p, x, y):
        for _ in range(2):
            g = grad(loss)(p, x, y)
            p = {k: p[k] - 0.1 * g[k] for k in p}
        return loss(p, x, y)

    @compile
    def step(x, y):
        total = vmap(task, in_dims=(None, 0, 0))(params, x, y).mean()
        return torch.autograd.grad(total, list(params.values())), total

    for _ in range(3):
        yield step(torch.randn(4, 5, 3), torch.randn(4, 5, 1))


@case(CASES)
def values_and_what_goes_with_them(compile):
    def f(x, k):
        y = x.sin() * k
        return y.sum(), (y, x * 2)

    @compile
    def both(x):
        g, (value, (y, twice)) = grad_and_value(f, has_aux=True)(x, 3.0)
        return g, value, y, twice

    @compile
    def of_two(x, y):
        return grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, y)

    for _ in range(3):
        yield both(torch.randn(3)), of_two(torch.randn(3), torch.randn(3))


@case(CASES)
def what_goes_along_is_the_argument_itself(compile):
    def f(x):
        return x.sin().sum(), x

    @compile
    def both(x):
        return grad(f, has_aux=True)(x)

    for _ in range(3):
        x = torch.randn(3)
        g, same = both(x)
        yield g, same is x, same


@case(CASES)
def what_goes_along_is_a_view(compile):
    @compile
    def both(x):
        g, v = grad(lambda a: (a.sin().sum(), a[1:]), has_aux=True)(x)
        v.mul_(2)
        return g, v

    @compile
    def turned(x):
        t, s = vmap(lambda a: (a.T, a[0]))(x)
        t.add_(1)
        return t, s

    for _ in range(3):
        x, y = torch.randn(3), torch.randn(2, 3, 4)
        yield both(x), x, turned(y), y


@case(CASES)
def effects_in_the_function(compile):
    seen, counts = [], {"n": 0}

    def loss(x):
        seen.append(x.shape)
        counts["n"] += 1
        print("shape", tuple(x.shape))
        return x.sin().sum()

    @compile
    def step(x):
        return vmap(grad(loss))(x)

    for _ in range(4):
        yield step(batch()), list(seen), dict(counts)


@case(CASES)
def the_way_follows_from_shapes(compile):
    def loss(x):
        if x.shape[0] > 3:
            return x.square().sum()
        for _ in range(x.dim()):
            x = x.sin()
        return x.sum()

    @compile
    def step(x):
        return grad(loss)(x), vmap(loss)(x[None])

    for n in (3, 4, 3, 4, 5, 2):
        yield step(torch.randn(n))


@case(CASES)
def random_numbers_in_the_function(compile):
    def noisy(x):
        return (x * torch.randn_like(x)).sum() + torch.nn.functional.dropout(x, 0.5).sum()

    @compile
    def different(x):
        return vmap(grad(noisy), randomness="different")(x)

    @compile
    def same(x):
        return vmap(noisy, randomness="same")(x), torch.rand(2)

    for _ in range(4):
        yield different(batch()), same(batch())


@case(CASES)
def a_tensor_that_is_changed_before_and_after(compile):
    w = torch.ones(3)

    @compile
    def step(x):
        w.add_(1)
        g = grad(lambda a: (a.sin() * w).sum())(x)
        w.mul_(g)
        return g, vmap(lambda a: (a * w).sum())(x[None])

    for _ in range(4):
        yield step(torch.randn(3)), w


@case(CASES)
def arguments_that_the_function_changes(compile):
    def halves(a):
        a.mul_(0.5)
        return a.sum()

    def through_a_copy(a):
        b = a.clone()
        b += 1
        return b.sin_().sum()

    @compile
    def step(x):
        return vmap(halves)(x), x, grad(through_a_copy)(x[0])

    for _ in range(4):
        x = batch()
        yield step(x), x


@case(CASES)
def a_number_that_varies(compile):
    class Schedule:
        weight = 1.0

    s = Schedule()

    @compile
    def step(x, k):
        return grad(lambda a: (a.sin() * s.weight * k).sum())(x)

    @compile
    def count(x, n):
        return grad(lambda a: (a.sin() * n).sum() * n)(x)

    for i in range(6):
        s.weight = 1.0 / (i + 1)
        yield step(torch.randn(3), i * 0.5), count(torch.randn(3), i + 2)


@case(CASES)
def data_is_looked_at_before_and_after(compile):
    @compile
    def step(x):
        k = x.abs().max().item()
        g = grad(lambda a: (a.sin() * k).sum())(x)
        if g.sum() > 0:
            return g * 2
        return vmap(lambda a: a * k)(g)

    for _ in range(6):
        yield step(torch.randn(3))


@case(CASES, refused="data within a transform")
def data_is_looked_at_within(compile):
    def loss(x):
        return x.sin().sum() if x.sum() > 0 else x.cos().sum()

    @compile
    def step(x):
        return grad(loss)(x)

    for _ in range(6):
        yield step(torch.randn(3))


@case(CASES, refused="data of a tensor printed within a transform")
def a_number_is_printed_within(compile):
    log = []

    def loss(x):
        y = x.sin().sum()
        log.append(float(y))
        return y

    @compile
    def step(x):
        return grad(loss)(x)

    for _ in range(3):
        yield step(torch.randn(3)), list(log)


@case(CASES, refused="a tensor is kept")
def a_tensor_of_the_transform_is_kept(compile):
    kept = []

    @compile
    def step(x):
        def loss(a):
            kept.append(a)
            return a.sin().sum()

        return grad(loss)(x)

    for _ in range(3):
        yield step(torch.randn(3)), len(kept)


@case(CASES, refused="a product function is returned")
def a_product_that_is_returned(compile):
    @compile
    def step(x):
        out, product = vjp(torch.sin, x)
        return out, product

    for _ in range(3):
        x = torch.randn(3)
        out, product = step(x)
        yield out, product(torch.ones(3))


@case(CASES)
def a_function_that_raises(compile):
    def loss(x):
        if x.shape[0] > 3:
            raise ValueError("too long")
        return x.sin()  # not a number

    @compile
    def step(x):
        return grad(loss)(x)

    @compile
    def caught(x):
        try:
            return vmap(loss, in_dims=3)(x)
        except ValueError:
            return x * 2

    for n in (3, 4, 3, 4):
        yield attempt(step, torch.randn(n)), torch._C._functorch.get_dynamic_layer_stack_depth()
        yield attempt(caught, torch.randn(n)), torch.is_grad_enabled()


@case(CASES)
def an_operation_that_raises_for_its_data(compile):
    w = torch.randn(4, 3)

    @compile
    def step(x, i):
        return vmap(grad(lambda a: (w[i] * a).sum()))(x)

    for i in (0, 1, 2, 9, 3):
        yield attempt(step, batch(), torch.tensor([i]))
        yield torch._C._functorch.get_dynamic_layer_stack_depth(), torch.is_grad_enabled()


@case(CASES)
def an_operation_that_raises_for_its_data_within_a_level_of_duals(compile):
    w = torch.randn(4, 3)

    @compile
    def step(x, i):
        with fwd.dual_level():
            return tuple(fwd.unpack_dual(w[i] * fwd.make_dual(x, x)))

    @compile
    def product(x, i):
        return jvp(lambda a: (w[i] * a).sum(), (x,), (x,))

    for i in (0, 1, 2, 9, 3, 1):
        x = torch.randn(3)
        yield attempt(step, x, torch.tensor([i])), attempt(product, x, torch.tensor([i]))


@case(CASES)
def all_sizes_at_once(compile):
    def step(x):
        n = x.shape[0]
        return vmap(grad(lambda a: (a * n).sin().sum()))(x.exp()), x.repeat(2, 1)

    step = compile(step, dynamic=True)
    for n in (2, 3, 4, 3):
        yield step(torch.randn(n, 3))


@case(CASES)
def without_gradients(compile):
    m = model()

    @compile
    def step(x):
        with torch.no_grad():
            g = vmap(grad(lambda a: m(a).sum()))(x)
        return g, g.requires_grad

    for mode in (torch.no_grad, torch.enable_grad, torch.no_grad):
        with mode():
            seen = step(batch())
        yield seen


@case(CASES, refused="a backward pass runs the program's formula")
def a_function_with_a_formula_of_its_own(compile):
    class Cube(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x**3

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * x**2

    @compile
    def step(x):
        return vmap(grad(lambda a: Cube.apply(a).sum()))(x)

    for _ in range(3):
        yield step(batch())


@case(CASES)
def the_older_functional_interface(compile):
    F = torch.autograd.functional

    def f(x):
        return x.sin() * x.sum()

    @compile
    def step(x, v):
        return (
            F.jacobian(f, x),
            F.jacobian(f, x, vectorize=True),
            F.hessian(lambda a: f(a).sum(), x),
            F.vjp(f, x, v),
            F.jvp(f, x, v),
            F.vhp(lambda a: f(a).sum(), x, v),
            F.hvp(lambda a: f(a).sum(), x, v),
        )

    for _ in range(3):
        yield step(torch.randn(3), torch.randn(3))


@case(CASES)
def gradients_of_a_batch_of_outputs(compile):
    @compile
    def step(x):
        x = x.clone().requires_grad_()
        y = x.sin() * x.sum()
        return torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)

    for _ in range(3):
        yield step(torch.randn(3))


@case(CASES, refused="linearize is called")
def a_linearization(compile):
    @compile
    def step(x, v):
        out, f = linearize(torch.sin, x)
        return out, f(v)

    for _ in range(3):
        yield step(torch.randn(3), torch.randn(3))


@case(CASES)
def the_size_of_the_batch_varies(compile):
    w = torch.randn(3)

    @compile
    def step(x):
        return vmap(grad(lambda a: (a * w).sin().sum()))(x), x.shape[0]

    for n in (2, 3, 4, 5, 4):
        yield step(torch.randn(n, 3))


@case(CASES)
def an_ensemble(compile):
    models = [model() for _ in range(3)]
    params, buffers = torch.func.stack_module_state(models)
    base = model().to("meta")

    @compile
    def predict(x):
        return vmap(lambda p, b, a: functional_call(base, (p, b), (a,)), in_dims=(0, 0, None))(
            params, buffers, x
        )

    for _ in range(3):
        yield predict(batch())


@case(CASES)
def a_loss_of_no_dimensions_in_an_outer_pass(compile):
    m = nn.Linear(3, 1)

    @compile
    def step(x):
        penalty = vmap(grad(lambda a: m(a)[0]))(x).square().sum()
        loss = penalty + m(x).sum()
        loss.backward()
        return loss.detach()

    for _ in range(3):
        m.zero_grad()
        yield step(batch()), [p.grad for p in m.parameters()]


@case(CASES)
def third_derivatives(compile):
    @compile
    def step(x):
        return jacfwd(jacrev(grad(lambda a: (a**4).sum())))(x), vmap(grad(grad(torch.sin)))(x)

    for _ in range(3):
        yield step(torch.randn(2))


@case(CASES)
def a_tensor_that_a_transform_changes_from_within(compile):
    w = torch.zeros(3)

    def f(a):
        w.add_(1)
        return a * w

    @compile
    def step(x):
        return vmap(f)(x), w.sum()

    @compile
    def descent(x):
        for _ in range(3):
            w.sub_(0.1 * grad(lambda q: ((q * x).sum() - 1) ** 2)(w))
        return w.norm()

    @compile
    def dual(x, t):
        with fwd.dual_level():
            d = fwd.make_dual(x, t)
            d.mul_(2)
            return fwd.unpack_dual(d.sin()).tangent

    for _ in range(3):
        x = torch.randn(3)
        yield step(batch()), w, descent(torch.randn(3)), w, dual(x, torch.randn(3)), x


@case(CASES)
def a_product_within_a_transform(compile):
    def one(a, b):
        out, product = vjp(lambda q: q.sin() * q.sum(), a)
        return out, product(b)[0]

    @compile
    def step(x, v):
        return vmap(one)(x, v)

    @compile
    def looked_at(x):
        out, product, twice = vjp(lambda a: (a.sin(), a * 2), x, has_aux=True)
        if out.sum() > 0:
            return product(twice)
        return product(out)

    for _ in range(6):
        yield step(batch(), batch()), looked_at(torch.randn(3))


@case(CASES)
def modes_within_a_transform(compile):
    w = torch.randn(3, 3)

    def loss(a):
        with torch.no_grad():
            b = a * 2
        with torch.autocast("cpu", dtype=torch.bfloat16):
            c = (a @ w).float()
        return (a * b).sum() + c.sum()

    @compile
    def step(x):
        return vmap(grad(loss))(x)

    for _ in range(3):
        yield step(batch())


@case(CASES)
def another_compiled_function_is_transformed(compile):
    inner = compile(lambda a: a.sin().sum())

    @compile
    def step(x):
        return grad(inner)(x)

    for _ in range(3):
        yield step(torch.randn(3))


@case(CASES)
def parameters_begin_and_cease_to_require_gradients(compile):
    m = nn.Linear(3, 1)

    @compile
    def step(x):
        return vmap(grad(lambda a: m(a)[0].sin()))(x)

    for i in range(4):
        m.requires_grad_(i % 2 == 0)
        out = step(batch())
        yield out.detach(), out.requires_grad


@case(CASES)
def results_that_share_memory(compile):
    @compile
    def both(x):
        whole, first = vmap(lambda a: (a, a[0]))(x)
        before = whole * 1
        whole.add_(1)
        return first, before

    @compile
    def itself(x):
        return vmap(lambda a: a)(x)

    for _ in range(3):
        x, y = torch.randn(2, 2), torch.randn(2, 2)
        same = itself(y)
        same.add_(1)
        yield both(x), x, same is y, same, y


@case(CASES)
def random_numbers_of_python(compile):
    @compile
    def step(x):
        return grad(lambda a: (a * random.random()).sin().sum())(x)

    for _ in range(3):
        yield step(torch.randn(3))


test_two_worlds = check_all(CASES)


@pytest.mark.parametrize(
    ("program", "captures"),
    [
        (gradients_of_every_sample, 1),
        (parameters_that_a_function_closes_over, 1),
        (a_hessian, 1),
        (jacobians, 1),
        (a_residual_of_a_differential_equation, 1),
        (products_with_a_jacobian, 1),
        (forward_mode, 1),
        (learning_to_learn, 1),
        (values_and_what_goes_with_them, 1),
        (what_goes_along_is_the_argument_itself, 1),
        (random_numbers_in_the_function, 1),
        (a_tensor_that_is_changed_before_and_after, 1),
        (arguments_that_the_function_changes, 1),
        (effects_in_the_function, 1),
        (the_older_functional_interface, 1),
        (gradients_of_a_batch_of_outputs, 1),
        (a_number_that_varies, 2),
        (a_loss_of_no_dimensions_in_an_outer_pass, 1),
        (third_derivatives, 1),
        (a_tensor_that_a_transform_changes_from_within, 1),
        (a_product_within_a_transform, 1),
        (modes_within_a_transform, 1),
        (an_ensemble, 1),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_transforms_are_captured(program, captures):
    assert_served(program, captures, hits=2)


def prints(a):
    print(a)
    return a.sum()


def looks(a):
    return a.sum() if a.sum() > 0 else -a.sum()


def keeps(a):
    KEPT.append(a)
    return a.sum()


KEPT = []


@pytest.mark.parametrize(
    ("loss", "where"),
    [(prints, ":{} (prints)"), (looks, ":{} (looks)"), (keeps, "(call)")],
    ids=lambda v: getattr(v, "__name__", ""),
)
@pytest.mark.filterwarnings("ignore")
def test_a_refusal_names_the_line(loss, where):
    def call(x):
        return grad(loss)(x)

    c = magpy.compile(call, backend="eager")
    c(torch.ones(3))
    (reason,) = magpy.stats(c).reasons
    assert reason.startswith(__file__)
    assert where.format(loss.__code__.co_firstlineno + 1) in reason
