"""Nested tensors of jagged layout: compared by what they consist of, done as eager does."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import magpy
from magpy import _tensor
from magpy.objects import jagged
from tests.backends_of_cases import SAMPLED_BACKENDS
from tests.comparison import assert_same

pytestmark = pytest.mark.filterwarnings("ignore")
JAGGED = torch.jagged
LENGTHS = [[3, 2], [2, 4, 1], [5, 1], [1, 1, 1, 7], [4, 4], [1, 3], [2, 2, 2]]
from_jagged = torch.nested.nested_tensor_from_jagged
BACKENDS = ["eager", "aot_eager"]


def nested(i, *tail, grad=False):
    draw = torch.Generator().manual_seed(i)
    rows = [torch.randn(n, *tail, generator=draw) for n in LENGTHS[i % len(LENGTHS)]]
    return torch.nested.nested_tensor(rows, layout=JAGGED, requires_grad=grad)


def parts(i, *tail):
    x = nested(i, *tail)
    return x.values().clone(), x.offsets().clone()


def like(value):
    """A value with what is to be compared in place of each jagged tensor in it."""
    if isinstance(value, (tuple, list)):
        return [like(v) for v in value]
    if isinstance(value, dict):
        return {k: like(v) for k, v in value.items()}
    if not jagged.is_jagged(value):
        return value
    return [
        "jagged",
        *(value._values.detach(), value._offsets, value._lengths),
        *(value._ragged_idx, value.requires_grad, value.is_leaf, sorted(jagged.cached(value))),
        *(value._maybe_min_seqlen, value._maybe_max_seqlen),
    ]


def shares(value, given):
    """Which jagged tensors have the offsets, and the ragged size, of which others."""
    found = [v for v in [*given, *(value if isinstance(value, tuple) else [value])]]
    found = [v for v in found if jagged.is_jagged(v)]
    return [
        (a._offsets is b._offsets, a.size(a._ragged_idx) == b.size(b._ragged_idx))
        for a in found
        for b in found
    ]


def check(program, calls, captures=3, backend="eager", hits=None):
    """Each call gives, and leaves behind, what eager does; returns the statistics."""
    compiled = magpy.compile(program, backend=backend)
    for make in calls:
        got, want = make(), make()
        result, expected = compiled(*got), program(*want)
        assert_same(like(result), like(expected), tol=1e-5)
        assert_same(like(got), like(want))
        assert shares(result, got) == shares(expected, want)
    stats = magpy.stats(compiled)
    assert stats.captures <= captures, stats.reasons
    assert stats.hits >= (len(calls) - captures if hits is None else hits), stats.reasons
    return stats


def varied(make, n=30):
    return [lambda i=i: make(i) for i in range(n)]


# ---------------------------------------------------------------- what one consists of


def test_parts_tell_which_dimension_is_data():
    x = nested(1, 4, 5)
    assert [(name, dim) for name, _, dim in jagged.parts(x)] == [
        ("_ragged_idx", -1),
        ("_values", 0),
        ("_offsets", 0),
        ("_lengths", 0),
    ]
    assert jagged.parts(x.transpose(1, 2))[1][2] == 1
    assert jagged.parts(torch.ones(3)) == [] and jagged.held(x) is x._values
    assert jagged.is_ragged_size(x.size(1)) and not jagged.is_ragged_size(x.size(0))


def test_what_is_known_of_sequences_is_told():
    v, o = parts(1, 4)
    assert jagged.cached(from_jagged(v, o)) == frozenset()
    assert jagged.cached(from_jagged(v, o, max_seqlen=4)) == {"max_seqlen"}
    assert jagged.cached(nested(1, 4)) == {"min_seqlen", "max_seqlen"}


def test_attributes_of_the_program_are_told_from_torchs():
    x = nested(1, 4)
    x.shape  # torch keeps it
    assert jagged.attributes(x) == set()
    x.mine = 1
    assert jagged.attributes(x) == {"mine"}


def test_a_meta_compares_all_but_sizes():
    x = nested(1, 4)
    meta = _tensor.TensorMeta(x)
    assert meta.opaque is None
    assert meta.matches(nested(2, 4)) and meta.matches(nested(1, 5))
    others = [nested(1, 4).double(), nested(1, 4, grad=True), x.values(), torch.ones(2)]
    for other in others:
        assert not meta.matches(other) and meta.difference(other)
        assert not _tensor.TensorMeta(other).matches(x)
    assert meta.difference(nested(2, 4)) is None


def test_a_nested_tensor_of_strided_layout_still_matches_none():
    x = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert _tensor.TensorMeta(x).opaque == "a nested tensor"


# ---------------------------------------------------------------- programs

linear, norm, W = nn.Linear(4, 6), nn.LayerNorm(4), torch.randn(4, 6)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(8, 8) for _ in range(4))

    def forward(self, x):
        heads = [f(x).unflatten(-1, [2, 4]).transpose(1, 2) for f in (self.q, self.k, self.v)]
        return self.out(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(-2))


attention = Attention().requires_grad_(False)


def of(*tail):
    return lambda i: (nested(i, *tail),)


def rows(i):
    return torch.randn(3 + i % 4, 4), torch.randn(2 + i % 3, 4)


def fixed_rows(make):
    def made(i):
        with torch.random.fork_rng():
            torch.manual_seed(i)
            return make(i)

    return made


def sharing(i):
    x = nested(i, 4)
    return x, from_jagged(x.values() * 3, x.offsets())


PROGRAMS = {
    "argument": (lambda x: (x * 2).values(), of(4)),
    "elementwise": (lambda x: torch.where(x > 0, x, x * 0.1).sin(), of(4)),
    "linear": (lambda x: linear(x), of(4)),
    "layer norm": (lambda x: norm(x).values(), of(4)),
    "attention": (attention, of(8)),
    "padded": (lambda x: torch.relu(x.to_padded_tensor(0.0) @ W), of(4)),
    "unbound": (lambda x: [t.sum() for t in x.unbind()], of(4)),
    "unbound by name": (lambda x: [t.sum() for t in torch.unbind(input=x)], of(4)),
    "counted": (lambda x: [v * 2 for v in x.offsets()[: len(x)]], of(4)),
    "offsets": (lambda x: (x.offsets(), x.offsets().diff() * 2, x * 2), of(4)),
    "sizes": (lambda x: x.reshape(x.shape[0], x.shape[1], 2, 2).values(), of(4)),
    "numbers": (lambda x: (x.size(0), x.size(-1), x.dim(), len(x), x.values() * x.size(0)), of(4)),
    "branch": (lambda x: x * 2 if x.size(0) > 2 else x * 3, of(4)),
    "reduced": (lambda x: (x.mean(1), x.sum(), torch.softmax(x, 1)), of(4)),
    "chunks": (lambda x: tuple(t * 2 for t in x.chunk(2, -1)), of(4)),
    "given back": (lambda x: (x.contiguous(), F.dropout(x, 0.5, False), x * 1), of(4)),
    "longest": (lambda x: x.values().sum() * x._get_max_seqlen(), of(4)),
    "two that fit": (lambda a, b: a + b, sharing),
    "sizes compared": (lambda a, b: a * b if a.size(1) == b.size(1) else None, sharing),
    "made": (lambda v, o: (from_jagged(v, o) * 2).values(), lambda i: parts(i, 4)),
    "made and dropped": (
        lambda v, o: (from_jagged(v, o + 0) * 2).values() + 1,
        lambda i: parts(i, 4),
    ),
    "made twice": (
        lambda v, o: (from_jagged(v * 2, o), from_jagged(v, o) + 1),
        lambda i: parts(i, 4),
    ),
    "listed": (
        lambda a, b: torch.nested.nested_tensor([a, b], layout=JAGGED) * 2,
        fixed_rows(rows),
    ),
    "as nested": (
        lambda a, b: torch.nested.as_nested_tensor([a, b], layout=JAGGED).sin(),
        fixed_rows(rows),
    ),
    "dense": (
        lambda x: torch.nested.as_nested_tensor(x, layout=JAGGED).values() + 1,
        fixed_rows(lambda i: (torch.randn(2 + i % 3, 3, 4),)),
    ),
    "selected": (
        lambda x, m: torch.nested.masked_select(x, m),
        fixed_rows(lambda i: (torch.randn(3, 5), torch.rand(3, 5) > 0.5)),
    ),
    "beside": (
        lambda x, y: (x * 2).values().sum() + (y @ W).sum(),
        fixed_rows(lambda i: (nested(i, 4), torch.randn(3 + i % 5, 4))),
    ),
    "changed when made": (lambda x: torch.relu_(x @ W), of(4)),
    "padded and changed": (lambda x: x.to_padded_tensor(0.0).mul_(2), of(4)),
}
# Where a Python loop goes over the sequences, a compiler's graph is one for each number of them.
UNROLLED = ("unbound", "unbound by name", "counted")


@pytest.mark.parametrize("backend", SAMPLED_BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_lengths_and_numbers_of_sequences_vary(name, backend):
    program, make = PROGRAMS[name]
    compiled = backend != "eager"
    many = name in UNROLLED and compiled
    most = 8 if many else 4 if compiled else 3
    check(program, varied(make, 24), most, backend, hits=0 if many else 20)


@pytest.mark.parametrize("name", ["argument", "made", "listed", "attention"])
def test_calls_that_are_alike_have_one_entry(name):
    program, make = PROGRAMS[name]
    check(program, [lambda: make(1)] * 8, captures=1)


def test_results_fit_the_arguments_that_they_were_made_of():
    compiled = magpy.compile(lambda x: x * 2, backend="eager")
    for i in range(4):
        x = nested(i, 4)
        y = compiled(x)
        assert type(y) is jagged.NestedTensor and y.offsets() is x.offsets()
        assert torch.equal((x + y).values(), x.values() * 3)
    assert magpy.stats(compiled).hits == 3


def test_a_view_of_values_stays_one():
    def program(v, o):
        x = from_jagged(v, o)
        return x, x.values(), x.offsets()

    compiled = magpy.compile(program, backend="eager")
    for i in range(5):
        v, o = parts(i, 4)
        x, values, offsets = compiled(v, o)
        assert offsets is o and x.offsets() is o
        values.add_(1)
        assert torch.equal(values, v) and torch.equal(x.values(), v)
    assert magpy.stats(compiled).hits >= 3


def test_sizes_that_are_returned_are_those_of_the_tensor():
    def program(x):
        return x.shape, x.size(1), x.stride(), x.size(1) * 2

    compiled = magpy.compile(program, backend="eager")
    for i in range(4):
        x = nested(i, 4)
        assert compiled(x) == program(x)
        assert type(compiled(x)[0]) is torch.Size
    assert magpy.stats(compiled).hits >= 6


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_go_through_to_what_one_is_made_of(backend):
    def program(v, o, w):
        return (from_jagged(v, o) @ w).sin()

    compiled = magpy.compile(program, backend=backend)
    for i in range(6):
        found = []
        for f in (compiled, program):
            v, o = parts(i, 4)
            v, w = v.requires_grad_(), W.clone().requires_grad_()
            f(v, o, w).values().sum().backward()
            found.append((v.grad, w.grad))
        assert_same(*found, tol=1e-5)
    assert magpy.stats(compiled).hits >= 3


def test_a_leaf_gets_a_gradient_with_its_offsets():
    def program(x):
        return (x * 2).sin()

    compiled = magpy.compile(program, backend="eager")
    for i in range(5):
        x, y = nested(i, 4, grad=True), nested(i, 4, grad=True)
        compiled(x).sum().backward()
        program(y).sum().backward()
        assert x.grad.offsets() is x.offsets()
        assert_same(like(x.grad), like(y.grad))
    assert magpy.stats(compiled).hits == 4


def test_a_backward_pass_within_the_call():
    def program(x):
        y = (x * 2).sin().sum()
        y.backward()
        return y.detach(), x.grad * 2

    compiled = magpy.compile(program, backend="eager")
    for i in range(8):
        x, y = nested(i, 4, grad=True), nested(i, 4, grad=True)
        assert_same(like(compiled(x)), like(program(y)))
        assert_same(like(x.grad), like(y.grad))
    assert magpy.stats(compiled).hits >= 5


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_of_training(backend):
    models = [nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())

    def step(model, optimizer, x):
        loss = (model(x) - x).values().pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = magpy.compile(step, backend=backend)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
    for i in range(12):
        got = compiled(models[0], optimizers[0], nested(i, 4))
        assert_same(got, step(models[1], optimizers[1], nested(i, 4)), tol=1e-5)
        for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
            assert_same(a.detach(), b.detach(), tol=1e-5)
    assert magpy.stats(compiled).hits >= 6


# ---------------------------------------------------------------- what tells entries apart


def with_lengths():
    offsets, lengths = torch.tensor([0, 3, 7]), torch.tensor([2, 1])
    return from_jagged(torch.arange(28.0).reshape(7, 4), offsets, lengths=lengths)


def made(**known):
    return from_jagged(*parts(1, 4), **known)


OTHERS = {
    "dtype": lambda: nested(1, 4).double(),
    "requires grad": lambda: nested(1, 4, grad=True),
    "ragged dimension": lambda: nested(1, 4).transpose(1, 2),
    "size": lambda: nested(1, 5),
    "dimensions": lambda: nested(1, 4, 2),
    "lengths": with_lengths,
    "what is known": lambda: made(max_seqlen=4),
    "nothing is known": made,
    "no leaf": lambda: nested(1, 4, grad=True) * 2,
    "strides": lambda: from_jagged(torch.ones(4, 7).t(), parts(1, 4)[1]),
    "offsets": lambda: from_jagged(torch.ones(7, 4), parts(1, 4)[1].int()),
    "dense": lambda: torch.ones(2, 3, 4),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("first", [True, False])
def test_an_entry_serves_only_what_is_like_its_own(name, first):
    calls = [lambda: (nested(1, 4),), lambda: (OTHERS[name](),)]
    compiled = magpy.compile(lambda x: x * 2, backend="eager")
    for make in calls if first else calls[::-1]:
        for _ in range(3):
            got, want = make(), make()
            assert_same(like(compiled(*got)), like((lambda x: x * 2)(*want)))
    assert magpy.stats(compiled).captures == 2


def apart(i):
    x = nested(i, 4)
    return x, from_jagged(x.values() * 3, x.offsets().clone())


@pytest.mark.parametrize("order", [(sharing, apart), (apart, sharing)])
def test_which_tensors_share_offsets_is_compared(order):
    def program(a, b):
        return a * 2 if a.size(1) == b.size(1) else b * 3

    def by_identity(a, b):
        return a * 2 if a.offsets() is b.offsets() else b * 3

    calls = [lambda m=m: m(1) for m in order * 4]
    check(program, calls, captures=2)
    check(by_identity, calls, captures=2)


def test_tensors_that_do_not_fit_raise_as_ever():
    def program(a, b):
        return a + b

    compiled = magpy.compile(program, backend="eager")
    for i in range(3):
        compiled(*sharing(i))
        with pytest.raises(RuntimeError):
            compiled(*apart(i))
    assert magpy.stats(compiled).hits >= 1


def test_offsets_beside_a_tensor_that_has_them():
    def program(x, o):
        return from_jagged(x.values() * 2, o) if x.offsets() is o else x.values()

    def own(i):
        x = nested(i, 4)
        return x, x.offsets()

    def copy(i):
        x = nested(i, 4)
        return x, x.offsets().clone()

    check(program, [lambda m=m, i=i: m(i) for i in range(4) for m in (own, copy)], captures=3)


# ---------------------------------------------------------------- changes


def views(i):
    x = nested(i, 4)
    return x.values(), x


def copies(i):
    return nested(i, 4).values().clone(), nested(i, 4)


def own_offsets(i):
    x = nested(i, 4)
    return x.offsets(), x


def other_offsets(i):
    return nested(i, 4).offsets().clone(), nested(i, 4)


@pytest.mark.parametrize("order", [(copies, views), (views, copies)])
def test_a_change_of_memory_that_a_jagged_tensor_has(order):
    def program(p, x):
        p.add_(1)
        return (x * 2).values()

    calls = [lambda m=m: m(1) for m in order for _ in range(3)]
    stats = check(program, calls, captures=6, hits=0)
    assert any("a jagged tensor from outside is changed" in r for r in stats.reasons)


@pytest.mark.parametrize("order", [(other_offsets, own_offsets), (own_offsets, other_offsets)])
def test_a_change_of_offsets(order):
    def program(o, x):
        o[1] += 1
        return [t * 2 for t in x.unbind()]

    calls = [lambda m=m: m(0) for m in order for _ in range(3)]
    check(program, calls, captures=6, hits=0)


def test_offsets_that_are_changed_when_a_tensor_was_made_of_them():
    def program(v, o):
        x = from_jagged(v, o)
        o[1] += 1
        return x.unbind()[0] * 2

    check(program, varied(lambda i: parts(2 * (i % 2), 4), 6), captures=6, hits=0)


CHANGES = {
    "argument": lambda x: x.mul_(3),
    "values": lambda x: x.values().mul_(3) + 1,
    "sequence": lambda x: x.unbind()[0].mul_(3) + 1,
    "detached": lambda x: x.detach().mul_(3),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_jagged_argument_that_is_changed(name):
    check(CHANGES[name], varied(of(4), 6), captures=6, hits=0)


def test_what_a_tensor_is_made_of_is_changed_through_it():
    def program(v, o):
        x = from_jagged(v, o)
        y = x * 2
        x.add_(1)
        return v * 2, x, y

    check(program, varied(lambda i: parts(i, 4), 12))


# ---------------------------------------------------------------- where one is kept


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.held = nested(1, 4)

    def forward(self, x):
        return (self.held * x).values()


def test_one_that_a_module_holds_is_read_in_each_call():
    model = Holder()
    compiled = magpy.compile(model, backend="eager")
    for i in range(10):
        if i == 4:
            model.held._values.mul_(2)
        if i == 7:
            model.held = nested(3, 4)
        x = torch.tensor(i + 0.5)
        assert_same(compiled(x), model(x))
    assert magpy.stats(compiled).hits >= 7


def test_those_in_containers():
    def program(d):
        return [(t * 2).values().sum() + t.size(0) for t in d["a"]]

    check(program, varied(lambda i: ({"a": [nested(i, 4), nested(i + 1, 4)]},), 10), captures=1)


def test_an_attribute_of_the_program_is_refused_or_kept():
    def program(x):
        x.seen = 1
        y = x * 2
        y.made = 2
        return y

    compiled = magpy.compile(program, backend="eager")
    for i in range(4):
        x = nested(i, 4)
        assert compiled(x).made == 2 and x.seen == 1


class Own(jagged.NestedTensor):
    """A subclass: nobody knows what it is like."""


def test_one_of_another_class_runs_eagerly():
    def program(x):
        return (x * 2).values()

    compiled = magpy.compile(program, backend="eager")
    for i in range(3):
        x = Own(*parts(i, 4))
        assert_same(compiled(x), program(x))
    assert magpy.stats(compiled).hits == 0


# ---------------------------------------------------------------- forms that follow from sizes

FORMS = [((3, 4), (2, 4)), ((3, 4), (3, 5)), ((3, 5), (3, 5)), ((4, 5), (4, 3)), ((5, 4), (2, 4))]


def of_form(i):
    a, b = FORMS[i % len(FORMS)]
    return torch.arange(float(a[0] * a[1])).reshape(a), torch.ones(b)


@pytest.mark.parametrize("backend", BACKENDS)
def test_which_dimension_is_ragged_follows_from_sizes(backend):
    def program(a, b):
        x = torch.nested.nested_tensor([a, b], layout=JAGGED)
        return x.dim(), (x * 2).values() * (3 if type(x.size(1)) is int else 5), x

    check(program, varied(of_form, 20), captures=12, backend=backend, hits=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_whether_there_are_lengths_follows_from_data(backend):
    def program(x, start, length):
        y = torch.nested.narrow(x, 1, start, length, layout=JAGGED)
        return y * 2 if y.lengths() is None else y.lengths() * 3

    def make(i):
        x = torch.arange(60.0).reshape(3, 5, 4)
        if i % 3:
            return x, torch.tensor([0, 1, 2]), torch.tensor([2, 1, 1 + i % 3])
        return x, torch.tensor([0, 0, 0]), torch.tensor([5, 5, 5])

    check(program, varied(make, 12), captures=4, backend=backend, hits=6)
