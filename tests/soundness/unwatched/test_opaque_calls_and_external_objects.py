"""Python that an entry runs again at its place, and outside objects that the call changes.

Changes of outside objects are made last: what looks at one of them, below a call that is recorded
as one operation, would find what was there before the call.
"""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import magpy
from tests.soundness.worlds import attempt, case, check_all


class Calls(torch.autograd.Function):
    @staticmethod
    def forward(ctx, f, t):
        ctx.f = f
        return f(t)

    @staticmethod
    def backward(ctx, gradient):
        return None, ctx.f(gradient)


@magpy.allow_in_graph
def allowed(f, t):
    return f(t)


WAYS = {
    "applied": Calls.apply,
    "checkpointed": lambda f, t: checkpoint(f, t, use_reentrant=False),
    "checkpointed again": lambda f, t: checkpoint(f, t, use_reentrant=True),
    "allowed": allowed,
}


class Holder:
    pass


class Slotted:
    __slots__ = ("k",)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.k = 1
        self.weight = nn.Parameter(torch.ones(2))
        self.register_buffer("buffer", torch.ones(2))
        self.inner = nn.ReLU()

    def forward(self, t):
        return self.inner(t) * self.k * self.weight * self.buffer


def attribute():
    o = Holder()
    o.k = 1
    return lambda t: t * o.k, lambda n: setattr(o, "k", n), lambda: o.k


def computed_name():
    o = Holder()
    o.k = 1
    return lambda t: t * getattr(o, "k"[:1]), lambda n: setattr(o, "k", n), lambda: o.k


def slot():
    o = Slotted()
    o.k = 1
    return lambda t: t * o.k, lambda n: setattr(o, "k", n), lambda: o.k


def of_class():
    class Kind:
        k = 1

    return lambda t: t * Kind.k, lambda n: setattr(Kind, "k", n), lambda: Kind.k


def item():
    held = [1]
    return lambda t: t * held[0], lambda n: held.__setitem__(0, n), lambda: list(held)


def length():
    held = [1]
    return lambda t: t * len(held), lambda n: held.append(n), lambda: list(held)


def key():
    held = {"k": 1}
    return lambda t: t * held["k"], lambda n: held.update(k=n), lambda: dict(held)


def nested_key():
    held = {"a": {"b": 1}}
    return lambda t: t * held["a"]["b"], lambda n: held["a"].update(b=n), lambda: str(held)


def of_property():
    o = Holder()
    o.k = 1

    class Asked:
        @property
        def value(self):
            return o.k

    asked = Asked()
    return lambda t: t * asked.value, lambda n: setattr(o, "k", n), lambda: o.k


def variable():
    k = 1

    def assign(n):
        nonlocal k
        k = n

    return lambda t: t * k, assign, lambda: k


def of_module(change, look):
    def make():
        m = Scaled()
        return lambda t: m(t), lambda n: change(m, n), lambda: look(m)

    return make


def called():
    o = Holder()
    o.k = 1

    def inner(t):
        return t * o.k

    return lambda t: inner(t) + 1, lambda n: setattr(o, "k", n), lambda: o.k


def shape():
    o = Holder()
    o.k = 1
    return (
        lambda t: t.repeat(o.k).reshape(-1, 2).sum(0),
        lambda n: setattr(o, "k", n),
        lambda: o.k,
    )


STATES = {
    "attribute": attribute,
    "computed name": computed_name,
    "slot": slot,
    "class": of_class,
    "item": item,
    "length": length,
    "key": key,
    "variable": variable,
    "nested key": nested_key,
    "property": of_property,
    "called": called,
    "shape": shape,
    "module": of_module(lambda m, n: setattr(m, "k", n), lambda m: m.k),
    "buffer replaced": of_module(
        lambda m, n: setattr(m, "buffer", torch.full((2,), float(n))), lambda m: m.buffer.clone()
    ),
    "submodule replaced": of_module(
        lambda m, n: setattr(m, "inner", nn.ReLU() if n % 2 else nn.Tanh()),
        lambda m: type(m.inner).__name__,
    ),
    "buffer changed": of_module(lambda m, n: m.buffer.add_(n), lambda m: m.buffer.clone()),
    "weight given data": of_module(
        lambda m, n: setattr(m.weight, "data", torch.full((2,), float(n))),
        lambda m: m.weight.detach().clone(),
    ),
}


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Dropout(0.5)

    def forward(self, t):
        return self.inner(t) * 1


def of_torch(make, change, look):
    def state():
        m = make()
        return lambda t: m(t), lambda n: change(m, n), lambda: look(m)

    return state


STATES |= {
    "training": of_torch(Nested, lambda m, n: m.train(n % 2 == 1), lambda m: m.training),
    "probability": of_torch(
        Nested, lambda m, n: setattr(m.inner, "p", float(n == 7)), lambda m: m.inner.p
    ),
    "slope": of_torch(
        nn.LeakyReLU, lambda m, n: setattr(m, "negative_slope", n), lambda m: m.negative_slope
    ),
    "weight": of_torch(
        lambda: nn.LayerNorm(2),
        lambda m, n: setattr(m, "weight", nn.Parameter(torch.full((2,), float(n)))),
        lambda m: m.weight.detach().clone(),
    ),
}
ORDERS = {
    "before": "change look",
    "after": "look change",
    "both": "change look more",
    "twice": "look change look",
    "read": "look",
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("way", WAYS)
def test_what_the_call_changes_is_looked_at_as_in_eager(way, state, order):
    def world(wrap):
        look, change, now = STATES[state]()
        by = WAYS[way]

        def program(t, n):
            for word in ORDERS[order].split():
                if word == "look":
                    t = by(look, t)
                else:
                    change(n if word == "change" else n + 1)
            return t

        f = wrap(program)
        for i in range(7):
            t = torch.tensor([-1.0, 1.0], requires_grad=True)
            torch.manual_seed(i)
            y = f(t, 2 if i < 4 else i)
            if i % 2:
                change(7)
            yield y.tolist(), str(attempt(y.sum().backward)), str(t.grad), now()

    eager = list(world(lambda f: f))
    made = []

    def compile(f):
        made.append(magpy.compile(f, backend="eager"))
        return made[-1]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = list(world(compile))
    for i, (a, b) in enumerate(zip(got, eager, strict=True)):
        assert str(a) == str(b), (i, magpy.stats(made[0]))


def test_a_module_is_switched_for_the_time_of_a_block():
    def worlds(wrap):
        m = Nested()

        def program(t):
            m.eval()
            y = checkpoint(m, t, use_reentrant=False)
            m.train()
            return y

        f = wrap(program)
        for i in range(4):
            torch.manual_seed(i)
            yield f(torch.ones(20, requires_grad=True)).tolist()

    compiled = list(worlds(lambda f: magpy.compile(f, backend="eager")))
    assert compiled == list(worlds(lambda f: f))


def test_a_number_that_only_the_block_reads_is_no_reason_to_run_eagerly():
    o = Holder()
    o.k = 1
    checkpoint(torch.relu, torch.ones(2), use_reentrant=False)  # which imports modules once
    compiled = magpy.compile(
        lambda t: checkpoint(lambda x: x * o.k, t, use_reentrant=False), backend="eager"
    )
    for n in (1, 2, 1, 2, 1, 2):
        o.k = n
        t = torch.ones(2, requires_grad=True)
        assert compiled(t).tolist() == [n, n]
    assert magpy.stats(compiled).hits >= 3 and not magpy.stats(compiled).reasons


# ----------------------------------------------------------------------------- numpy's callables

VECTORS = []


@case(VECTORS)
def vectorized_functions(compile):
    o = Holder()

    def with_variable(t):
        k = 2
        r = np.vectorize(lambda v: v * k)(t.numpy())
        k = 3
        return torch.from_numpy(r) * k

    def with_data(t):
        n = int(t.sum())
        return torch.from_numpy(np.vectorize(lambda v: v * n)(t.numpy()))

    def with_a_list(t):
        held = [1]
        return torch.from_numpy(
            np.vectorize(lambda v: (held.append(1), v * len(held))[1])(t.numpy())
        )

    def with_an_attribute(t):
        o.k += 1
        r = torch.from_numpy(np.vectorize(lambda v: v * o.k, otypes=[float])(t.numpy()))
        return r, o.k

    def of_a_tensor(t):
        n = int(t.sum())
        return torch.from_numpy(np.vectorize(lambda v: v * n)(t))

    def by_a_polynomial(t):
        p = np.poly1d([float(t.sum()), 2.0])
        return torch.from_numpy(p(t.numpy()))

    for f in (
        with_variable,
        with_data,
        with_a_list,
        with_an_attribute,
        of_a_tensor,
        by_a_polynomial,
    ):
        o.k = 1
        g = compile(f)
        for i in range(6):
            yield g(torch.tensor([1.0, 2.0, 3.0]) * (1 + i // 3))


test_vectors = check_all(VECTORS)


# ----------------------------------------------------------------------------- TorchScript

SCRIPTS, READS = [], []


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.k = 1.0
        self.register_buffer("b", torch.ones(2))

    def forward(self, t):
        return t * self.k * self.b


def changing(change):
    def run(compile):
        m = torch.jit.script(Scripted())
        f = compile(lambda t, n: change(m, t, n))
        for i, n in enumerate((1, 2, 3, 2, 3, 9)):
            if i == 4:
                m.k = 8.0
            yield f(torch.ones(2) * (1 + i // 3), n), m.k, m.b.clone()

    run.__name__ = change.__name__
    case(SCRIPTS, refused="TorchScript holds it")(run)
    return change


@changing
def set_before(m, t, n):
    m.k = float(n)
    return m(t)


@changing
def set_after(m, t, n):
    y = m(t)
    m.k = float(n)
    return y


@changing
def counted(m, t, n):
    m.k = m.k + 1
    return m(t)


@changing
def buffer_set(m, t, n):
    m.b = t * 2
    return m(t)


@changing
def buffer_put(m, t, n):
    m._buffers["b"] = t * n
    return m(t)


@case(SCRIPTS, refused="TorchScript holds it")
def numbers_of_scripted_modules(compile):
    m = torch.jit.script(Scripted())
    branch = compile(lambda t: t * 2 if m.k > 2 else t * 3)
    times = compile(lambda t: t * m.k)
    for k in (1.0, 1.0, 8.0, 8.0, 1.0, -0.0, 0.0):
        m.k = k
        yield branch(torch.ones(2)), times(torch.ones(2))


class Repeated(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 1
        self.times = [1, 1]
        self.b = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, t):
        return (t + self.b).repeat(self.n * len(self.times))


class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Parameter(torch.ones(2), requires_grad=False)

    def forward(self, t):
        return t + self.b


@case(SCRIPTS, refused="TorchScript holds it")
def forms_of_what_scripted_modules_give(compile):
    m = torch.jit.script(Repeated())
    traced = torch.jit.trace(Shifted(), torch.ones(2))

    def program(t, given):
        y = given(t)
        return y * y.shape[0], y.dtype == torch.float64, y.requires_grad, y.is_leaf

    by_module, by_trace = compile(lambda t: program(t, m)), compile(lambda t: program(t, traced))
    by_method = compile(lambda t: program(t, m.forward))
    for i in range(12):
        if i == 2:
            m.n = 2
        if i == 4:
            m.b.data = traced.b.data = torch.ones(2, dtype=torch.float64)
        if i == 6:
            m.b.requires_grad_(True)
            traced.b.requires_grad_(True)
        if i == 8:
            m.times = [1]
        if i == 10:
            m.n, m.b.data = 1, torch.ones(2)
        yield by_module(torch.ones(2)), by_trace(torch.ones(2)), by_method(torch.ones(2))


@case(SCRIPTS, refused="a ScriptDict tells nothing of its state")
def scripted_containers(compile):
    numbers, named = torch.jit.script([1, 2]), torch.jit.script({"a": 1})
    f = compile(lambda t: t * numbers[0] * len(numbers))
    g = compile(lambda t: t * named["a"])

    def put(t, n):
        numbers[0] = n
        return t * numbers[0]

    h = compile(put)
    for n in (1, 1, 2, 2, 1, 3):
        numbers[0] = n
        named["a"] = n
        yield f(torch.ones(2)), g(torch.ones(2)), h(torch.ones(2), n + 1), numbers[0]


test_scripts = check_all(SCRIPTS)
test_reads = check_all(READS)
